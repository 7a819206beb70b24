"""The axes of a tensor: permuted, added, dropped, repeated and turned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from alpha.autograd.function import Function
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.layout import view as reshaped
from alpha.ops.array.parts.assemble import Assemble, Piece, read
from alpha.ops.array.parts.copied_parts import linked
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.broadcasting import broadcast_to
from alpha.ops.kernel.operands import sum_to
from alpha.ops.kernel.options import integer
from alpha.ops.kernel.views import Shape, View

__all__ = [
    "flip",
    "movedim",
    "permute",
    "roll",
    "rot90",
    "squeeze",
    "swapaxes",
    "tile",
    "transpose",
    "unflatten",
    "unsqueeze",
]


class Permute(Assemble):
    """The axes in another order   X (...) -> Y (...)"""


class Flip(Assemble):
    """Axes from their end to their beginning   X (...) -> Y (...)"""


class Roll(Assemble):
    """Elements moved along axes, those at an end to the beginning   X (...) -> Y (...)"""


class Expand(Function):
    """X repeated along axes of length 1 and along new leading axes   X (...) -> Y shape"""

    def forward(self, X: Array, *, shape: Shape) -> Array:
        self.operand = tuple(X.shape), X.dtype
        return broadcast_to(X, shape)

    def backward(self, dY: Array) -> Any:
        return sum_to(dY, self.operand)


def axis_of(operator: str, x: Tensor, dim: int, rank: int | None = None, name: str = "dim") -> int:
    """The axis that `dim` names, counted from the end if it is negative.

    Args:
        rank: the number of axes that there are; by default that of x, and 1 for a 0-d tensor.
        name: the name of the argument.

    Raises:
        TypeError: dim is not an integer.
        ShapeError: x has no such axis.
    """
    rank = max(x.ndim, 1) if rank is None else rank
    axis = integer(operator, name, dim)
    if not -rank <= axis < rank:
        raise ShapeError(f"{operator}: {axis} is not an axis of shape {x.shape}; only {-rank} to {rank - 1}")
    return axis % rank


def axes_of(operator: str, x: Tensor, dims: Any, name: str = "dims") -> Shape:
    """The axes that an integer or a sequence of integers names; `ShapeError` if an axis comes twice."""
    given = [integer(operator, name, dim) for dim in (dims if isinstance(dims, (tuple, list)) else (dims,))]
    axes = tuple([axis_of(operator, x, dim) for dim in given])
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{operator}: {name}={dims} name an axis of shape {x.shape} twice")
    return axes


def lengths_of(operator: str, name: str, values: Any, least: int = 0) -> Shape:
    """A sequence of integers, each at least `least`, as a tuple."""
    if not isinstance(values, (tuple, list)):
        raise TypeError(f"{operator}: {name}={values!r} is not a tuple of integers")
    return tuple([integer(operator, name, value, least) for value in values])


@check_arguments
def permute(x: AnyTensor, dims: Sequence[int]) -> Tensor:
    """The axes in the order `dims`, a copy   x (D0, D1, ..) -> (D_dims[0], D_dims[1], ..)

    Raises:
        ShapeError: dims does not name each axis once.
    """
    order = axes_of("permute", x, lengths_of("permute", "dims", dims, -max(1, x.ndim)))
    if len(order) != x.ndim:
        raise ShapeError(f"permute: dims={tuple(dims)} are not the axes of shape {x.shape}")
    return _permuted(x, order)


def _permuted(x: Tensor, order: Shape) -> Tensor:
    view = View.whole(x.shape).permuted(order)
    return reshaped(x, view.shape) if view.is_contiguous else linked(read(Permute, x, view), x, view)


@check_arguments
def transpose(x: AnyTensor, dim0: int, dim1: int) -> Tensor:
    """The tensor with two axes exchanged, a copy   x (.., M, .., N, ..) -> (.., N, .., M, ..)"""
    return _exchanged("transpose", x, dim0, dim1, ("dim0", "dim1"))


def _exchanged(operator: str, x: Tensor, dim0: int, dim1: int, names: tuple[str, str]) -> Tensor:
    first, second = axis_of(operator, x, dim0, name=names[0]), axis_of(operator, x, dim1, name=names[1])
    if first == second:
        return reshaped(x, x.shape)
    order = list(range(x.ndim))
    order[first], order[second] = second, first
    return _permuted(x, tuple(order))


@check_arguments
def swapaxes(x: AnyTensor, axis0: int, axis1: int) -> Tensor:
    """Another name of `transpose`."""
    return _exchanged("swapaxes", x, axis0, axis1, ("axis0", "axis1"))


@check_arguments
def movedim(x: AnyTensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """The axes `source` moved to the places `destination`; the others keep their order   x (...) -> (...)"""
    taken, places = axes_of("movedim", x, source, "source"), axes_of("movedim", x, destination, "destination")
    if len(taken) != len(places):
        raise ShapeError(f"movedim: source={source} and destination={destination} name different numbers of axes")
    rest = iter([axis for axis in range(x.ndim) if axis not in taken])
    at = dict(zip(places, taken, strict=True))
    return _permuted(x, tuple([at[place] if place in at else next(rest) for place in range(x.ndim)]))


@check_arguments
def squeeze(x: AnyTensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """The tensor without its axes of length 1, or without those of them that `dim` names; a view."""
    dropped = range(x.ndim) if dim is None else axes_of("squeeze", x, dim, "dim")
    return reshaped(x, tuple([n for axis, n in enumerate(x.shape) if n != 1 or axis not in dropped]))


@check_arguments
def unsqueeze(x: AnyTensor, dim: int) -> Tensor:
    """The tensor with a new axis of length 1 at `dim`; a view   x (...) -> (.., 1, ..)"""
    axis = axis_of("unsqueeze", x, dim, x.ndim + 1)
    return reshaped(x, (*x.shape[:axis], 1, *x.shape[axis:]))


@check_arguments
def unflatten(x: AnyTensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """One axis as several, a view; one of the lengths may be -1   x (.., D, ..) -> (.., *sizes, ..)

    Raises:
        ShapeError: there is no axis dim, or the product of sizes is not its length.
    """
    axis, lengths = axis_of("unflatten", x, dim, x.ndim), lengths_of("unflatten", "sizes", sizes, -1)
    length, known = x.shape[axis], math.prod([n for n in lengths if n != -1])
    free = lengths.count(-1)
    if not lengths or free > 1 or (known == 0 or length % known if free else known != length):
        raise ShapeError(f"unflatten: sizes={lengths} do not fit axis {axis} of shape {x.shape}")
    parts = [length // known if n == -1 else n for n in lengths]
    return reshaped(x, (*x.shape[:axis], *parts, *x.shape[axis + 1 :]))


@check_arguments
def expand(x: AnyTensor, size: Sequence[int]) -> Tensor:
    """x repeated along its axes of length 1 and along new leading axes, a copy; -1 keeps a length.

    x (.., 1, ..) -> size

    Raises:
        ShapeError: size does not fit the shape.
    """
    wanted = lengths_of("expand", "size", size, -1)
    lead = len(wanted) - x.ndim
    own = (-1,) * lead + x.shape
    shape = tuple([n if length == -1 else length for n, length in zip(own, wanted, strict=False)])
    if lead < 0 or -1 in shape or any(n not in (-1, 1, length) for n, length in zip(own, shape, strict=True)):
        raise ShapeError(f"expand: shape {x.shape} does not expand to {wanted}")
    box = View.whole(x.shape).broadcast(shape)
    return linked(Expand.apply(x, shape=shape), x, box, repeats=box.size != x.size)


@check_arguments
def repeat(x: AnyTensor, repeats: Sequence[int]) -> Tensor:
    """x again and again, `repeats` times along each axis; more numbers than axes add leading axes.

    x (D0, ..) -> (repeats[0] D0, ..)

    Raises:
        ShapeError: there are fewer numbers than axes.
    """
    times = lengths_of("repeat", "repeats", repeats)
    if len(times) < x.ndim:
        raise ShapeError(f"repeat: {len(times)} numbers {times} for the {x.ndim} axes of shape {x.shape}")
    own = (1,) * (len(times) - x.ndim) + x.shape
    parts = [part for n in own for part in (1, n)]
    wanted = [part for count, n in zip(times, own, strict=True) for part in (count, n)]
    repeated = Expand.apply(reshaped(x, tuple(parts)), shape=tuple(wanted))
    return reshaped(repeated, tuple([count * n for count, n in zip(times, own, strict=True)]))


@check_arguments
def tile(x: AnyTensor, dims: Sequence[int]) -> Tensor:
    """`repeat`, where missing leading numbers are 1   x (D0, ..) -> (dims[0] D0, ..)"""
    times = lengths_of("tile", "dims", dims)
    return repeat(x, (1,) * (x.ndim - len(times)) + times)


@check_arguments
def flip(x: AnyTensor, dims: int | Sequence[int]) -> Tensor:
    """The elements in reversed order along the axes `dims`, a copy   x (...) -> (...)"""
    box = View.whole(x.shape)
    for axis in axes_of("flip", x, dims) if x.ndim else ():
        box = box.flipped(axis)
    return read(Flip, x, box)


@check_arguments
def rot90(x: AnyTensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """x turned by k quarters in the plane of two axes, from the first towards the second   x (...) -> (...)

    Raises:
        ShapeError: dims are not two different axes of x.
    """
    if len(lengths_of("rot90", "dims", dims, -x.ndim)) != 2 or x.ndim < 2:
        raise ShapeError(f"rot90: two axes are needed, not dims={dims!r}  (shape {x.shape})")
    first, second = axes_of("rot90", x, dims)
    turns = integer("rot90", "k", k) % 4
    box = View.whole(x.shape)
    if turns in (1, 2):
        box = box.flipped(second)
    if turns in (2, 3):
        box = box.flipped(first)
    if turns % 2:
        order = list(range(x.ndim))
        order[first], order[second] = second, first
        box = box.permuted(tuple(order))
    return read(Flip, x, box)


@check_arguments
def roll(x: AnyTensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Tensor:
    """Elements moved by `shifts` along `dims`; those that leave at the end come in at the beginning   x (...) -> (...)

    Args:
        shifts: an integer for each axis of dims.
        dims: the axes; None: x as one axis.
    """
    moved = lengths_of("roll", "shifts", shifts if isinstance(shifts, (tuple, list)) else (shifts,), -(2**63))
    if dims is None:
        if len(moved) != 1:
            raise ShapeError(f"roll: dims are needed for the {len(moved)} numbers of shifts={moved}")
        return reshaped(roll(reshaped(x, (x.size,)), moved, 0), x.shape)
    along = lengths_of("roll", "dims", dims if isinstance(dims, (tuple, list)) else (dims,), -max(1, x.ndim))
    axes = [axis_of("roll", x, dim, x.ndim, "dims") for dim in along]
    if len(axes) != len(moved):
        raise ShapeError(f"roll: {len(moved)} numbers of shifts={shifts} for {len(axes)} axes of dims={dims}")
    whole = View.whole(x.shape)
    boxes = [(whole, whole)]
    for axis, n in enumerate(x.shape):  # each axis cuts every box in two
        shift = sum(by for by, other in zip(moved, axes, strict=True) if other == axis) % max(n, 1)
        if shift:
            boxes = [
                (source.sliced(axis, start, length), target.sliced(axis, to, length))
                for source, target in boxes
                for start, to, length in ((0, shift, n - shift), (n - shift, 0, shift))
            ]
    return Roll.apply(x, shape=x.shape, pieces=[Piece(0, *box) for box in boxes])
