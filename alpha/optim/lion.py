"""Lion: steps along the sign of a mean of the gradients, one fused update per group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, InitVar
from typing import Any, ClassVar, NamedTuple

import numpy as np

from alpha.core.primitive import Array
from alpha.optim.fused import Decay, FusedOptimizer, fused_update
from alpha.optim.hyper import decays, flag, hyper, hyper_parameters, natural
from alpha.optim.optimizer import Group, Parameters

__all__ = ["Lion"]


class LionNumbers(NamedTuple):
    """The numbers of a Lion step."""

    decay: Decay
    beta1: float
    gain1: float
    beta2: float
    gain2: float
    lr: float


def _lion(numbers: LionNumbers, w: Array, g: Array, m: Array) -> None:
    """Lion (Chen et al. 2023) in place

    W -= lr sign(beta1 m + gain1 g);  m = beta2 m + gain2 g
    """
    t = w.dtype.type
    g = numbers.decay.apply(w, g)
    w -= t(numbers.lr) * np.sign(t(numbers.beta1) * m + t(numbers.gain1) * g)
    m *= t(numbers.beta2)
    m += t(numbers.gain2) * g


@hyper_parameters
class Lion(FusedOptimizer):
    """Descent along the sign of a mean of the gradients (Chen et al., NeurIPS 2023).

    W -= lr (sign(beta1 m + (1 - beta1) g) + weight_decay W + l1_decay sign(W));  m = beta2 m + (1 - beta2) g

    Args:
        lr: learning rate; 3 to 10 times smaller than AdamW's.
        betas: share of the mean in a step, and decay of the mean, each in [0, 1).
        weight_decay: lambda of a decoupled L2 decay; 3 to 10 times larger than AdamW's.
        l1_decay: lambda of a decoupled L1 decay.
        maximize: go up along the gradient.
    """

    params: InitVar[Parameters]
    lr: InitVar[float] = hyper(1e-4, natural)
    betas: InitVar[tuple[float, float]] = hyper((0.9, 0.99), decays)
    weight_decay: InitVar[float] = hyper(0.0, natural)
    _: KW_ONLY
    l1_decay: InitVar[float] = hyper(0.0, natural, added=True)
    maximize: InitVar[bool] = hyper(False, flag)

    slots: ClassVar[tuple[str, ...]] = ("first",)
    update = fused_update("lion", _lion)

    def _numbers(self, group: Group, state: Mapping[str, Any]) -> LionNumbers:
        beta1, beta2 = group["betas"]
        return LionNumbers(Decay.of(group, decoupled=True), beta1, 1 - beta1, beta2, 1 - beta2, group["lr"])
