"""Layout operators: reshape, flatten, rows, transpose, casts, moves between devices, pixels to floats."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from alpha.autograd import Function
from alpha.errors import ShapeError
from alpha.numerics import FLOAT32, is_floating
from alpha.ops.arguments import AnyTensor, check_arguments
from alpha.ops.dtypes import cast, storage_type
from alpha.primitive import Array, primitive
from alpha.runtime import Device
from alpha.runtime.cpu import empty as cpu_empty
from alpha.tensor import Tensor

__all__ = ["flatten", "normalize_pixels", "reshape", "transpose"]


@primitive
def transpose_2d(X: Array) -> Array:
    """Y = X^T   X (M, N) -> Y (N, M)"""


@transpose_2d.impl("cpu")
def _(X: Array) -> Array:
    Y = cpu_empty(X.shape[::-1], X.dtype)
    Y[...] = X.T
    return Y


@transpose_2d.impl("cuda")
def _(X: Array) -> Array:
    M, N = X.shape
    Y = X.device.empty((N, M), X.dtype)
    if X.size:
        X.device.launch(
            "elementwise/transpose.cu",
            "transpose",
            -(-N // 32) * -(-M // 32),
            (32, 8),
            (Y, X, M, N),
            {"TYPE": storage_type(X.dtype)},
        )
    return Y


@primitive
def scatter_rows(dY: Array, start: int, length: int) -> Array:
    """dX zero but for its rows [start, start + len(dY))   dY (R, ...) -> dX (length, ...)"""


@scatter_rows.impl("cpu")
def _(dY: Array, start: int, length: int) -> Array:
    dX = cpu_empty((length, *dY.shape[1:]), dY.dtype)
    dX[:start] = 0
    dX[start + len(dY) :] = 0
    dX[start : start + len(dY)] = dY
    return dX


@scatter_rows.impl("cuda")
def _(dY: Array, start: int, length: int) -> Array:
    dX = dY.device.zeros((length, *dY.shape[1:]), dY.dtype)
    if dY.size:
        dY.device.copy_into(dX.slice_rows(start, start + dY.shape[0]), dY)
    return dX


class Reshape(Function):
    """The same memory under another shape   X (...) -> Y shape"""

    is_view = True

    def forward(self, X: Array, *, shape: tuple[int, ...]) -> Array:
        self.shape = tuple(X.shape)
        return X.reshape(shape)

    def backward(self, dY: Array) -> Any:
        return dY.reshape(self.shape)


class Rows(Function):
    """Rows [start, stop) of the leading axis, a view   X (D, ...) -> Y (stop - start, ...)"""

    is_view = True

    def forward(self, X: Array, *, start: int, stop: int) -> Array:
        self.start, self.length = start, X.shape[0]
        return X[start:stop] if isinstance(X, np.ndarray) else X.slice_rows(start, stop)

    def backward(self, dY: Array) -> Any:
        return scatter_rows(dY, self.start, self.length)


class Transpose(Function):
    """Y = X^T   X (M, N) -> Y (N, M)"""

    def forward(self, X: Array) -> Array:
        return transpose_2d(X)

    def backward(self, dY: Array) -> Any:
        return transpose_2d(dY)


class Cast(Function):
    """The values in another dtype   X (...) -> Y (...)"""

    def forward(self, X: Array, *, dtype: np.dtype[Any]) -> Array:
        self.dtype = X.dtype
        return cast(X, dtype, 1.0, 0.0)

    def backward(self, dY: Array) -> Any:
        return cast(dY, self.dtype, 1.0, 0.0) if is_floating(self.dtype) else None


class ToDevice(Function):
    """The values on another device   X (...) -> Y (...)"""

    def forward(self, X: Array, *, target: Device) -> Array:
        self.source, self.target = device_of(X), target
        return move(X, self.source, target)

    def backward(self, dY: Array) -> Any:
        return move(dY, self.target, self.source)


def device_of(X: Array) -> Device:
    return Tensor(X).device


def move(X: Array, source: Device, target: Device) -> Array:
    return target.upload(source.download(X) if source.name != "cpu" else X)


def view(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """What `reshape` returns, without a check that x is a Tensor."""
    known = math.prod(n for n in shape if n != -1)
    fits = known > 0 and x.size % known == 0 if shape.count(-1) == 1 else -1 not in shape and known == x.size
    if not fits or any(n < -1 for n in shape):
        raise ShapeError(f"reshape: {x.size} elements of shape {x.shape} do not fit {shape}")
    return Reshape.apply(x, shape=shape)


@check_arguments
def reshape(x: AnyTensor, shape: tuple[int, ...]) -> Tensor:
    """A view of the same memory, C order; one length may be -1   x (...) -> shape"""
    return view(x, shape)


@check_arguments
def flatten(x: AnyTensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The axes from start_dim to end_dim as one, a view; a 0-d tensor becomes (1,)   x (...) -> (...)"""
    rank = max(x.ndim, 1)
    start, end = (_axis("flatten", x, dim, rank) for dim in (start_dim, end_dim))
    if start > end:
        raise ShapeError(f"flatten: start_dim={start_dim} comes after end_dim={end_dim} in shape {x.shape}")
    return view(x, (*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :]))


