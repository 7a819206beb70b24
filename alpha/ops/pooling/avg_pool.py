"""Means over windows of NWC, NHWC and NDHWC arrays."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.autograd.tracing import traced_whole
from alpha.core.primitive import Array, primitive
from alpha.core.tensor import Tensor
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.kernel.casts import as_dtype, as_float32, vector_width
from alpha.ops.kernel.options import Lengths, integer
from alpha.ops.kernel.plan import ArrayArg, Buffer, Plan
from alpha.ops.pooling.pool_shape import Pooling, PoolShape, Windows, over_images, pool_launch, pooling
from alpha.runtime.cpu import empty as cpu_empty

__all__ = ["avg_pool1d", "avg_pool2d", "avg_pool3d"]


@primitive
def avg_pool2d_forward(X: Array, s: PoolShape) -> Array:
    """Y = mean over each window   X (N, IH, IW, C) -> Y (N, OH, OW, C)"""


@primitive
def avg_pool2d_backward(dY: Array, s: PoolShape) -> Array:
    """dX: each dY over its window's divisor   dY (N, OH, OW, C) -> dX (N, IH, IW, C)"""


# -- cpu --------------------------------------------------------------------------------------------


@avg_pool2d_forward.impl("cpu")
def _(X: Array, s: PoolShape) -> Array:
    dtype, X = X.dtype, as_float32(X)
    Y = cpu_empty((s.N, s.OH, s.OW, s.C), X.dtype)

    def images(start: int, stop: int) -> None:
        x, y = X[start:stop], Y[start:stop]
        for oh in range(s.OH):
            for ow in range(s.OW):
                h_s, h_e, w_s, w_e, divisor = s.window(oh, ow)
                np.sum(x[:, h_s:h_e, w_s:w_e], axis=(1, 2), out=y[:, oh, ow])
                y[:, oh, ow] *= X.dtype.type(1.0 / divisor)

    over_images(s.N, images)
    return as_dtype(Y, dtype)


@avg_pool2d_backward.impl("cpu")
def _(dY: Array, s: PoolShape) -> Array:
    dtype, dY = dY.dtype, as_float32(dY)
    dX = cpu_empty((s.N, s.IH, s.IW, s.C), dY.dtype)

    def images(start: int, stop: int) -> None:
        dx, dy = dX[start:stop], dY[start:stop]
        dx.fill(0)
        for oh in range(s.OH):
            for ow in range(s.OW):
                h_s, h_e, w_s, w_e, divisor = s.window(oh, ow)
                share = dy[:, oh, ow] * dY.dtype.type(1.0 / divisor)
                dx[:, h_s:h_e, w_s:w_e] += share[:, None, None]

    over_images(s.N, images)
    return as_dtype(dX, dtype)


# -- cuda -------------------------------------------------------------------------------------------


@avg_pool2d_forward.impl("cuda")
def _(X: Array, s: PoolShape) -> Array:
    return _plan("forward", s, X.dtype, vector_width(X, along=s.C)).launch(X.device, {"X": X})["Y"]


@avg_pool2d_backward.impl("cuda")
def _(dY: Array, s: PoolShape) -> Array:
    return _plan("backward", s, dY.dtype, vector_width(dY, along=s.C)).launch(dY.device, {"dY": dY})["dX"]


@functools.lru_cache(maxsize=4096)
def _plan(way: str, s: PoolShape, dtype: np.dtype[Any], vector: int) -> Plan:
    """One kernel: forward X -> Y, backward dY -> dX"""
    made, given = ("Y", "X") if way == "forward" else ("dX", "dY")
    result = Buffer((s.N, s.OH, s.OW, s.C) if way == "forward" else (s.N, s.IH, s.IW, s.C), dtype)
    macros = {"VECTOR": vector, "COUNT_PADDING": int(s.count_padding), "DIVISOR": s.divisor}
    launch = pool_launch("avg_pool2d", way, s, (ArrayArg(made), ArrayArg(given)), result, macros)
    return Plan(f"avg_pool2d_{way}", (launch,), {made: result})


# -- the functions ----------------------------------------------------------------------------------


class AvgPool2d(Function):
    """Y = mean over windows   X (N, IH, IW, C) -> Y (N, OH, OW, C)"""

    def forward(self, X: Array, *, shape: PoolShape) -> Array:
        self.s = shape
        return avg_pool2d_forward(X, shape)

    def backward(self, dY: Array) -> Any:
        return avg_pool2d_backward(dY, self.s)


@traced_whole
def avg_pool(x: Tensor, pools: Pooling) -> Tensor:
    """The means of a pooling operator."""
    if x.ndim == 4 and len(pools.shapes) == 1 and pools.shapes[0].N:  # the usual case, in few calls
        return AvgPool2d.apply(x, shape=pools.shapes[0])
    return pools.run(x, lambda x, s: AvgPool2d.apply(x, shape=s))


def _avg_pool(
    operator: str, rank: int, x: Tensor, windows: Windows, count_padding: bool, override: int | None = None
) -> Tensor:
    divisor = 0
    if override is not None:
        divisor = integer(operator, "divisor_override", override)
        if divisor == 0 or abs(divisor) >= 2**31:
            raise ValueError(
                f"{operator}: divisor_override={divisor} is 0 or does not fit int32; None means the size of the window"
            )
    return avg_pool(x, pooling(operator, rank, x, windows, count_padding=bool(count_padding), divisor=divisor))


@check_arguments
def avg_pool1d(
    x: Tensor,
    kernel_size: Lengths,
    stride: Lengths | None = None,
    padding: Lengths = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Mean over windows of one axis; arguments and errors as for `avg_pool2d`.

    x (N, L, C), or one sequence without N -> (N, O, C) with O = (L + 2 p - F) // s + 1
    """
    return _avg_pool("avg_pool1d", 1, x, Windows(kernel_size, stride, padding, 1, ceil_mode), count_include_pad)


@check_arguments
def avg_pool2d(
    x: Tensor,
    kernel_size: Lengths,
    stride: Lengths | None = None,
    padding: Lengths = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Mean over windows; the stride is the window's size by default.

    x (N, IH, IW, C), or one image without N -> (N, OH, OW, C) with OH = (IH + 2 ph - FH) // sh + 1

    Args:
        ceil_mode: round OH and OW up, so that the last windows may reach over the border.
        count_include_pad: divide by the window with its padding, else by the taps inside.
        divisor_override: divide by this number, which is not 0, instead.

    Raises:
        ShapeError: an empty output, or padding above half the window.
        TypeError: x is not a Tensor of floating numbers, or a size is not an integer.
        ValueError: divisor_override is 0 or does not fit int32.
    """
    windows = Windows(kernel_size, stride, padding, 1, ceil_mode)
    return _avg_pool("avg_pool2d", 2, x, windows, count_include_pad, divisor_override)


@check_arguments
def avg_pool3d(
    x: Tensor,
    kernel_size: Lengths,
    stride: Lengths | None = None,
    padding: Lengths = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Mean over windows of three axes; arguments and errors as for `avg_pool2d`.

    It is a mean over height and width, and then one over the depth, so a bfloat16 result is rounded twice.

    x (N, ID, IH, IW, C), or one volume without N -> (N, OD, OH, OW, C)
    """
    windows = Windows(kernel_size, stride, padding, 1, ceil_mode)
    return _avg_pool("avg_pool3d", 3, x, windows, count_include_pad, divisor_override)
