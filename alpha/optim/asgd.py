"""ASGD: steps of falling length, and the mean of the parameters, one fused update per group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from alpha.core.primitive import Array
from alpha.optim.fused import Decay, FusedOptimizer, fused_update
from alpha.optim.hyper import Rule, number, refuse_others, without_effect
from alpha.optim.optimizer import Group, Parameters

__all__ = ["ASGD"]


class ASGDRule(NamedTuple):
    """The numbers of an ASGD step."""

    decay: Decay
    eta: float
    mu: float


def _asgd(rule: ASGDRule, w: Array, g: Array, mean: Array) -> None:
    """Averaged stochastic gradient descent (Polyak & Juditsky 1992) in place, as in PyTorch

    W -= eta g;  mean += mu (W - mean), and mean = W if mu is 1
    """
    t = w.dtype.type
    g = rule.decay.apply(w, g)
    w -= t(rule.eta) * g
    if rule.mu == 1:
        np.copyto(mean, w)
    else:
        mean += t(rule.mu) * (w - mean)


class ASGD(FusedOptimizer):
    """Averaged stochastic gradient descent (Polyak & Juditsky 1992), with PyTorch's arguments in PyTorch's order.

    Step k, which counts from 1, has the rate eta = lr / (1 + lambd lr (k - 1))^alpha. The mean of a parameter p is
    `alpha.Tensor(optimizer.state[p]["mean"])`. If a schedule changes lr, eta follows at once,
    in PyTorch one step later.

    Args:
        lr: learning rate.
        lambd: decay of a parameter, which is multiplied by 1 - lambd eta.
        alpha: how fast eta falls.
        t0: the mean begins after so many steps; before, it is the parameter itself.
        weight_decay: lambda of an L2 term in the gradient.
        maximize: go up along the gradient.
        foreach, differentiable, capturable: only PyTorch's defaults; one kernel updates all parameters
            anyway, and every step may be captured.
        l1_decay: lambda of an L1 term in the gradient, which PyTorch does not have.
    """

    rules: ClassVar[Mapping[str, Rule]] = {**FusedOptimizer.rules, "lambd": number, "alpha": number, "t0": number}
    slots: ClassVar[tuple[str, ...]] = ("mean",)
    update = fused_update("asgd", _asgd)

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
        *,
        l1_decay: float = 0.0,
    ) -> None:
        without_effect(self._name, foreach=foreach)
        refuse_others(self._name, differentiable=(differentiable, False), capturable=(capturable, False))
        super().__init__(
            params,
            lr=lr,
            lambd=lambd,
            alpha=alpha,
            t0=t0,
            weight_decay=weight_decay,
            maximize=maximize,
            l1_decay=l1_decay,
        )

    def _rule(self, group: Group, state: Mapping[str, Any]) -> ASGDRule:
        before = state["step"] - 1
        eta = group["lr"] / (1 + group["lambd"] * group["lr"] * before) ** group["alpha"]
        eta = float(np.float32(eta))  # also in float64, as in PyTorch
        decay = Decay.of(group)._replace(shrink=1 - group["lambd"] * eta)
        return ASGDRule(decay, eta, 1 / max(1.0, before - group["t0"]) if before else 1.0)
