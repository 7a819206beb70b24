"""Adadelta: steps as large as the root of what earlier steps were, one fused update per group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from alpha.core.primitive import Array
from alpha.optim.fused import Decay, FusedOptimizer, fused_update
from alpha.optim.hyper import Rule, closed_share, natural, refuse_others, without_effect
from alpha.optim.optimizer import Group, Parameters

__all__ = ["Adadelta"]


class AdadeltaRule(NamedTuple):
    """The numbers of an Adadelta step."""

    decay: Decay
    rho: float
    gain: float
    eps: float
    lr: float


def _adadelta(rule: AdadeltaRule, w: Array, g: Array, v: Array, u: Array) -> None:
    """Adadelta (Zeiler 2012) in place, as in PyTorch

    v = rho v + gain g^2;  d = sqrt(u + eps) / sqrt(v + eps) g;  u = rho u + gain d^2;  W -= lr d
    """
    t = w.dtype.type
    g = rule.decay.apply(w, g)
    v *= t(rule.rho)
    v += t(rule.gain) * g * g
    d = np.sqrt(u + t(rule.eps)) / np.sqrt(v + t(rule.eps)) * g
    u *= t(rule.rho)
    u += t(rule.gain) * d * d
    w -= t(rule.lr) * d


class Adadelta(FusedOptimizer):
    """Adadelta (Zeiler 2012), with PyTorch's arguments in PyTorch's order.

    Args:
        lr: factor of each step.
        rho: decay of the second moments of gradients and of steps, in [0, 1].
        eps: added to both second moments.
        weight_decay: lambda of an L2 term in the gradient.
        maximize: go up along the gradient.
        foreach, capturable, differentiable: only PyTorch's defaults; one kernel updates all parameters
            anyway, and every step may be captured.
        l1_decay: lambda of an L1 term in the gradient, which PyTorch does not have.
    """

    rules: ClassVar[Mapping[str, Rule]] = {**FusedOptimizer.rules, "rho": closed_share, "eps": natural}
    slots: ClassVar[tuple[str, ...]] = ("second", "steps")
    update = fused_update("adadelta", _adadelta)

    def __init__(
        self,
        params: Parameters,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
        l1_decay: float = 0.0,
    ) -> None:
        without_effect(self._name, foreach=foreach)
        refuse_others(self._name, capturable=(capturable, False), differentiable=(differentiable, False))
        super().__init__(
            params, lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize, l1_decay=l1_decay
        )

    def _rule(self, group: Group, state: Mapping[str, Any]) -> AdadeltaRule:
        rho: float = group["rho"]
        return AdadeltaRule(Decay.of(group), rho, 1 - rho, group["eps"], group["lr"])
