"""Adam and AdamW: one fused update per group."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from alpha.core.primitive import Array
from alpha.optim.fused import Decay, FusedOptimizer, fused_update
from alpha.optim.hyper import Rule, decays, flag, natural, refuse_others, without_effect
from alpha.optim.optimizer import Group, Parameters

__all__ = ["Adam", "AdamW"]


class AdamRule(NamedTuple):
    """The numbers of an Adam step; `root` and `rate` hold the bias corrections."""

    decay: Decay
    beta1: float
    gain1: float
    beta2: float
    gain2: float
    root: float
    eps: float
    rate: float

    @classmethod
    def of(cls, group: Mapping[str, Any], step: int, decay: Decay) -> AdamRule:
        """The numbers of a group's parameters at their step `step`, which counts from 1."""
        beta1, beta2 = group["betas"]
        rate, root = group["lr"] / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step)
        return cls(decay, beta1, 1 - beta1, beta2, 1 - beta2, root, group["eps"], rate)


def update_moments(rule: Any, g: Array, m: Array, v: Array) -> None:
    """m = beta1 m + gain1 g;  v = beta2 v + gain2 g^2, in place"""
    t = m.dtype.type
    # The gain comes first: gain g g is finite for larger g than g g is. v + gain (g g - v) would cancel.
    work = t(rule.gain1) * g
    m *= t(rule.beta1)
    m += work
    np.multiply(g, t(rule.gain2), out=work)
    work *= g
    v *= t(rule.beta2)
    v += work


def _adam(rule: AdamRule, w: Array, g: Array, m: Array, v: Array, largest: Array | None) -> None:
    """Adam (Kingma & Ba 2015) in place, bias-corrected, as in PyTorch

    m = beta1 m + gain1 g;  v = beta2 v + gain2 g^2;  W -= rate m / (root sqrt(v) + eps)
    If `largest` is there (AMSGrad), it keeps the largest v so far, which replaces v in the last formula.
    """
    t = w.dtype.type
    update_moments(rule, rule.decay.apply(w, g), m, v)
    work = np.sqrt(v if largest is None else np.maximum(largest, v, out=largest))
    work *= t(rule.root)
    work += t(rule.eps)
    np.divide(m, work, out=work)
    work *= t(rule.rate)
    w -= work


adam_update = fused_update("adam", _adam)


class Adam(FusedOptimizer):
    """Adam (Kingma & Ba, ICLR 2015), bias-corrected, with PyTorch's arguments in PyTorch's order.

    Args:
        lr: learning rate.
        betas: decay of the first and second moment, each in [0, 1).
        eps: added to the root of the second moment.
        weight_decay: lambda of an L2 term in the gradient.
        amsgrad: divide by the root of the largest second moment so far (Reddi et al., ICLR 2018).
        maximize: go up along the gradient.
        foreach, fused: change nothing, for one kernel updates all parameters anyway.
        capturable, differentiable: only PyTorch's defaults.
        decoupled_weight_decay: the decay is not in the gradient, as in AdamW.
        l1_decay: lambda of an L1 term in the gradient, which PyTorch does not have.
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        **FusedOptimizer.rules,
        "betas": decays,
        "eps": natural,
        "amsgrad": flag,
        "decoupled_weight_decay": flag,
    }
    slots: ClassVar[tuple[str, ...]] = ("first", "second", "largest")
    added: ClassVar[Mapping[str, Any]] = {**FusedOptimizer.added, "decoupled_weight_decay": False}
    update = adam_update

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
        l1_decay: float = 0.0,
    ) -> None:
        without_effect(self._name, foreach=foreach, fused=fused)
        refuse_others(self._name, capturable=(capturable, False), differentiable=(differentiable, False))
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            amsgrad=amsgrad,
            maximize=maximize,
            decoupled_weight_decay=decoupled_weight_decay,
            l1_decay=l1_decay,
        )

    def _used_slots(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        return self.slots if group.get("amsgrad") else self.slots[:2]

    def _rule(self, group: Group, state: Mapping[str, Any]) -> AdamRule:
        return AdamRule.of(group, state["step"], self._decay(group))

    def _decay(self, group: Group) -> Decay:
        return Decay.of(group, group["decoupled_weight_decay"])


class AdamW(Adam):
    """Adam whose decay is not in the gradient: W -= lr (weight_decay W + l1_decay sign(W))

    Loshchilov & Hutter, "Decoupled weight decay regularization", ICLR 2019.
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        name: rule for name, rule in Adam.rules.items() if name != "decoupled_weight_decay"
    }
    added: ClassVar[Mapping[str, Any]] = {**Adam.added, "decoupled_weight_decay": True}

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        l1_decay: float = 0.0,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            maximize=maximize,
            foreach=foreach,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
            l1_decay=l1_decay,
        )

    def _decay(self, group: Group) -> Decay:
        return Decay.of(group, decoupled=True)
