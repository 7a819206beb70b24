"""Tensors joined along an axis, and cut along one.

This file also has: lists of tensors joined along the first, second or third axis; and other names of `cat`.

This file also has: functions of several tensors, one argument each: as views of more axes, in one shape, as grids,
products and blocks.

Each takes also one list of tensors.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha.autograd.function import check_devices
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError, type_name
from alpha.ops.array.axes import axis_of, expand, lengths_of, transpose
from alpha.ops.array.layout import view as reshaped
from alpha.ops.array.parts.assemble import Assemble, Piece
from alpha.ops.array.parts.boxes import block_or_copy
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.kernel.operands import promoted
from alpha.ops.kernel.options import integer
from alpha.ops.kernel.views import View

__all__ = ["cat", "chunk", "column_stack", "concatenate", "dstack", "hstack", "split", "stack", "unbind", "vstack"]

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


def at_least(x: Tensor, rank: int) -> Tensor:
    """x with new axes of length 1 up to `rank` axes, a view: (N,) is (1, N) or (1, N, 1), (M, N) is (M, N, 1)."""
    shape = x.shape
    if not shape:
        shape = (1,) * rank
    elif len(shape) == 1 and rank > 1:
        shape = (1, *shape)
    if len(shape) == 2 and rank == 3:
        shape = (*shape, 1)
    return reshaped(x, shape)


def concatenate(tensors: Tensors, axis: int = 0, *, dim: int | None = None) -> Tensor:
    """Another name of `cat`, whose `dim` is called axis here; it may be given under either name."""
    return cat(tensors, integer("concatenate", "axis", axis) if dim is None else integer("concatenate", "dim", dim))


def hstack(tensors: Tensors) -> Tensor:
    """The tensors one after the other along the second axis, vectors and numbers along the only one

    (M, N0, ..), (M, N1, ..), .. -> (M, N0 + N1 + .., ..)
    """
    given = [at_least(x, 1) for x in tensors_of("hstack", tensors)]
    return _joined("hstack", given, 0 if given[0].ndim == 1 else 1)


def vstack(tensors: Tensors) -> Tensor:
    """The tensors joined along the first axis; a vector is a row   (M, N, ..), (N,), .. -> (M + 1 + .., N, ..)"""
    return _joined("vstack", [at_least(x, 2) for x in tensors_of("vstack", tensors)], 0)


def dstack(tensors: Tensors) -> Tensor:
    """The tensors one behind the other along the third axis, which is added to vectors and matrices

    (M, N), (M, N), .. -> (M, N, number of tensors)
    """
    return _joined("dstack", [at_least(x, 3) for x in tensors_of("dstack", tensors)], 2)


def column_stack(tensors: Tensors) -> Tensor:
    """The tensors joined along the second axis; a vector is a column   (M, N, ..), (M,), .. -> (M, N + 1 + .., ..)"""
    given = tensors_of("column_stack", tensors)
    columns = [reshaped(x, (x.size, 1)) if x.ndim < 2 else x for x in given]
    return _joined("column_stack", columns, 1)


def _joined(operator: str, tensors: list[Tensor], axis: int) -> Tensor:
    first = tensors[0]
    others = first.shape[:axis] + first.shape[axis + 1 :]
    if any(x.ndim != first.ndim or x.shape[:axis] + x.shape[axis + 1 :] != others for x in tensors):
        shapes = ", ".join(str(x.shape) for x in tensors)
        raise ShapeError(f"{operator}: lengths of other axes than {axis} differ  (shapes {shapes})")
    return cat(tensors, integer("concatenate", "axis", axis))


class BlockDiagonal(Assemble):
    """The inputs along the main diagonal, zeros elsewhere   (M0, N0), (M1, N1), .. -> (M0 + M1 + .., N0 + N1 + ..)"""


def _listed(operator: str, tensors: tuple[Any, ...]) -> list[Tensor]:
    """The arguments, or the list that is the only one, each in its own dtype."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    for i, tensor in enumerate(given):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{operator}: tensors[{i}] is a {type_name(tensor)}, a Tensor is needed")
    return list(given)


def _at_least(operator: str, tensors: tuple[Any, ...], rank: int) -> Any:
    found = tuple([at_least(x, rank) for x in _listed(operator, tensors)])
    return found[0] if len(tensors) == 1 and isinstance(tensors[0], Tensor) else found


