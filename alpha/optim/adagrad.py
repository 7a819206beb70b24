"""Adagrad: the gradient divided by the root of the sum of its squares, one fused update per group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, InitVar
from typing import Any, ClassVar, NamedTuple

import numpy as np

from alpha.core.primitive import Array
from alpha.optim.fused import Decay, FusedOptimizer, fused_update
from alpha.optim.hyper import flag, hyper, hyper_parameters, natural, only, unused
from alpha.optim.optimizer import Group, Parameters

__all__ = ["Adagrad"]


class AdagradNumbers(NamedTuple):
    """The numbers of an Adagrad step."""

    decay: Decay
    eps: float
    rate: float


def _adagrad(numbers: AdagradNumbers, w: Array, g: Array, total: Array) -> None:
    """Adagrad (Duchi et al. 2011) in place, as in PyTorch

    total = total + g^2;  W -= rate g / (sqrt(total) + eps)
    """
    t = w.dtype.type
    g = numbers.decay.apply(w, g)
    total += g * g
    work = np.sqrt(total)
    work += t(numbers.eps)
    np.divide(g, work, out=work)
    work *= t(numbers.rate)
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

    def _numbers(self, group: Group, state: Mapping[str, Any]) -> AdagradNumbers:
        rate = group["lr"] / (1 + (state["step"] - 1) * group["lr_decay"])
        return AdagradNumbers(Decay.of(group), group["eps"], rate)
