"""Extremes, and logarithms of sums of exponentials, of all elements so far along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.autograd.versions import array_of
from alpha.core.primitive import Array, primitive
from alpha.core.results import Extremes
from alpha.core.tensor import Tensor
from alpha.ops.array.axes import axis_of
from alpha.ops.indexing.gather_scatter import gather
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.casts import BLOCK, CUDA_TYPES, as_dtype, as_float32
from alpha.ops.kernel.common_dtype import INT64
from alpha.ops.kernel.rows.reductions import around
from alpha.ops.reduction.scan import Sizes

__all__ = ["cummax", "cummin", "logcumsumexp"]


@primitive
def running_extreme(X: Array, largest: bool) -> Array:
    """I[a, r, b] = the last s <= r at which X[a, s, b] is the largest, or smallest, so far; NaN is an extreme

    X (A, R, B) -> I (A, R, B) of int64
    """


@primitive
def running_log_sum(X: Array) -> Array:
    """Y[a, r, b] = log of the sum of exp(X[a, s, b]) over s <= r   X (A, R, B) of floats -> Y (A, R, B)"""


@primitive
def running_log_sum_gradient(dY: Array, X: Array, Y: Array) -> Array:
    """The gradient of X, without a quotient of small numbers   dY, X, Y (A, R, B) of floats -> dX (A, R, B)

    dX_r = exp(X_r - Y_r) S_r with S_r = dY_r + exp(Y_r - Y_(r+1)) S_(r+1), along the middle axis.
    """


@running_extreme.impl("cpu")
def _(X: Array, largest: bool) -> Array:
    x = as_float32(X)
    found = (np.maximum if largest else np.minimum).accumulate(x, axis=1)
    rows = np.arange(x.shape[1])[:, None]
    return np.maximum.accumulate(np.where((x == found) | (x != x), rows, 0), axis=1)


@running_log_sum.impl("cpu")
@np.errstate(all="ignore")
def _(X: Array) -> Array:
    return as_dtype(np.logaddexp.accumulate(X.astype(np.float64), axis=1), X.dtype)


def _decay(below: Array, above: Array) -> Array:
    """exp(below - above), also of infinite numbers that are equal"""
    return np.where(below == above, 1, np.exp(below - above)).astype(below.dtype)


@running_log_sum_gradient.impl("cpu")
@np.errstate(all="ignore")
def _(dY: Array, X: Array, Y: Array) -> Array:
    x, y = as_float32(X), as_float32(Y)
    dX = as_float32(dY).copy()  # S first
    for r in reversed(range(x.shape[1] - 1)):
        dX[:, r] += _decay(y[:, r], y[:, r + 1]) * dX[:, r + 1]
    return as_dtype(_decay(x, y) * dX, X.dtype)


@running_extreme.impl("cuda")
def _(X: Array, largest: bool) -> Array:
    at = X.device.empty(X.shape, INT64)
    _launch("running_extreme", "running_extreme", X, (at, X), int(largest))
    return at


@running_log_sum.impl("cuda")
def _(X: Array) -> Array:
    Y = X.device.empty(X.shape, X.dtype)
    _launch("running_log_sum", "log_sum", X, (Y, X))
    return Y


@running_log_sum_gradient.impl("cuda")
def _(dY: Array, X: Array, Y: Array) -> Array:
    dX = X.device.empty(X.shape, X.dtype)
    _launch("running_log_sum", "log_sum_gradient", X, (dX, as_dtype(dY, X.dtype), X, Y))
    return dX


def _launch(source: str, entry: str, X: Array, arrays: tuple[Array, ...], *numbers: int) -> None:
    if X.size:
        A, R, B = X.shape
        sizes, macros = map(np.int64, (A * B, R, B)), {"TYPE": CUDA_TYPES[X.dtype]}
        arguments = (*arrays, *sizes, *numbers)
        X.device.launch(f"reduce/{source}.cu", entry, -(-A * B // BLOCK), BLOCK, arguments, macros)


class RunningLogSum(Function):
    """Y = log of the sum of the exponentials of all elements so far along an axis   X (...) -> Y (...)"""

    def forward(self, X: Array, *, sizes: Sizes) -> Array:
        self.sizes = sizes
        Y = running_log_sum(X.reshape(sizes)).reshape(X.shape)
        self.save(X, Y)
        return Y

    def backward(self, dY: Array) -> Any:
        arrays = (array.reshape(self.sizes) for array in (dY, *self.saved))
        return running_log_sum_gradient(*arrays).reshape(dY.shape)


def _extremes(operator: str, x: Tensor, dim: int, largest: bool) -> Extremes:
    axis = axis_of(operator, x, dim)
    rows = running_extreme(array_of(x).reshape(around(x.shape or (1,), axis)), largest)
    indices = Tensor(rows.reshape(x.shape))
    return Extremes(gather(x, axis, indices), indices)


@check_arguments
def cummax(x: AnyTensor, dim: int) -> Extremes:
    """The largest of all elements so far along an axis, and the place of the last equal one; NaN is the largest

    x (...) -> values, indices (...)
    """
    return _extremes("cummax", x, dim, True)


@check_arguments
def cummin(x: AnyTensor, dim: int) -> Extremes:
    """The smallest of all elements so far along an axis, and the place of the last equal one; NaN is the smallest

    x (...) -> values, indices (...)
    """
    return _extremes("cummin", x, dim, False)


@check_arguments
def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """The logarithm of the sum of exp(x) of all elements so far along an axis, without overflow   x (...) -> (...)"""
    return RunningLogSum.apply(x, sizes=around(x.shape or (1,), axis_of("logcumsumexp", x, dim)))