def _axis(name: str, x: Tensor, dim: int, rank: int) -> int:
    axis = operator.index(dim)
    if not -rank <= axis < rank:
        raise ShapeError(f"{name}: {axis} is not an axis of shape {x.shape}")
    return axis % rank


def rows(x: Tensor, index: Any) -> Tensor:
    """Rows of the leading axis as a view; an integer drops the axis.

    Raises:
        TypeError: the index is of another kind: a tuple, bools, a mask, an array, None or `...`.
    """
    if not x.shape:
        raise ShapeError("a 0-d tensor has no rows")
    if isinstance(index, slice):
        start, stop, step = index.indices(x.shape[0])
        if step != 1:
            raise ShapeError(f"rows: step {step}; a view is contiguous, so the step is 1")
        return Rows.apply(x, start=start, stop=max(start, stop))
    scalar = not isinstance(index, (bool, np.bool_)) and getattr(index, "ndim", 0) == 0
    if not scalar or getattr(index, "dtype", None) == np.bool_ or not hasattr(index, "__index__"):
        raise TypeError(
            f"rows: a {type(index).__name__} is no index; only an integer x[3] or a range x[8:16] of the leading axis "
            "is (for x[i, j] write x[i][j]; for masks and steps index x.numpy())"
        )
    position = operator.index(index)
    position += x.shape[0] if position < 0 else 0
    if not 0 <= position < x.shape[0]:
        raise IndexError(f"row {index} of a tensor of {x.shape[0]} rows (shape {x.shape})")
    return view(Rows.apply(x, start=position, stop=position + 1), x.shape[1:])


@check_arguments
def transpose(x: AnyTensor, dim0: int, dim1: int) -> Tensor:
    """The tensor with two axes exchanged, a copy   x (M, N) -> (N, M)

    Raises:
        ShapeError: the axes differ and x has more than two.
    """
    first, second = (_axis("transpose", x, dim, max(x.ndim, 1)) for dim in (dim0, dim1))
    if first == second:
        return view(x, x.shape)
    if x.ndim != 2:
        raise ShapeError(f"transpose: only the two axes of a matrix can be exchanged  (x {x.shape}, {dim0}, {dim1})")
    return Transpose.apply(x)


@check_arguments
def normalize_pixels(x: AnyTensor) -> Tensor:
    """uint8 pixels 0..255 to float32 in [-1, 1]   x (...) -> (...)"""
    if x.dtype != np.uint8:
        raise TypeError(f"normalize_pixels: uint8 pixels are needed, not {x.dtype.name}")
    return Tensor(cast(x.array, FLOAT32, 2.0 / 255.0, -1.0))
