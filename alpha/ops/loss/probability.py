"""Losses of probabilities: binary cross-entropy, Kullback-Leibler divergence."""

from __future__ import annotations

import numpy as np

from alpha.autograd.versions import array_of
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.kernel.function_layer import function_layer
from alpha.ops.loss.pointwise import REDUCTIONS, LossLayer, PointwiseLoss, as_bool, check_reduction, one_of

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "KLDivLoss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "kl_div",
]


def softplus(z: Array) -> Array:
    """log(1 + exp(z)) without overflow"""
    return np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))


def sigmoid(z: Array) -> Array:
    e = np.exp(-np.abs(z))
    return np.where(z < 0, e, 1) / (1 + e)


def _bce(a: Array, b: Array) -> Array:
    return (b - 1) * np.maximum(np.log1p(-a), -100) - b * np.maximum(np.log(a), -100)


def _pos_weighted(a: Array, b: Array, c: Array) -> Array:
    return (1 - b) * a + ((c - 1) * b + 1) * softplus(-a)


def _log_or_zero(b: Array) -> Array:
    """b log(b), and 0 for 0"""
    return np.where(b == 0, 0, b * np.log(np.where(b == 0, 1, b)))


# logarithms are at least -100, as in PyTorch, and a NaN stays
_BCE = PointwiseLoss(
    "binary_cross_entropy",
    (
        "(b - 1) * (log1p(-a) < -100 ? Real(-100) : Real(log1p(-a))) - b * (log(a) < -100 ? Real(-100) : Real(log(a)))",
        _bce,
    ),
    (
        "(a - b) / ((1 - a) * a < Real(1e-12) ? Real(1e-12) : (1 - a) * a)",
        lambda a, b: (a - b) / np.maximum((1 - a) * a, a.dtype.type(1e-12)),
    ),
    ("log1p(-a) - log(a)", lambda a, b: np.log1p(-a) - np.log(a)),
)
_SOFTPLUS = "((a < 0 ? -a : 0) + log1p(exp(-fabs(a))))"  # log(1 + exp(-a))
_LOGITS = PointwiseLoss(
    "binary_cross_entropy_with_logits",
    (f"(1 - b) * a + {_SOFTPLUS}", lambda a, b: (1 - b) * a + softplus(-a)),
    ("(a < 0 ? exp(a) : Real(1)) / (1 + exp(-fabs(a))) - b", lambda a, b: sigmoid(a) - b),
    ("-a", lambda a, b: -a),
)
_POS_LOGITS = PointwiseLoss(
    "binary_cross_entropy_with_logits",
    (f"(1 - b) * a + ((c - 1) * b + 1) * {_SOFTPLUS}", _pos_weighted),
    (
        "(1 - b) - ((c - 1) * b + 1) * ((a > 0 ? exp(-a) : Real(1)) / (1 + exp(-fabs(a))))",
        lambda a, b, c: (1 - b) - ((c - 1) * b + 1) * sigmoid(-a),
    ),
    (f"(c - 1) * {_SOFTPLUS} - a", lambda a, b, c: (c - 1) * softplus(-a) - a),
    third=True,
    primitive="binary_cross_entropy_pos_weight",
)
_KL = PointwiseLoss(
    "kl_div",
    ("(b == 0 ? 0 : b * log(b)) - b * a", lambda a, b: _log_or_zero(b) - b * a),
    ("-b", lambda a, b: -b),
    ("log(b) + 1 - a", lambda a, b: np.log(b) + 1 - a),
    broadcasts=True,
)
_KL_LOG = PointwiseLoss(
    "kl_div",
    ("exp(b) * (b - a)", lambda a, b: np.exp(b) * (b - a)),
    ("-exp(b)", lambda a, b: -np.exp(b)),
    ("exp(b) * (b - a + 1)", lambda a, b: np.exp(b) * (b - a + 1)),
    primitive="kl_div_log_target",
    broadcasts=True,
)


@check_arguments
def binary_cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    """-(target log x + (1 - target) log(1 - x)), and its mean or sum   x, target (...) -> () or (...)

    Args:
        x: probabilities in [0, 1]. Logarithms are at least -100.
        target: numbers in [0, 1].
        weight: (...) or what repeats along it, a factor for each element.
        size_average, reduce: only None is offered.
        reduction: "mean" over the elements, "sum" or "none".

    Raises:
        ValueError: a number of x on the cpu is not in [0, 1]. On cuda it makes the loss NaN: a check would wait for the
            device in each step.
    """
    check_reduction("binary_cross_entropy", size_average, reduce, reduction)
    if isinstance(array_of(x), np.ndarray) and x.size:
        with np.errstate(invalid="ignore"):
            least, most = float(x.array.min()), float(x.array.max())  # NaN if one of them is
        if not (least >= 0 and most <= 1):
            raise ValueError(
                f"binary_cross_entropy: x has numbers from {least:g} to {most:g}, and probabilities are in [0, 1]; of "
                "logits take binary_cross_entropy_with_logits"
            )
    return _BCE(x, target, reduction, weight=weight)


@check_arguments
def binary_cross_entropy_with_logits(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """The binary cross-entropy of sigmoid(x), without overflow   x, target (...) -> () or (...)

    Args:
        x: logits.
        target, weight, size_average, reduce, reduction: as those of `binary_cross_entropy`.
        pos_weight: (...) or what repeats along it, such as (classes,): a factor for the loss of a target of 1.
    """
    check_reduction("binary_cross_entropy_with_logits", size_average, reduce, reduction)
    if pos_weight is None:
        return _LOGITS(x, target, reduction, weight=weight)
    return _POS_LOGITS(x, target, reduction, weight=weight, third=pos_weight)


@check_arguments
def kl_div(
    x: Tensor,
    target: Tensor,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """The Kullback-Leibler divergence target (log target - x), elementwise   x, target (...) -> () or (...)

    Args:
        x: logarithms of probabilities.
        target: probabilities, or their logarithms if `log_target`.
        size_average, reduce: only None is offered.
        reduction: "mean" over the elements, "sum", "none", or "batchmean", the sum divided by the length of the first
            axis, which is the divergence of a batch.
    """
    check_reduction("kl_div", size_average, reduce, reduction, (*REDUCTIONS, "batchmean"))
    return (_KL_LOG if log_target else _KL)(x, target, reduction)


@function_layer(binary_cross_entropy)
class BCELoss(LossLayer):
    """The binary cross-entropy of probabilities; the arguments are those of `binary_cross_entropy`."""

    weight: Tensor | None = None
    size_average: None = None
    reduce: None = None
    reduction: str = "mean"


@function_layer(binary_cross_entropy_with_logits)
class BCEWithLogitsLoss(LossLayer):
    """The binary cross-entropy of logits; the arguments are those of `binary_cross_entropy_with_logits`."""

    weight: Tensor | None = None
    size_average: None = None
    reduce: None = None
    reduction: str = "mean"
    pos_weight: Tensor | None = None


@function_layer(kl_div, reduction=one_of(*REDUCTIONS, "batchmean"), log_target=as_bool)
class KLDivLoss(LossLayer):
    """The Kullback-Leibler divergence; the arguments are those of `kl_div`."""

    size_average: None = None
    reduce: None = None
    reduction: str = "mean"
    log_target: bool = False
