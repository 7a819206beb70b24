"""Losses of pairs: which ranks higher, which are alike."""

from __future__ import annotations

import numpy as np

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.options import real
from alpha.ops.loss.pointwise import LossLayer, PointwiseLoss, check_axes, check_reduction, common_shape

__all__ = ["CosineEmbeddingLoss", "MarginRankingLoss", "cosine_embedding_loss", "margin_ranking_loss"]


_RANKING = PointwiseLoss(  # a is the difference
    "margin_ranking_loss",
    ("p - a * b < 0 ? 0 : p - a * b", lambda a, b, p: np.maximum(p - a * b, 0)),
    ("(p - a * b >= 0) * -b", lambda a, b, p: (p - a * b >= 0) * -b),  # also 0 inf, as in PyTorch
    ("(p - a * b >= 0) * -a", lambda a, b, p: (p - a * b >= 0) * -a),
    broadcasts=True,
)
_COSINE = PointwiseLoss(  # a is the cosine
    "cosine_embedding_loss",
    (
        "b == 1 ? 1 - a : b != -1 || a < p ? 0 : a - p",
        lambda a, b, p: np.where(b == 1, 1 - a, np.where((b != -1) | (a < p), 0, a - p)),
    ),
    (
        "b == 1 ? -1 : b == -1 && a >= p ? 1 : 0",
        lambda a, b, p: np.where(b == 1, -1, np.where((b == -1) & (a >= p), 1, 0)),
    ),
    broadcasts=True,
)


def _labels(target: Tensor, like: Tensor) -> Tensor:
    """The target as numbers of the dtype of x."""
    return target if target.dtype == like.dtype else target.astype(like.dtype)


@check_arguments
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: AnyTensor,
    margin: float = 0.0,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, margin - target (input1 - input2))   all (...) -> () or (...)

    All have as many axes, and broadcast.

    Args:
        target: 1 if input1 should be larger, -1 if input2 should.
        margin: by how much.
        size_average, reduce: only None is offered.
        reduction: "mean", "sum" or "none".
    """
    check_reduction("margin_ranking_loss", size_average, reduce, reduction)
    check_axes("margin_ranking_loss", input1=input1, input2=input2, target=target)
    labels = _labels(target, input1)
    return _RANKING(input1 - input2, labels, reduction, p=real("margin_ranking_loss", "margin", margin))


@check_arguments
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: AnyTensor,
    margin: float = 0.0,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1   (N, D), (N, D), (N,) -> () or (N,)

    cos is the cosine of the angle between a row of input1 and one of input2. A pair of vectors (D,) has a target ().
    Rows and targets broadcast.

    Args:
        target: 1 or -1; it has no gradient.
        margin: the cosine up to which a pair of target -1 has no loss.
        size_average, reduce: only None is offered.
        reduction: "mean", "sum" or "none".
    """
    check_reduction("cosine_embedding_loss", size_average, reduce, reduction)
    if target.ndim > 1 or not input1.ndim == input2.ndim == target.ndim + 1:
        raise ShapeError(
            "cosine_embedding_loss: input1 and input2 (N, D) and target (N,) are needed, or (D,), (D,) and ()  "
            f"(input1 {input1.shape}, input2 {input2.shape}, target {target.shape})"
        )
    common_shape("cosine_embedding_loss", input1=input1, input2=input2)
    tiny = 1e-12  # as in PyTorch
    lengths = ((input1 * input1).sum(-1) + tiny) * ((input2 * input2).sum(-1) + tiny)
    cosine = (input1 * input2).sum(-1) / lengths**0.5
    labels = _labels(target.detach(), cosine)
    return _COSINE(cosine, labels, reduction, p=real("cosine_embedding_loss", "margin", margin))


class MarginRankingLoss(LossLayer):
    """Which of two numbers should be larger; the arguments are those of `margin_ranking_loss`."""

    margin: float

    def __init__(
        self, margin: float = 0.0, size_average: None = None, reduce: None = None, reduction: str = "mean"
    ) -> None:
        self._keep(size_average, reduce, reduction, margin=real("MarginRankingLoss", "margin", margin))

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return margin_ranking_loss(input1, input2, target, self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(LossLayer):
    """The angle of equal and of different pairs; the arguments are those of `cosine_embedding_loss`."""

    margin: float

    def __init__(
        self, margin: float = 0.0, size_average: None = None, reduce: None = None, reduction: str = "mean"
    ) -> None:
        self._keep(size_average, reduce, reduction, margin=real("CosineEmbeddingLoss", "margin", margin))

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return cosine_embedding_loss(input1, input2, target, self.margin, reduction=self.reduction)
