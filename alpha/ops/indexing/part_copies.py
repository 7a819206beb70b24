"""Copies with a part of them written, matrices with a flat diagonal, and cuts along the first axes."""

from __future__ import annotations

from typing import Any

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import axis_of, movedim
from alpha.ops.array.boxes import SetBlock
from alpha.ops.array.creation import arange
from alpha.ops.array.diagonals import diag, diagonal_view
from alpha.ops.array.layout import view as reshaped
from alpha.ops.array.parts import linked
from alpha.ops.array.shapes import tensor_split
from alpha.ops.indexing.gather_scatter import index_select
from alpha.ops.indexing.index_functions import narrow
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.kernel.options import integer
from alpha.ops.kernel.views import View

__all__ = [
    "diagflat",
    "diagonal_scatter",
    "dsplit",
    "hsplit",
    "narrow_copy",
    "select_scatter",
    "slice_scatter",
    "vsplit",
]


def _written(operator: str, x: Tensor, src: Tensor, box: View) -> Tensor:
    """A copy of x in which a box is `src`."""
    if src.shape != box.shape:
        raise ShapeError(f"{operator}: src has shape {src.shape}, the part of x {x.shape} has shape {box.shape}")
    return SetBlock.apply(x.clone(), src.astype(x.dtype), box=box)


@check_arguments
def select_scatter(x: AnyTensor, src: AnyTensor, dim: int, index: int) -> Tensor:
    """A copy of x with `src` at one place of an axis   x (.., D, ..), src (..) -> as x

    A negative index counts from the end.

    Raises:
        ShapeError: src has not the shape of `x.select(dim, index)`.
        IndexError: the axis has no such place.
    """
    axis = axis_of("select_scatter", x, dim, x.ndim)
    place, own = integer("select_scatter", "index", index), x.shape[axis]
    if not -own <= place < own:
        raise IndexError(f"select_scatter: index={place} is out of range for axis {axis} of shape {x.shape}")
    return _written("select_scatter", x, src, View.whole(x.shape).dropped(axis, place % own))


@check_arguments
def slice_scatter(
    x: AnyTensor, src: AnyTensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """A copy of x with `src` at every `step`-th place of an axis, from start to before end

    x (.., D, ..), src (.., places, ..) -> as x

    Raises:
        ShapeError: src has not the shape of that part of x.
    """
    axis, every = axis_of("slice_scatter", x, dim, x.ndim), integer("slice_scatter", "step", step, 1)
    first, last = (
        None if value is None else integer("slice_scatter", name, value)
        for name, value in (("start", start), ("end", end))
    )
    places = range(*slice(first, last, every).indices(x.shape[axis]))
    return _written("slice_scatter", x, src, View.whole(x.shape).sliced(axis, places.start, len(places), every))


@check_arguments
def diagonal_scatter(x: AnyTensor, src: AnyTensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy of x with `src` on the diagonal of each matrix   x (.., M, .., N, ..), src (.., .., .., D) -> as x

    Arguments are those of `diagonal`.

    Raises:
        ShapeError: src has not the shape of that diagonal, or dim1 and dim2 are not two axes of x.
    """
    return _written("diagonal_scatter", x, src, diagonal_view("diagonal_scatter", x, offset, dim1, dim2))


@check_arguments
def narrow_copy(x: AnyTensor, dim: int, start: Any, length: int) -> Tensor:
    """`narrow`, always as a copy   x (.., D, ..) -> (.., length, ..)"""
    return unchecked(narrow)(x, dim, start, length).clone()


@check_arguments
def diagflat(x: AnyTensor, offset: int = 0) -> Tensor:
    """A matrix of zeros with all elements on a diagonal   x (...) of D elements -> (M, M)  M = D + |offset|"""
    return unchecked(diag)(reshaped(x, (x.size,)), integer("diagflat", "offset", offset))


def sliding(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """`x.unfold(..)`: windows along an axis, a copy   x (.., D, ..) -> (.., windows, .., size)

    Args:
        dimension: the axis.
        size: the length of each window.
        step: from the beginning of a window to that of the next one.

    Raises:
        ShapeError: the axis is shorter than a window.
    """
    axis = axis_of("unfold", x, dimension, x.ndim)
    length, every = integer("unfold", "size", size, 1), integer("unfold", "step", step, 1)
    if length > x.shape[axis]:
        raise ShapeError(f"unfold: size={length} is more than axis {axis} of shape {x.shape} has")
    count = (x.shape[axis] - length) // every + 1
    first = arange(count, device=x.device).reshape(count, 1) * every
    places = (first + arange(length, device=x.device)).reshape(count * length)
    windows = unchecked(index_select)(x, axis, places)
    cut = reshaped(windows, (*x.shape[:axis], count, length, *x.shape[axis + 1 :]))
    whole = View.whole(x.shape)
    every_window = whole.sliced(axis, 0, count, every)
    box = View((*every_window.shape, length), (*every_window.strides, whole.strides[axis]))
    return linked(unchecked(movedim)(cut, axis + 1, -1), x, box, repeats=every < length)


def _split(operator: str, x: Tensor, given: Any, axis: int, rank: int) -> tuple[Tensor, ...]:
    """x cut along an axis into parts of one length, or before given places."""
    if x.ndim < rank:
        raise ShapeError(f"{operator}: x has {x.ndim} axes, at least {rank} are needed  (x {x.shape})")
    if not isinstance(given, (tuple, list)):
        count = integer(operator, "indices_or_sections", given, 1)
        if x.shape[axis] % count:
            raise ShapeError(f"{operator}: axis {axis} of shape {x.shape} does not divide into {count} parts")
    return unchecked(tensor_split)(x, given, axis)


@check_arguments
def hsplit(x: AnyTensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """x cut along the second axis, a vector along the only one   x (M, N, ..) -> (M, N0, ..), (M, N1, ..), ..

    Args:
        indices_or_sections: the number of parts of one length, or a list of the places before which it is cut.

    Raises:
        ShapeError: the axis does not divide into so many parts.
    """
    return _split("hsplit", x, indices_or_sections, min(1, max(0, x.ndim - 1)), 1)


@check_arguments
def vsplit(x: AnyTensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """x cut along the first axis; arguments as of `hsplit`   x (M, N, ..) -> (M0, N, ..), (M1, N, ..), .."""
    return _split("vsplit", x, indices_or_sections, 0, 2)


@check_arguments
def dsplit(x: AnyTensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """x cut along the third axis; arguments as of `hsplit`   x (M, N, D, ..) -> (M, N, D0, ..), (M, N, D1, ..), .."""
    return _split("dsplit", x, indices_or_sections, 2, 3)
