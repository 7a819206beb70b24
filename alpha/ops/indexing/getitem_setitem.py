"""Reading and writing a part of a tensor: `x[index]` and `x[index] = value`.

What is read is a view of the same memory if its elements are neighbours, as in `x[3]`, `x[8:16]` or `x[2, 1:3]`, and a
copy otherwise, which is written through to x (`copied_parts.py`). So `x[:, 1:3] = value`, `x[:, 1:3] += 1` and
`y = x[:, 1:3]; y.add_(1)` write x. A view and a copy know of which tensor they are a part, so that
`x[3] += 1` and `x[:, 3].add_(1)` have right gradients. What an index array reads, `x[[1, 2]]`, is a tensor of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.autograd.tracing import traced_whole
from alpha.autograd.versions import part_of
from alpha.core.primitive import Array, device_of, shares_memory
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.layout import view as reshaped
from alpha.ops.array.parts.assemble import read
from alpha.ops.array.parts.boxes import SetBlock, Slice, block_or_copy
from alpha.ops.array.parts.view_parts import Part
from alpha.ops.indexing.parse_index import Index, Places, parse, places_of
from alpha.ops.kernel.broadcasting import broadcast_to
from alpha.ops.kernel.operands import NUMBERS, like, operand_of, sum_to
from alpha.ops.kernel.rows.row_indices import add_zeros, put_rows, take_rows
from alpha.ops.kernel.views import Shape, View, read_view, write_view


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
        V = device_of(V).copy(V) if shares_memory(X, (V,)) else V
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
            device = device_of(dY)
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
    which waits for the device (`parse`); rows are then put by `kernel/rows/row_indices.py`.

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
