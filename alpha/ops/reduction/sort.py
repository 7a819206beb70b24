"""Order of elements: sorted, the largest, places in sorted rows, and which are repeated or among others.

The host compares elements for `unique` and `unique_consecutive`, so both wait for it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.autograd.tracing import traced_whole
from alpha.autograd.versions import array_of
from alpha.core.primitive import Array, primitive
from alpha.core.results import Sorted
from alpha.core.tensor import Tensor, full, tensor
from alpha.errors import DeviceError, ShapeError, type_name
from alpha.ops.array.axes import axis_of
from alpha.ops.array.joining import cat
from alpha.ops.array.layout import view as reshaped
from alpha.ops.indexing.gather_scatter import gather, index_add, index_select, scatter
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.casts import BLOCK, CUDA_TYPES, as_float32
from alpha.ops.kernel.common_dtype import BOOL, INT64, common_dtype, promoted
from alpha.ops.kernel.operands import NUMBERS
from alpha.ops.kernel.options import integer
from alpha.ops.kernel.rows.reductions import around
from alpha.ops.kernel.rows.row_indices import places, take_rows
from alpha.ops.kernel.rows.sort_order import sort_order
from alpha.ops.kernel.views import View, read_view
from alpha.ops.math.bitwise import logical_not
from alpha.ops.math.comparison import relate
from alpha.ops.reduction import extremes
from alpha.ops.reduction.extremes import Along
from alpha.ops.reduction.scan import cumsum
from alpha.runtime.cpu import empty as cpu_empty
from alpha.runtime.recording import refuse

__all__ = ["argsort", "bucketize", "isin", "searchsorted", "sort", "topk", "unique", "unique_consecutive"]


def _order(X: Array, sizes: tuple[int, int, int], descending: bool) -> Array:
    """The places along the middle axis in sorted order   X (...) of A R B elements -> (A, R, B) of int64"""
    A, R, B = sizes
    if B == 1:
        return sort_order(X.reshape((A, R)), descending).reshape(sizes)
    rows = read_view(X, View.whole(sizes).permuted((0, 2, 1))).reshape((A * B, R))
    return read_view(sort_order(rows, descending), View.whole((A, B, R)).permuted((0, 2, 1)))


@traced_whole
def sorted_along(x: Tensor, axis: int, count: int, descending: bool) -> Sorted:
    """The first `count` elements in sorted order."""
    own = x.shape or (1,)
    sizes = around(own, axis)
    _, R, B = sizes
    index = _order(array_of(x), sizes, descending)
    if count < R:
        index = read_view(index, View.whole(sizes).sliced(1, 0, count))
    shape = (*own[:axis], count, *own[axis + 1 :]) if x.ndim else ()
    F = places(index.reshape(index.size), R, B, None, (B, max(1, count * B), R * B))
    values = take_rows(x.array.reshape((1, x.size, 1)), F)
    return Sorted(Along.apply(x, values=values, index=index, sizes=sizes, shape=shape), Tensor(index.reshape(shape)))


@check_arguments
def sort(x: AnyTensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Sorted:
    """The elements of each row along an axis in ascending order, and their places   x (...) -> values, indices (...)

    NaN is the largest number. Equal elements keep their order, whether `stable` is True or not.
    """
    axis = axis_of("sort", x, dim)
    return sorted_along(x, axis, (x.shape or (1,))[axis], bool(descending))


@check_arguments
@traced_whole
def argsort(x: AnyTensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The places of the elements along an axis in ascending order, as `sort` gives them   x (...) -> (...)"""
    sizes = around(x.shape or (1,), axis_of("argsort", x, dim))
    return Tensor(_order(array_of(x), sizes, bool(descending)).reshape(x.shape))


@check_arguments
def topk(x: AnyTensor, k: int, dim: int | None = None, largest: bool = True, sorted: bool = True) -> Sorted:
    """The k largest, or smallest, elements along an axis (by default the last), and their places

    x (.., D, ..) -> values, indices (.., k, ..)

    They come in sorted order, also if `sorted` is False. NaN is the largest number; of equal elements the first counts.
    """
    axis = axis_of("topk", x, -1 if dim is None else dim)
    length, count = (x.shape or (1,))[axis], integer("topk", "k", k)
    if not 0 <= count <= length:
        raise ShapeError(f"topk: k={count} of the {length} elements along axis {axis} of shape {x.shape}")
    return sorted_along(x, axis, count, bool(largest))


