"""Pooling on NHWC arrays: max, average, adaptive average."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from alpha.autograd import Function
from alpha.errors import ShapeError
from alpha.ops.arguments import check_arguments
from alpha.ops.dtypes import BLOCK, CUDA_TYPES, as_dtype, as_float32, stream_grid, vector_width
from alpha.ops.options import Pair, integer, only_offered, pair
from alpha.ops.plan import Buffer, KernelLaunch, Named, Plan
from alpha.ops.pool_shape import PoolShape, pool_shape
from alpha.primitive import Array, primitive
from alpha.runtime import workers
from alpha.runtime.cpu import empty as cpu_empty
from alpha.tensor import Tensor

__all__ = ["adaptive_avg_pool2d", "avg_pool2d", "max_pool2d"]


@primitive
def max_pool2d_forward(X: Array, s: PoolShape) -> tuple[Array, Array]:
    """Y = max over each window, and which tap it was   X (N, IH, IW, C) -> Y, I (N, OH, OW, C), I uint8

    As in PyTorch the first of equal numbers wins, NaN is above every number, and the last NaN wins.
    """


@primitive
def max_pool2d_backward(dY: Array, I: Array, s: PoolShape) -> Array:
    """dX: each dY to the tap that was the maximum   dY, I (N, OH, OW, C) -> dX (N, IH, IW, C)"""


@primitive
def avg_pool2d_forward(X: Array, s: PoolShape) -> Array:
    """Y = mean over each window   X (N, IH, IW, C) -> Y (N, OH, OW, C)"""


@primitive
def avg_pool2d_backward(dY: Array, s: PoolShape) -> Array:
    """dX: each dY over its window's divisor   dY (N, OH, OW, C) -> dX (N, IH, IW, C)"""


