"""Rows, elements and masked parts of a tensor: read by their places, and written into a copy.

An index that is out of range is an error on cpu, and NaN or nothing on cuda, as `gather_scatter.py` says.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha.autograd.versions import array_of
from alpha.core.tensor import Tensor, full
from alpha.errors import ShapeError
from alpha.ops.array.axes import axis_of, expand, movedim
from alpha.ops.array.creation import arange
from alpha.ops.array.layout import view as reshaped
from alpha.ops.array.parts.boxes import block_or_copy
from alpha.ops.array.parts.copied_parts import linked
from alpha.ops.indexing.gather_scatter import Scatter, ScatterAdd, index_select, nonzero
from alpha.ops.indexing.getitem_setitem import fitting, get_item
from alpha.ops.indexing.parse_index import Places, parse, places_of
from alpha.ops.indexing.where import masked_fill, with_mask
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.kernel.casts import as_dtype
from alpha.ops.kernel.common_dtype import BOOL
from alpha.ops.kernel.operands import NUMBERS
from alpha.ops.kernel.options import integer
from alpha.ops.kernel.rows.reductions import around
from alpha.ops.kernel.rows.row_indices import INT64, NO_PLACE, places, put_rows
from alpha.ops.kernel.views import View

__all__ = [
    "argwhere",
    "index_copy",
    "index_fill",
    "index_put",
    "masked_select",
    "narrow",
    "narrow_copy",
    "select",
    "take",
]


def _rows(operator: str, x: Tensor, dim: int, index: Tensor) -> Places:
    """The rows of an axis that an index (I,) or () names."""
    axis = axis_of(operator, x, dim)
    if index.dtype.kind != "i":
        raise TypeError(f"{operator}: index has dtype {index.dtype.name}; int64 or int32 is needed")
    if index.ndim > 1:
        raise ShapeError(f"{operator}: index (I,) or () is needed  (index {index.shape})")
    own = x.shape or (1,)
    sizes = around(own, axis)
    F = places(as_dtype(array_of(index), INT64).reshape(index.size), sizes[1], 1, None, NO_PLACE)
    return Places(View.whole(x.shape), sizes, F, (*own[:axis], F.size, *own[axis + 1 :]))


@check_arguments
def index_fill(x: AnyTensor, dim: int, index: AnyTensor, value: Any) -> Tensor:
    """A copy of x with a number in all rows of an axis that an index names   x (.., R, ..), index (I,) -> as x

    Args:
        value: a number or a 0-d Tensor.
    """
    if not isinstance(value, (Tensor, *NUMBERS)) or (isinstance(value, Tensor) and value.ndim):
        raise TypeError("index_fill: value is not a number or a 0-d Tensor")
    _, sizes, F, _ = _rows("index_fill", x, dim, index)
    named = x.device.zeros((1, sizes[1], 1), BOOL)
    put_rows(named, F, full((1, F.size, 1), True, BOOL, x.device).array, True)  # all of them alike
    return reshaped(unchecked(masked_fill)(reshaped(x, sizes), Tensor(named), value), x.shape)


@check_arguments
def index_copy(x: AnyTensor, dim: int, index: AnyTensor, source: AnyTensor) -> Tensor:
    """A copy of x with other rows where an index says: y[index[i]] = source[i] for dim=0

    x (.., R, ..), index (I,) or (), source (.., I, ..) -> as x. Of several rows at one place the last one stays.

    Raises:
        TypeError: source has another dtype than x.
        ShapeError: source is not as x, but I long on the axis.
    """
    if source.dtype != x.dtype:
        raise TypeError(
            f"index_copy: x has dtype {x.dtype.name} and source dtype {source.dtype.name}; one is needed, use .astype"
        )
    at = _rows("index_copy", x, dim, index)
    if (source.shape or (1,)) != at.shape:
        raise ShapeError(f"index_copy: source must have the shape {at.shape}  (x {x.shape}, source {source.shape})")
    return Scatter.apply(x, reshaped(source, at.shape), at=at)


@check_arguments
def index_put(x: AnyTensor, indices: Sequence[Any], values: AnyTensor, accumulate: bool = False) -> Tensor:
    """A copy of x with other elements where indices say: as `y[indices] = values`   x (..), values -> as x

    A mask waits for the device.

    Args:
        indices: index arrays or masks, one for each of the first axes; None is a whole axis.
        values: of the dtype of x, in a shape that broadcasts to that of `x[indices]`.
        accumulate: True: values are added to x, those of one place in the order of the index. False: the last stays.
    """
    if not isinstance(indices, (tuple, list)) or not indices:
        raise TypeError(f"index_put: indices={indices!r} is not a tuple of at least one index")
    if values.dtype != x.dtype:
        raise TypeError(
            f"index_put: x has dtype {x.dtype.name} and values dtype {values.dtype.name}; one is needed, use .astype"
        )
    if accumulate and x.dtype == BOOL:
        raise TypeError("index_put: x has dtype bool, which has no sum; use .astype('int32')")
    found = parse(x, tuple([slice(None) if index is None else index for index in indices]))
    if not found.arrays:
        raise TypeError(f"index_put: indices={indices!r} has no index array")
    at = places_of(x, found)
    given = fitting(values, at.shape, x)
    if accumulate:
        return ScatterAdd.apply(x, given if given.shape == at.shape else unchecked(expand)(given, at.shape), at=at)
    return Scatter.apply(x, given, at=at)


@check_arguments
def masked_select(x: AnyTensor, mask: AnyTensor) -> Tensor:
    """The elements of x where the mask is true, in the order of memory   x (..), mask (..) of bools -> (count,)

    x and mask broadcast. It waits for the device, because only the host can count them; so it is refused in a captured
    step.
    """
    values, chosen = with_mask("masked_select", x, mask)
    return get_item(reshaped(values, (values.size,)), reshaped(chosen, (chosen.size,)))


@check_arguments
def take(x: AnyTensor, index: AnyTensor) -> Tensor:
    """The elements of x, as one axis, that an index names   x (..), index (..) of int64 or int32 -> as index"""
    if index.dtype.kind != "i":
        raise TypeError(f"take: index has dtype {index.dtype.name}; int64 or int32 is needed")
    if not x.size and index.size:
        raise IndexError(f"take: x has no elements  (x {x.shape}, index {index.shape})")
    found = unchecked(index_select)(reshaped(x, (x.size,)), 0, reshaped(index, (index.size,)))
    return reshaped(found, index.shape)


@check_arguments
def narrow(x: AnyTensor, dim: int, start: Any, length: int) -> Tensor:
    """Part of an axis: `length` elements from `start` on   x (.., D, ..) -> (.., length, ..)

    A view if the elements are neighbours in memory, else a copy. A negative start counts from the end; a 0-d tensor
    waits for the device.

    Raises:
        ShapeError: the axis has no such elements.
    """
    axis = axis_of("narrow", x, dim, x.ndim)
    if isinstance(start, Tensor) and start.dtype.kind == "i" and start.ndim == 0:
        start = int(start.item())
    begin, count, own = integer("narrow", "start", start), integer("narrow", "length", length, 0), x.shape[axis]
    first = begin + own if begin < 0 else begin
    if not 0 <= first <= own or first + count > own:
        raise ShapeError(f"narrow: start={begin} and length={count} do not fit axis {axis} of shape {x.shape}")
    return block_or_copy(x, View.whole(x.shape).sliced(axis, first, count))


@check_arguments
def select(x: AnyTensor, dim: int, index: int) -> Tensor:
    """The elements at one place of an axis, without this axis   x (.., D, ..) -> (..)

    A view if the elements are neighbours in memory, else a copy. A negative index counts from the end.

    Raises:
        IndexError: the axis has no such place.
    """
    axis = axis_of("select", x, dim, x.ndim)
    place, own = integer("select", "index", index), x.shape[axis]
    if not -own <= place < own:
        raise IndexError(f"select: index={place} is out of range for axis {axis} of shape {x.shape}")
    return block_or_copy(x, View.whole(x.shape).dropped(axis, place % own))


@check_arguments
def argwhere(x: AnyTensor) -> Tensor:
    """The places of the elements that are not 0, in the order of memory   x of k axes -> (count, k) of int64

    It waits for the device, as `nonzero`.
    """
    found: Tensor = unchecked(nonzero)(x)
    return found


@check_arguments
def combinations(x: AnyTensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of r elements of a vector, in the order of their places   x (N,) -> (count, r)

    Args:
        with_replacement: whether a choice may have an element several times.
    """
    if x.ndim != 1:
        raise ShapeError(f"combinations: x (N,) is needed  (x {x.shape})")
    count = integer("combinations", "r", r, 0)
    if count == 0:
        return x[:0]
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    chosen = np.array([*choose(range(x.size), count)], np.int64).reshape(-1, count)
    index = Tensor(x.device.upload(np.ascontiguousarray(chosen.reshape(-1))))
    return reshaped(unchecked(index_select)(x, 0, index), tuple(chosen.shape))


@check_arguments
def narrow_copy(x: AnyTensor, dim: int, start: Any, length: int) -> Tensor:
    """`narrow`, always as a copy   x (.., D, ..) -> (.., length, ..)"""
    return unchecked(narrow)(x, dim, start, length).clone()


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
