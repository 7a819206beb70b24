"""The distances of all pairs of vectors: of two sets, or within one."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import unsqueeze
from alpha.ops.array.creation import arange
from alpha.ops.indexing.gather_scatter import index_select
from alpha.ops.indexing.where import masked_fill, where
from alpha.ops.kernel.arguments import check_arguments, unchecked
from alpha.ops.kernel.operands import NUMBERS, promoted
from alpha.ops.math.clamp import clamp
from alpha.ops.math.rounding import abs as absolute
from alpha.ops.matmul.matmul import products
from alpha.ops.reduction.extremes import amax
from alpha.ops.reduction.sort import searchsorted
from alpha.ops.reduction.var_norm import norm

__all__ = ["cdist", "pdist"]

MANY = 25  # vectors of a set from which on "if_necessary" takes a product of matrices
MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")


def _power(operator: str, p: float) -> float:
    if isinstance(p, (bool, np.bool_)) or not isinstance(p, NUMBERS):
        raise TypeError(f"{operator}: p={p!r} is not a number")
    if not p >= 0:
        raise ValueError(f"{operator}: p={p} must be at least 0; it may be infinite")
    return float(p)


def _wide(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """A function of tensors of one dtype, in float32 if that is bfloat16, so that its result is rounded once."""
    dtype = tensors[0].dtype
    if dtype != BFLOAT16:
        return function(*tensors)
    return function(*[x.astype(FLOAT32) for x in tensors]).astype(dtype)


def _rooted(total: Tensor, power: float) -> Tensor:
    """total ** power, whose gradient is 0 where total is 0."""
    positive = total != 0
    rooted: Tensor = where(positive, where(positive, total, 1.0) ** power, 0.0)
    return rooted


def _length(d: Tensor, p: float) -> Tensor:
    """The p-norms of differences, whose gradients are 0 where a distance is 0   d (.., C) -> (..)"""
    if p == 2 or not d.shape[-1]:
        return unchecked(norm)(d, 2.0, -1)
    if p == 0:
        ones = unchecked(masked_fill)(d, d != 0, 1)
        return unchecked(masked_fill)(ones, d == 0, 0).sum(-1)  # whose gradient is 0
    size = absolute(d)
    if p == 1:
        return size.sum(-1)
    if math.isinf(p):
        return unchecked(amax)(size, -1)
    return _rooted((_rooted(size, p) if p < 1 else size**p).sum(-1), 1 / p)


@check_arguments
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = MODES[0]) -> Tensor:
    """The p-norm of the difference of each vector of x1 and each of x2   x1 (.., P, C), x2 (.., R, C) -> (.., P, R)

    The batch axes broadcast. The differences of all pairs, P R C numbers, are held; not so if p is 2 and a product of
    matrices is taken, which is faster and less exact for vectors that are near to each other.

    Args:
        p: a number of at least 0; 0 counts elements that differ, inf is the largest difference.
        compute_mode: whether p = 2 is computed by a product of matrices: "use_mm_for_euclid_dist",
            "donot_use_mm_for_euclid_dist", or "use_mm_for_euclid_dist_if_necessary" if P or R is more than 25.

    Raises:
        ShapeError: the last axes differ, or the batch axes do not broadcast.
    """
    power = _power("cdist", p)
    if compute_mode not in MODES:
        raise ValueError(f"cdist: compute_mode={compute_mode!r} is not one of {', '.join(MODES)}")
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"cdist: x1 (.., P, C) and x2 (.., R, C) are needed  (x1 {x1.shape}, x2 {x2.shape})")
    try:
        np.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    except ValueError:
        raise ShapeError(f"cdist: the batch axes do not broadcast  (x1 {x1.shape}, x2 {x2.shape})") from None
    first, second = promoted(x1, x2)
    return _wide(lambda a, b: _distances(a, b, power, compute_mode), first, second)


def _distances(first: Tensor, second: Tensor, power: float, compute_mode: str) -> Tensor:
    many = max(first.shape[-2], second.shape[-2]) > MANY
    if power == 2 and (compute_mode == MODES[1] or (many and compute_mode == MODES[0])):
        lengths = (first * first).sum(-1, True) + (second * second).sum(-1, True).transpose(-1, -2)
        return _rooted(unchecked(clamp)(lengths - products(first, second, transpose_b=True) * 2, 0.0), 0.5)
    return _length(unchecked(unsqueeze)(first, -2) - unchecked(unsqueeze)(second, -3), power)


@check_arguments
def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """The p-norms of the differences of all pairs of rows, those of the first row first   x (N, C) -> (N (N - 1) / 2,)

    Args:
        p: as of `cdist`.
    """
    power = _power("pdist", p)
    if x.ndim != 2:
        raise ShapeError(f"pdist: x (N, C) is needed  (x {x.shape})")
    N = x.shape[0]
    rows, pairs = (arange(count, device=x.device) for count in (N, N * (N - 1) // 2))
    starts = rows * (2 * N - 1 - rows) // 2  # the first pair of each row
    first = unchecked(searchsorted)(starts, pairs, right=True) - 1
    second = pairs - unchecked(index_select)(starts, 0, first) + first + 1
    row = unchecked(index_select)
    return _wide(lambda w: _length(row(w, 0, first) - row(w, 0, second), power), x)
