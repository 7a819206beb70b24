"""Distances and angles of vectors, and vectors of length 1."""

from __future__ import annotations

import numpy as np

from alpha.errors import ShapeError
from alpha.module import Module
from alpha.ops.arguments import check_arguments
from alpha.ops.moments import norm
from alpha.ops.options import integer, real
from alpha.tensor import Tensor

__all__ = ["CosineSimilarity", "PairwiseDistance", "cosine_similarity", "normalize", "pairwise_distance"]


@check_arguments
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps over the last axis, with broadcasting   (..., D), (..., D) -> (...)

    Args:
        eps: is added to each element of the difference, so that the distance of equal vectors has a gradient.
        keepdim: keep the last axis with length 1.
    """
    return norm(x1 - x2 + real("pairwise_distance", "eps", eps), p, -1, keepdim)


@check_arguments
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along an axis, with broadcasting   (.., D, ..), (.., D, ..) -> (.., ..)

    Args:
        eps: a vector that is shorter counts as one of this length.
    """
    if x1.shape != x2.shape:  # the lengths are those of the repeated vectors
        shape = broadcast_shape("cosine_similarity", x1, x2)
        x1, x2 = x1.expand(shape), x2.expand(shape)
    return (normalize(x1, 2.0, dim, eps) * normalize(x2, 2.0, dim, eps)).sum(dim)


def broadcast_shape(operator: str, x1: Tensor, x2: Tensor) -> tuple[int, ...]:
    """The shape to which both broadcast (`ShapeError`)."""
    try:
        return np.broadcast_shapes(x1.shape, x2.shape)
    except ValueError:
        raise ShapeError(f"{operator}: shapes {x1.shape} and {x2.shape} do not broadcast") from None


@check_arguments
def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x divided by its p-norm over an axis, or by eps if that is larger   (...) -> (...)"""
    return x / norm(x, p, dim, keepdim=True).clamp(min=real("normalize", "eps", eps))


class PairwiseDistance(Module):
    """The distance of pairs of vectors   (..., D) twice -> (...); the arguments are those of `pairwise_distance`."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        self.p, self.eps, self.keepdim = p, real("PairwiseDistance", "eps", eps), keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return pairwise_distance(x1, x2, self.p, self.eps, self.keepdim)

    def extra_repr(self) -> str:
        return f"p={self.p}, eps={self.eps}, keepdim={self.keepdim}"


class CosineSimilarity(Module):
    """The cosine of pairs of vectors   (.., D, ..) twice -> (.., ..); the arguments: see `cosine_similarity`."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        self.dim, self.eps = integer("CosineSimilarity", "dim", dim), real("CosineSimilarity", "eps", eps)

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return cosine_similarity(x1, x2, self.dim, self.eps)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, eps={self.eps}"