@primitive
def search_rows(S: Array, V: Array, right: bool) -> Array:
    """Y[a, i] = the number of elements of row a of S that are less than V[a, i], or with `right` not more

    S (A, C) or (1, C), each row in ascending order, V (A, I) of one dtype -> Y (A, I) of int64. NaN is the largest.
    """


@search_rows.impl("cpu")
def _(S: Array, V: Array, right: bool) -> Array:
    S, V = as_float32(S), as_float32(V)
    Y = cpu_empty(V.shape, INT64)
    side: Any = "right" if right else "left"
    if len(S) == 1:
        Y[...] = np.searchsorted(S[0], V, side)
        return Y
    for row, values, found in zip(S, V, Y, strict=True):
        found[...] = np.searchsorted(row, values, side)
    return Y


@search_rows.impl("cuda")
def _(S: Array, V: Array, right: bool) -> Array:
    Y = V.device.empty(V.shape, INT64)
    if Y.size:
        C = S.shape[1]
        numbers = map(np.int64, (C, V.shape[1], C if S.shape[0] > 1 else 0, Y.size))
        macros = {"TYPE": CUDA_TYPES[V.dtype]}
        V.device.launch(
            "indexing/search.cu", "search", -(-Y.size // BLOCK), BLOCK, (Y, S, V, *numbers, int(right)), macros
        )
    return Y


@check_arguments
def searchsorted(
    sorted_sequence: AnyTensor,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: AnyTensor | None = None,
) -> Tensor:
    """Place of each value in sorted rows: the first one whose element is not less   -> as values, int64

    sorted_sequence (C,), values (..); or sorted_sequence (.., C), values (.., I) with the same leading axes.
    NaN is the largest number. Whether a row is sorted is not checked.

    Args:
        values: a tensor, an array or a number.
        out_int32: whether the result is int32.
        right, side: True or "right": the first place whose element is more. "left" is the default of side.
        sorter: the order that sorts each row, as `argsort` gives it, if the rows themselves are not sorted.

    Raises:
        ShapeError: there are several rows, and the leading axes of values are others.
        ValueError: right and side contradict each other.
    """
    if side not in (None, "left", "right") or (side == "left" and right):
        raise ValueError(f"searchsorted: side={side!r} is not 'left' or 'right', or contradicts right={right}")
    if sorter is not None:
        if not isinstance(sorter, Tensor) or sorter.shape != sorted_sequence.shape:
            raise ShapeError(
                f"searchsorted: sorter must be a Tensor (.., C) as sorted_sequence {sorted_sequence.shape}"
            )
        sorted_sequence = gather(sorted_sequence, -1, sorter)
    return _searched("searchsorted", sorted_sequence, values, right or side == "right", out_int32)


@check_arguments
def bucketize(x: Any, boundaries: AnyTensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The number of the bucket in which each element lies, between sorted boundaries   x (..), boundaries (C,) -> as x

    Args:
        x: a tensor, an array or a number.
        out_int32: whether the result is int32, not int64.
        right: False: a boundary belongs to the bucket before it; True: to the one behind it.
    """
    if boundaries.ndim != 1:
        raise ShapeError(f"bucketize: boundaries (C,) is needed  (boundaries {boundaries.shape})")
    return _searched("bucketize", boundaries, x, bool(right), out_int32)


def _searched(operator: str, rows: Tensor, values: Any, right: bool, out_int32: bool) -> Tensor:
    if isinstance(values, NUMBERS):
        kind = common_dtype(rows, values)
        values = full((), values, kind, rows.device)
    elif isinstance(values, (np.ndarray, list)):
        values = tensor(values, device=rows.device)
    if not isinstance(values, Tensor):
        raise TypeError(f"{operator}: {type_name(values)} is no Tensor and no number")
    if values.device is not rows.device:
        raise DeviceError(
            f"{operator}: the tensors are on {values.device.name} and {rows.device.name}; "
            "move them together with .to(device)"
        )
    if not rows.ndim or (rows.ndim > 1 and rows.shape[:-1] != values.shape[:-1]):
        raise ShapeError(
            f"{operator}: (C,), or rows (.., C) with values (.., I), are needed  "
            f"(rows {rows.shape}, values {values.shape})"
        )
    dtype = common_dtype(rows, values)
    S = array_of(rows.astype(dtype)).reshape((math.prod(rows.shape[:-1]), rows.shape[-1]))
    V = array_of(values.astype(dtype)).reshape((S.shape[0], values.size // max(1, S.shape[0])))
    found = reshaped(Tensor(search_rows(S, V, right)), values.shape)
    return found.astype(np.int32) if out_int32 else found


@check_arguments
def unique(
    x: AnyTensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Every element once, in ascending order; with dim every row of an axis   x (...) -> (count,), or (.., count, ..)

    It waits for the device, because only the host can count them; so it is refused in a captured step. NaN is equal to
    nothing, so each one stays. The result has no gradient.

    Args:
        sorted: the result is in ascending order also if this is False.
        return_inverse: return also the place of each element of x in the result: as x, or (D,) with dim.
        return_counts: return also how often each element comes: (count,).
        dim: the axis whose rows are compared, in the order of their elements; None: x as one axis.
    """
    rows, axis = _rows("unique", x, dim)
    order = np.lexsort(rows.T[::-1]) if rows.shape[1] else np.arange(len(rows))
    return _without(x, axis, rows, order, (return_inverse, return_counts))


@check_arguments
def unique_consecutive(
    x: AnyTensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The elements without those that are equal to the one before; with dim the rows of an axis

    x (...) -> (count,), or (.., count, ..)

    Args:
        return_inverse, return_counts, dim: as of `unique`, which also says when it waits.
    """
    rows, axis = _rows("unique_consecutive", x, dim)
    return _without(x, axis, rows, np.arange(len(rows)), (return_inverse, return_counts))


def _rows(operator: str, x: Tensor, dim: int | None) -> tuple[Array, int | None]:
    """Elements that are compared, as rows on the host, and the axis of these rows."""
    refuse(f"{operator} has a number of elements that only the host can count")
    values = as_float32(x.numpy())
    if dim is None:
        return values.reshape(-1, 1), None
    axis = axis_of(operator, x, dim, x.ndim)
    moved = np.moveaxis(values, axis, 0)
    return moved.reshape(len(moved), x.size // max(1, len(moved))), axis


def _without(x: Tensor, axis: int | None, rows: Array, order: Array, wanted: tuple[bool, bool]) -> Any:
    """The rows in that order without those that are equal to the one before, and where and how many they were."""
    listed = rows[order]
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = (listed[1:] != listed[:-1]).any(1)
    first = np.flatnonzero(begins)
    values = x.numpy().reshape(-1)[order[first]] if axis is None else np.take(x.numpy(), order[first], axis)
    inverse = np.empty(len(rows), np.int64)
    inverse[order] = np.cumsum(begins) - 1
    counts = np.diff(first, append=len(rows))

    def uploaded(array: Array) -> Tensor:
        return Tensor(x.device.upload(array))

    results = [uploaded(values)]
    if wanted[0]:
        results.append(uploaded(inverse.reshape(x.shape if axis is None else -1)))
    if wanted[1]:
        results.append(uploaded(counts.astype(np.int64)))
    return results[0] if len(results) == 1 else tuple(results)


FEW = 16  # elements with which each of the others is compared


@check_arguments
def isin(elements: AnyTensor, test_elements: AnyTensor, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """True where an element is one of the test elements   elements (...), test_elements (any shape) -> elements, bool

    NaN is among no elements.

    Args:
        assume_unique: allowed, and changes nothing: no element comes twice in either tensor.
        invert: whether it is none of them instead.
    """
    left, right = (operand.detach().reshape(operand.size) for operand in promoted(elements, test_elements))
    if right.size <= FEW:
        found = extremes.any(relate(left.reshape((left.size, 1)), right, "=="), 1)
    else:
        found = _among_many(left, right)
    found = found.reshape(elements.shape)
    return logical_not(found) if invert else found


def _among_many(left: Tensor, right: Tensor) -> Tensor:
    """Both are sorted together, and an element counts if its run of equal ones has an element of `right`."""
    both = sort(cat([left, right]))
    values, at = both
    begins = cat([full((1,), False, BOOL, left.device), relate(values[1:], values[:-1], "!=")])
    run = cumsum(begins, 0)
    tests = relate(at, left.size, ">=").astype(INT64)
    counts = index_add(full(run.shape, 0, INT64, left.device), 0, run, tests)
    hits = index_select(counts, 0, run)
    return relate(scatter(full(run.shape, 0, INT64, left.device), 0, at, hits)[: left.size], 0, ">")