def _over_images(N: int, body: Any) -> None:
    workers.parallel_for(N, max(1, -(-N // (4 * workers.count()))), body)


def _tap(s: PoolShape, fh: int, fw: int) -> tuple[slice, slice, slice, slice] | None:
    """(oh, ow, ih, iw) slices of the outputs whose tap (fh, fw) meets the input."""
    h_s, w_s = max(0, -((fh - s.ph) // s.sh)), max(0, -((fw - s.pw) // s.sw))
    h_e = min(s.OH, -(-(s.IH - fh + s.ph) // s.sh))
    w_e = min(s.OW, -(-(s.IW - fw + s.pw) // s.sw))
    if h_s >= h_e or w_s >= w_e:
        return None
    ih, iw = h_s * s.sh + fh - s.ph, w_s * s.sw + fw - s.pw
    rows = slice(ih, ih + (h_e - h_s - 1) * s.sh + 1, s.sh)
    return slice(h_s, h_e), slice(w_s, w_e), rows, slice(iw, iw + (w_e - w_s - 1) * s.sw + 1, s.sw)


def _taps(s: PoolShape) -> Iterator[tuple[int, tuple[slice, slice, slice, slice]]]:
    """(number, slices) of the taps that meet the input anywhere, in order."""
    for tap in range(s.FH * s.FW):
        slices = _tap(s, *divmod(tap, s.FW))
        if slices is not None:
            yield tap, slices


def _select(mask: Array, values: Array) -> Array:
    """The values where the mask is true, else 0; by their bits, since a product of inf and 0 is NaN."""
    bits = np.dtype(f"i{values.itemsize}")
    kept = np.negative(mask.view(np.int8)).astype(bits)
    kept &= values.view(bits)
    return kept.view(values.dtype)


@max_pool2d_forward.impl("cpu")
def _(X: Array, s: PoolShape) -> tuple[Array, Array]:
    dtype, X = X.dtype, as_float32(X)
    Y = cpu_empty((s.N, s.OH, s.OW, s.C), X.dtype)
    I = cpu_empty(Y.shape, np.uint8)
    taps, first = list(_taps(s)), s.first_taps()[:, :, None]

    def images(start: int, stop: int) -> None:
        x, y, index = X[start:stop], Y[start:stop], I[start:stop]
        y.fill(-np.inf)
        index[...] = first
        for tap, (oh, ow, ih, iw) in taps:
            best, value = y[:, oh, ow], x[:, ih, iw]
            np.copyto(index[:, oh, ow], np.uint8(tap), where=value > best)
            np.maximum(best, value, out=best)  # NaN wins
        if np.isnan(y.max()):
            for tap, (oh, ow, ih, iw) in taps:
                np.copyto(index[:, oh, ow], np.uint8(tap), where=np.isnan(x[:, ih, iw]))

    _over_images(s.N, images)
    return as_dtype(Y, dtype), I


@max_pool2d_backward.impl("cpu")
def _(dY: Array, I: Array, s: PoolShape) -> Array:
    dtype, dY = dY.dtype, as_float32(dY)
    dX = cpu_empty((s.N, s.IH, s.IW, s.C), dY.dtype)
    taps = list(_taps(s))

    def images(start: int, stop: int) -> None:
        dx, dy, index = dX[start:stop], dY[start:stop], I[start:stop]
        dx.fill(0)
        for tap, (oh, ow, ih, iw) in taps:
            dx[:, ih, iw] += _select(index[:, oh, ow] == tap, dy[:, oh, ow])

    _over_images(s.N, images)
    return as_dtype(dX, dtype)


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

    _over_images(s.N, images)
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

    _over_images(s.N, images)
    return as_dtype(dX, dtype)


@functools.lru_cache(maxsize=4096)
def _plan(kind: str, way: str, s: PoolShape, dtype: np.dtype[Any], vector: int) -> Plan:
    """One kernel: forward X -> Y, I; backward dY, I -> dX. An average has no indices I of the largest."""
    whole, pooled = (s.N, s.IH, s.IW, s.C), (s.N, s.OH, s.OW, s.C)
    result = Buffer(pooled if way == "forward" else whole, dtype)
    names: tuple[str, ...] = ("Y", "I", "X") if way == "forward" else ("dX", "dY", "I")
    outputs = {names[0]: result}
    if kind == "avg_pool2d":
        names = tuple([name for name in names if name != "I"])
    elif way == "forward":
        outputs["I"] = Buffer(pooled, np.dtype(np.uint8))
    launch = KernelLaunch(
        f"pool2d/{kind}.cu",
        f"{kind}_{way}",
        -(-result.size // (BLOCK * vector)),
        BLOCK,
        (*map(Named, names), s.N, s.IH, s.IW, s.C, s.OH, s.OW),
        {
            "TYPE": CUDA_TYPES[dtype],
            "VECTOR": vector,
            "INDEX": stream_grid(result.size, vector)[1]["INDEX"],
            **s.macros(),
        },
    )
    return Plan(f"{kind}_{way}", (launch,), outputs)


@max_pool2d_forward.impl("cuda")
def _(X: Array, s: PoolShape) -> tuple[Array, Array]:
    found = _plan("max_pool2d", "forward", s, X.dtype, vector_width(X, along=s.C)).launch(X.device, {"X": X})
    return found["Y"], found["I"]


@max_pool2d_backward.impl("cuda")
def _(dY: Array, I: Array, s: PoolShape) -> Array:
    plan = _plan("max_pool2d", "backward", s, dY.dtype, vector_width(dY, I, along=s.C))
    return plan.launch(dY.device, {"dY": dY, "I": I})["dX"]


@avg_pool2d_forward.impl("cuda")
def _(X: Array, s: PoolShape) -> Array:
    return _plan("avg_pool2d", "forward", s, X.dtype, vector_width(X, along=s.C)).launch(X.device, {"X": X})["Y"]


@avg_pool2d_backward.impl("cuda")
def _(dY: Array, s: PoolShape) -> Array:
    plan = _plan("avg_pool2d", "backward", s, dY.dtype, vector_width(dY, along=s.C))
    return plan.launch(dY.device, {"dY": dY})["dX"]


class MaxPool2d(Function):
    """Y = max over windows   X (N, IH, IW, C) -> Y (N, OH, OW, C)"""

    def forward(self, X: Array, *, shape: PoolShape) -> Array:
        self.s = shape
        Y, index = max_pool2d_forward(X, shape)
        self.save(index)
        return Y

    def backward(self, dY: Array) -> Any:
        return max_pool2d_backward(dY, self.saved[0], self.s)


class AvgPool2d(Function):
    """Y = mean over windows   X (N, IH, IW, C) -> Y (N, OH, OW, C)"""

    def forward(self, X: Array, *, shape: PoolShape) -> Array:
        self.s = shape
        return avg_pool2d_forward(X, shape)

    def backward(self, dY: Array) -> Any:
        return avg_pool2d_backward(dY, self.s)


@check_arguments
def max_pool2d(
    x: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """Maximum over windows; the stride is the window's size by default.

    x (N, IH, IW, C) -> (N, OH, OW, C) with OH = (IH + 2 ph - FH) // sh + 1

    Args:
        dilation: only 1 is offered.
        ceil_mode: round OH and OW up, so that the last windows may reach over the border.
        return_indices: only False is offered.

    Raises:
        ShapeError: an empty output, padding above half the window, or more than 256 taps (the index is a byte).
        TypeError: x is not a Tensor of floating numbers, or a size is not an integer.
        ValueError: an argument has a value that is not offered.
    """
    only_offered("max_pool2d", dilation=(dilation, 1), return_indices=(return_indices, False))
    s = pool_shape("max_pool2d", x, kernel_size, stride, padding, ceil_mode)
    if s.FH * s.FW > 256:
        raise ShapeError(f"max_pool2d: a window of {s.FH} x {s.FW} has more than 256 taps")
    return MaxPool2d.apply(x, shape=s)


@check_arguments
def avg_pool2d(
    x: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Mean over windows; the stride is the window's size by default.

    x (N, IH, IW, C) -> (N, OH, OW, C) with OH = (IH + 2 ph - FH) // sh + 1

    Args:
        ceil_mode: round OH and OW up, so that the last windows may reach over the border.
        count_include_pad: divide by the window with its padding, else by the taps inside.
        divisor_override: divide by this number, which is not 0, instead.

    Raises:
        ShapeError: an empty output, or padding above half the window.
        TypeError: x is not a Tensor of floating numbers, or a size is not an integer.
        ValueError: divisor_override is 0 or does not fit int32.
    """
    divisor = 0
    if divisor_override is not None:
        divisor = integer("avg_pool2d", "divisor_override", divisor_override)
        if divisor == 0 or abs(divisor) >= 2**31:
            raise ValueError(
                f"avg_pool2d: divisor_override={divisor} is 0 or does not fit int32; None means the size of the window"
            )
    s = pool_shape(
        "avg_pool2d", x, kernel_size, stride, padding, ceil_mode, count_padding=bool(count_include_pad), divisor=divisor
    )
    return AvgPool2d.apply(x, shape=s)


@check_arguments
def adaptive_avg_pool2d(x: Tensor, output_size: int | tuple[int | None, int | None] | None) -> Tensor:
    """Mean over windows that cut the map into output_size   x (N, IH, IW, C) -> (N, OH, OW, C)

    Args:
        output_size: (OH, OW), or one number for both; None means the size of x along that axis.

    Raises:
        ShapeError: x has not four axes, or the output would be empty.
        TypeError: x is not a Tensor of floating numbers, or output_size is not made of integers.
    """
    name = "adaptive_avg_pool2d"
    wanted: Any = output_size if isinstance(output_size, (tuple, list)) else (output_size, output_size)
    if x.ndim == 4 and len(wanted) == 2:
        wanted = tuple(n if o is None else o for o, n in zip(wanted, x.shape[1:3], strict=True))
    OH, OW = pair(name, "output_size", wanted)
    if x.ndim != 4 or min(OH, OW, *x.shape) < 1:
        raise ShapeError(
            f"{name}: x (N, H, W, C) and a positive output_size are needed  (x {x.shape}, output_size ({OH}, {OW}))"
        )
    N, IH, IW, C = x.shape
    s = PoolShape(N, IH, IW, C, 1, 1, 1, 1, 0, 0, OH, OW, adaptive=True)
    return AvgPool2d.apply(x, shape=s)
