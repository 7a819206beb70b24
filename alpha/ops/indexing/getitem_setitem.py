"""Reading and writing a part of a tensor: `x[index]` and `x[index] = value`.

What is read is a view of the same memory if its elements are neighbours, as in `x[3]`, `x[8:16]` or `x[2, 1:3]`, and a
copy otherwise, which is written through to x (`array/parts.py`). So `x[:, 1:3] = value`, `x[:, 1:3] += 1` and
`y = x[:, 1:3]; y.add_(1)` write x. A view and a copy know of which tensor they are a part, so that
`x[3] += 1` and `x[:, 3].add_(1)` have right gradients. What an index array reads, `x[[1, 2]]`, is a tensor of its own.

This file also has: what stands between the brackets of `x[..]`, as a box of elements and index arrays for some of its
axes.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

from alpha.autograd.function import Function
from alpha.autograd.tracing import traced_whole
from alpha.autograd.versions import array_of, part_of
from alpha.core.primitive import Array, shares_memory
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.assemble import read
from alpha.ops.array.boxes import SetBlock, Slice, block_or_copy
from alpha.ops.array.layout import view as reshaped
from alpha.ops.array.parts import Part
from alpha.ops.kernel.casts import as_dtype
from alpha.ops.kernel.operands import NUMBERS, like, operand_of, sum_to
from alpha.ops.kernel.row_indices import INT64, NO_PLACE, add_zeros, places, put_rows, take_rows
from alpha.ops.kernel.views import Shape, View, broadcast_to, read_view, write_view
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


class Take(Function):
    """Rows of the middle axis, each as often as it is named   X (A, R, C), F (I,) -> Y shape"""

    def forward(self, X: Array, *, at: Places) -> Array:
        self.shape, self.at = tuple(X.shape), at
        return take_rows(X.reshape(at.sizes), at.F).reshape(at.shape)

    def backward(self, dY: Array) -> Any:
        return add_zeros(self.at.sizes, self.at.F, _rows(dY, self.at)).reshape(self.shape)


class SetPlaces(Function):
    """Elements of X that index arrays name become V; of several at one place the last one   X (...), V (...) -> X

    The gradient of V is that of X at the places, also of those that were overwritten, as in PyTorch.
    """

    inplace, written_as = True, "x[..] = value"

    def forward(self, X: Array, V: Array, *, at: Places) -> Array:
        self.at, self.operand = at, operand_of(V)
        V = Tensor(V).device.copy(V) if shares_memory(X, (V,)) else V
        self.put(X, broadcast_to(V, at.shape), distinct=False)
        return X

    def put(self, X: Array, V: Array, distinct: bool) -> None:
        box, sizes, F, _ = self.at
        if box == View.whole(tuple(X.shape)):
            put_rows(X.reshape(sizes), F, _rows(V, self.at), distinct)
            return
        window = read_view(X, box)
        put_rows(window.reshape(sizes), F, _rows(V, self.at), distinct)
        write_view(X, box, window, View.whole(box.shape))

    def backward(self, dY: Array) -> Any:
        dX = dV = None
        if self.needs_input_grad[0]:
            device = Tensor(dY).device
            dX = device.copy(dY)
            self.put(dX, device.zeros(self.at.shape, dY.dtype), distinct=True)  # all of them 0
        if self.needs_input_grad[1]:
            box, sizes, F, shape = self.at
            window = dY if box == View.whole(tuple(dY.shape)) else read_view(dY, box)
            dV = sum_to(take_rows(window.reshape(sizes), F).reshape(shape), self.operand)
        return dX, dV


def _rows(V: Array, at: Places) -> Array:
    """The selected elements as (A, I, C)"""
    A, _, C = at.sizes
    return V.reshape((A, at.F.size, C))


def _part_of(x: Tensor, box: View) -> Tensor:
    """`block_or_copy`, whose result knows of which tensor it is a part."""
    result = block_or_copy(x, box)
    if box.is_contiguous:
        result._part = Part(x, box)
    return result


def get_item(x: Tensor, index: Any) -> Tensor:
    """`x[index]`: a view if the elements are neighbours in memory, else a copy.

    An index has integers, slices, None, `...`, masks (bool) and index arrays (Tensors, lists or numpy arrays of int64
    or int32), with PyTorch's meaning. A negative index counts from the end. Gradients of equal indices are added in the
    order of the indices. A mask waits for the device. Nothing else does, so an index array on cuda that is out of range
    is no error: it gives NaN, or 0 of integers.

    Raises:
        TypeError, IndexError, ValueError: as `parse` says.
    """
    found = parse(x, index)
    if not found.arrays:
        return _part_of(x, found.box)
    return rows_of(x, index, found)


@traced_whole
def rows_of(x: Tensor, index: Any, found: Index) -> Tensor:
    """The elements that an index with index arrays selects, which is parsed already."""
    at = places_of(x, found)
    whole = View.whole(x.shape)
    box = x if at.box == whole else reshaped(x, at.box.shape) if _same(at.box, whole) else read(Slice, x, at.box)
    return Take.apply(box, at=at)


def _same(box: View, whole: View) -> bool:
    return box.is_contiguous and box.offset == 0 and box.size == whole.size


def set_item(x: Tensor, index: Any, value: Any) -> None:
    """`x[index] = value`, written into x; value is a number, a tensor, an array or a list that broadcasts.

    It is `Tensor.__setitem__` (`api/install.py`). A mask, as in `x[x > 0] = 1`, becomes arrays of integers on the host,
    which waits for the device (`parse`); rows are then put by `kernel/row_indices.py`.

    The index is one of `get_item`. On cuda nothing is written at an index of an array that is out of range.

    Raises:
        ShapeError: value does not fit.
        TypeError, IndexError, ValueError: as `parse` says.
        GradientError: x is a leaf that requires a gradient, or a view in the graph.
    """
    found = parse(x, index)
    part = part_of(value) if isinstance(value, Tensor) and not found.arrays else None
    if part is not None and part.box == found.box and part.whole(value) is x:
        return  # it is this part itself: x[0] += y has written it before
    if not isinstance(value, (Tensor, np.ndarray, list, tuple, *NUMBERS)):
        raise TypeError(f"index: a {type(value).__name__} cannot be assigned; a number, a Tensor or an array can")
    given = like(x, list(value) if isinstance(value, tuple) else value)
    given = given if given.dtype == x.dtype else given.astype(x.dtype)
    if found.arrays:
        at = places_of(x, found)
        SetPlaces.apply(x, fitting(given, at.shape, x), at=at)
    else:
        SetBlock.apply(x, fitting(given, found.box.shape, x), box=found.box)


def fitting(value: Tensor, shape: Shape, x: Tensor) -> Tensor:
    """The value without leading axes of length 1 that the part has not."""
    own = value.shape
    while len(own) > len(shape) and own[0] == 1:
        own = own[1:]
    try:
        fits = np.broadcast_shapes(own, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(f"index: a value of shape {value.shape} does not fit the part {shape} of shape {x.shape}")
    return value if own == value.shape else reshaped(value, own)
