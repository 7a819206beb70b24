"""Adam and its relatives AdamW, NAdam, RAdam, Adamax and AdaMod: one fused update per group.

Their moments are updated by `update_moments`. Each optimizer has a section: the numbers of a step, the update of a
parameter in numpy, and the class. Their kernels are `cuda/optimizer/adam.cu` and
the files beside it, one per optimizer; `fused.py` launches them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, InitVar
from typing import Any, ClassVar, NamedTuple

import numpy as np

from alpha.core.primitive import Array
from alpha.optim.fused import Decay, FusedOptimizer, fused_update
from alpha.optim.hyper import (
    Rule,
    decays,
    fixed,
    flag,
    hyper,
    hyper_parameters,
    natural,
    number,
    only,
    share,
    unused,
    whole,
)
from alpha.optim.optimizer import Group, Parameters

__all__ = ["AdaMod", "Adam", "AdamW", "Adamax", "NAdam", "RAdam"]


def update_moments(numbers: Any, g: Array, m: Array, v: Array) -> None:
    """m = beta1 m + gain1 g;  v = beta2 v + gain2 g^2, in place"""
    t = m.dtype.type
    # The gain comes first: gain g g is finite for larger g than g g is. v + gain (g g - v) would cancel.
    work = t(numbers.gain1) * g
    m *= t(numbers.beta1)
    m += work
    np.multiply(g, t(numbers.gain2), out=work)
    work *= g
    v *= t(numbers.beta2)
    v += work


# -- Adam and AdamW ---------------------------------------------------------------------------------


class AdamNumbers(NamedTuple):
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
    def of(cls, group: Mapping[str, Any], step: int, decay: Decay) -> AdamNumbers:
        """The numbers of a group's parameters at their step `step`, which counts from 1."""
        beta1, beta2 = group["betas"]
        rate, root = group["lr"] / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step)
        return cls(decay, beta1, 1 - beta1, beta2, 1 - beta2, root, group["eps"], rate)


def _adam(numbers: AdamNumbers, w: Array, g: Array, m: Array, v: Array, largest: Array | None) -> None:
    """Adam (Kingma & Ba 2015) in place, bias-corrected, as in PyTorch

    m = beta1 m + gain1 g;  v = beta2 v + gain2 g^2;  W -= rate m / (root sqrt(v) + eps)
    If `largest` is there (AMSGrad), it keeps the largest v so far, which replaces v in the last formula.
    """
    t = w.dtype.type
    update_moments(numbers, numbers.decay.apply(w, g), m, v)
    work = np.sqrt(v if largest is None else np.maximum(largest, v, out=largest))
    work *= t(numbers.root)
    work += t(numbers.eps)
    np.divide(m, work, out=work)
    work *= t(numbers.rate)
    w -= work


adam_update = fused_update("adam", _adam)


