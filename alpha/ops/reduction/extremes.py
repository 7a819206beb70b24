"""The largest and the smallest elements along axes, where they are, and whether elements are true."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.autograd.tracing import traced_whole
from alpha.autograd.versions import array_of
from alpha.core.host_values import Dims
from alpha.core.primitive import Array, device_of
from alpha.core.results import Extremes, MinMax
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import axis_of
from alpha.ops.array.layout import view as reshaped
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.broadcasting import broadcast_operands
from alpha.ops.kernel.casts import as_dtype
from alpha.ops.kernel.common_dtype import BOOL
from alpha.ops.kernel.elementwise import divide, multiply
from alpha.ops.kernel.options import integer
from alpha.ops.kernel.rows.reductions import around, extreme_axis1, truth_axis1
from alpha.ops.kernel.rows.row_indices import places, put_rows
from alpha.ops.kernel.sums import axes_of, sum_axes
from alpha.ops.math.comparison import compare, relate
from alpha.ops.math.maximum_minimum import maximum, minimum
from alpha.ops.reduction import extremes

__all__ = ["all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "max", "min"]

Shape = tuple[int, ...]


class Along(Function):
    """Elements of X whose places along an axis are known, each at most once   X (...) -> Y shape

    Args of forward:
        values: the elements themselves; index: their places (A, K, B) along the axis, int64; sizes: X as (A, R, B).
    """

    def forward(self, X: Array, *, values: Array, index: Array, sizes: tuple[int, int, int], shape: Shape) -> Array:
        self.shape, self.index, self.sizes = tuple(X.shape), index, sizes
        return values.reshape(shape)

    def backward(self, dY: Array) -> Any:
        _, R, B = self.sizes
        K, count = self.index.shape[1], self.index.size
        F = places(self.index.reshape(count), R, B, None, (B, K * B or 1, R * B))
        dX = device_of(dY).zeros(self.shape, dY.dtype)
        put_rows(dX.reshape((1, dX.size, 1)), F, dY.reshape((1, count, 1)), True)
        return dX


class Extreme(Function):
    """Y = the largest or smallest element over axes, whose gradient all equal ones share   X (...) -> Y shape"""

    def forward(self, X: Array, *, axes: Shape, largest: bool, shape: Shape) -> Array:
        Y, kept = X, list(X.shape)
        for axis in axes:
            Y = extreme_axis1(Y.reshape(around(tuple(kept), axis)), largest)[0]
            kept[axis] = 1
        self.axes, self.kept = axes, tuple(kept)
        Y = Y.reshape(shape)
        if not axes:  # Y is X itself
            Y = device_of(X).copy(Y)
        self.save(X, Y)
        return Y

    def backward(self, dY: Array) -> Any:
        X, Y = self.saved
        equal = as_dtype(compare(*broadcast_operands("max", X, Y.reshape(self.kept)), "=="), dY.dtype)
        share = divide(dY.reshape(self.kept), as_dtype(sum_axes(equal, self.axes), dY.dtype))
        return multiply(*broadcast_operands("max", equal, share))


def _extreme(operator: str, x: Tensor, axes: Shape, keepdim: bool, largest: bool) -> Tensor:
    empty = [axis for axis in axes if not x.shape[axis]]
    if empty:
        raise ShapeError(
            f"{operator}: axis {empty[0]} of shape {x.shape} is empty; it has no largest or smallest element"
        )
    shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keepdim or i not in axes]
    return Extreme.apply(x, axes=axes, largest=largest, shape=tuple(shape))


def _along(operator: str, x: Tensor, dim: Any, keepdim: bool, largest: bool) -> tuple[Any, Shape]:
    """(values, rows, sizes) along an axis, and the shape of the result."""
    axis = axis_of(operator, x, dim)
    own = x.shape or (1,)
    if not own[axis]:
        raise ShapeError(f"{operator}: axis {axis} of shape {x.shape} is empty")
    sizes = around(own, axis)
    values, rows = extreme_axis1(array_of(x).reshape(sizes), largest)
    shape = (*own[:axis], *([1] if keepdim else []), *own[axis + 1 :]) if x.ndim else ()
    return (values, rows.reshape((sizes[0], 1, sizes[2])), sizes), shape


@traced_whole
def extreme_with_places(operator: str, x: Tensor, dim: Any, keepdim: bool, largest: bool) -> Extremes:
    (values, rows, sizes), shape = _along(operator, x, dim, keepdim, largest)
    found = Along.apply(x, values=values, index=rows, sizes=sizes, shape=shape)
    return Extremes(found, Tensor(rows.reshape(shape)))


@check_arguments
def max(x: AnyTensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The largest element; with `dim` those along an axis and their places; with a tensor in its place `maximum`.

    x (...) -> (), or (values, indices) of the other axes, or 1 in place of the axis with keepdim. NaN is the largest.
    Of equal elements the first counts; without `dim` they share the gradient.
    """
    return _overloaded("max", x, dim, keepdim, True)


