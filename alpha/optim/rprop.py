"""Rprop: a step of its own for each number, by the signs of gradients, one fused update per group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, InitVar
from typing import Any, ClassVar, NamedTuple

import numpy as np

from alpha.core.primitive import Array
from alpha.optim.fused import Decay, FusedOptimizer, fused_update
from alpha.optim.hyper import flag, hyper, hyper_parameters, natural, number, only, several, unused
from alpha.optim.optimizer import Group, Parameters

__all__ = ["Rprop"]


class RpropNumbers(NamedTuple):
    """The numbers of an Rprop step."""

    decay: Decay
    smaller: float
    bigger: float
    least: float
    most: float


def _rprop(numbers: RpropNumbers, w: Array, g: Array, before: Array, length: Array) -> None:
    """Resilient propagation (Riedmiller & Braun 1993) in place, as in PyTorch

    turn = sign(g before);  length = min(max(length f, least), most), f being bigger, smaller or 1 by the turn
    g = 0 where the turn is negative;  W -= sign(g) length;  before = g
    """
    t = w.dtype.type
    g = numbers.decay.apply(w, g)
    turn = np.sign(g * before)
    length *= np.where(turn > 0, t(numbers.bigger), np.where(turn < 0, t(numbers.smaller), t(1)))
    np.clip(length, t(numbers.least), t(numbers.most), out=length)
    np.copyto(before, np.where(turn < 0, t(0), g))
    w -= np.sign(before) * length


_two = several(2, number)


def factors(value: Any) -> tuple[float, float]:
    """Two numbers around 1."""
    checked: tuple[float, float] = _two(value)
    if not 0 < checked[0] < 1 < checked[1]:
        raise ValueError("are not two numbers with 0 < smaller < 1 < larger")
    return checked


def bounds(value: Any) -> tuple[float, float]:
    """Two numbers of at least 0, the smaller one first."""
    checked: tuple[float, float] = _two(value)
    if not 0 <= checked[0] <= checked[1]:
        raise ValueError("are not two numbers with 0 <= least <= most")
    return checked


@hyper_parameters
class Rprop(FusedOptimizer):
    """Resilient propagation (Riedmiller & Braun 1993), with PyTorch's arguments in PyTorch's order.

    It reads the signs of gradients only, so it is for gradients of all data, not of small batches.

    Args:
        lr: the length of the first step of each number.
        etas: by what the length is multiplied if the sign of the gradient has turned, below 1, or has not, above 1.
        step_sizes: the least and the largest length.
        maximize: go up along the gradient.
        foreach: changes nothing, for one kernel updates all parameters anyway.
        capturable, differentiable: only PyTorch's defaults.
    """

    params: InitVar[Parameters]
    lr: InitVar[float] = hyper(1e-2, natural)
    etas: InitVar[tuple[float, float]] = hyper((0.5, 1.2), factors)
    step_sizes: InitVar[tuple[float, float]] = hyper((1e-6, 50.0), bounds)
    _: KW_ONLY
    capturable: InitVar[bool] = only(False)
    foreach: InitVar[bool | None] = unused()
    maximize: InitVar[bool] = hyper(False, flag)
    differentiable: InitVar[bool] = only(False)

    slots: ClassVar[tuple[str, ...]] = ("before", "length")
    in_pytorch: ClassVar[Mapping[str, str] | None] = {"before": "prev", "length": "step_size"}
    update = fused_update("rprop", _rprop)

    def _first_value(self, name: str, group: Group) -> float:
        return float(group["lr"]) if name == "length" else 0.0

    def _numbers(self, group: Group, state: Mapping[str, Any]) -> RpropNumbers:
        return RpropNumbers(Decay(-1.0 if group["maximize"] else 1.0), *group["etas"], *group["step_sizes"])
