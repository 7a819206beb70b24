"""Negative log-likelihoods: of labels, and of numbers that have a normal or a Poisson distribution."""

from __future__ import annotations

import math

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.indexing.where import where
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.function_layer import function_layer
from alpha.ops.kernel.options import real
from alpha.ops.loss.classes import check_ignored, loss_of_classes
from alpha.ops.loss.pointwise import LossLayer, check_reduction, common_shape, reduced, widened

__all__ = ["GaussianNLLLoss", "NLLLoss", "PoissonNLLLoss", "gaussian_nll_loss", "nll_loss", "poisson_nll_loss"]


@check_arguments
def nll_loss(
    x: Tensor,
    target: AnyTensor,
    weight: Tensor | None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    """-weight[target] x[target], x being logarithms of probabilities   x (N, .., C), target (N, ..) -> () or (N, ..)

    The arguments are those of `cross_entropy`; the target is labels, and the classes are the last axis.
    """
    check_reduction("nll_loss", size_average, reduce, reduction)
    if target.shape == x.shape and target.dtype.kind not in "iub":
        raise TypeError(f"nll_loss: target has dtype {target.dtype.name}; int32, int64 or uint8 is needed")
    ignore = check_ignored("nll_loss", "ignore_index", ignore_index)
    return loss_of_classes("nll_loss", x, target, weight, reduction, smoothing=0.0, ignore=ignore, normalize=False)


@function_layer(nll_loss, ignore_index=check_ignored)
class NLLLoss(LossLayer):
    """The negative log-likelihood of labels; the arguments are those of `nll_loss`."""

    weight: Tensor | None = None
    size_average: None = None
    ignore_index: int = -100
    reduce: None = None
    reduction: str = "mean"


@check_arguments
def gaussian_nll_loss(
    x: Tensor, target: Tensor, var: Tensor, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """(log(var) + (x - target)^2 / var) / 2, the targets being normal with mean x   x, target (...) -> () or (...)

    Args:
        target: it and x broadcast.
        var: the variances, of the shape of x, or with one axis of length 1, or without the last axis. Those below eps
            count as eps, and have the gradient of eps. A check for negative ones would wait for the GPU, so there is
            none.
        full: True adds the constant log(2 pi) / 2.
        eps: the least variance, at least 0.
        reduction: "mean", "sum" or "none".
    """
    check_reduction("gaussian_nll_loss", None, None, reduction)
    if real("gaussian_nll_loss", "eps", eps) < 0:
        raise ValueError(f"gaussian_nll_loss: eps={eps} is negative")
    x, target, var = widened(x), widened(target), widened(var)
    if var.shape == x.shape[:-1] and var.shape != x.shape:
        var = var.unsqueeze(-1)
    repeats = [own for own, length in zip(var.shape, x.shape, strict=False) if own != length]
    if var.ndim != x.ndim or repeats not in ([], [1]):
        raise ShapeError(f"gaussian_nll_loss: var {var.shape} fits neither x {x.shape} nor its rows")
    common_shape("gaussian_nll_loss", x=x, target=target)
    least = where(var.detach() < eps, eps, var.detach()) + (var - var.detach())
    difference = x - target
    loss = (least.log() + difference * difference / least) * 0.5
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


@check_arguments
def poisson_nll_loss(
    x: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: None = None,
    eps: float = 1e-8,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    """exp(x) - target x, the targets being of a Poisson distribution with mean exp(x)   x, target (...) -> () or (...)

    Args:
        target: it and x broadcast.
        log_input: False has the mean x, and the loss x - target log(x + eps).
        full: True adds Stirling's formula for log(target!) where the target is above 1.
        size_average, reduce: only None is offered.
        reduction: "mean", "sum" or "none".
    """
    check_reduction("poisson_nll_loss", size_average, reduce, reduction)
    common_shape("poisson_nll_loss", x=x, target=target)
    x, target = widened(x), widened(target)
    loss = x.exp() - target * x if log_input else x - target * (x + real("poisson_nll_loss", "eps", eps)).log()
    if full:
        count = where(target > 1, target, 1.0)
        stirling = count * count.log() - count + 0.5 * (2 * math.pi * count).log()
        loss = loss + where(target > 1, stirling, 0.0)
    return reduced(loss, reduction)


@function_layer(gaussian_nll_loss, kw_only=True)
class GaussianNLLLoss(LossLayer):
    """The negative log-likelihood of normal targets; the arguments are those of `gaussian_nll_loss`."""

    full: bool = False
    eps: float = 1e-6
    reduction: str = "mean"


@function_layer(poisson_nll_loss)
class PoissonNLLLoss(LossLayer):
    """The negative log-likelihood of counts; the arguments are those of `poisson_nll_loss`."""

    log_input: bool = True
    full: bool = False
    size_average: None = None
    eps: float = 1e-8
    reduce: None = None
    reduction: str = "mean"