@check_arguments
def min(x: AnyTensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The smallest element; with `dim` those along an axis and their places; with a tensor in its place `minimum`.

    x (...) -> (), or (values, indices) of the other axes, or 1 in place of the axis with keepdim. NaN is the smallest.
    Of equal elements the first counts; without `dim` they share the gradient.
    """
    return _overloaded("min", x, dim, keepdim, False)


def _overloaded(operator: str, x: Tensor, dim: Any, keepdim: bool, largest: bool) -> Any:
    if isinstance(dim, Tensor):
        return (maximum if largest else minimum)(x, dim)
    if dim is None:
        if keepdim:
            raise TypeError(f"{operator}: keepdim needs dim; use {'amax' if largest else 'amin'}")
        return _extreme(operator, x, tuple(range(x.ndim)), False, largest)
    return extreme_with_places(operator, x, dim, keepdim, largest)


@check_arguments
def amax(x: AnyTensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The largest element over axes (all by default); equal ones share the gradient

    x (...) -> the other axes, or 1 in place of each with keepdim
    """
    return _extreme("amax", x, axes_of("amax", x, dim), keepdim, True)


@check_arguments
def amin(x: AnyTensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The smallest element over axes (all by default); equal ones share the gradient

    x (...) -> the other axes, or 1 in place of each with keepdim
    """
    return _extreme("amin", x, axes_of("amin", x, dim), keepdim, False)


@check_arguments
def argmax(x: AnyTensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The place of the first largest element along an axis, or in x as one axis   x (...) -> (...) of int64"""
    return extreme_place("argmax", x, dim, keepdim, True)


@check_arguments
def argmin(x: AnyTensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The place of the first smallest element along an axis, or in x as one axis   x (...) -> (...) of int64"""
    return extreme_place("argmin", x, dim, keepdim, False)


@traced_whole
def extreme_place(operator: str, x: Tensor, dim: int | None, keepdim: bool, largest: bool) -> Tensor:
    flat = reshaped(x.detach(), (x.size,)) if dim is None else x
    (_, rows, _), shape = _along(operator, flat, 0 if dim is None else dim, keepdim, largest)
    return Tensor(rows.reshape((1,) * x.ndim if dim is None and keepdim else shape))


@check_arguments
def all(x: AnyTensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """True where all elements over axes (all by default) are not 0   x (...) -> (...) of bools, or of uint8 as x"""
    return _truth("all", x, dim, keepdim, True)


@check_arguments
def any(x: AnyTensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """True where any element over axes (all by default) is not 0   x (...) -> (...) of bools, or of uint8 as x"""
    return _truth("any", x, dim, keepdim, False)


def _truth(operator: str, x: Tensor, dim: Dims, keepdim: bool, every: bool) -> Tensor:
    axes = () if isinstance(dim, (tuple, list)) and not dim else axes_of(operator, x, dim)
    Y, kept = array_of(x), list(x.shape)
    for axis in axes:
        Y = truth_axis1(Y.reshape(around(tuple(kept), axis)), every)
        kept[axis] = 1
    if not axes:
        Y = as_dtype(Y, BOOL)
    shape = tuple([n for i, n in enumerate(kept) if keepdim or i not in axes])
    return Tensor(as_dtype(Y.reshape(shape), x.dtype if x.dtype == np.uint8 else BOOL))


@check_arguments
def equal(x: AnyTensor, other: AnyTensor) -> bool:
    """True if two tensors have one shape and equal elements, as a bool of Python; NaN is equal to nothing

    It waits for the device; so it is refused in a captured step.
    """
    return x.shape == other.shape and not bool(extremes.any(relate(x, other, "!=")))


@check_arguments
def aminmax(x: AnyTensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """The smallest and the largest element, of all or along an axis; equal ones share the gradient

    x (...) -> min, max of the other axes, or 1 in place of each with keepdim
    """
    axis = None if dim is None else integer("aminmax", "dim", dim)
    return MinMax(amin(x, axis, keepdim), amax(x, axis, keepdim))
