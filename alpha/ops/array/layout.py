"""Layout operators: reshape, flatten, casts, moves between devices, pixels to floats."""

from __future__ import annotations

import math
import operator
import sys
from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.autograd.tracing import traced_whole
from alpha.autograd.versions import Version, array_of
from alpha.core.host_values import DTypeLike
from alpha.core.numerics import FLOAT32, is_floating
from alpha.core.primitive import Array, device_of
from alpha.core.tensor import Tensor, as_dtype
from alpha.errors import ShapeError
from alpha.ops.array.parts.apart import UNNAMED, apart
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.casts import cast
from alpha.ops.kernel.options import integer
from alpha.runtime import Device

__all__ = ["flatten", "normalize_pixels", "reshape"]


class Reshape(Function):
    """The same memory under another shape   X (...) -> Y shape"""

    is_view = is_writable = True

    def forward(self, X: Array, *, shape: tuple[int, ...]) -> Array:
        self.shape = tuple(X.shape)
        return X.reshape(shape)

    def backward(self, dY: Array) -> Any:
        return dY.reshape(self.shape)


class Cast(Function):
    """The values in another dtype   X (...) -> Y (...)"""

    copies = True

    def forward(self, X: Array, *, dtype: np.dtype[Any]) -> Array:
        self.dtype = X.dtype
        return cast(X, dtype, 1.0, 0.0)

    def backward(self, dY: Array) -> Any:
        return cast(dY, self.dtype, 1.0, 0.0) if is_floating(self.dtype) else None


def astype(self: Tensor, dtype: DTypeLike) -> Tensor:
    """The same values in another dtype; gradients flow back between floating dtypes."""
    target = as_dtype(dtype)
    return self if target == self.dtype else Cast.apply(self, dtype=target)


class ToDevice(Function):
    """The values on another device   X (...) -> Y (...)"""

    copies = True

    def forward(self, X: Array, *, target: Device) -> Array:
        self.source, self.target = device_of(X), target
        return move(X, self.source, target)

    def backward(self, dY: Array) -> Any:
        return move(dY, self.target, self.source)


def move(X: Array, source: Device, target: Device) -> Array:
    return target.upload(source.download(X) if source.name != "cpu" else X)


def view(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Result of `reshape`, without a check that x is a Tensor."""
    known = math.prod(n for n in shape if n != -1)
    fits = known > 0 and x.size % known == 0 if shape.count(-1) == 1 else -1 not in shape and known == x.size
    if not fits or any(n < -1 for n in shape):
        raise ShapeError(f"reshape: {x.size} elements of shape {x.shape} do not fit {shape}")
    return Reshape.apply(x, shape=shape)


def _complete(x: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with a length in place of -1, if there is one."""
    known = math.prod(n for n in shape if n != -1)
    return tuple([x.size // known if n == -1 and known else n for n in shape])


def reshaped(references: int, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Result of `reshape`: a view, or a copy if x is a part of another tensor whose elements no strides reach.

    Args:
        references: how often the caller's argument x is referred to; 0 if that is not known.
    """
    if type(x._version) is not Version:
        x = apart(x, _complete(x, shape), 0 < references <= UNNAMED)
    return view(x, shape)


def reshape_method(self: Tensor, *shape: int | tuple[int, ...]) -> Tensor:
    """`x.reshape(2, -1)` or `x.reshape((2, -1))`: a view of the same memory, C order   x (...) -> shape

    One length may be -1. It counts the references to x, so nothing may stand between it and the program's call.
    """
    return reshaped(sys.getrefcount(self), self, _lengths(shape))


def _lengths(shape: tuple[Any, ...]) -> tuple[int, ...]:
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    return tuple([operator.index(length) for length in shape])


@check_arguments
def reshape(x: AnyTensor, shape: tuple[int, ...]) -> Tensor:
    """A view of the same memory, C order; one length may be -1   x (...) -> shape"""
    return reshaped(0, x, shape)


@check_arguments
def flatten(x: AnyTensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The axes from start_dim to end_dim as one, a view; a 0-d tensor becomes (1,)   x (...) -> (...)"""
    rank = max(x.ndim, 1)
    start, end = _axis("start_dim", x, start_dim, rank), _axis("end_dim", x, end_dim, rank)
    if start > end:
        raise ShapeError(f"flatten: start_dim={start_dim} comes after end_dim={end_dim} in shape {x.shape}")
    return reshaped(0, x, (*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :]))


def _axis(name: str, x: Tensor, dim: int, rank: int) -> int:
    axis = integer("flatten", name, dim)
    if not -rank <= axis < rank:
        raise ShapeError(f"flatten: {axis} is not an axis of shape {x.shape}")
    return axis % rank


@check_arguments
@traced_whole
def normalize_pixels(x: AnyTensor) -> Tensor:
    """uint8 pixels 0..255 to float32 in [-1, 1]   x (...) -> (...)

    Examples:
        >>> import alpha
        >>> import alpha.nn.functional as F
        >>> F.normalize_pixels(alpha.tensor([0, 255], dtype="uint8")).tolist()
        [-1.0, 1.0]
    """
    if x.dtype != np.uint8:
        raise TypeError(f"normalize_pixels: uint8 pixels are needed, not {x.dtype.name}")
    return Tensor(cast(array_of(x), FLOAT32, 2.0 / 255.0, -1.0))
