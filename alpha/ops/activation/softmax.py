"""Softmax along an axis, its logarithm, and softmin, by one kernel forward and one backward; and logsumexp.

Rows of neighbours have kernels of their own, which read each element once."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.host_values import Axes, DTypeLike
from alpha.core.primitive import Array, primitive
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Module
from alpha.ops.array.axes import axis_of
from alpha.ops.array.layout import view as reshaped
from alpha.ops.kernel import sums as reduce
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.casts import BLOCK, CUDA_TYPES, DType, as_dtype, as_float32, require_floating, vector_width
from alpha.ops.kernel.common_dtype import as_floating
from alpha.ops.kernel.function_layer import FunctionLayer, function_layer
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan
from alpha.ops.kernel.rows.reductions import around
from alpha.ops.kernel.rows.row_tile import row_tile
from alpha.ops.kernel.sums import axes_of
from alpha.ops.reduction.extremes import amax

__all__ = ["LogSoftmax", "Softmax", "Softmax2d", "Softmin", "log_softmax", "logsumexp", "softmax", "softmin"]


@primitive
def softmax_axis1(X: Array, logarithm: bool) -> Array:
    """Y = exp(X) / sum of exp(X) over the middle axis, or the logarithm of it   X (A, R, B) -> Y (A, R, B)"""


@primitive
def softmax_gradient_axis1(dY: Array, Y: Array, logarithm: bool) -> Array:
    """dX = Y (dY - sum of dY Y), or with `logarithm` dY - exp(Y) sum of dY   dY, Y (A, R, B) -> dX (A, R, B)"""


@softmax_axis1.impl("cpu")
@np.errstate(all="ignore")
def _(X: Array, logarithm: bool) -> Array:
    if not X.size:
        return np.empty_like(X)
    x: Array = as_float32(X)
    Y = x - x.max(axis=1, keepdims=True)
    sums = np.exp(Y).sum(axis=1, keepdims=True)
    if logarithm:
        Y -= np.log(sums)
    else:
        np.exp(Y, out=Y)
        Y /= sums
    return as_dtype(Y, X.dtype)


@softmax_gradient_axis1.impl("cpu")
@np.errstate(all="ignore")
def _(dY: Array, Y: Array, logarithm: bool) -> Array:
    dy, y = as_float32(dY), as_float32(Y)
    if logarithm:
        dX = dy - np.exp(y) * dy.sum(axis=1, keepdims=True)
    else:
        dX = y * (dy - (dy * y).sum(axis=1, keepdims=True))
    return as_dtype(dX, Y.dtype)


@softmax_axis1.impl("cuda")
def _(X: Array, logarithm: bool) -> Array:
    if not X.size:
        return X.device.empty(X.shape, X.dtype)
    vector = vector_width(X, along=X.shape[1])
    return _plan("softmax", ("Y", "X"), X.shape, X.dtype, vector, logarithm).launch(X.device, {"X": X})["Y"]


@softmax_gradient_axis1.impl("cuda")
def _(dY: Array, Y: Array, logarithm: bool) -> Array:
    if not Y.size:
        return Y.device.empty(Y.shape, Y.dtype)
    dY = as_dtype(dY, Y.dtype)
    vector = vector_width(dY, Y, along=Y.shape[1])
    plan = _plan("softmax_gradient", ("dX", "dY", "Y"), Y.shape, Y.dtype, vector, logarithm)
    return plan.launch(Y.device, {"dY": dY, "Y": Y})["dX"]


@functools.lru_cache(maxsize=4096)
def _plan(
    entry: str, names: tuple[str, ...], shape: tuple[int, int, int], dtype: DType, vector: int, logarithm: bool
) -> Plan:
    """The kernel that keeps rows in registers if the lines are rows that fit, otherwise the one for any line."""
    A, R, B = shape
    tile = row_tile(R, vector, dtype.itemsize, 32 // (len(names) - 1)) if B == 1 else None
    if tile is None:
        launch = _launch_lines(entry, names, shape, dtype, logarithm)
    else:
        launch = KernelLaunch(
            "softmax/rows.cu",
            entry.replace("softmax", "softmax_rows"),
            tile.blocks(A),
            BLOCK,
            (*map(ArrayArg, names), np.int64(A), R, int(logarithm)),
            {"TYPE": CUDA_TYPES[dtype], **tile.macros},
        )
    return Plan(entry, (launch,), {names[0]: Buffer(shape, dtype)})


def _launch_lines(
    entry: str, names: tuple[str, ...], shape: tuple[int, int, int], dtype: DType, logarithm: bool
) -> KernelLaunch:
    A, R, B = shape
    lanes = 1  # a lane takes about four elements; lines that are no rows are read together
    while lanes < (BLOCK if B == 1 else BLOCK // 8) and 4 * lanes < R:
        lanes *= 2
    lines = BLOCK // lanes
    return KernelLaunch(
        "softmax/softmax.cu",
        entry,
        -(-(A * B) // lines),
        BLOCK,
        (*map(ArrayArg, names), np.int64(A), np.int64(R), np.int64(B), lines, int(logarithm)),
        {"TYPE": CUDA_TYPES[dtype]},
    )


class SoftmaxStep(Function):
    """Softmax along an axis, or its logarithm   X (...) -> Y (...)"""

    def forward(self, X: Array, *, axis: int, logarithm: bool) -> Array:
        self.sizes, self.logarithm = around(tuple(X.shape) or (1,), axis), logarithm
        Y = softmax_axis1(X.reshape(self.sizes), logarithm).reshape(tuple(X.shape))
        self.save(Y)
        return Y

    def backward(self, dY: Array) -> Any:
        (Y,) = self.saved
        dX = softmax_gradient_axis1(dY.reshape(self.sizes), Y.reshape(self.sizes), self.logarithm)
        return dX.reshape(tuple(Y.shape))


class LogSumExp(Function):
    """Y = log(sum of exp(X)) over axes, which stay as length 1   X (...) -> Y (...)"""

    def forward(self, X: Array, *, axes: tuple[int, ...]) -> Array:
        x = Tensor(X)
        largest = amax(x, axes, keepdim=True) if axes else x
        largest = largest.masked_fill(largest.abs() == math.inf, 0)  # inf - inf is NaN
        Y = (reduce.sum((x - largest).exp(), axes, keepdim=True).log() + largest).array
        self.save(X, Y)
        return Y

    def backward(self, dY: Array) -> Any:
        x, y = map(Tensor, self.saved)
        return ((x - y).exp() * Tensor(dY)).array


def _softmax(operator: str, x: Tensor, dim: int | None, dtype: DTypeLike, logarithm: bool) -> Tensor:
    if dtype is not None:
        x = x.astype(dtype)
    require_floating(operator, x.dtype)
    if dim is None:  # PyTorch's rule, of which it warns
        dim = 0 if x.ndim in (0, 1, 3) else 1
    return SoftmaxStep.apply(x, axis=axis_of(operator, x, dim), logarithm=logarithm)


@check_arguments
def softmax(x: AnyTensor, dim: int | None = None, *, dtype: DTypeLike = None) -> Tensor:
    """Y = exp(X) / sum of exp(X) along an axis   x (...) -> (...)

    Args:
        dim: the axis, for class scores -1. Better given: None is 0 for tensors of 0, 1 or 3 axes, otherwise 1.
        dtype: cast x to it first.

    Examples:
        >>> import alpha
        >>> alpha.softmax(alpha.zeros(4), dim=-1).tolist()
        [0.25, 0.25, 0.25, 0.25]
    """
    return _softmax("softmax", x, dim, dtype, False)


@check_arguments
def log_softmax(x: AnyTensor, dim: int | None = None, *, dtype: DTypeLike = None) -> Tensor:
    """Y = X - log(sum of exp(X)) along an axis   x (...) -> (...)

    Args:
        dim, dtype: as of `softmax`.
    """
    return _softmax("log_softmax", x, dim, dtype, True)


@check_arguments
def softmin(x: AnyTensor, dim: int | None = None, *, dtype: DTypeLike = None) -> Tensor:
    """Y = exp(-X) / sum of exp(-X) along an axis   x (...) -> (...)

    Args:
        dim, dtype: as of `softmax`.
    """
    require_floating("softmin", x.dtype)  # PyTorch negates integers before it casts them, and -1 of uint8 is 255
    return _softmax("softmin", -x, dim, dtype, False)


@check_arguments
def logsumexp(x: AnyTensor, dim: Axes, keepdim: bool = False) -> Tensor:
    """log(sum of exp(X)) over axes, without overflow   x (...) -> the other axes, or 1 in place of each with keepdim"""
    x = as_floating(x)
    axes = axes_of("logsumexp", x, dim)
    if not x.size:
        return reduce.sum(x, axes, keepdim).log()  # of no numbers: -inf
    y = LogSumExp.apply(x, axes=axes)
    return y if keepdim else reshaped(y, tuple([n for i, n in enumerate(x.shape) if i not in axes]))


@function_layer(softmax)
class Softmax(FunctionLayer):
    """Y = exp(X) / sum of exp(X) along the axis dim   (...) -> (...)"""

    dim: int | None = None


@function_layer(log_softmax)
class LogSoftmax(FunctionLayer):
    """Y = X - log(sum of exp(X)) along the axis dim   (...) -> (...)"""

    dim: int | None = None


@function_layer(softmin)
class Softmin(FunctionLayer):
    """Y = exp(-X) / sum of exp(-X) along the axis dim   (...) -> (...)"""

    dim: int | None = None


class Softmax2d(Module):
    """Softmax over the channels of each pixel, the last axis   (N, H, W, C) or (H, W, C) -> the same"""

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: x (N, H, W, C) or (H, W, C) is needed  (x {x.shape})")
        return softmax(x, -1)
