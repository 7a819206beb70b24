"""Losses of pairs and triplets: which is nearer, which ranks higher."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from alpha.errors import ShapeError
from alpha.ops.activation import relu
from alpha.ops.arguments import AnyTensor, check_arguments
from alpha.ops.options import real
from alpha.ops.pointwise_loss import LossLayer, PointwiseLoss, check_reduction, widened
from alpha.ops.similarity import pairwise_distance
from alpha.primitive import Array
from alpha.tensor import Tensor

__all__ = [
    "CosineEmbeddingLoss",
    "MarginRankingLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
    "cosine_embedding_loss",
    "margin_ranking_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]

Distance = Callable[[Tensor, Tensor], Tensor]


def _distance_slope(a: Array, b: Array, p: float, q: float) -> Array:
    d = a - b + q
    with np.errstate(all="ignore"):
        return np.where(d == 0, 0, p * np.abs(d) ** (p - 1) * np.sign(d))


_RANKING = PointwiseLoss(  # a is the difference
    "margin_ranking_loss",
    ("p - a * b < 0 ? 0 : p - a * b", lambda a, b, p: np.maximum(p - a * b, 0)),
    ("(p - a * b >= 0) * -b", lambda a, b, p: (p - a * b >= 0) * -b),  # also 0 inf, as in PyTorch
    ("(p - a * b >= 0) * -a", lambda a, b, p: (p - a * b >= 0) * -a),
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
)
_TRIPLET = PointwiseLoss(  # a and b are distances
    "triplet_margin_loss",
    ("p + a - b < 0 ? 0 : p + a - b", lambda a, b, p: np.maximum(p + a - b, 0)),
    ("p + a - b >= 0 ? 1 : 0", lambda a, b, p: np.where(p + a - b >= 0, 1, 0)),
    ("p + a - b >= 0 ? -1 : 0", lambda a, b, p: np.where(p + a - b >= 0, -1, 0)),
)
_DISTANCE = PointwiseLoss(  # q is added to the difference
    "triplet_margin_loss",
    ("pow(fabs(a - b + q), p)", lambda a, b, p, q: np.abs(a - b + q) ** p),
    ("a - b + q == 0 ? 0 : p * pow(fabs(a - b + q), p - 1) * (a - b + q < 0 ? -1 : 1)", _distance_slope),
    (
        "a - b + q == 0 ? 0 : -p * pow(fabs(a - b + q), p - 1) * (a - b + q < 0 ? -1 : 1)",
        lambda a, b, p, q: -_distance_slope(a, b, p, q),
    ),
    primitive="pairwise_distance",
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

    Args:
        target: 1 if input1 should be larger, -1 if input2 should.
        margin: by how much.
        size_average, reduce: only None is offered.
        reduction: "mean", "sum" or "none".
    """
    check_reduction("margin_ranking_loss", size_average, reduce, reduction)
    if not input1.shape == input2.shape == target.shape:
        raise ShapeError(
            f"margin_ranking_loss: all need one shape  (input1 {input1.shape}, input2 {input2.shape}, "
            f"target {target.shape})"
        )
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

    Args:
        target: 1 or -1; it has no gradient.
        margin: the cosine up to which a pair of target -1 has no loss.
        size_average, reduce: only None is offered.
        reduction: "mean", "sum" or "none".
    """
    check_reduction("cosine_embedding_loss", size_average, reduce, reduction)
    if input1.ndim not in (1, 2) or input1.shape != input2.shape or target.shape != input1.shape[:-1]:
        raise ShapeError(
            "cosine_embedding_loss: input1 and input2 (N, D) and target (N,) are needed, or (D,), (D,) and ()  "
            f"(input1 {input1.shape}, input2 {input2.shape}, target {target.shape})"
        )
    tiny = 1e-12  # as in PyTorch
    lengths = ((input1 * input1).sum(-1) + tiny) * ((input2 * input2).sum(-1) + tiny)
    cosine = (input1 * input2).sum(-1) / lengths**0.5
    labels = _labels(target.detach(), cosine)
    return _COSINE(cosine, labels, reduction, p=real("cosine_embedding_loss", "margin", margin))


@check_arguments
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, margin + |anchor - positive| - |anchor - negative|)   all (..., D) -> () or (...)

    Args:
        margin: by how much the negative should be farther away, above 0.
        p: of the p-norm of a difference.
        eps: is added to each element of a difference, so that the distance of equal vectors has a gradient.
        swap: take |positive - negative| for the second distance if it is smaller.
        size_average, reduce: only None is offered.
        reduction: "mean", "sum" or "none".
    """
    check_reduction("triplet_margin_loss", size_average, reduce, reduction)
    if real("triplet_margin_loss", "margin", margin) <= 0:
        raise ValueError(f"triplet_margin_loss: margin={margin} is not above 0")
    if real("triplet_margin_loss", "p", p) <= 0:
        raise ValueError(f"triplet_margin_loss: p={p} is not above 0")
    if not anchor.ndim or not anchor.shape == positive.shape == negative.shape:
        raise ShapeError(
            f"triplet_margin_loss: all need one shape (..., D)  (anchor {anchor.shape}, positive {positive.shape}, "
            f"negative {negative.shape})"
        )

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return _DISTANCE(a, b, "none", p=float(p), q=real("triplet_margin_loss", "eps", eps)).sum(-1) ** (1 / p)

    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far - relu(far - distance(positive, negative))  # the smaller one
    return _TRIPLET(near, far, reduction, p=float(margin))


@check_arguments
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Distance | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, margin + d(anchor, positive) - d(anchor, negative))   all (..., D) -> () or (...)

    Args:
        distance_function: d, of two tensors; by default `pairwise_distance`.
        margin: by how much the negative should be farther away, above 0.
        swap: take d(positive, negative) for the second distance if it is smaller.
        reduction: "mean", "sum" or "none".
    """
    name = "triplet_margin_with_distance_loss"
    check_reduction(name, None, None, reduction)
    if real(name, "margin", margin) <= 0:
        raise ValueError(f"{name}: margin={margin} is not above 0")
    distance = distance_function or pairwise_distance
    anchor, positive, negative = widened(anchor), widened(positive), widened(negative)
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far - relu(far - distance(positive, negative))  # the smaller one
    return _TRIPLET(near, far, reduction, p=float(margin))


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


class TripletMarginLoss(LossLayer):
    """Which of two others an anchor should be nearer to; the arguments are those of `triplet_margin_loss`."""

    margin: float
    p: float
    eps: float
    swap: bool

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: None = None,
        reduce: None = None,
        reduction: str = "mean",
    ) -> None:
        numbers = {"margin": margin, "p": p, "eps": eps}
        checked = {name: real("TripletMarginLoss", name, value) for name, value in numbers.items()}
        self._keep(size_average, reduce, reduction, **checked, swap=bool(swap))

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return triplet_margin_loss(
            anchor, positive, negative, self.margin, self.p, self.eps, self.swap, reduction=self.reduction
        )


class TripletMarginWithDistanceLoss(LossLayer):
    """A triplet loss of any distance; the arguments are those of `triplet_margin_with_distance_loss`."""

    distance_function: Distance | None
    margin: float
    swap: bool

    def __init__(
        self,
        *,
        distance_function: Distance | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        checked = real("TripletMarginWithDistanceLoss", "margin", margin)
        self._keep(None, None, reduction, distance_function=distance_function, margin=checked, swap=bool(swap))

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )
