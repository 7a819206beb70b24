"""Tensors joined along an axis, and cut along one; other names of `cat`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from alpha.autograd.function import check_devices
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError, type_name
from alpha.ops.array.axes import axis_of, lengths_of
from alpha.ops.array.layout import view as reshaped
from alpha.ops.array.parts.assemble import Assemble, Piece
from alpha.ops.array.parts.boxes import block_or_copy
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.common_dtype import promoted
from alpha.ops.kernel.options import integer
from alpha.ops.kernel.views import View

__all__ = ["cat", "chunk", "concatenate", "split", "stack", "unbind"]

Tensors = Sequence[Tensor]


class Cat(Assemble):
    """The inputs one after the other along an axis   (.., D0, ..), (.., D1, ..), .. -> (.., D0 + D1 + .., ..)"""


def tensors_of(operator: str, tensors: Any) -> list[Tensor]:
    """The tensors, in one dtype."""
    if not isinstance(tensors, (tuple, list)) or not tensors:
        raise TypeError(f"{operator}: tensors must be a list or tuple of at least one Tensor")
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"{operator}: tensors[{i}] is a {type_name(tensor)}, a Tensor is needed; "
                "use alpha.tensor(tensors, device=..)"
            )
    check_devices(operator, tensors)
    return promoted(*tensors)


@check_arguments
def cat(tensors: Tensors, dim: int = 0) -> Tensor:
    """The tensors one after the other along an axis   (.., D0, ..), (.., D1, ..), .. -> (.., D0 + D1 + .., ..)

    An empty tensor of shape (0,) is left out, as in PyTorch.

    Raises:
        TypeError: tensors is no list of tensors.
        ShapeError: lengths of other axes differ.

    Examples:
        >>> import alpha
        >>> alpha.cat([alpha.zeros(1, 2), alpha.ones(1, 2)]).tolist()
        [[0.0, 0.0], [1.0, 1.0]]
    """
    given = tensors_of("cat", tensors)
    numbered = [(i, x) for i, x in enumerate(given) if x.shape != (0,)] or [(0, given[0])]
    first = numbered[0][1]
    if any(x.ndim == 0 for x in given):
        raise ShapeError("cat: a 0-d tensor has no axis to join along; use stack")
    axis = axis_of("cat", first, dim)
    others = first.shape[:axis] + first.shape[axis + 1 :]
    if any(x.ndim != first.ndim or x.shape[:axis] + x.shape[axis + 1 :] != others for _, x in numbered):
        shapes = ", ".join(str(x.shape) for _, x in numbered)
        raise ShapeError(f"cat: lengths of other axes than {axis} differ  (shapes {shapes})")
    shape = (*first.shape[:axis], sum(x.shape[axis] for _, x in numbered), *first.shape[axis + 1 :])
    whole, pieces, start = View.whole(shape), [], 0
    for i, x in numbered:
        pieces.append(Piece(i, View.whole(x.shape), whole.sliced(axis, start, x.shape[axis])))
        start += x.shape[axis]
    return Cat.apply(*given, shape=shape, pieces=pieces)


@check_arguments
def stack(tensors: Tensors, dim: int = 0) -> Tensor:
    """Tensors of one shape one after the other along a new axis   (...), (...), .. -> (.., number of tensors, ..)

    Raises:
        TypeError: tensors is no list of tensors.
        ShapeError: the shapes differ.

    Examples:
        >>> import alpha
        >>> alpha.stack([alpha.arange(2), alpha.arange(2)], dim=1).tolist()
        [[0, 0], [1, 1]]
    """
    given = tensors_of("stack", tensors)
    if any(x.shape != given[0].shape for x in given):
        raise ShapeError(f"stack: the shapes differ  ({', '.join(str(x.shape) for x in given)})")
    axis = axis_of("stack", given[0], dim, given[0].ndim + 1)
    shape = given[0].shape
    return cat([reshaped(x, (*shape[:axis], 1, *shape[axis:])) for x in given], axis)


@check_arguments
def split(x: AnyTensor, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """x cut along an axis   x (.., D, ..) -> (.., D0, ..), (.., D1, ..), ..

    Args:
        split_size_or_sections: the length of each part, of which the last may be shorter; or a list of lengths.

    Raises:
        ShapeError: the lengths of a list do not add up to that of the axis.
    """
    axis = axis_of("split", x, dim, x.ndim)
    length, sizes = x.shape[axis], split_size_or_sections
    if isinstance(sizes, (tuple, list)):
        parts = list(lengths_of("split", "split_size_or_sections", sizes))
        if sum(parts) != length:
            raise ShapeError(f"split: lengths {parts} do not add up to {length}, axis {axis} of shape {x.shape}")
    else:
        size = integer("split", "split_size_or_sections", sizes, 0)
        if size == 0 and length:
            raise ValueError(f"split: split_size_or_sections=0 for an axis of {length}")
        parts = [min(size, length - start) for start in range(0, length, size or 1)] or [length]
    return cut(x, axis, parts)


@check_arguments
def chunk(x: AnyTensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """x cut along an axis into that many parts of one length, of which the last may be shorter, or fewer parts.

    x (.., D, ..) -> (.., ceil(D / chunks), ..), ..
    """
    axis = axis_of("chunk", x, dim, x.ndim)
    count, length = integer("chunk", "chunks", chunks, 1), x.shape[axis]
    if length == 0:
        return cut(x, axis, [0] * count)
    return split(x, -(-length // count), axis)


@check_arguments
def unbind(x: AnyTensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The parts of length 1 along an axis, without this axis   x (.., D, ..) -> D tensors (...)"""
    axis = axis_of("unbind", x, dim, x.ndim)
    return tuple([block_or_copy(x, View.whole(x.shape).dropped(axis, i)) for i in range(x.shape[axis])])


def cut(x: Tensor, axis: int, lengths: Sequence[int], begins: Sequence[int] | None = None) -> tuple[Tensor, ...]:
    """Parts of x along an axis, which begin at given places, or where the one before ends."""
    whole = View.whole(x.shape)
    starts = [0, *itertools.accumulate(lengths)][: len(lengths)] if begins is None else begins
    return tuple([block_or_copy(x, whole.sliced(axis, a, n)) for a, n in zip(starts, lengths, strict=True)])


def concatenate(tensors: Tensors, axis: int = 0, *, dim: int | None = None) -> Tensor:
    """Another name of `cat`, whose `dim` is called axis here; it may be given under either name."""
    return cat(tensors, integer("concatenate", "axis", axis) if dim is None else integer("concatenate", "dim", dim))


def listed(operator: str, tensors: tuple[Any, ...]) -> list[Tensor]:
    """The arguments, or the list that is the only one, each in its own dtype."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    for i, tensor in enumerate(given):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{operator}: tensors[{i}] is a {type_name(tensor)}, a Tensor is needed")
    return list(given)
