"""Sums, means and largest elements of rows of a table, bag by bag."""

from __future__ import annotations

import numpy as np

from alpha.autograd.versions import array_of
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import expand
from alpha.ops.array.creation import arange, zeros
from alpha.ops.indexing.gather_scatter import index_add
from alpha.ops.indexing.where import where
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.kernel.options import only_offered
from alpha.ops.matmul.embedding import embedding, padding_row
from alpha.ops.reduction.extremes import amax
from alpha.ops.reduction.scatter_reduce import scatter_reduce
from alpha.ops.reduction.sort import searchsorted

__all__ = ["embedding_bag"]

MODES = ("sum", "mean", "max")


@check_arguments
def embedding_bag(
    x: AnyTensor,
    weight: Tensor,
    offsets: AnyTensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or maximum of the rows that an index names, for each bag

    x (B, L) of int64 or int32, or x (N,) and offsets (B,), weight (R, C) -> (B, C). The result of an empty bag is 0.
    All named rows are held at once. Rows of a bag are added in their order; equal largest elements share the gradient.
    An index that is out of range is an error on cpu, and NaN on cuda, as of `embedding`.

    Args:
        offsets: where each bag begins in x (N,), in ascending order from 0 on.
        max_norm, norm_type: as of `embedding`.
        mode: "sum", "mean" or "max".
        scale_grad_by_freq, sparse: only False is offered.
        per_sample_weights: a factor for each row, in the shape of x; only with mode="sum".
        include_last_offset: whether offsets (B + 1,) ends with the end of the last bag.
        padding_idx: a row that counts for nothing.

    Raises:
        ShapeError: x has not one axis with offsets, or two without; or another shape does not fit.
        ValueError: another mode, or per_sample_weights with another mode than "sum"; on cpu, wrong offsets.
    """
    only_offered("embedding_bag", scale_grad_by_freq=(scale_grad_by_freq, False), sparse=(sparse, False))
    check_mode("embedding_bag", mode)
    factors = per_sample_weights
    if factors is not None and mode != "sum":
        raise ValueError(f"embedding_bag: per_sample_weights need mode='sum', not mode={mode!r}")
    if factors is not None and factors.shape != x.shape:
        raise ShapeError(f"embedding_bag: per_sample_weights {factors.shape} must be as x {x.shape}")
    if x.ndim != (2 if offsets is None else 1):
        given = "None" if offsets is None else f"{offsets.shape}"
        raise ShapeError(f"embedding_bag: x (B, L), or x (N,) and offsets, are needed  (x {x.shape}, offsets {given})")
    rows = unchecked(embedding)(x, weight, padding_idx, max_norm, norm_type)
    if factors is not None:
        rows = rows * factors.reshape(*x.shape, 1)
    kept = None
    if padding_idx is not None:
        kept = x != padding_row("embedding_bag", padding_idx, weight.shape[0])
        rows = where(kept.reshape(*x.shape, 1), rows, -np.inf if mode == "max" else 0.0)
    if offsets is None:
        return _of_rows(rows, kept, mode)
    bags = len(_checked(offsets, x.size, include_last_offset)) - int(include_last_offset)
    places = arange(x.size, device=x.device)
    bag = unchecked(searchsorted)(offsets.astype(np.int64), places, right=True) - 1
    return _of_bags(rows, kept, bag, bags + int(include_last_offset), mode)[:bags]


def check_mode(operator: str, mode: str) -> None:
    """`ValueError` for a mode that there is not."""
    if mode not in MODES:
        raise ValueError(f"{operator}: mode={mode!r} is not one of {', '.join(MODES)}")


def _checked(offsets: Tensor, count: int, include_last_offset: bool) -> Tensor:
    """The offsets; their values are checked on cpu only."""
    if offsets.dtype.kind != "i":
        raise TypeError(f"embedding_bag: offsets has dtype {offsets.dtype.name}; int64 or int32 is needed")
    if offsets.ndim != 1 or (include_last_offset and not offsets.size):
        raise ShapeError(f"embedding_bag: offsets (B,), or (B + 1,) with the last one, is needed  ({offsets.shape})")
    if isinstance(array_of(offsets), np.ndarray) and offsets.size:
        values = offsets.array
        if values[0] != 0 or values[-1] > count or (np.diff(values) < 0).any():
            raise ValueError(f"embedding_bag: offsets must ascend from 0 to at most {count}, the length of x")
    return offsets


def _of_rows(rows: Tensor, kept: Tensor | None, mode: str) -> Tensor:
    """Bags of one length   rows (B, L, C), kept (B, L) -> (B, C)"""
    if mode != "max":
        total = rows.sum(1)
        if mode == "sum":
            return total
        if kept is None:
            return total / max(1, rows.shape[1])
        return _mean(total, kept.sum(1))
    if not rows.shape[1]:
        return rows.sum(1)
    largest = unchecked(amax)(rows, 1)
    return largest if kept is None else _unless_empty(largest, kept.sum(1))


def _of_bags(rows: Tensor, kept: Tensor | None, bag: Tensor, bags: int, mode: str) -> Tensor:
    """Bags of any length   rows (N, C), kept (N,), bag (N,) -> (bags, C)"""
    base = zeros(bags, rows.shape[1], dtype=rows.dtype, device=rows.device)
    if not bags:
        return base
    counted = (kept if kept is not None else bag >= 0).astype(np.int64)
    count = unchecked(index_add)(zeros(bags, dtype=np.int64, device=rows.device), 0, bag, counted)
    if mode != "max":
        total = unchecked(index_add)(base, 0, bag, rows)
        return total if mode == "sum" else _mean(total, count)
    index = unchecked(expand)(bag.reshape(bag.size, 1), rows.shape)
    largest = unchecked(scatter_reduce)(base, 0, index, rows, "amax", include_self=False)
    return _unless_empty(largest, count)


def _mean(total: Tensor, count: Tensor) -> Tensor:
    """total (B, C) over count (B,); 0 if there is nothing"""
    divisors: Tensor = where(count > 0, count, 1).astype(total.dtype)
    return total / divisors.reshape(count.size, 1)


def _unless_empty(largest: Tensor, count: Tensor) -> Tensor:
    """largest (B, C), but 0 if count (B,) is 0"""
    found: Tensor = where((count > 0).reshape(count.size, 1), largest, 0.0)
    return found
