"""Tensors in the shape of others, repeated, turned and cut; and products that repeat: kron and cross."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha.autograd.versions import array_of
from alpha.core.tensor import Tensor
from alpha.errors import DeviceError, ShapeError
from alpha.ops.array.axes import Expand, axis_of, expand, flip, lengths_of, movedim, roll, transpose
from alpha.ops.array.joining import cut
from alpha.ops.array.layout import view as reshaped
from alpha.ops.array.ranges import arange
from alpha.ops.indexing.gather_scatter import index_select
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.kernel.options import integer
from alpha.ops.kernel.promotion import promoted
from alpha.ops.math.binary import mul
from alpha.ops.reduction.scan import cumsum
from alpha.ops.reduction.searching import searchsorted
from alpha.runtime.recording import refuse

__all__ = [
    "broadcast_to",
    "cross",
    "fliplr",
    "flipud",
    "kron",
    "moveaxis",
    "repeat_interleave",
    "swapdims",
    "tensor_split",
]


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
def moveaxis(x: AnyTensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Another name of `movedim`."""
    return unchecked(movedim)(x, source, destination)


@check_arguments
def swapdims(x: AnyTensor, dim0: int, dim1: int) -> Tensor:
    """Another name of `transpose`."""
    return unchecked(transpose)(x, dim0, dim1)


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


@check_arguments
def repeat_interleave(x: AnyTensor, repeats: Any, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    """Each row of an axis several times, one after the other   x (.., D, ..) -> (.., sum of repeats, ..)

    Args:
        repeats: how often, an integer or a tensor (D,) or (1,) of integers.
        dim: the axis; None: x as one axis.
        output_size: the sum of a tensor of repeats, which is checked on cpu. Without it the host counts the sum, which
            waits for the device and is refused in a captured step.

    Raises:
        ShapeError: repeats has neither one element nor as many as the axis.
        ValueError: an integer is below 0, or one of a tensor on cpu.
    """
    wanted = None if output_size is None else integer("repeat_interleave", "output_size", output_size, 0)
    flat = reshaped(x, (x.size,)) if dim is None else x
    axis = axis_of("repeat_interleave", flat, 0 if dim is None else dim)
    own = flat.shape or (1,)
    if not isinstance(repeats, Tensor):
        count = integer("repeat_interleave", "repeats", repeats, 0)
        if wanted not in (None, count * own[axis]):
            raise ShapeError(
                f"repeat_interleave: output_size={wanted}, but {count} times {own[axis]} rows are repeated"
            )
        apart = reshaped(flat, (*own[: axis + 1], 1, *own[axis + 1 :]))
        many = Expand.apply(apart, shape=(*own[: axis + 1], count, *own[axis + 1 :]))
        return reshaped(many, (*own[:axis], count * own[axis], *own[axis + 1 :]))
    if repeats.device is not x.device:
        raise DeviceError(
            f"repeat_interleave: x is on {x.device.name} and repeats on {repeats.device.name}; "
            "move them together with .to(device)"
        )
    if repeats.ndim > 1 or repeats.size not in (1, own[axis]):
        raise ShapeError(
            f"repeat_interleave: repeats (1,) or ({own[axis]},) is needed  (x {x.shape}, repeats {repeats.shape})"
        )
    index = _named_rows(unchecked(expand)(reshaped(repeats, (repeats.size,)), own[axis : axis + 1]), own[axis], wanted)
    return unchecked(index_select)(reshaped(flat, own), axis, index)


def _named_rows(repeats: Tensor, rows: int, output_size: int | None) -> Tensor:
    """The number of each row as often as repeats (rows,) says   -> (sum of repeats,) of int64"""
    if repeats.dtype.kind != "i":
        raise TypeError(f"repeat_interleave: repeats has dtype {repeats.dtype.name}; int64 or int32 is needed")
    ends = unchecked(cumsum)(repeats, 0)
    if isinstance(array_of(repeats), np.ndarray) and (repeats.array < 0).any():
        raise ValueError(f"repeat_interleave: repeats has {repeats.array.min()}; at least 0 is needed")
    if output_size is None:
        refuse("repeat_interleave has a number of rows that only the host can count: give output_size")
        count = int(ends[-1].item()) if rows else 0
    else:
        count = output_size
        if isinstance(ends.array, np.ndarray) and count != (ends.array[-1] if rows else 0):
            raise ShapeError(f"repeat_interleave: output_size={count} is not the sum of repeats {repeats.tolist()}")
    return unchecked(searchsorted)(ends, arange(count, device=repeats.device), right=True)


@check_arguments
def kron(x: AnyTensor, other: AnyTensor) -> Tensor:
    """The Kronecker product: other times each element of x   x (A, B, ..), other (C, D, ..) -> (A C, B D, ..)

    Missing leading axes have length 1.
    """
    rank = max(x.ndim, other.ndim)
    left, right = ((1,) * (rank - v.ndim) + v.shape for v in (x, other))
    a = reshaped(x, tuple([part for n in left for part in (n, 1)]))
    b = reshaped(other, tuple([part for n in right for part in (1, n)]))
    return reshaped(unchecked(mul)(a, b), tuple([m * n for m, n in zip(left, right, strict=True)]))


@check_arguments
def cross(x: AnyTensor, other: AnyTensor, dim: int | None = None) -> Tensor:
    """The cross products of vectors along an axis of length 3   x, other (.., 3, ..) that broadcast -> (.., 3, ..)

    Args:
        dim: the axis; None: the first one of length 3.

    Raises:
        ShapeError: the shapes do not broadcast, or the axis has another length than 3.
    """
    if x.ndim != other.ndim:
        raise ShapeError(f"cross: as many axes are needed  (x {x.shape}, other {other.shape})")
    try:
        shape = np.broadcast_shapes(x.shape, other.shape)
    except ValueError:
        raise ShapeError(f"cross: the shapes do not broadcast  (x {x.shape}, other {other.shape})") from None
    axis = shape.index(3) if dim is None and 3 in shape else axis_of("cross", x, -1 if dim is None else dim, x.ndim)
    if not x.ndim or x.shape[axis] != 3 or other.shape[axis] != 3:
        raise ShapeError(f"cross: an axis of length 3 is needed  (x {x.shape}, other {other.shape}, dim={dim})")
    a, b = promoted(x, other)

    def turned(v: Tensor, by: int) -> Tensor:
        return unchecked(roll)(v, -by, axis)

    return turned(a, 1) * turned(b, 2) - turned(a, 2) * turned(b, 1)
