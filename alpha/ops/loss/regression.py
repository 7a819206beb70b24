"""Losses of numbers: absolute and squared errors, and what lies between them.

x and target of two shapes are broadcast, with a warning, as in PyTorch.
"""

from __future__ import annotations

import warnings

import numpy as np

from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.kernel.function_layer import function_layer
from alpha.ops.kernel.options import real
from alpha.ops.loss.pointwise import LossLayer, PointwiseLoss, check_reduction, common_shape
from alpha.runtime.recording import callers

__all__ = ["HuberLoss", "L1Loss", "MSELoss", "SmoothL1Loss", "huber_loss", "l1_loss", "mse_loss", "smooth_l1_loss"]


def _smooth_l1(a: Array, b: Array, p: float) -> Array:
    d = np.abs(a - b)
    return np.where(d < p, d * d / (2 * p or 1), d - p / 2)


def _smooth_l1_slope(a: Array, b: Array, p: float) -> Array:
    d = a - b
    return np.where(np.abs(d) < p, d / (p or 1), np.sign(d))


def _huber(a: Array, b: Array, p: float) -> Array:
    d = np.abs(a - b)
    return np.where(d <= p, d * d / 2, p * (d - p / 2))


def _huber_slope(a: Array, b: Array, p: float) -> Array:
    d = a - b
    return np.where(np.abs(d) <= p, d, p * np.sign(d))


_L1 = PointwiseLoss(
    "l1_loss",
    ("fabs(a - b)", lambda a, b: np.abs(a - b)),
    ("a > b ? 1 : a < b ? -1 : a - b", lambda a, b: np.sign(a - b)),  # a NaN stays
    ("b > a ? 1 : b < a ? -1 : b - a", lambda a, b: np.sign(b - a)),
    broadcasts=True,
)
_MSE = PointwiseLoss(
    "mse_loss",
    ("(a - b) * (a - b)", lambda a, b: (a - b) * (a - b)),
    ("2 * (a - b)", lambda a, b: 2 * (a - b)),
    ("2 * (b - a)", lambda a, b: 2 * (b - a)),
    broadcasts=True,
)
_SMOOTH_L1 = PointwiseLoss(
    "smooth_l1_loss",
    ("fabs(a - b) < p ? (a - b) * (a - b) / (2 * p) : fabs(a - b) - p / 2", _smooth_l1),
    ("fabs(a - b) < p ? (a - b) / p : a > b ? 1 : a < b ? -1 : a - b", _smooth_l1_slope),
    ("fabs(a - b) < p ? (b - a) / p : b > a ? 1 : b < a ? -1 : b - a", lambda a, b, p: _smooth_l1_slope(b, a, p)),
    broadcasts=True,
)
_HUBER = PointwiseLoss(
    "huber_loss",
    ("fabs(a - b) <= p ? (a - b) * (a - b) / 2 : p * (fabs(a - b) - p / 2)", _huber),
    ("fabs(a - b) <= p ? a - b : a > b ? p : a < b ? -p : a - b", _huber_slope),
    ("fabs(a - b) <= p ? b - a : b > a ? p : b < a ? -p : b - a", lambda a, b, p: _huber_slope(b, a, p)),
    broadcasts=True,
)


def _warn_of_two_shapes(operator: str, x: Tensor, target: Tensor) -> None:
    """PyTorch's warning: a target (N,) beside an x (N, 1) gives N N differences, which is hardly ever meant."""
    if x.shape != target.shape:
        shape = common_shape(operator, x=x, target=target)
        warnings.warn(
            f"{operator}: x {x.shape} and target {target.shape} are broadcast to {shape}, which is rarely meant; "
            "give both one shape",
            UserWarning,
            stacklevel=callers() + 1,
        )


def _check_weight(operator: str, x: Tensor, weight: Tensor | None) -> None:
    if weight is not None and weight.shape != x.shape:
        raise ShapeError(f"{operator}: weight needs the shape of x  (x {x.shape}, weight {weight.shape})")


@check_arguments
def l1_loss(
    x: Tensor,
    target: Tensor,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """|x - target|, and its mean or sum   x, target (...) -> () or (...)

    Args:
        size_average, reduce: only None is offered.
        reduction: "mean", "sum" or "none".
        weight: of the shape of x, a factor for each element; a mean is divided by its sum.
    """
    check_reduction("l1_loss", size_average, reduce, reduction)
    _warn_of_two_shapes("l1_loss", x, target)
    _check_weight("l1_loss", x, weight)
    return _L1(x, target, reduction, weight=weight, weighted_mean=True)


@check_arguments
def mse_loss(
    x: Tensor,
    target: Tensor,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """(x - target)^2, and its mean or sum   x, target (...) -> () or (...)

    The arguments are those of `l1_loss`.

    Examples:
        >>> import alpha
        >>> import alpha.nn.functional as F
        >>> F.mse_loss(alpha.ones(3), alpha.zeros(3)).item()
        1.0
    """
    check_reduction("mse_loss", size_average, reduce, reduction)
    _warn_of_two_shapes("mse_loss", x, target)
    _check_weight("mse_loss", x, weight)
    return _MSE(x, target, reduction, weight=weight, weighted_mean=True)


@check_arguments
def smooth_l1_loss(
    x: Tensor,
    target: Tensor,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """d^2 / (2 beta) if d = |x - target| is below beta, else d - beta / 2   x, target (...) -> () or (...)

    Args:
        size_average, reduce: only None is offered.
        reduction: "mean", "sum" or "none".
        beta: where the square ends, at least 0.
    """
    check_reduction("smooth_l1_loss", size_average, reduce, reduction)
    _warn_of_two_shapes("smooth_l1_loss", x, target)
    if real("smooth_l1_loss", "beta", beta) < 0:
        raise ValueError(f"smooth_l1_loss: beta={beta} is negative")
    return _SMOOTH_L1(x, target, reduction, p=float(beta))


@check_arguments
def huber_loss(
    x: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """d^2 / 2 if d = |x - target| is at most delta, else delta (d - delta / 2)   x, target (...) -> () or (...)

    Args:
        reduction: "mean", "sum" or "none".
        delta: where the square ends, above 0.
        weight: of the shape of x, a factor for each element.
    """
    check_reduction("huber_loss", None, None, reduction)
    _warn_of_two_shapes("huber_loss", x, target)
    if real("huber_loss", "delta", delta) <= 0:
        raise ValueError(f"huber_loss: delta={delta} is not above 0")
    _check_weight("huber_loss", x, weight)
    return _HUBER(x, target, reduction, p=float(delta), weight=weight)


@function_layer(l1_loss)
class L1Loss(LossLayer):
    """|x - target|, and its mean or sum; the arguments are those of `l1_loss`."""

    size_average: None = None
    reduce: None = None
    reduction: str = "mean"


@function_layer(mse_loss)
class MSELoss(LossLayer):
    """(x - target)^2, and its mean or sum; the arguments are those of `mse_loss`."""

    size_average: None = None
    reduce: None = None
    reduction: str = "mean"


@function_layer(smooth_l1_loss)
class SmoothL1Loss(LossLayer):
    """A square near 0 and a straight line elsewhere; the arguments are those of `smooth_l1_loss`."""

    size_average: None = None
    reduce: None = None
    reduction: str = "mean"
    beta: float = 1.0


@function_layer(huber_loss)
class HuberLoss(LossLayer):
    """A square near 0 and a straight line elsewhere; the arguments are those of `huber_loss`."""

    reduction: str = "mean"
    delta: float = 1.0
