"""Copies of a tensor with a part of it written: select_scatter, slice_scatter, diagonal_scatter."""

from __future__ import annotations

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import axis_of
from alpha.ops.array.diagonals import diagonal_view
from alpha.ops.array.parts.boxes import SetBlock
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.options import integer
from alpha.ops.kernel.views import View

__all__ = ["diagonal_scatter", "select_scatter", "slice_scatter"]


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
