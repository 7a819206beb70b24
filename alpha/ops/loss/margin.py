"""Losses of margins, signs, pairs and triplets: a true class, or a nearer one, should be ahead of the others."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from alpha.autograd.versions import array_of
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.activation.relu_family import relu
from alpha.ops.activation.smooth import logsigmoid
from alpha.ops.array.creation import arange
from alpha.ops.indexing.where import where
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.function_layer import function_layer
from alpha.ops.kernel.options import integer, real
from alpha.ops.loss.pointwise import (
    LossLayer,
    PointwiseLoss,
    as_bool,
    check_axes,
    check_reduction,
    common_shape,
    reduced,
    widened,
)
from alpha.ops.loss.probability import sigmoid, softplus
from alpha.ops.matmul.distances import pairwise_distance
from alpha.ops.reduction.scan import cumsum

__all__ = [
    "CosineEmbeddingLoss",
    "HingeEmbeddingLoss",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
    "cosine_embedding_loss",
    "hinge_embedding_loss",
    "margin_ranking_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]


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


@function_layer(hinge_embedding_loss)
class HingeEmbeddingLoss(LossLayer):
    """A loss of distances of equal and of different pairs; the arguments are those of `hinge_embedding_loss`."""

    margin: float = 1.0
    size_average: None = None
    reduce: None = None
    reduction: str = "mean"


@function_layer(soft_margin_loss)
class SoftMarginLoss(LossLayer):
    """log(1 + exp(-target x)), and its mean or sum; the arguments are those of `soft_margin_loss`."""

    size_average: None = None
    reduce: None = None
    reduction: str = "mean"


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


@function_layer(margin_ranking_loss)
class MarginRankingLoss(LossLayer):
    """Loss of two numbers of which one should be larger; the arguments are those of `margin_ranking_loss`."""

    margin: float = 0.0
    size_average: None = None
    reduce: None = None
    reduction: str = "mean"


@function_layer(cosine_embedding_loss)
class CosineEmbeddingLoss(LossLayer):
    """The angle of equal and of different pairs; the arguments are those of `cosine_embedding_loss`."""

    margin: float = 0.0
    size_average: None = None
    reduce: None = None
    reduction: str = "mean"


def _check_labels(operator: str, x: Tensor, target: Tensor, shape: tuple[int, ...], least: int) -> None:
    if x.ndim not in (1, 2) or not x.size or target.shape != shape:
        wanted = "(N, C)" if shape == x.shape else "(N,)"
        raise ShapeError(
            f"{operator}: x (N, C) and target {wanted} are needed, or one row without N  "
            f"(x {x.shape}, target {target.shape})"
        )
    if target.dtype.name not in ("int32", "int64", "uint8"):
        raise TypeError(f"{operator}: target has dtype {target.dtype.name}; int32, int64 or uint8 is needed")
    if isinstance(array_of(target), np.ndarray):
        low, high = int(target.array.min()), int(target.array.max())
        if low < least or high >= x.shape[-1]:
            raise ShapeError(f"{operator}: labels {low}..{high} are not in [{least}, {x.shape[-1]})  (x {x.shape})")


def _check_power(operator: str, name: str, value: int) -> int:
    if integer(operator, name, value) not in (1, 2):
        raise ValueError(f"{operator}: {name}={value!r} is neither 1 nor 2")
    return int(value)


def _at_label(target: Tensor, classes: int) -> Tensor:
    """True at the class of each label   target (...) -> (..., C)"""
    return target.unsqueeze(-1) == arange(classes, dtype="int32", device=target.device)


@check_arguments
def multi_margin_loss(
    x: Tensor,
    target: AnyTensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    """The sum over other classes c of weight[t] max(0, margin - x[t] + x[c])^p / C

    x (N, C), target (N,) -> () or (N,)

    Args:
        x: scores; (C,) with a target () is one row.
        target: labels t in [0, C); on cuda a row with another label has the loss NaN.
        p: 1 or 2.
        weight: (C,), a factor for the loss of each label.
        size_average, reduce: only None is offered.
        reduction: "mean", "sum" or "none".
    """
    check_reduction("multi_margin_loss", size_average, reduce, reduction)
    _check_labels("multi_margin_loss", x, target, x.shape[:-1], 0)
    _check_power("multi_margin_loss", "p", p)
    x, classes = widened(x), x.shape[-1]
    if weight is not None and weight.shape != (classes,):
        raise ShapeError(f"multi_margin_loss: weight needs one number per class  (x {x.shape}, weight {weight.shape})")
    hit = _at_label(target, classes)
    score = where(hit, x, 0.0).sum(-1, keepdim=True)
    score = where(hit.any(-1, keepdim=True), score, math.nan)
    loss = relu(real("multi_margin_loss", "margin", margin) - score + x)
    loss = loss if p == 1 else loss * loss
    if weight is not None:
        loss = loss * where(hit, weight, 0.0).sum(-1, keepdim=True)
    return reduced(where(hit, 0.0, loss).sum(-1) / classes, reduction)


@check_arguments
def multilabel_margin_loss(
    x: Tensor, target: AnyTensor, size_average: None = None, reduce: None = None, reduction: str = "mean"
) -> Tensor:
    """The sum over labels t and other classes c of max(0, 1 - x[t] + x[c]) / C   x, target (N, C) -> () or (N,)

    Args:
        x: scores; (C,) with a target (C,) is one row.
        target: the labels of a row, which end at the first -1.
        size_average, reduce: only None is offered.
        reduction: "mean", "sum" or "none".
    """
    check_reduction("multilabel_margin_loss", size_average, reduce, reduction)
    _check_labels("multilabel_margin_loss", x, target, x.shape, -1)
    x, classes = widened(x), x.shape[-1]
    before_end = cumsum((target < 0).int(), -1) == 0
    hit = _at_label(target, classes).logical_and(before_end.unsqueeze(-1))  # (N, labels, classes)
    score = where(hit, x.unsqueeze(-2), 0.0).sum(-1, keepdim=True)
    other = before_end.unsqueeze(-1).logical_and(hit.any(-2, keepdim=True).logical_not())
    loss = where(other, relu(1.0 - score + x.unsqueeze(-2)), 0.0)
    return reduced(loss.sum((-2, -1)) / classes, reduction)


@check_arguments
def multilabel_soft_margin_loss(
    x: Tensor,
    target: AnyTensor,
    weight: Tensor | None = None,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over classes of the binary cross-entropy of logits   x, target (N, C) -> () or (N,)

    Args:
        x: logits, one for each class.
        target: 1 for the classes of a row, else 0. x and target broadcast, and the classes are those of x.
        weight: a factor for the loss of each class; it repeats along x.
        size_average, reduce: only None is offered.
        reduction: "mean", "sum" or "none".
    """
    check_reduction("multilabel_soft_margin_loss", size_average, reduce, reduction)
    if not x.ndim:
        raise ShapeError(f"multilabel_soft_margin_loss: x (..., C) is needed  (x {x.shape}, target {target.shape})")
    common_shape("multilabel_soft_margin_loss", x=x, target=target)
    x = widened(x)
    target = widened(target) if is_floating(target.dtype) else target.astype(x.dtype)
    loss = -(target * logsigmoid(x) + (1.0 - target) * logsigmoid(-x))
    loss = loss if weight is None else loss * weight
    return reduced(loss.sum(x.ndim - 1) / x.shape[-1], reduction)  # as in PyTorch, also of two shapes


