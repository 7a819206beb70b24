"""Adadelta: steps in the unit of the parameter, from two second moments, one fused update per group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, InitVar
from typing import Any, ClassVar, NamedTuple

import numpy as np

from alpha.core.primitive import Array
from alpha.optim.fused import Decay, FusedOptimizer, fused_update
from alpha.optim.hyper import closed_share, flag, hyper, hyper_parameters, natural, only, unused
from alpha.optim.optimizer import Group, Parameters

__all__ = ["Adadelta"]


class AdadeltaNumbers(NamedTuple):
    """The numbers of an Adadelta step."""

    decay: Decay
    rho: float
    gain: float
    eps: float
    lr: float


def _adadelta(numbers: AdadeltaNumbers, w: Array, g: Array, v: Array, u: Array) -> None:
    """Adadelta (Zeiler 2012) in place, as in PyTorch

    v = rho v + gain g^2;  d = sqrt(u + eps) / sqrt(v + eps) g;  u = rho u + gain d^2;  W -= lr d
    """
    t = w.dtype.type
    g = numbers.decay.apply(w, g)
    v *= t(numbers.rho)
    v += t(numbers.gain) * g * g
    d = np.sqrt(u + t(numbers.eps)) / np.sqrt(v + t(numbers.eps)) * g
    u *= t(numbers.rho)
    u += t(numbers.gain) * d * d
    w -= t(numbers.lr) * d


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

    def _numbers(self, group: Group, state: Mapping[str, Any]) -> AdadeltaNumbers:
        rho: float = group["rho"]
        return AdadeltaNumbers(Decay.of(group), rho, 1 - rho, group["eps"], group["lr"])
