"""Stochastic gradient descent: one fused update per group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from alpha.ops.optimizer import SgdRule, sgd_update
from alpha.optim.hyper import Rule, flag, natural, number, refuse_others
from alpha.optim.optimizer import Group, Optimizer, Parameters, gradients
from alpha.primitive import Array
from alpha.runtime.recording import StepValue
from alpha.tensor import Tensor


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
