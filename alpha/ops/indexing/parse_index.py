"""Index of `x[..]`, parsed: a box of elements and index arrays for some of its axes."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

from alpha.autograd.versions import array_of
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.kernel.broadcasting import broadcast_to
from alpha.ops.kernel.casts import as_dtype
from alpha.ops.kernel.rows.row_indices import INT64, NO_PLACE, places
from alpha.ops.kernel.views import Shape, View
from alpha.runtime.recording import refuse

BOOL = np.dtype(np.bool_)


class Index(NamedTuple):
    """The box that integers, slices, None and `...` select, and the index arrays of some of its axes."""

    box: View
    arrays: list[tuple[int, Array]]  # axis of the box; index array of int64 on the device of the tensor


class Places(NamedTuple):
    """The elements that index arrays select: rows F of the middle axis of a box of shape (A, R, C).

    Attributes:
        box: the box, with the indexed axes next to each other.
        sizes: A, R, C.
        F: (I,) of int64.
        shape: that of the result.
    """

    box: View
    sizes: tuple[int, int, int]
    F: Array
    shape: Shape


def parse(x: Tensor, index: Any) -> Index:
    """The elements that an index selects.

    Raises:
        TypeError: a part of the index is no index.
        IndexError: there are more indices than axes, one is out of range, or the shape of a mask does not fit.
        ValueError: a slice has a step below 1.
    """
    items = [_item(x, item) for item in (index if isinstance(index, tuple) else (index,))]
    taken = sum(item.ndim if _is_mask(item) else int(not _adds_axis(item)) for item in items if item is not Ellipsis)
    if taken > x.ndim:
        raise IndexError(f"index: {taken} indices for the {x.ndim} axes of shape {x.shape}")
    dots = [i for i, item in enumerate(items) if item is Ellipsis] or [len(items)]
    if len(dots) > 1:
        raise IndexError("index: `...` comes twice")
    items[dots[0] : dots[0] + 1] = [slice(None)] * (x.ndim - taken)
    box, axis, arrays = View.whole(x.shape), 0, []
    for item in items:
        if isinstance(item, slice):
            box = box.sliced(axis, *_range(item, box.shape[axis]))
            axis += 1
        elif item is None:
            box = box.inserted(axis)
            axis += 1
        elif isinstance(item, bool):  # an axis of length 1, of which all or nothing is selected
            box = box.inserted(axis)
            arrays.append((axis, x.device.zeros((int(item),), INT64)))
            axis += 1
        elif isinstance(item, int):
            box = box.dropped(axis, _position(item, box.shape[axis], x))
        elif _is_mask(item):
            found = _true_places(x, item, box.shape[axis : axis + item.ndim])
            arrays += [(axis + i, array) for i, array in enumerate(found)]
            axis += item.ndim
        else:
            arrays.append((axis, _on_device(x, item, box.shape[axis])))
            axis += 1
    return Index(box, arrays)


def places_of(x: Tensor, index: Index) -> Places:
    """The rows that index arrays select. Their axes become the first ones if other axes lie between them."""
    box, axes = index.box, [axis for axis, _ in index.arrays]
    begin = axes[0]
    if axes != list(range(begin, begin + len(axes))):
        box, begin = box.permuted((*axes, *(i for i in range(len(box.shape)) if i not in axes))), 0
    end = begin + len(axes)
    try:
        shape = np.broadcast_shapes(*[tuple(array.shape) for _, array in index.arrays])
    except ValueError:
        shapes = ", ".join(str(tuple(array.shape)) for _, array in index.arrays)
        raise IndexError(f"index: the shapes {shapes} of index arrays do not broadcast") from None
    F, stride = None, 1
    for (_, array), length in reversed(list(zip(index.arrays, box.shape[begin:end], strict=True))):
        whole = array if tuple(array.shape) == shape else broadcast_to(array, shape)
        F = places(whole.reshape(whole.size), length, stride, F, NO_PLACE)
        stride *= length
    before, after = box.shape[:begin], box.shape[end:]
    return Places(box, (View.whole(before).size, stride, View.whole(after).size), F, (*before, *shape, *after))


def _item(x: Tensor, item: Any) -> Any:
    """A part of an index as None, Ellipsis, a slice, a bool, an int, or an array or Tensor of integers or bools."""
    if item is None or item is Ellipsis or isinstance(item, (slice, bool)):
        return item
    if isinstance(item, np.bool_):
        return bool(item)
    if isinstance(item, (list, tuple, range)):
        item = np.asarray(item, None if len(item) else np.int64)
    if isinstance(item, (Tensor, np.ndarray)):
        if item.dtype.kind not in "ib":
            raise TypeError(f"index: an array of {item.dtype.name} is no index; use int64 or int32, or bool for a mask")
        if item.ndim == 0:
            return bool(item) if item.dtype == BOOL else int(item)
        return item
    if not hasattr(item, "__index__"):
        raise TypeError(
            f"index: a {type(item).__name__} is no index; integers, slices, None, `...`, masks and index arrays are"
        )
    return operator.index(item)


def _is_mask(item: Any) -> bool:
    return isinstance(item, (Tensor, np.ndarray)) and item.dtype == BOOL


def _adds_axis(item: Any) -> bool:
    return item is None or isinstance(item, bool)


def _range(item: slice, length: int) -> tuple[int, int, int]:
    """start, length and step of a slice."""
    if item.step is not None and operator.index(item.step) < 1:
        raise ValueError(f"index: a slice has the step {item.step}, which must be at least 1; use flip")
    start, stop, step = item.indices(length)
    return start, len(range(start, stop, step)), step


def _position(item: int, length: int, x: Tensor) -> int:
    if not -length <= item < length:
        raise IndexError(f"index {item} is out of range for an axis of length {length}  (shape {x.shape})")
    return item % length


def _true_places(x: Tensor, mask: Any, shape: Shape) -> list[Array]:
    """An index array for each axis of a mask; waits for the device."""
    if tuple(mask.shape) != shape:
        raise IndexError(f"index: a mask of shape {tuple(mask.shape)} does not fit the axes {shape} of shape {x.shape}")
    refuse("a mask selects a number of elements that only the host can count: use where or masked_fill")
    values = mask.numpy() if isinstance(mask, Tensor) else mask
    return [x.device.upload(np.ascontiguousarray(found, np.int64)) for found in np.nonzero(values)]


def _on_device(x: Tensor, item: Any, length: int) -> Array:
    """An index array on the device of x; what lies on the host is checked there."""
    if isinstance(item, Tensor) and item.device is x.device:
        return as_dtype(array_of(item), INT64)
    values = item.numpy() if isinstance(item, Tensor) else item
    wrong = (values < -length) | (values >= length)
    if wrong.any():
        raise IndexError(f"index {values[wrong][0]} is out of range for an axis of length {length}  (shape {x.shape})")
    return x.device.listed(np.ascontiguousarray(values, np.int64))
