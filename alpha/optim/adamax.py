"""Adamax and AdaMod: relatives of Adam, one fused update per group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from alpha.core.primitive import Array
from alpha.optim.adam import update_moments
from alpha.optim.fused import Decay, FusedOptimizer, fused_update
from alpha.optim.hyper import Rule, decays, natural, refuse_others, share, without_effect
from alpha.optim.optimizer import Group, Parameters

__all__ = ["AdaMod", "Adamax"]


class AdamaxRule(NamedTuple):
    """The numbers of an Adamax step; `rate` holds the bias correction."""

    decay: Decay
    beta1: float
    gain1: float
    beta2: float
    eps: float
    rate: float


def _adamax(rule: AdamaxRule, w: Array, g: Array, m: Array, largest: Array) -> None:
    """Adamax (Kingma & Ba 2015) in place, as in PyTorch

    m = beta1 m + gain1 g;  largest = max(beta2 largest, |g| + eps);  W -= rate m / largest
    """
    t = w.dtype.type
    g = rule.decay.apply(w, g)
    m *= t(rule.beta1)
    m += t(rule.gain1) * g
    work = np.abs(g)
    work += t(rule.eps)
    largest *= t(rule.beta2)
    np.maximum(largest, work, out=largest)
    np.divide(m, largest, out=work)
    work *= t(rule.rate)
    w -= work


class Adamax(FusedOptimizer):
    """Adam with the largest gradient in place of the second moment, with PyTorch's arguments in PyTorch's order.

    Args:
        lr: learning rate.
        betas: decay of the first moment and of the largest gradient, each in [0, 1).
        eps: added to each gradient's magnitude.
        weight_decay: lambda of an L2 term in the gradient.
        maximize: go up along the gradient.
        foreach: changes nothing, for one kernel updates all parameters anyway.
        differentiable, capturable: only PyTorch's defaults.
        l1_decay: lambda of an L1 term in the gradient, which PyTorch does not have.
    """

    rules: ClassVar[Mapping[str, Rule]] = {**FusedOptimizer.rules, "betas": decays, "eps": natural}
    slots: ClassVar[tuple[str, ...]] = ("first", "largest")
    update = fused_update("adamax", _adamax)

    def __init__(
        self,
        params: Parameters,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
        l1_decay: float = 0.0,
    ) -> None:
        without_effect(self._name, foreach=foreach)
        refuse_others(self._name, differentiable=(differentiable, False), capturable=(capturable, False))
        super().__init__(
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize, l1_decay=l1_decay
        )

    def _rule(self, group: Group, state: Mapping[str, Any]) -> AdamaxRule:
        beta1, beta2 = group["betas"]
        return AdamaxRule(
            Decay.of(group), beta1, 1 - beta1, beta2, group["eps"], group["lr"] / (1 - beta1 ** state["step"])
        )


class AdaModRule(NamedTuple):
    """The numbers of an AdaMod step; `root` and `rate` hold the bias corrections."""

    decay: Decay
    beta1: float
    gain1: float
    beta2: float
    gain2: float
    beta3: float
    gain3: float
    root: float
    eps: float
    rate: float


def _adamod(rule: AdaModRule, w: Array, g: Array, m: Array, v: Array, mean: Array) -> None:
    """AdaMod (Ding et al. 2019) in place, as in Dragon-Alpha

    m = beta1 m + gain1 g;  v = beta2 v + gain2 g^2;  r = rate / (root sqrt(v) + eps)
    mean = beta3 mean + gain3 r;  W -= min(r, mean) m
    """
    t = w.dtype.type
    update_moments(rule, rule.decay.apply(w, g), m, v)
    work = np.sqrt(v)
    work *= t(rule.root)
    work += t(rule.eps)
    np.divide(t(rule.rate), work, out=work)
    mean *= t(rule.beta3)
    mean += t(rule.gain3) * work
    np.minimum(work, mean, out=work)
    work *= m
    w -= work


class AdaMod(FusedOptimizer):
    """Adam in which no parameter's rate exceeds the mean of its rates (Ding et al. 2019), as in Dragon-Alpha.

    Args:
        lr: learning rate.
        betas: decay of the first and second moment, each in [0, 1).
        beta3: decay of the mean of the rates, in [0, 1).
        eps: added to the root of the second moment.
        weight_decay: lambda of an L2 term in the gradient.
        l1_decay: lambda of an L1 term in the gradient.
        maximize: go up along the gradient.
    """

    rules: ClassVar[Mapping[str, Rule]] = {**FusedOptimizer.rules, "betas": decays, "beta3": share, "eps": natural}
    slots: ClassVar[tuple[str, ...]] = ("first", "second", "rate")
    update = fused_update("adamod", _adamod)

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        beta3: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        l1_decay: float = 0.0,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            beta3=beta3,
            eps=eps,
            weight_decay=weight_decay,
            l1_decay=l1_decay,
            maximize=maximize,
        )

    def _rule(self, group: Group, state: Mapping[str, Any]) -> AdaModRule:
        (beta1, beta2), beta3, step = group["betas"], group["beta3"], state["step"]
        moments = (beta1, 1 - beta1, beta2, 1 - beta2, beta3, 1 - beta3)
        root = 1 / (1 - beta2**step) ** 0.5
        return AdaModRule(Decay.of(group), *moments, root, group["eps"], group["lr"] / (1 - beta1**step))
