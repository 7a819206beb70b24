"""Stochastic gradient descent: one fused update per group."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from alpha.ops.optimizer import in_chunks, launch_update
from alpha.optim.hyper import Rule, flag, natural, number, refuse_others
from alpha.optim.optimizer import Group, Optimizer, Parameters, gradients
from alpha.primitive import Array, primitive
from alpha.runtime.recording import StepValue
from alpha.tensor import Tensor

__all__ = ["SGD"]


class SgdRule(NamedTuple):
    """The numbers of an SGD step."""

    lr: float
    momentum: float
    gain: float
    decay: float
    nesterov: bool
    maximize: bool


@primitive
def sgd_update(
    parameters: list[Array], gradients: list[Array], velocities: list[Array], rule: StepValue[SgdRule]
) -> None:
    """SGD in place, as in PyTorch

    `maximize` changes the sign of g first, then g += decay W.
    v = momentum v + gain g;  W -= lr v, or lr (g + momentum v) if `nesterov`; without velocities W -= lr g
    """


@sgd_update.impl("cpu")
def _(parameters: list[Array], gradients: list[Array], velocities: list[Array], rule: StepValue[SgdRule]) -> None:
    lr, momentum, gain, decay, nesterov, maximize = rule.now()

    def update(w: Array, g: Array, *velocity: Array) -> None:
        t = w.dtype.type
        if maximize:
            g = -g
        if decay:
            g = g + t(decay) * w
        if velocity:
            v = velocity[0]
            v *= t(momentum)
            v += g if gain == 1 else t(gain) * g
            g = g + t(momentum) * v if nesterov else v
        w -= t(lr) * g

    in_chunks([parameters, gradients, *([velocities] if velocities else [])], update)


_RULE = np.dtype(
    [
        *((name, np.float32) for name in ["sign", "lr", "momentum", "gain", "decay"]),
        *((name, np.int32) for name in ["nesterov", "velocities"]),
    ],
    align=True,
)


def _numbers(velocities: bool, rule: SgdRule) -> Any:
    """`Rule` of cuda/optimizer/sgd.cu."""
    lr, momentum, gain, decay, nesterov, maximize = rule
    return np.array((-1 if maximize else 1, lr, momentum, gain, decay, nesterov, velocities), _RULE)[()]


@sgd_update.impl("cuda")
def _(parameters: list[Array], gradients: list[Array], velocities: list[Array], rule: StepValue[SgdRule]) -> None:
    pack = functools.partial(_numbers, bool(velocities))
    launch_update("sgd", [parameters, gradients, velocities or gradients], rule, pack)


class SGD(Optimizer):
    """Stochastic gradient descent, with PyTorch's arguments in PyTorch's order.

    Args:
        lr: learning rate.
        momentum: decay of the velocity, 0 for none.
        dampening: the share of a gradient that does not enter the velocity; the first gradient enters as it is.
        weight_decay: lambda of an L2 term in the gradient.
        nesterov: look ahead by one momentum step; needs momentum > 0 and dampening 0.
        maximize: go up along the gradient.
        foreach, differentiable, fused: only PyTorch's defaults; one kernel updates all parameters anyway.
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        "lr": natural,
        "momentum": natural,
        "dampening": number,
        "weight_decay": natural,
        "nesterov": flag,
        "maximize": flag,
    }
    slots: ClassVar[tuple[str, ...]] = ("velocity",)

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        refuse_others(self._name, foreach=(foreach, None), differentiable=(differentiable, False), fused=(fused, None))
        super().__init__(
            params,
            lr=lr,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=nesterov,
            maximize=maximize,
        )

    def _check(self, group: Group) -> None:
        super()._check(group)
        if group["nesterov"] and (group["momentum"] == 0 or group["dampening"] != 0):
            raise ValueError(
                f"{self._name}: nesterov needs momentum > 0 and dampening 0  "
                f"(momentum {group['momentum']}, dampening {group['dampening']})"
            )

    def _update(self, group: Group, ready: list[Tensor]) -> None:
        if not group["momentum"]:
            self._launch(group, ready, [])
        elif group["dampening"] == 0:  # zeros are a right first velocity: momentum 0 + g = g
            self._launch(group, ready, self._slots("velocity", ready))
        else:
            started = [p for p in ready if "velocity" in self.state[p]]
            fresh = [p for p in ready if "velocity" not in self.state[p]]
            for part, whole in ((started, False), (fresh, True)):
                if part:
                    self._launch(group, part, self._slots("velocity", part), whole)

    def _launch(self, group: Group, ready: list[Tensor], velocities: list[Array], whole: bool = False) -> None:
        """`whole`: the gradient enters the velocity without dampening, because it is the first."""

        def rule() -> SgdRule:
            gain = 1.0 if whole else 1 - group["dampening"]
            return SgdRule(
                group["lr"], group["momentum"], gain, group["weight_decay"], group["nesterov"], group["maximize"]
            )

        sgd_update([p.array for p in ready], gradients(ready), velocities, StepValue(rule))
