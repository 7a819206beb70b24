"""Distances and similarities of vectors: of all pairs of two sets, within one, and row by row; and unit vectors."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Module
from alpha.ops.array.axes import axis_of, expand, unsqueeze
from alpha.ops.array.creation import arange
from alpha.ops.indexing.gather_scatter import index_select
from alpha.ops.indexing.where import masked_fill, where
from alpha.ops.kernel.arguments import check_arguments, unchecked
from alpha.ops.kernel.common_dtype import promoted
from alpha.ops.kernel.function_layer import FunctionLayer, function_layer
from alpha.ops.kernel.operands import NUMBERS
from alpha.ops.kernel.options import real
from alpha.ops.math.clamp import clamp
from alpha.ops.math.unary import abs as absolute
from alpha.ops.matmul.matmul import products
from alpha.ops.reduction.extremes import amax
from alpha.ops.reduction.norm import norm
from alpha.ops.reduction.sort import searchsorted

__all__ = [
    "CosineSimilarity",
    "PairwiseDistance",
    "cdist",
    "cosine_similarity",
    "normalize",
    "pairwise_distance",
    "pdist",
]


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


def _alike(operator: str, x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the common shape and dtype."""
    try:
        shape = np.broadcast_shapes(x1.shape, x2.shape)
    except ValueError:
        raise ShapeError(f"{operator}: the shapes do not broadcast  (x1 {x1.shape}, x2 {x2.shape})") from None
    first, second = (x if x.shape == shape else unchecked(expand)(x, shape) for x in promoted(x1, x2))
    return first, second


@check_arguments
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along an axis, with broadcasting   x1, x2 (.., D, ..) -> (.., ..)

    Args:
        dim: the axis of the vectors, in the order of the axes of x1 and x2: the channels of images are axis -1.
        eps: a shorter vector counts as if it was so long.

    Raises:
        ShapeError: the shapes do not broadcast, or there is no axis dim.
    """
    least = real("cosine_similarity", "eps", eps)
    if least < 0:
        raise ValueError(f"cosine_similarity: eps={eps} is negative")
    first, second = _alike("cosine_similarity", x1, x2)
    axis = axis_of("cosine_similarity", first, dim)
    return (_unit(first, axis, least) * _unit(second, axis, least)).sum(axis)


def _unit(x: Tensor, axis: int, least: float) -> Tensor:
    """x over its length, which is at least `least`; as in PyTorch this bound has no gradient."""
    length = unchecked(norm)(x, 2.0, axis, True)
    fixed = length.detach()
    return x / (length + (unchecked(clamp)(fixed, least) - fixed))


@check_arguments
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last axis, with broadcasting   x1, x2 (.., D) -> (..), or (.., 1)

    Args:
        p: as of `norm`.
        eps: added to each difference.
        keepdim: keep the last axis, of length 1.

    Raises:
        ShapeError: the shapes do not broadcast.
    """
    least = real("pairwise_distance", "eps", eps)
    first, second = _alike("pairwise_distance", x1, x2)
    return unchecked(norm)(first - second + least, real("pairwise_distance", "p", p), -1, keepdim)


@check_arguments
def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x divided by its p-norm over an axis, or by eps if that is larger   (..) -> (..)

    Args:
        dim: the axis, in the order of the axes of x: the channels of images are axis -1, and 1 is their height.
    """
    return x / unchecked(clamp)(unchecked(norm)(x, p, dim, True), real("normalize", "eps", eps))


@function_layer(cosine_similarity)
class CosineSimilarity(FunctionLayer):
    """The cosine of the angle between vectors along an axis   (.., D, ..), (.., D, ..) -> (.., ..)

    Args:
        dim, eps: as of `alpha.nn.functional.cosine_similarity`.
    """

    dim: int = 1
    eps: float = 1e-8


class PairwiseDistance(Module):
    """The p-norm of the difference of vectors   (.., D), (.., D) -> (..), or (.., 1)

    Args:
        p, eps, keepdim: as of `alpha.nn.functional.pairwise_distance`.
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        self.norm, self.eps = real("PairwiseDistance", "p", p), real("PairwiseDistance", "eps", eps)
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)

    def extra_repr(self) -> str:
        return f"p={self.norm}, eps={self.eps}" + (", keepdim=True" if self.keepdim else "")
