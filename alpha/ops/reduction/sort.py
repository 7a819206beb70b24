"""Order of elements: sorted, the largest, places in sorted rows, without repetitions, counted, and rows repeated.

The host compares elements for `unique` and `unique_consecutive`, so both wait for it. Places of repeated rows, and of a
source that is spread over a mask, follow from running sums of counts.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.autograd.grad_mode import no_grad
from alpha.autograd.tracing import traced_whole
from alpha.autograd.versions import array_of
from alpha.core.numerics import BFLOAT16, FLOAT32, is_floating
from alpha.core.primitive import Array, primitive
from alpha.core.results import Sorted
from alpha.core.tensor import Tensor, full, tensor
from alpha.errors import DeviceError, ShapeError, type_name
from alpha.ops.array.axes import Expand, axis_of, expand
from alpha.ops.array.creation import arange
from alpha.ops.array.joining import cat
from alpha.ops.array.layout import view as reshaped
from alpha.ops.indexing.gather_scatter import gather, index_add, index_select, scatter
from alpha.ops.indexing.where import where, with_mask
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.kernel.casts import BLOCK, CUDA_TYPES, as_dtype, as_float32
from alpha.ops.kernel.operands import BOOL, INT64, NUMBERS, common_dtype, promoted
from alpha.ops.kernel.options import integer, real
from alpha.ops.kernel.reductions import around
from alpha.ops.kernel.row_indices import add_rows, places, sort_order, take_rows
from alpha.ops.kernel.views import View, read_view
from alpha.ops.math.bitwise import logical_not
from alpha.ops.math.comparison import relate
from alpha.ops.reduction import extremes
from alpha.ops.reduction.extremes import Along, amax, amin
from alpha.ops.reduction.scan import cumsum
from alpha.runtime.cpu import empty as cpu_empty
from alpha.runtime.recording import refuse

__all__ = [
    "argsort",
    "bincount",
    "bucketize",
    "histc",
    "isin",
    "masked_scatter",
    "one_hot",
    "repeat_interleave",
    "searchsorted",
    "sort",
    "topk",
    "unique",
    "unique_consecutive",
]


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


@check_arguments
def one_hot(x: AnyTensor, num_classes: int = -1) -> Tensor:
    """Zeros with a 1 at the place of each class   x (...) of integers -> (..., num_classes) of int64

    A class out of range is an error on cpu. On cuda nothing waits for the device, so its row is all zeros.

    Args:
        num_classes: -1: the largest class and one more. This waits for the device and is refused in a captured step.

    Raises:
        TypeError: x has no integers.
        ValueError: on cpu, a class is below 0 or at least num_classes.
    """
    if x.dtype.kind != "i":
        raise TypeError(f"one_hot: x has dtype {x.dtype.name}; classes of int64 or int32 are needed")
    count = integer("one_hot", "num_classes", num_classes, -1)
    if count == 0 or (count == -1 and not x.size):
        raise ValueError(f"one_hot: num_classes={count} for {x.size} elements; at least 1 is needed")
    if count == -1:
        refuse("one_hot has a number of classes that only the host can count: give num_classes")
        count = int(unchecked(amax)(x).item()) + 1
    if isinstance(array_of(x), np.ndarray) and x.size and not (x.array.min() >= 0 and x.array.max() < count):
        wrong = x.array.min() if x.array.min() < 0 else x.array.max()
        raise ValueError(f"one_hot: class {wrong} is out of range for num_classes={count}")
    classes = arange(count, dtype=x.dtype, device=x.device)
    return relate(reshaped(x, (*x.shape, 1)), classes, "==").astype(INT64)


@check_arguments
def bincount(x: AnyTensor, weights: AnyTensor | None = None, minlength: int = 0) -> Tensor:
    """Count of each number 0, 1, .., or the sum of its weights   x (N,) -> (max(largest + 1, minlength),)

    It waits for the device, because only the host can find the largest number; so it is refused in a captured step. The
    weights of a number are added in the order of x. Counts are int64; sums have the dtype of floating weights, and are
    float64 of integers.

    Args:
        weights: (N,), one for each element.
        minlength: the least length of the result.

    Raises:
        TypeError: x has no integers.
        ValueError: x has a number below 0.
    """
    if x.dtype.kind not in "iu":
        raise TypeError(f"bincount: x has dtype {x.dtype.name}; integers are needed")
    if x.ndim != 1 or (weights is not None and weights.shape != x.shape):
        given = "" if weights is None else f", weights {weights.shape}"
        raise ShapeError(f"bincount: x (N,) and weights (N,) are needed  (x {x.shape}{given})")
    least = integer("bincount", "minlength", minlength, 0)
    refuse("bincount has a number of bins that only the host can count: use scatter_add")
    numbers = x.astype(INT64)
    first, last = (int(f(numbers).item()) if x.size else 0 for f in (unchecked(amin), unchecked(amax)))
    if first < 0:
        raise ValueError(f"bincount: x has {first}; no number may be below 0")
    length = max(least, last + 1 if x.size else 0)
    if weights is None:
        return _counted(numbers, full(x.shape, 1, INT64, x.device), length)
    return _counted(numbers, weights if is_floating(weights.dtype) else weights.astype(np.float64), length)


def _counted(places: Tensor, weights: Tensor, length: int) -> Tensor:
    """The sum of the weights of each place; a place -1 counts for nothing   places, weights (N,) -> (length,)"""
    Y = places.device.zeros((1, length, 1), weights.dtype)
    if length:
        add_rows(Y, array_of(places), array_of(weights).reshape((1, weights.size, 1)))
    return Tensor(Y.reshape((length,)))


@check_arguments
def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Number of elements in each of equal ranges from min to max, in the dtype of x   x (...) -> (bins,)

    The last range has its end, too. Elements out of bounds and NaN count for nothing.

    Args:
        min, max: the bounds; if they are equal, the least and the largest element, or 1 less and 1 more if these are
            equal, too.
    """
    count = integer("histc", "bins", bins, 1)
    low, high = real("histc", "min", min), real("histc", "max", max)
    if low > high:
        raise ValueError(f"histc: min={min} is more than max={max}")
    with no_grad():
        flat = reshaped(x.detach(), (x.size,))
        flat = flat.astype(FLOAT32) if x.dtype == BFLOAT16 else flat
        if not x.size:
            return Tensor(x.device.zeros((count,), x.dtype))
        first, last = (full((), bound, flat.dtype, x.device) for bound in (low, high))
        if low == high:
            first, last = unchecked(amin)(flat), unchecked(amax)(flat)
            alone = first == last
            first, last = where(alone, first - 1, first), where(alone, last + 1, last)
        at = ((flat - first) * count / (last - first)).astype(INT64)
        inside = (flat >= first).logical_and(flat <= last)
        at = where(inside, where(at >= count, count - 1, at), -1)
        ones: Any = full((x.size,), 1, INT64, x.device)
        return Tensor(as_dtype(_counted(at, ones, count).array, x.dtype))


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
