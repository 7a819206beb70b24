"""Losses of triplets: which of two others an anchor should be nearer to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.activation.relu_family import relu
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.kernel.options import real
from alpha.ops.loss.pointwise import LossLayer, PointwiseLoss, check_axes, check_reduction, widened
from alpha.ops.matmul.similarity import pairwise_distance

__all__ = [
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]

Distance = Callable[[Tensor, Tensor], Tensor]


def _distance_slope(a: Array, b: Array, p: float, q: float) -> Array:
    d = a - b + q
    with np.errstate(all="ignore"):
        return np.where(d == 0, 0, p * np.abs(d) ** (p - 1) * np.sign(d))


_TRIPLET = PointwiseLoss(  # a and b are distances
    "triplet_margin_loss",
    ("p + a - b < 0 ? 0 : p + a - b", lambda a, b, p: np.maximum(p + a - b, 0)),
    ("p + a - b >= 0 ? 1 : 0", lambda a, b, p: np.where(p + a - b >= 0, 1, 0)),
    ("p + a - b >= 0 ? -1 : 0", lambda a, b, p: np.where(p + a - b >= 0, -1, 0)),
    broadcasts=True,
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
    broadcasts=True,
)


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

    All have as many axes, and broadcast.

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
    if real("triplet_margin_loss", "p", p) == 0:
        raise ValueError(f"triplet_margin_loss: p={p} counts differences, and has no gradient; it is not offered")
    check_axes("triplet_margin_loss", anchor=anchor, positive=positive, negative=negative)

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

    All have as many axes, and broadcast.

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
    check_axes(name, anchor=anchor, positive=positive, negative=negative)
    distance = distance_function or pairwise_distance
    anchor, positive, negative = widened(anchor), widened(positive), widened(negative)
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far - relu(far - distance(positive, negative))  # the smaller one
    return _TRIPLET(near, far, reduction, p=float(margin))


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
