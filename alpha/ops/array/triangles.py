"""Triangles of matrices, and the places of their elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.primitive import Array, primitive
from alpha.core.tensor import Tensor, as_dtype
from alpha.errors import ShapeError
from alpha.ops.array.creation import device_of
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.casts import BLOCK, CUDA_TYPES
from alpha.ops.kernel.in_place import in_place, overwrite
from alpha.ops.kernel.options import integer

__all__ = ["tril", "triu"]

FAR = 2**62


@primitive
def keep_band(X: Array, low: int, high: int) -> Array:
    """Y_ij = X_ij if low <= j - i <= high, else 0   X (..., M, N) -> Y (..., M, N)"""


@keep_band.impl("cpu")
def _(X: Array, low: int, high: int) -> Array:
    M, N = X.shape[-2:]
    distance = np.arange(N) - np.arange(M)[:, None]
    Y: Array = np.where((distance >= low) & (distance <= high), X, X.dtype.type(0))
    return Y


@keep_band.impl("cuda")
def _(X: Array, low: int, high: int) -> Array:
    Y = X.device.empty(X.shape, X.dtype)
    if X.size:
        sizes = map(np.int64, (X.size, *X.shape[-2:], low, high))
        macros = {"TYPE": CUDA_TYPES[X.dtype]}
        X.device.launch("creation/range.cu", "band", -(-X.size // BLOCK), BLOCK, (Y, X, *sizes), macros)
    return Y


class Band(Function):
    """Some diagonals of matrices, zeros elsewhere   X (..., M, N) -> Y (..., M, N)"""

    def forward(self, X: Array, *, low: int, high: int) -> Array:
        self.band = low, high
        Y = keep_band(X, low, high)
        return overwrite(X, Y) if self.inplace else Y

    def backward(self, dY: Array) -> Any:
        return keep_band(dY, *self.band)


_BANDS = {name: in_place(Band, name) for name in ("tril_", "triu_")}


@check_arguments
def tril(x: AnyTensor, diagonal: int = 0) -> Tensor:
    """Matrices without what is above a diagonal, counted from the main one   x (..., M, N) -> (..., M, N)"""
    return _triangle("tril", x, -FAR, integer("tril", "diagonal", diagonal))


@check_arguments
def triu(x: AnyTensor, diagonal: int = 0) -> Tensor:
    """Matrices without what is below a diagonal, counted from the main one   x (..., M, N) -> (..., M, N)"""
    return _triangle("triu", x, integer("triu", "diagonal", diagonal), FAR)


def _triangle(operator: str, x: Tensor, low: int, high: int) -> Tensor:
    if x.ndim < 2:
        raise ShapeError(f"{operator}: a matrix (..., M, N) is needed, not shape {x.shape}")
    return _BANDS.get(operator, Band).apply(x, low=low, high=high)


def tril_(x: Tensor, diagonal: int = 0) -> Tensor:
    """`tril` written into x."""
    return _triangle("tril_", x, -FAR, integer("tril_", "diagonal", diagonal))


def triu_(x: Tensor, diagonal: int = 0) -> Tensor:
    """`triu` written into x."""
    return _triangle("triu_", x, integer("triu_", "diagonal", diagonal), FAR)


def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = np.int64, device: Any = None) -> Tensor:
    """The places of the elements of a matrix on and below a diagonal, row by row   -> (2, count)

    Args:
        row, col: the lengths of the matrix.
        offset: the diagonal: 0 is the main one, 1 the one above it, -1 the one below it.
    """
    return _places("tril_indices", (row, col, offset), dtype, device)


def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = np.int64, device: Any = None) -> Tensor:
    """The places of the elements of a matrix on and above a diagonal, row by row   -> (2, count)

    Args:
        row, col, offset: as of `tril_indices`.
    """
    return _places("triu_indices", (row, col, offset), dtype, device)


def _places(operator: str, sizes: tuple[int, int, int], dtype: Any, device: Any) -> Tensor:
    M, N = integer(operator, "row", sizes[0], 0), integer(operator, "col", sizes[1], 0)
    find = np.tril_indices if operator == "tril_indices" else np.triu_indices
    kind = as_dtype(dtype)
    if kind.kind != "i":
        raise TypeError(f"{operator}: dtype={kind.name} is not int64 or int32")
    places = np.stack(find(M, integer(operator, "offset", sizes[2]), N))
    return Tensor(device_of(device).upload(np.ascontiguousarray(places, kind)))
