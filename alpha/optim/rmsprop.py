"""RMSprop, Adagrad and Adadelta: the gradient divided by the root of its second moment, one fused update per group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, InitVar
from typing import Any, ClassVar, NamedTuple

import numpy as np

from alpha.core.primitive import Array
from alpha.optim.fused import Decay, FusedOptimizer, fused_update
from alpha.optim.hyper import closed_share, flag, hyper, hyper_parameters, natural, only, unused
from alpha.optim.optimizer import Group, Parameters

__all__ = ["Adadelta", "Adagrad", "RMSprop"]


class RMSpropRule(NamedTuple):
    """The numbers of an RMSprop step."""

    decay: Decay
    alpha: float
    gain: float
    eps: float
    momentum: float
    lr: float


def _rmsprop(rule: RMSpropRule, w: Array, g: Array, v: Array, velocity: Array | None, mean: Array | None) -> None:
    """RMSprop (Tieleman & Hinton 2012) in place, as in PyTorch

    v = alpha v + gain g^2;  mean = alpha mean + gain g;  d = g / (sqrt(v - mean^2) + eps), without a mean sqrt(v)
    velocity = momentum velocity + d;  W -= lr velocity, without a velocity lr d
    """
    t = w.dtype.type
    g = rule.decay.apply(w, g)
    v *= t(rule.alpha)
    v += t(rule.gain) * g * g
    variance = v
    if mean is not None:
        mean *= t(rule.alpha)
        mean += t(rule.gain) * g
        variance = v - mean * mean
        np.copyto(variance, 0, where=variance < 0)  # it is negative by rounding only
    work = np.sqrt(variance)
    work += t(rule.eps)
    np.divide(g, work, out=work)
    if velocity is not None:
        velocity *= t(rule.momentum)
        velocity += work
        work = velocity
    w -= t(rule.lr) * work


@hyper_parameters
class RMSprop(FusedOptimizer):
    """RMSprop (Tieleman & Hinton 2012), with PyTorch's arguments in PyTorch's order.

    Args:
        lr: learning rate.
        alpha: decay of the second moment, in [0, 1].
        eps: added to the root of the second moment.
        weight_decay: lambda of an L2 term in the gradient.
        momentum: decay of the velocity, 0 for none.
        centered: divide by the root of the variance in place of the second moment (Graves 2013).
        maximize: go up along the gradient.
        foreach: changes nothing, for one kernel updates all parameters anyway.
        capturable, differentiable: only PyTorch's defaults.
        l1_decay: lambda of an L1 term in the gradient, which PyTorch does not have.
    """

    params: InitVar[Parameters]
    lr: InitVar[float] = hyper(1e-2, natural)
    alpha: InitVar[float] = hyper(0.99, closed_share)
    eps: InitVar[float] = hyper(1e-8, natural)
    weight_decay: InitVar[float] = hyper(0.0, natural)
    momentum: InitVar[float] = hyper(0.0, natural)
    centered: InitVar[bool] = hyper(False, flag)
    capturable: InitVar[bool] = only(False)
    foreach: InitVar[bool | None] = unused()
    maximize: InitVar[bool] = hyper(False, flag)
    differentiable: InitVar[bool] = only(False)
    _: KW_ONLY
    l1_decay: InitVar[float] = hyper(0.0, natural, added=True)

    slots: ClassVar[tuple[str, ...]] = ("second", "velocity", "mean")
    in_pytorch: ClassVar[Mapping[str, str] | None] = {
        "second": "square_avg",
        "velocity": "momentum_buffer",
        "mean": "grad_avg",
    }
    update = fused_update("rmsprop", _rmsprop)

    def _used_slots(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        used = ("second", "velocity" if group.get("momentum", 0) > 0 else "", "mean" if group.get("centered") else "")
        return tuple(filter(None, used))

    def _rule(self, group: Group, state: Mapping[str, Any]) -> RMSpropRule:
        alpha: float = group["alpha"]
        return RMSpropRule(Decay.of(group), alpha, 1 - alpha, group["eps"], group["momentum"], group["lr"])


class AdagradRule(NamedTuple):
    """The numbers of an Adagrad step."""

    decay: Decay
    eps: float
    rate: float


def _adagrad(rule: AdagradRule, w: Array, g: Array, total: Array) -> None:
    """Adagrad (Duchi et al. 2011) in place, as in PyTorch

    total = total + g^2;  W -= rate g / (sqrt(total) + eps)
    """
    t = w.dtype.type
    g = rule.decay.apply(w, g)
    total += g * g
    work = np.sqrt(total)
    work += t(rule.eps)
    np.divide(g, work, out=work)
    work *= t(rule.rate)
    w -= work


@hyper_parameters
class Adagrad(FusedOptimizer):
    """Adagrad (Duchi et al., JMLR 2011), with PyTorch's arguments in PyTorch's order.

    Args:
        lr: learning rate.
        lr_decay: the rate of step k, which counts from 0, is lr / (1 + k lr_decay).
        weight_decay: lambda of an L2 term in the gradient.
        initial_accumulator_value: the sum of squares before a parameter's first step.
        eps: added to the root of the sum of squares.
        maximize: go up along the gradient.
        foreach, fused: change nothing, for one kernel updates all parameters anyway.
        differentiable: only PyTorch's default.
        l1_decay: lambda of an L1 term in the gradient, which PyTorch does not have.
    """

    params: InitVar[Parameters]
    lr: InitVar[float] = hyper(1e-2, natural)
    lr_decay: InitVar[float] = hyper(0.0, natural)
    weight_decay: InitVar[float] = hyper(0.0, natural)
    initial_accumulator_value: InitVar[float] = hyper(0.0, natural)
    eps: InitVar[float] = hyper(1e-10, natural)
    foreach: InitVar[bool | None] = unused()
    _: KW_ONLY
    maximize: InitVar[bool] = hyper(False, flag)
    differentiable: InitVar[bool] = only(False)
    fused: InitVar[bool | None] = unused()
    l1_decay: InitVar[float] = hyper(0.0, natural, added=True)

    slots: ClassVar[tuple[str, ...]] = ("total",)
    in_pytorch: ClassVar[Mapping[str, str] | None] = {"total": "sum"}
    update = fused_update("adagrad", _adagrad)

    def _first_value(self, name: str, group: Group) -> float:
        value, own = self.defaults["initial_accumulator_value"], group["initial_accumulator_value"]
        if own != value:
            raise ValueError(
                f"{self._name}: initial_accumulator_value={own} of a group is passed over by PyTorch, which begins "
                f"with the {value} that the optimizer was made with; give it to {self._name}(..)"
            )
        return float(value)

    def _rule(self, group: Group, state: Mapping[str, Any]) -> AdagradRule:
        rate = group["lr"] / (1 + (state["step"] - 1) * group["lr_decay"])
        return AdagradRule(Decay.of(group), group["eps"], rate)


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


@hyper_parameters
class Adadelta(FusedOptimizer):
    """Adadelta (Zeiler 2012), with PyTorch's arguments in PyTorch's order.

    Args:
        lr: factor of each step.
        rho: decay of the second moments of gradients and of steps, in [0, 1].
        eps: added to both second moments.
        weight_decay: lambda of an L2 term in the gradient.
        maximize: go up along the gradient.
        foreach: changes nothing, for one kernel updates all parameters anyway.
        capturable, differentiable: only PyTorch's defaults.
        l1_decay: lambda of an L1 term in the gradient, which PyTorch does not have.
    """

    params: InitVar[Parameters]
    lr: InitVar[float] = hyper(1.0, natural)
    rho: InitVar[float] = hyper(0.9, closed_share)
    eps: InitVar[float] = hyper(1e-6, natural)
    weight_decay: InitVar[float] = hyper(0.0, natural)
    foreach: InitVar[bool | None] = unused()
    _: KW_ONLY
    capturable: InitVar[bool] = only(False)
    maximize: InitVar[bool] = hyper(False, flag)
    differentiable: InitVar[bool] = only(False)
    l1_decay: InitVar[float] = hyper(0.0, natural, added=True)

    slots: ClassVar[tuple[str, ...]] = ("second", "steps")
    in_pytorch: ClassVar[Mapping[str, str] | None] = {"second": "square_avg", "steps": "acc_delta"}
    update = fused_update("adadelta", _adadelta)

    def _rule(self, group: Group, state: Mapping[str, Any]) -> AdadeltaRule:
        rho: float = group["rho"]
        return AdadeltaRule(Decay.of(group), rho, 1 - rho, group["eps"], group["lr"])