@hyper_parameters
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

    Examples:
        >>> import alpha
        >>> model = alpha.nn.Linear(4, 2)
        >>> optimizer = alpha.optim.Adam(model.parameters(), lr=1e-3)
        >>> model(alpha.ones(3, 4)).square().mean().backward()
        >>> optimizer.step()
        >>> optimizer.param_groups[0]["lr"]
        0.001
    """

    params: InitVar[Parameters]
    lr: InitVar[float] = hyper(1e-3, natural)
    betas: InitVar[tuple[float, float]] = hyper((0.9, 0.999), decays)
    eps: InitVar[float] = hyper(1e-8, natural)
    weight_decay: InitVar[float] = hyper(0.0, natural)
    amsgrad: InitVar[bool] = hyper(False, flag)
    _: KW_ONLY
    maximize: InitVar[bool] = hyper(False, flag)
    foreach: InitVar[bool | None] = unused()
    capturable: InitVar[bool] = only(False)
    differentiable: InitVar[bool] = only(False)
    fused: InitVar[bool | None] = unused()
    decoupled_weight_decay: InitVar[bool] = hyper(False, flag, added=True)
    l1_decay: InitVar[float] = hyper(0.0, natural, added=True)

    slots: ClassVar[tuple[str, ...]] = ("first", "second", "largest")
    in_pytorch: ClassVar[Mapping[str, str] | None] = {
        "first": "exp_avg",
        "second": "exp_avg_sq",
        "largest": "max_exp_avg_sq",
    }
    update = adam_update

    def _used_slots(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        return self.slots if group.get("amsgrad") else self.slots[:2]

    def _numbers(self, group: Group, state: Mapping[str, Any]) -> AdamNumbers:
        return AdamNumbers.of(group, state["step"], self._decay(group))

    def _decay(self, group: Group) -> Decay:
        return Decay.of(group, group["decoupled_weight_decay"])


@hyper_parameters
class AdamW(Adam):
    """Adam whose decay is not in the gradient: W -= lr (weight_decay W + l1_decay sign(W))

    Loshchilov & Hutter, "Decoupled weight decay regularization", ICLR 2019.

    Examples:
        >>> import alpha
        >>> model = alpha.nn.Sequential(alpha.nn.Linear(4, 4), alpha.nn.Linear(4, 2))
        >>> optimizer = alpha.optim.AdamW([
        ...     {"params": model[0].parameters(), "lr": 1e-4},
        ...     {"params": model[1].parameters()},
        ... ], lr=1e-3, weight_decay=0.05)
        >>> [group["lr"] for group in optimizer.param_groups]
        [0.0001, 0.001]
    """

    weight_decay: InitVar[float] = hyper(1e-2, natural)
    decoupled_weight_decay: InitVar[bool] = fixed(True, added=True)

    def _decay(self, group: Group) -> Decay:
        return Decay.of(group, decoupled=True)


# -- NAdam -----------------------------------------------------------------------------------------


class NAdamNumbers(NamedTuple):
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


def _nadam(numbers: NAdamNumbers, w: Array, g: Array, m: Array, v: Array) -> None:
    """NAdam (Dozat 2016) in place, as in PyTorch

    m = beta1 m + gain1 g;  v = beta2 v + gain2 g^2;  W -= (rate_g g + rate_m m) / (root sqrt(v) + eps)
    """
    t = w.dtype.type
    g = numbers.decay.apply(w, g)
    update_moments(numbers, g, m, v)
    work = np.sqrt(v)
    work *= t(numbers.root)
    work += t(numbers.eps)
    w -= (t(numbers.rate_g) * g + t(numbers.rate_m) * m) / work


def _momentum(group: Mapping[str, Any], step: int) -> float:
    """The momentum of a step, which counts from 1."""
    momentum: float = group["betas"][0] * (1 - 0.5 * 0.96 ** (step * group["momentum_decay"]))
    return momentum


@hyper_parameters
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

    params: InitVar[Parameters]
    lr: InitVar[float] = hyper(2e-3, natural)
    betas: InitVar[tuple[float, float]] = hyper((0.9, 0.999), decays)
    eps: InitVar[float] = hyper(1e-8, natural)
    weight_decay: InitVar[float] = hyper(0.0, natural)
    momentum_decay: InitVar[float] = hyper(4e-3, natural)
    decoupled_weight_decay: InitVar[bool] = hyper(False, flag)
    _: KW_ONLY
    foreach: InitVar[bool | None] = unused()
    maximize: InitVar[bool] = hyper(False, flag)
    capturable: InitVar[bool] = only(False)
    differentiable: InitVar[bool] = only(False)
    l1_decay: InitVar[float] = hyper(0.0, natural, added=True)

    slots: ClassVar[tuple[str, ...]] = ("first", "second")
    in_pytorch: ClassVar[Mapping[str, str] | None] = {"first": "exp_avg", "second": "exp_avg_sq"}
    counts: ClassVar[Mapping[str, Rule]] = {"step": whole, "mu_product": number}
    update = fused_update("nadam", _nadam)

    def _count_one(self, group: Group, state: dict[str, Any]) -> None:
        super()._count_one(group, state)
        state["mu_product"] = state.get("mu_product", 1.0) * _momentum(group, state["step"])

    def _first_value(self, name: str, group: Group) -> float:
        return 1.0 if name == "mu_product" else 0.0

    def _numbers(self, group: Group, state: Mapping[str, Any]) -> NAdamNumbers:
        (beta1, beta2), step, product = group["betas"], state["step"], state["mu_product"]
        now, following = _momentum(group, step), _momentum(group, step + 1)
        return NAdamNumbers(
            Decay.of(group, group["decoupled_weight_decay"]),
            *(beta1, 1 - beta1, beta2, 1 - beta2),
            1 / math.sqrt(1 - beta2**step),
            group["eps"],
            group["lr"] * (1 - now) / (1 - product),
            group["lr"] * following / (1 - product * following),
        )


# -- RAdam -----------------------------------------------------------------------------------------


class RAdamNumbers(NamedTuple):
    """The numbers of an RAdam step; `rate` holds the bias corrections and the rectification."""

    decay: Decay
    beta1: float
    gain1: float
    beta2: float
    gain2: float
    eps: float
    rate: float
    adaptive: bool


def _radam(numbers: RAdamNumbers, w: Array, g: Array, m: Array, v: Array) -> None:
    """RAdam (Liu et al. 2020) in place, as in PyTorch

    m = beta1 m + gain1 g;  v = beta2 v + gain2 g^2;  W -= rate m / (sqrt(v) + eps), or rate m if not `adaptive`
    """
    t = w.dtype.type
    update_moments(numbers, numbers.decay.apply(w, g), m, v)
    work = m
    if numbers.adaptive:
        work = np.sqrt(v)
        work += t(numbers.eps)
        np.divide(m, work, out=work)
    w -= t(numbers.rate) * work


@hyper_parameters
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

    params: InitVar[Parameters]
    lr: InitVar[float] = hyper(1e-3, natural)
    betas: InitVar[tuple[float, float]] = hyper((0.9, 0.999), decays)
    eps: InitVar[float] = hyper(1e-8, natural)
    weight_decay: InitVar[float] = hyper(0.0, natural)
    decoupled_weight_decay: InitVar[bool] = hyper(False, flag)
    _: KW_ONLY
    foreach: InitVar[bool | None] = unused()
    maximize: InitVar[bool] = hyper(False, flag)
    capturable: InitVar[bool] = only(False)
    differentiable: InitVar[bool] = only(False)
    l1_decay: InitVar[float] = hyper(0.0, natural, added=True)

    slots: ClassVar[tuple[str, ...]] = ("first", "second")
    in_pytorch: ClassVar[Mapping[str, str] | None] = {"first": "exp_avg", "second": "exp_avg_sq"}
    update = fused_update("radam", _radam)

    def _numbers(self, group: Group, state: Mapping[str, Any]) -> RAdamNumbers:
        (beta1, beta2), step = group["betas"], state["step"]
        bias1, bias2 = 1 - beta1**step, 1 - beta2**step
        most = 2 / (1 - beta2) - 1
        length = most - 2 * step * beta2**step / bias2  # of the mean that v is, in steps
        rate, adaptive = group["lr"] / bias1, length > 5
        if adaptive:
            rectified = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
            rate *= math.sqrt(rectified * bias2)
        decay = Decay.of(group, group["decoupled_weight_decay"])
        return RAdamNumbers(decay, beta1, 1 - beta1, beta2, 1 - beta2, group["eps"], rate, adaptive)


# -- Adamax ----------------------------------------------------------------------------------------


class AdamaxNumbers(NamedTuple):
    """The numbers of an Adamax step; `rate` holds the bias correction."""

    decay: Decay
    beta1: float
    gain1: float
    beta2: float
    eps: float
    rate: float


def _adamax(numbers: AdamaxNumbers, w: Array, g: Array, m: Array, largest: Array) -> None:
    """Adamax (Kingma & Ba 2015) in place, as in PyTorch

    m = beta1 m + gain1 g;  largest = max(beta2 largest, |g| + eps);  W -= rate m / largest
    """
    t = w.dtype.type
    g = numbers.decay.apply(w, g)
    m *= t(numbers.beta1)
    m += t(numbers.gain1) * g
    work = np.abs(g)
    work += t(numbers.eps)
    largest *= t(numbers.beta2)
    np.maximum(largest, work, out=largest)
    np.divide(m, largest, out=work)
    work *= t(numbers.rate)
    w -= work


@hyper_parameters
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

    params: InitVar[Parameters]
    lr: InitVar[float] = hyper(2e-3, natural)
    betas: InitVar[tuple[float, float]] = hyper((0.9, 0.999), decays)
    eps: InitVar[float] = hyper(1e-8, natural)
    weight_decay: InitVar[float] = hyper(0.0, natural)
    foreach: InitVar[bool | None] = unused()
    _: KW_ONLY
    maximize: InitVar[bool] = hyper(False, flag)
    differentiable: InitVar[bool] = only(False)
    capturable: InitVar[bool] = only(False)
    l1_decay: InitVar[float] = hyper(0.0, natural, added=True)

    slots: ClassVar[tuple[str, ...]] = ("first", "largest")
    in_pytorch: ClassVar[Mapping[str, str] | None] = {"first": "exp_avg", "largest": "exp_inf"}
    update = fused_update("adamax", _adamax)

    def _numbers(self, group: Group, state: Mapping[str, Any]) -> AdamaxNumbers:
        beta1, beta2 = group["betas"]
        return AdamaxNumbers(
            Decay.of(group), beta1, 1 - beta1, beta2, group["eps"], group["lr"] / (1 - beta1 ** state["step"])
        )


# -- AdaMod ----------------------------------------------------------------------------------------


class AdaModNumbers(NamedTuple):
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


def _adamod(numbers: AdaModNumbers, w: Array, g: Array, m: Array, v: Array, mean: Array) -> None:
    """AdaMod (Ding et al. 2019) in place, as in Dragon-Alpha

    m = beta1 m + gain1 g;  v = beta2 v + gain2 g^2;  r = rate / (root sqrt(v) + eps)
    mean = beta3 mean + gain3 r;  W -= min(r, mean) m
    """
    t = w.dtype.type
    update_moments(numbers, numbers.decay.apply(w, g), m, v)
    work = np.sqrt(v)
    work *= t(numbers.root)
    work += t(numbers.eps)
    np.divide(t(numbers.rate), work, out=work)
    mean *= t(numbers.beta3)
    mean += t(numbers.gain3) * work
    np.minimum(work, mean, out=work)
    work *= m
    w -= work


@hyper_parameters
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

    params: InitVar[Parameters]
    lr: InitVar[float] = hyper(1e-3, natural)
    betas: InitVar[tuple[float, float]] = hyper((0.9, 0.999), decays)
    beta3: InitVar[float] = hyper(0.999, share)
    eps: InitVar[float] = hyper(1e-8, natural)
    weight_decay: InitVar[float] = hyper(0.0, natural)
    _: KW_ONLY
    l1_decay: InitVar[float] = hyper(0.0, natural, added=True)
    maximize: InitVar[bool] = hyper(False, flag)

    slots: ClassVar[tuple[str, ...]] = ("first", "second", "rate")
    update = fused_update("adamod", _adamod)

    def _numbers(self, group: Group, state: Mapping[str, Any]) -> AdaModNumbers:
        (beta1, beta2), beta3, step = group["betas"], group["beta3"], state["step"]
        moments = (beta1, 1 - beta1, beta2, 1 - beta2, beta3, 1 - beta3)
        root = 1 / (1 - beta2**step) ** 0.5
        return AdaModNumbers(Decay.of(group), *moments, root, group["eps"], group["lr"] / (1 - beta1**step))
