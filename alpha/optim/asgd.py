"""ASGD: steps of falling length, and the mean of the parameters, one fused update per group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, InitVar
from typing import Any, ClassVar, NamedTuple

import numpy as np

from alpha.core.primitive import Array
from alpha.optim.fused import Decay, FusedOptimizer, fused_update
from alpha.optim.hyper import flag, hyper, hyper_parameters, natural, number, only, unused
from alpha.optim.optimizer import Group, Parameters

__all__ = ["ASGD"]


class ASGDNumbers(NamedTuple):
    """The numbers of an ASGD step."""

    decay: Decay
    eta: float
    mu: float


def _asgd(numbers: ASGDNumbers, w: Array, g: Array, mean: Array) -> None:
    """Averaged stochastic gradient descent (Polyak & Juditsky 1992) in place, as in PyTorch

    W -= eta g;  mean += mu (W - mean), and mean = W if mu is 1
    """
    t = w.dtype.type
    g = numbers.decay.apply(w, g)
    w -= t(numbers.eta) * g
    if numbers.mu == 1:
        np.copyto(mean, w)
    else:
        mean += t(numbers.mu) * (w - mean)


@hyper_parameters
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
        foreach: changes nothing, for one kernel updates all parameters anyway.
        capturable, differentiable: only PyTorch's defaults.
        l1_decay: lambda of an L1 term in the gradient, which PyTorch does not have.
    """

    params: InitVar[Parameters]
    lr: InitVar[float] = hyper(1e-2, natural)
    lambd: InitVar[float] = hyper(1e-4, number)
    alpha: InitVar[float] = hyper(0.75, number)
    t0: InitVar[float] = hyper(1e6, number)
    weight_decay: InitVar[float] = hyper(0.0, natural)
    foreach: InitVar[bool | None] = unused()
    maximize: InitVar[bool] = hyper(False, flag)
    differentiable: InitVar[bool] = only(False)
    capturable: InitVar[bool] = only(False)
    _: KW_ONLY
    l1_decay: InitVar[float] = hyper(0.0, natural, added=True)

    slots: ClassVar[tuple[str, ...]] = ("mean",)
    in_pytorch: ClassVar[Mapping[str, str] | None] = {"mean": "ax"}
    follows_in_pytorch: ClassVar[frozenset[str]] = frozenset({"eta", "mu"})
    update = fused_update("asgd", _asgd)

    def _numbers(self, group: Group, state: Mapping[str, Any]) -> ASGDNumbers:
        before = state["step"] - 1
        eta = _eta(group, before)
        decay = Decay.of(group)._replace(shrink=1 - group["lambd"] * eta)
        return ASGDNumbers(decay, eta, 1 / max(1.0, before - group["t0"]) if before else 1.0)

    def _following(self, group: Mapping[str, Any], step: int) -> dict[str, float]:
        return {"eta": _eta(group, step), "mu": 1 / max(1.0, step - group["t0"])}


def _eta(group: Mapping[str, Any], before: int) -> float:
    """The rate of the next step, after so many."""
    eta = group["lr"] / (1 + group["lambd"] * group["lr"] * before) ** group["alpha"]
    return float(np.float32(eta))  # also in float64, as in PyTorch
