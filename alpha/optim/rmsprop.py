"""RMSprop: the gradient divided by the root of its second moment, one fused update per group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, InitVar
from typing import Any, ClassVar, NamedTuple

import numpy as np

from alpha.core.primitive import Array
from alpha.optim.fused import Decay, FusedOptimizer, fused_update
from alpha.optim.hyper import closed_share, flag, hyper, hyper_parameters, natural, only, unused
from alpha.optim.optimizer import Group, Parameters

__all__ = ["RMSprop"]


class RMSpropNumbers(NamedTuple):
    """The numbers of an RMSprop step."""

    decay: Decay
    alpha: float
    gain: float
    eps: float
    momentum: float
    lr: float


def _rmsprop(numbers: RMSpropNumbers, w: Array, g: Array, v: Array, velocity: Array | None, mean: Array | None) -> None:
    """RMSprop (Tieleman & Hinton 2012) in place, as in PyTorch

    v = alpha v + gain g^2;  mean = alpha mean + gain g;  d = g / (sqrt(v - mean^2) + eps), without a mean sqrt(v)
    velocity = momentum velocity + d;  W -= lr velocity, without a velocity lr d
    """
    t = w.dtype.type
    g = numbers.decay.apply(w, g)
    v *= t(numbers.alpha)
    v += t(numbers.gain) * g * g
    variance = v
    if mean is not None:
        mean *= t(numbers.alpha)
        mean += t(numbers.gain) * g
        variance = v - mean * mean
        np.copyto(variance, 0, where=variance < 0)  # it is negative by rounding only
    work = np.sqrt(variance)
    work += t(numbers.eps)
    np.divide(g, work, out=work)
    if velocity is not None:
        velocity *= t(numbers.momentum)
        velocity += work
        work = velocity
    w -= t(numbers.lr) * work


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

    def _numbers(self, group: Group, state: Mapping[str, Any]) -> RMSpropNumbers:
        alpha: float = group["alpha"]
        return RMSpropNumbers(Decay.of(group), alpha, 1 - alpha, group["eps"], group["momentum"], group["lr"])
