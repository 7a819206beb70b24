"""Rows repeated, and a source spread over a mask: their places follow from running sums of counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd.versions import array_of
from alpha.core.tensor import Tensor
from alpha.errors import DeviceError, ShapeError
from alpha.ops.array.axes import Expand, axis_of, expand
from alpha.ops.array.creation import arange
from alpha.ops.array.layout import view as reshaped
from alpha.ops.indexing.gather_scatter import index_select
from alpha.ops.indexing.where import where, with_mask
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.kernel.options import integer
from alpha.ops.reduction.scan import cumsum
from alpha.ops.reduction.sort import searchsorted
from alpha.runtime.recording import refuse

__all__ = ["masked_scatter", "repeat_interleave"]


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
def masked_scatter(x: AnyTensor, mask: AnyTensor, source: AnyTensor) -> Tensor:
    """x with the elements of source, one after the other, where the mask is true   x (..), mask (..) -> (..)

    x and mask broadcast to the shape of the result. If source (..) has fewer elements than there are places, that is an
    error on cpu, and on cuda, where nothing waits, the others are NaN, or 0 of integers.

    Raises:
        TypeError: the mask has no bools, or source has another dtype than x.
    """
    if source.dtype != x.dtype:
        raise TypeError(
            f"masked_scatter: x has dtype {x.dtype.name} and source dtype {source.dtype.name}; "
            "one is needed, use .astype"
        )
    values, chosen = with_mask("masked_scatter", x, mask)
    if not source.size:
        if values.size:
            raise ShapeError(f"masked_scatter: source has no elements  (x {x.shape}, source {source.shape})")
        return values
    flat = reshaped(chosen, (chosen.size,))
    place = where(flat, unchecked(cumsum)(flat, 0) - 1, 0)
    try:
        taken = unchecked(index_select)(reshaped(source, (source.size,)), 0, place)
    except IndexError:
        raise ShapeError(
            f"masked_scatter: source has {source.size} elements for the {int(flat.sum().item())} places of the mask"
        ) from None
    result: Tensor = where(chosen, reshaped(taken, values.shape), values)
    return result
