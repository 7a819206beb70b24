"""Tensors in the shape of others, repeated, turned and cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import axis_of, expand, flip, lengths_of
from alpha.ops.array.joining import cut
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.kernel.options import integer

__all__ = ["broadcast_to", "dsplit", "fliplr", "flipud", "hsplit", "tensor_split", "vsplit"]


@check_arguments
def broadcast_to(x: AnyTensor, shape: Sequence[int]) -> Tensor:
    """x repeated along its axes of length 1 and along new leading axes, a copy   x (.., 1, ..) -> shape

    Raises:
        ShapeError: the shape of x does not broadcast to it.
    """
    wanted = lengths_of("broadcast_to", "shape", shape, -1)
    lead = len(wanted) - x.ndim
    fits = lead >= 0 and all(n in (-1, own) or own == 1 for n, own in zip(wanted[lead:], x.shape, strict=True))
    if not fits or -1 in wanted[:lead]:
        raise ShapeError(f"broadcast_to: shape {x.shape} does not broadcast to {wanted}")
    return unchecked(expand)(x, wanted)


@check_arguments
def expand_as(x: AnyTensor, other: AnyTensor) -> Tensor:
    """x repeated to the shape of other, a copy   x (.., 1, ..), other (...) -> as other"""
    return unchecked(expand)(x, other.shape)


@check_arguments
def reshape_as(x: AnyTensor, other: AnyTensor) -> Tensor:
    """x in the shape of other, a view   x (...), other (...) -> as other

    Raises:
        ShapeError: other has another number of elements.
    """
    return x.reshape(other.shape)


@check_arguments
def fliplr(x: AnyTensor) -> Tensor:
    """The elements in reversed order along the second axis, a copy   x (M, N, ..) -> (M, N, ..)"""
    if x.ndim < 2:
        raise ShapeError(f"fliplr: x (M, N, ..) is needed  (x {x.shape})")
    return unchecked(flip)(x, 1)


@check_arguments
def flipud(x: AnyTensor) -> Tensor:
    """The elements in reversed order along the first axis, a copy   x (M, ..) -> (M, ..)"""
    if x.ndim < 1:
        raise ShapeError("flipud: x (M, ..) is needed, not a 0-d tensor")
    return unchecked(flip)(x, 0)


@check_arguments
def tensor_split(x: AnyTensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """x cut along an axis into so many parts, of which the first ones may be longer by 1; or before given places.

    x (.., D, ..) -> (.., D0, ..), (.., D1, ..), ..

    Args:
        indices_or_sections: the number of parts; or a list of places, of which negative ones count from the end. A
            tensor of either waits for the device.
    """
    axis = axis_of("tensor_split", x, dim, x.ndim)
    length, given = x.shape[axis], indices_or_sections
    if isinstance(given, Tensor):
        if given.ndim > 1 or given.dtype.kind != "i":
            raise ShapeError(
                f"tensor_split: a tensor of places is (P,) or () of int64  ({given.dtype.name} {given.shape})"
            )
        given = given.tolist()
    if not isinstance(given, (tuple, list)):
        count = integer("tensor_split", "indices_or_sections", given, 1)
        least, longer = divmod(length, count)
        return cut(x, axis, [least + 1] * longer + [least] * (count - longer))
    places = lengths_of("tensor_split", "indices_or_sections", given, -(2**63))
    begins, ends = (0, *places), (*places, length)
    ranges = [slice(a, b).indices(length)[:2] for a, b in zip(begins, ends, strict=True)]
    return cut(x, axis, [max(0, b - a) for a, b in ranges], [a for a, _ in ranges])


def _cut(operator: str, x: Tensor, given: Any, axis: int, rank: int) -> tuple[Tensor, ...]:
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
    return _cut("hsplit", x, indices_or_sections, min(1, max(0, x.ndim - 1)), 1)


@check_arguments
def vsplit(x: AnyTensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """x cut along the first axis; arguments as of `hsplit`   x (M, N, ..) -> (M0, N, ..), (M1, N, ..), .."""
    return _cut("vsplit", x, indices_or_sections, 0, 2)


@check_arguments
def dsplit(x: AnyTensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """x cut along the third axis; arguments as of `hsplit`   x (M, N, D, ..) -> (M, N, D0, ..), (M, N, D1, ..), .."""
    return _cut("dsplit", x, indices_or_sections, 2, 3)