def atleast_1d(*tensors: Tensor) -> Any:
    """A number as (1,), other tensors as they are; views. Of several tensors, or a list, a tuple is returned."""
    return _at_least("atleast_1d", tensors, 1)


def atleast_2d(*tensors: Tensor) -> Any:
    """A number as (1, 1), a vector as (1, N), other tensors as they are; views, as `atleast_1d` gives them."""
    return _at_least("atleast_2d", tensors, 2)


def atleast_3d(*tensors: Tensor) -> Any:
    """A number as (1, 1, 1), a vector as (1, N, 1), a matrix as (M, N, 1); views, as `atleast_1d` gives them."""
    return _at_least("atleast_3d", tensors, 3)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors repeated to their common shape   (...), (...), .. -> the broadcast shape of all

    Raises:
        ShapeError: the shapes do not broadcast.
    """
    given = _listed("broadcast_tensors", tensors)
    try:
        shape = np.broadcast_shapes(*[x.shape for x in given])
    except ValueError:
        shapes = ", ".join(str(x.shape) for x in given)
        raise ShapeError(f"broadcast_tensors: the shapes do not broadcast  (shapes {shapes})") from None
    return tuple([x if x.shape == shape else unchecked(expand)(x, shape) for x in given])


def meshgrid(*tensors: Tensor, indexing: str | None = None) -> tuple[Tensor, ...]:
    """A grid for each vector: its elements along an axis of their own, repeated along the others

    (D0,), (D1,), .. -> (D0, D1, ..) for each, or (D1, D0, ..) with indexing "xy"

    Args:
        indexing: "ij", of rows and columns, or "xy", in which the first two axes are exchanged; None is "ij".

    Raises:
        ShapeError: a tensor has more than one axis.
        TypeError: the tensors have several dtypes.
    """
    given = _listed("meshgrid", tensors)
    if indexing not in (None, "ij", "xy"):
        raise ValueError(f"meshgrid: indexing={indexing!r} is neither 'ij' nor 'xy'")
    if not given:
        raise ValueError("meshgrid: at least one tensor is needed")
    if any(x.ndim > 1 for x in given):
        raise ShapeError(f"meshgrid: vectors are needed  (shapes {', '.join(str(x.shape) for x in given)})")
    if len({x.dtype for x in given}) > 1:
        raise TypeError(f"meshgrid: dtypes {', '.join(x.dtype.name for x in given)} differ; use .astype")
    shape = tuple([x.size for x in given])
    grids = [
        unchecked(expand)(reshaped(x, tuple([x.size if i == axis else 1 for i in range(len(given))])), shape)
        for axis, x in enumerate(given)
    ]
    exchanged = indexing == "xy" and len(given) > 1
    return tuple([unchecked(transpose)(grid, 0, 1) if exchanged else grid for grid in grids])


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All choices of one element of each vector, as rows   (D0,), (D1,), .. -> (D0 D1 .., number of vectors)

    The element of the last vector changes fastest. Of one vector it is this vector.
    """
    given = _listed("cartesian_prod", tensors)
    if any(x.ndim != 1 for x in given):
        raise ShapeError(f"cartesian_prod: vectors are needed  (shapes {', '.join(str(x.shape) for x in given)})")
    grids = meshgrid(*given)
    return grids[0] if len(given) == 1 else stack([reshaped(grid, (grid.size,)) for grid in grids], 1)


def block_diag(*tensors: Tensor) -> Tensor:
    """A matrix with the tensors along its main diagonal and zeros elsewhere; a vector is a row, a number (1, 1)

    (M0, N0), (M1, N1), .. -> (M0 + M1 + .., N0 + N1 + ..)
    """
    given = tensors_of("block_diag", _listed("block_diag", tensors))
    if any(x.ndim > 2 for x in given):
        raise ShapeError(
            f"block_diag: tensors of at most two axes are needed  (shapes {', '.join(str(x.shape) for x in given)})"
        )
    blocks = [at_least(x, 2) for x in given]
    shape = (sum(x.shape[0] for x in blocks), sum(x.shape[1] for x in blocks))
    whole, pieces, row, column = View.whole(shape), [], 0, 0
    for i, x in enumerate(blocks):
        M, N = x.shape
        box = whole.sliced(0, row, M).sliced(1, column, N)
        pieces.append(Piece(i, View.whole(x.shape), box))
        row, column = row + M, column + N
    return BlockDiagonal.apply(*blocks, shape=shape, pieces=pieces, fill=0)
