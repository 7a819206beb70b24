"""RAdam and NAdam: Adam with another first moment, one fused update per group."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from alpha.core.primitive import Array
from alpha.optim.adam import update_moments
from alpha.optim.fused import Decay, FusedOptimizer, fused_update
from alpha.optim.hyper import Rule, decays, flag, natural, number, refuse_others, whole, without_effect
from alpha.optim.optimizer import Group, Parameters

__all__ = ["NAdam", "RAdam"]


class RAdamRule(NamedTuple):
    """The numbers of an RAdam step; `rate` holds the bias corrections and the rectification."""

    decay: Decay
    beta1: float
    gain1: float
    beta2: float
    gain2: float
    eps: float
    rate: float
    adaptive: bool


def _radam(rule: RAdamRule, w: Array, g: Array, m: Array, v: Array) -> None:
    """RAdam (Liu et al. 2020) in place, as in PyTorch

    m = beta1 m + gain1 g;  v = beta2 v + gain2 g^2;  W -= rate m / (sqrt(v) + eps), or rate m if not `adaptive`
    """
    t = w.dtype.type
    update_moments(rule, rule.decay.apply(w, g), m, v)
    work = m
    if rule.adaptive:
        work = np.sqrt(v)
        work += t(rule.eps)
        np.divide(m, work, out=work)
    w -= t(rule.rate) * work


class RAdam(FusedOptimizer):
    """Adam whose first steps, in which the second moment is uncertain, are small or without it (Liu et al., ICLR 2020).

    Args:
        lr: learning rate.
        betas: decay of the first and second moment, each in [0, 1).
        eps: added to the root of the second moment.
        weight_decay: lambda of an L2 term in the gradient.
        decoupled_weight_decay: the decay is not in the gradient; W is changed by lr (weight_decay W) instead.
        maximize: go up along the gradient.
        foreach: changes nothing, for one kernel updates all parameters anyway.
        capturable, differentiable: only PyTorch's defaults.
        l1_decay: lambda of an L1 term in the gradient, which PyTorch does not have.
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        **FusedOptimizer.rules,
        "betas": decays,
        "eps": natural,
        "decoupled_weight_decay": flag,
    }
    slots: ClassVar[tuple[str, ...]] = ("first", "second")
    update = fused_update("radam", _radam)

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        l1_decay: float = 0.0,
    ) -> None:
        without_effect(self._name, foreach=foreach)
        refuse_others(self._name, capturable=(capturable, False), differentiable=(differentiable, False))
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            decoupled_weight_decay=decoupled_weight_decay,
            maximize=maximize,
            l1_decay=l1_decay,
        )

    def _rule(self, group: Group, state: Mapping[str, Any]) -> RAdamRule:
        (beta1, beta2), step = group["betas"], state["step"]
        bias1, bias2 = 1 - beta1**step, 1 - beta2**step
        most = 2 / (1 - beta2) - 1
        length = most - 2 * step * beta2**step / bias2  # of the mean that v is, in steps
        rate, adaptive = group["lr"] / bias1, length > 5
        if adaptive:
            rectified = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
            rate *= math.sqrt(rectified * bias2)
        decay = Decay.of(group, group["decoupled_weight_decay"])
        return RAdamRule(decay, beta1, 1 - beta1, beta2, 1 - beta2, group["eps"], rate, adaptive)


class NAdamRule(NamedTuple):
    """The numbers of an NAdam step; `root`, `rate_g` and `rate_m` hold the bias corrections."""

    decay: Decay
    beta1: float
    gain1: float
    beta2: float
    gain2: float
    root: float
    eps: float
    rate_g: float
    rate_m: float


def _nadam(rule: NAdamRule, w: Array, g: Array, m: Array, v: Array) -> None:
    """NAdam (Dozat 2016) in place, as in PyTorch

    m = beta1 m + gain1 g;  v = beta2 v + gain2 g^2;  W -= (rate_g g + rate_m m) / (root sqrt(v) + eps)
    """
    t = w.dtype.type
    g = rule.decay.apply(w, g)
    update_moments(rule, g, m, v)
    work = np.sqrt(v)
    work *= t(rule.root)
    work += t(rule.eps)
    w -= (t(rule.rate_g) * g + t(rule.rate_m) * m) / work


class NAdam(FusedOptimizer):
    """Adam with Nesterov's momentum (Dozat, ICLR 2016), with PyTorch's arguments in PyTorch's order.

    Args:
        lr: learning rate.
        betas: decay of the first and second moment, each in [0, 1).
        eps: added to the root of the second moment.
        weight_decay: lambda of an L2 term in the gradient.
        momentum_decay: psi; the momentum of step t is beta1 (1 - 0.96^(t psi) / 2).
        decoupled_weight_decay: the decay is not in the gradient; W is changed by lr (weight_decay W) instead.
        maximize: go up along the gradient.
        foreach: changes nothing, for one kernel updates all parameters anyway.
        capturable, differentiable: only PyTorch's defaults.
        l1_decay: lambda of an L1 term in the gradient, which PyTorch does not have.
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        **FusedOptimizer.rules,
        "betas": decays,
        "eps": natural,
        "momentum_decay": natural,
        "decoupled_weight_decay": flag,
    }
    slots: ClassVar[tuple[str, ...]] = ("first", "second")
    counts: ClassVar[Mapping[str, Rule]] = {"step": whole, "mu_product": number}
    update = fused_update("nadam", _nadam)

    def __init__(
        self,
        params: Parameters,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        l1_decay: float = 0.0,
    ) -> None:
        without_effect(self._name, foreach=foreach)
        refuse_others(self._name, capturable=(capturable, False), differentiable=(differentiable, False))
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            momentum_decay=momentum_decay,
            decoupled_weight_decay=decoupled_weight_decay,
            maximize=maximize,
            l1_decay=l1_decay,
        )

    def _count_one(self, group: Group, state: dict[str, Any]) -> None:
        super()._count_one(group, state)
        state["mu_product"] = state.get("mu_product", 1.0) * _momentum(group, state["step"])

    def _rule(self, group: Group, state: Mapping[str, Any]) -> NAdamRule:
        (beta1, beta2), step, product = group["betas"], state["step"], state["mu_product"]
        now, following = _momentum(group, step), _momentum(group, step + 1)
        return NAdamRule(
            Decay.of(group, group["decoupled_weight_decay"]),
            *(beta1, 1 - beta1, beta2, 1 - beta2),
            1 / math.sqrt(1 - beta2**step),
            group["eps"],
            group["lr"] * (1 - now) / (1 - product),
            group["lr"] * following / (1 - product * following),
        )


def _momentum(group: Mapping[str, Any], step: int) -> float:
    """The momentum of a step, which counts from 1."""
    momentum: float = group["betas"][0] * (1 - 0.5 * 0.96 ** (step * group["momentum_decay"]))
    return momentum
