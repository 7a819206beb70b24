"""How near two arrays of vectors are: the cosine of their angle, and the norm of their difference; and unit vectors."""

from __future__ import annotations

import numpy as np

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Module
from alpha.ops.array.axes import axis_of, expand
from alpha.ops.kernel.arguments import check_arguments, unchecked
from alpha.ops.kernel.operands import promoted
from alpha.ops.kernel.options import integer, real
from alpha.ops.math.clamp import clamp
from alpha.ops.reduction.var_norm import norm

__all__ = ["CosineSimilarity", "PairwiseDistance", "cosine_similarity", "normalize", "pairwise_distance"]


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


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along an axis   (.., D, ..), (.., D, ..) -> (.., ..)

    Args:
        dim, eps: as of `alpha.nn.functional.cosine_similarity`.
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        self.dim = integer("CosineSimilarity", "dim", dim)
        self.eps = real("CosineSimilarity", "eps", eps)

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return cosine_similarity(x1, x2, self.dim, self.eps)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, eps={self.eps}"


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
