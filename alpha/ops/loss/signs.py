"""Losses of signs: a target is 1 or -1."""

from __future__ import annotations

import numpy as np

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.kernel.options import real
from alpha.ops.loss.pointwise import LossLayer, PointwiseLoss, check_reduction, common_shape
from alpha.ops.loss.probability import sigmoid, softplus

__all__ = ["HingeEmbeddingLoss", "SoftMarginLoss", "hinge_embedding_loss", "soft_margin_loss"]

_HINGE = PointwiseLoss(
    "hinge_embedding_loss",
    (
        "(b == 1 || p < a ? 0 : p - a) + (b == -1 ? 0 : a)",
        lambda a, b, p: np.where((b == 1) | (p < a), 0, p - a) + np.where(b == -1, 0, a),
    ),
    (
        "(b == 1 || p < a ? 0 : -1) + (b == -1 ? 0 : 1)",
        lambda a, b, p: np.where((b == 1) | (p < a), 0, -1) + np.where(b == -1, 0, 1),
    ),
    broadcasts=True,
)
_SOFT_MARGIN = PointwiseLoss(
    "soft_margin_loss",
    ("(a * b < 0 ? -a * b : 0) + log1p(exp(-fabs(a * b)))", lambda a, b: softplus(-a * b)),
    ("-b * ((a * b > 0 ? exp(-a * b) : Real(1)) / (1 + exp(-fabs(a * b))))", lambda a, b: -b * sigmoid(-a * b)),
    broadcasts=True,
)


@check_arguments
def hinge_embedding_loss(
    x: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    """x where the target is 1, and max(0, margin - x) where it is -1   x, target (...) -> () or (...)

    x and target broadcast.

    Args:
        x: distances.
        target: 1 or -1; it has no gradient.
        margin: the distance from which on a pair of target -1 has no loss.
        size_average, reduce: only None is offered.
        reduction: "mean", "sum" or "none".
    """
    check_reduction("hinge_embedding_loss", size_average, reduce, reduction)
    return _HINGE(x, target, reduction, p=real("hinge_embedding_loss", "margin", margin))


@check_arguments
def soft_margin_loss(
    x: Tensor, target: Tensor, size_average: None = None, reduce: None = None, reduction: str = "mean"
) -> Tensor:
    """log(1 + exp(-target x)), without overflow   x, target (...) of 1 or -1 -> () or (...)

    Args:
        target: 1 or -1, of the shape of x or what repeats along it; it has no gradient.
        size_average, reduce: only None is offered.
        reduction: "mean", "sum" or "none".
    """
    check_reduction("soft_margin_loss", size_average, reduce, reduction)
    if common_shape("soft_margin_loss", x=x, target=target) != x.shape:
        raise ShapeError(f"soft_margin_loss: target {target.shape} does not repeat along x {x.shape}")
    return _SOFT_MARGIN(x, target, reduction)


class HingeEmbeddingLoss(LossLayer):
    """A loss of distances of equal and of different pairs; the arguments are those of `hinge_embedding_loss`."""

    margin: float

    def __init__(
        self, margin: float = 1.0, size_average: None = None, reduce: None = None, reduction: str = "mean"
    ) -> None:
        self._keep(size_average, reduce, reduction, margin=real("HingeEmbeddingLoss", "margin", margin))

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return hinge_embedding_loss(x, target, self.margin, reduction=self.reduction)


class SoftMarginLoss(LossLayer):
    """log(1 + exp(-target x)), and its mean or sum; the arguments are those of `soft_margin_loss`."""

    def __init__(self, size_average: None = None, reduce: None = None, reduction: str = "mean") -> None:
        self._keep(size_average, reduce, reduction)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return soft_margin_loss(x, target, reduction=self.reduction)