@function_layer(multi_margin_loss, p=_check_power)
class MultiMarginLoss(LossLayer):
    """The margin of one label above the other classes; the arguments are those of `multi_margin_loss`."""

    p: int = 1
    margin: float = 1.0
    weight: Tensor | None = None
    size_average: None = None
    reduce: None = None
    reduction: str = "mean"


@function_layer(multilabel_margin_loss)
class MultiLabelMarginLoss(LossLayer):
    """The margin of several labels above the other classes; the arguments are those of `multilabel_margin_loss`."""

    size_average: None = None
    reduce: None = None
    reduction: str = "mean"


@function_layer(multilabel_soft_margin_loss)
class MultiLabelSoftMarginLoss(LossLayer):
    """Binary cross-entropy, averaged over classes; the arguments are those of `multilabel_soft_margin_loss`."""

    weight: Tensor | None = None
    size_average: None = None
    reduce: None = None
    reduction: str = "mean"


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


@function_layer(triplet_margin_loss, swap=as_bool)
class TripletMarginLoss(LossLayer):
    """Loss of an anchor that should be nearer to one of two others; arguments are those of `triplet_margin_loss`."""

    margin: float = 1.0
    p: float = 2.0
    eps: float = 1e-6
    swap: bool = False
    size_average: None = None
    reduce: None = None
    reduction: str = "mean"


@function_layer(triplet_margin_with_distance_loss, kw_only=True, swap=as_bool)
class TripletMarginWithDistanceLoss(LossLayer):
    """A triplet loss of any distance; the arguments are those of `triplet_margin_with_distance_loss`."""

    distance_function: Distance | None = None
    margin: float = 1.0
    swap: bool = False
    reduction: str = "mean"
