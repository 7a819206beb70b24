"""Elements without their repetitions: unique and unique_consecutive. The host compares them, so both wait for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.core.primitive import Array
from alpha.core.tensor import Tensor, full
from alpha.ops.array.axes import axis_of
from alpha.ops.array.joining import cat
from alpha.ops.indexing.gather_scatter import index_add, index_select, scatter
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.dtypes import as_float32
from alpha.ops.kernel.operands import BOOL, INT64, promoted
from alpha.ops.math.bitwise import logical_not
from alpha.ops.math.compare import relate
from alpha.ops.reduction import extremes
from alpha.ops.reduction.scan import cumsum
from alpha.ops.reduction.sort import sort
from alpha.runtime.recording import refuse

__all__ = ["isin", "unique", "unique_consecutive"]


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
    """What is compared, as rows on the host, and the axis of these rows."""
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
    """Whether an element is one of the test elements   elements (...), test_elements (any shape) -> elements, bool

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
