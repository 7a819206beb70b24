"""Running sums and products along an axis: cumsum and cumprod."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd import Function
from alpha.numerics import is_floating
from alpha.ops.arguments import AnyTensor, check_arguments
from alpha.ops.axes import axis_of
from alpha.ops.dtypes import BLOCK, CUDA_TYPES, as_dtype, as_float32
from alpha.ops.fold import around
from alpha.primitive import Array, primitive
from alpha.tensor import Tensor
from alpha.tensor_operators import DTypeLike

__all__ = ["cumprod", "cumsum"]

Sizes = tuple[int, int, int]


@primitive
def running_sum(X: Array, reverse: bool) -> Array:
    """Y[a, r, b] = sum of X[a, s, b] over s <= r, or s >= r   X (A, R, B) of floats or int64 -> Y (A, R, B)"""


@primitive
def running_product(X: Array) -> Array:
    """Y[a, r, b] = product of X[a, s, b] over s <= r   X (A, R, B) of floats or int64 -> Y (A, R, B)"""


@primitive
def running_product_gradient(dY: Array, X: Array, Y: Array) -> Array:
    """The gradient of X. No product is divided, so X may be 0   dY, X, Y (A, R, B) of floats -> dX (A, R, B)

    dX_r = Y_(r-1) S_r with S_r = dY_r + X_(r+1) S_(r+1), along the middle axis.
    """


# -- cpu --------------------------------------------------------------------------------------------


@running_sum.impl("cpu")
@np.errstate(all="ignore")
def _(X: Array, reverse: bool) -> Array:
    wide = as_float32(X)[:, :: -1 if reverse else 1]
    return as_dtype(
        np.ascontiguousarray(np.cumsum(wide, axis=1, dtype=wide.dtype)[:, :: -1 if reverse else 1]), X.dtype
    )


@running_product.impl("cpu")
@np.errstate(all="ignore")
def _(X: Array) -> Array:
    wide = as_float32(X)
    return as_dtype(np.cumprod(wide, axis=1, dtype=wide.dtype), X.dtype)


@running_product_gradient.impl("cpu")
@np.errstate(all="ignore")
def _(dY: Array, X: Array, Y: Array) -> Array:
    dy, x, y = as_float32(dY), as_float32(X), as_float32(Y)
    dX = dy.copy()  # S first
    for r in reversed(range(x.shape[1] - 1)):
        dX[:, r] += x[:, r + 1] * dX[:, r + 1]
    dX[:, 1:] *= y[:, :-1]
    return as_dtype(dX, X.dtype)


# -- cuda -------------------------------------------------------------------------------------------


@running_sum.impl("cuda")
def _(X: Array, reverse: bool) -> Array:
    return _scan(X, reverse, product=False)


@running_product.impl("cuda")
def _(X: Array) -> Array:
    return _scan(X, reverse=False, product=True)


def _scan(X: Array, reverse: bool, product: bool) -> Array:
    Y = X.device.empty(X.shape, X.dtype)
    A, R, B = X.shape
    flags, macros = (int(reverse), int(product)), {"TYPE": CUDA_TYPES[X.dtype]}
    if X.size and B == 1:
        X.device.launch("reduce/scan.cu", "scan_rows", A, BLOCK, (Y, X, np.int64(R), *flags), macros)
    elif X.size:
        sizes = map(np.int64, (A * B, R, B))
        X.device.launch("reduce/scan.cu", "scan_columns", -(-A * B // BLOCK), BLOCK, (Y, X, *sizes, *flags), macros)
    return Y


@running_product_gradient.impl("cuda")
def _(dY: Array, X: Array, Y: Array) -> Array:
    dX = X.device.empty(X.shape, X.dtype)
    if X.size:
        A, R, B = X.shape
        sizes, macros = map(np.int64, (A * B, R, B)), {"TYPE": CUDA_TYPES[X.dtype]}
        arrays = dX, as_dtype(dY, X.dtype), X, Y
        X.device.launch("reduce/scan.cu", "product_gradient", -(-A * B // BLOCK), BLOCK, (*arrays, *sizes), macros)
    return dX


# -- operators ----------------------------------------------------------------------------------------


class RunningSum(Function):
    """Y = the sums of all elements so far along an axis   X (...) -> Y (...)"""

    def forward(self, X: Array, *, sizes: Sizes) -> Array:
        self.sizes = sizes
        return running_sum(X.reshape(sizes), False).reshape(X.shape)

    def backward(self, dY: Array) -> Any:
        return running_sum(dY.reshape(self.sizes), True).reshape(dY.shape)


class RunningProduct(Function):
    """Y = the products of all elements so far along an axis   X (...) -> Y (...)"""

    def forward(self, X: Array, *, sizes: Sizes) -> Array:
        self.sizes = sizes
        Y = running_product(X.reshape(sizes)).reshape(X.shape)
        self.save(X, Y)
        return Y

    def backward(self, dY: Array) -> Any:
        arrays = (array.reshape(self.sizes) for array in (dY, *self.saved))
        return running_product_gradient(*arrays).reshape(dY.shape)


@check_arguments
def cumsum(x: AnyTensor, dim: int, *, dtype: DTypeLike = None) -> Tensor:
    """The sum of all elements so far along an axis   x (...) -> (...)

    Args:
        dtype: cast x to it first. Default: that of x, and int64 for integers and bools.
    """
    return _running("cumsum", RunningSum, x, dim, dtype)


@check_arguments
def cumprod(x: AnyTensor, dim: int, *, dtype: DTypeLike = None) -> Tensor:
    """The product of all elements so far along an axis   x (...) -> (...)

    Args:
        dtype: as of `cumsum`.
    """
    return _running("cumprod", RunningProduct, x, dim, dtype)


def _running(operator: str, kind: type[Function], x: Tensor, dim: int, dtype: DTypeLike) -> Tensor:
    axis = axis_of(operator, x, dim)
    wide = x if dtype is None else x.astype(dtype)
    wide = wide if is_floating(wide.dtype) else wide.astype(np.int64)
    y = kind.apply(wide, sizes=around(x.shape or (1,), axis))
    return y if dtype is None else y.astype(dtype)
