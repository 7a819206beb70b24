"""Stochastic gradient descent, and Dragon-Alpha's Momentum: one fused update per group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, InitVar
from typing import Any, ClassVar, NamedTuple

from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.optim.fused import Decay, FusedOptimizer, fused_update
from alpha.optim.hyper import flag, hyper, hyper_parameters, natural, number, only, share, unused
from alpha.optim.optimizer import Group, Parameters

__all__ = ["SGD", "Momentum"]


class SgdNumbers(NamedTuple):
    """The numbers of an SGD step."""

    decay: Decay
    rate: float
    momentum: float = 0.0
    gain: float = 1.0
    nesterov: bool = False


def _sgd(numbers: SgdNumbers, w: Array, g: Array, v: Array | None) -> None:
    """SGD in place, as in PyTorch

    v = momentum v + gain g;  W -= rate v, or rate (g + momentum v) if `nesterov`; without velocities W -= rate g
    """
    t = w.dtype.type
    g = numbers.decay.apply(w, g)
    if v is not None:
        v *= t(numbers.momentum)
        v += g if numbers.gain == 1 else t(numbers.gain) * g
        g = g + t(numbers.momentum) * v if numbers.nesterov else v
    w -= t(numbers.rate) * g


sgd_update = fused_update("sgd", _sgd)


@hyper_parameters
class SGD(FusedOptimizer):
    """Stochastic gradient descent, with PyTorch's arguments in PyTorch's order.

    Args:
        lr: learning rate.
        momentum: decay of the velocity, 0 for none.
        dampening: the share of a gradient that does not enter the velocity; the first gradient enters as it is.
        weight_decay: lambda of an L2 term in the gradient.
        nesterov: look ahead by one momentum step; needs momentum > 0 and dampening 0.
        maximize: go up along the gradient.
        foreach, fused: change nothing, for one kernel updates all parameters anyway.
        differentiable: only PyTorch's default.
        l1_decay: lambda of an L1 term in the gradient, which PyTorch does not have.

    Examples:
        >>> import alpha
        >>> w = alpha.tensor([1.0], requires_grad=True)
        >>> optimizer = alpha.optim.SGD([w], lr=0.5, momentum=0.9)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w.tolist()
        [0.0]
    """

    params: InitVar[Parameters]
    lr: InitVar[float] = hyper(1e-3, natural)
    momentum: InitVar[float] = hyper(0.0, natural)
    dampening: InitVar[float] = hyper(0.0, number)
    weight_decay: InitVar[float] = hyper(0.0, natural)
    nesterov: InitVar[bool] = hyper(False, flag)
    _: KW_ONLY
    maximize: InitVar[bool] = hyper(False, flag)
    foreach: InitVar[bool | None] = unused()
    differentiable: InitVar[bool] = only(False)
    fused: InitVar[bool | None] = unused()
    l1_decay: InitVar[float] = hyper(0.0, natural, added=True)

    slots: ClassVar[tuple[str, ...]] = ("velocity",)
    in_pytorch: ClassVar[Mapping[str, str] | None] = {"velocity": "momentum_buffer"}
    counts_in_pytorch: ClassVar[bool] = False
    update = sgd_update

    def _check(self, group: Group) -> None:
        super()._check(group)
        if group["nesterov"] and (group["momentum"] == 0 or group["dampening"] != 0):
            raise ValueError(
                f"{self._name}: nesterov needs momentum > 0 and dampening 0  "
                f"(momentum {group['momentum']}, dampening {group['dampening']})"
            )

    def _used_slots(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        return self.slots if group["momentum"] else ()

    def _required_slots(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        return ()  # a velocity that is missing begins with the next gradient

    def reset(self) -> None:
        super().reset()
        for group in self.param_groups:
            if group["dampening"]:  # the first gradient would be dampened
                for parameter in group["params"]:
                    self.state.get(parameter, {}).pop("velocity", None)

    def _numbers(self, group: Group, state: Mapping[str, Any]) -> SgdNumbers:
        return SgdNumbers(Decay.of(group), group["lr"], group["momentum"], 1 - group["dampening"], group["nesterov"])

    def _first_numbers(self, group: Group, state: Mapping[str, Any]) -> SgdNumbers:
        """The numbers of a first step, whose gradient enters the velocity without dampening."""
        return self._numbers(group, state)._replace(gain=1.0)

    def _update(self, group: Group, ready: list[Tensor]) -> None:
        if not group["momentum"] or group["dampening"] == 0:  # zeros are a right first velocity: momentum 0 + g = g
            super()._update(group, ready)
            return
        started = [p for p in ready if "velocity" in self.state[p]]
        fresh = [p for p in ready if "velocity" not in self.state[p]]
        if started:
            self._launch(group, started, self._numbers)
        if fresh:
            self._launch(group, fresh, self._first_numbers)


@hyper_parameters
class Momentum(FusedOptimizer):
    """Descent along the bias-corrected mean of the gradients, as in Dragon-Alpha.

    V = beta V + (1 - beta) g;  W -= lr V / (1 - beta^step)

    Args:
        lr: learning rate.
        beta: decay of the mean, in [0, 1).
        weight_decay: lambda of an L2 term in the gradient.
        l1_decay: lambda of an L1 term in the gradient.
        maximize: go up along the gradient.
    """

    params: InitVar[Parameters]
    lr: InitVar[float] = hyper(1e-3, natural)
    beta: InitVar[float] = hyper(0.9, share)
    weight_decay: InitVar[float] = hyper(0.0, natural)
    _: KW_ONLY
    l1_decay: InitVar[float] = hyper(0.0, natural, added=True)
    maximize: InitVar[bool] = hyper(False, flag)

    slots: ClassVar[tuple[str, ...]] = ("velocity",)
    update = sgd_update

    def _numbers(self, group: Group, state: Mapping[str, Any]) -> SgdNumbers:
        beta: float = group["beta"]
        return SgdNumbers(Decay.of(group), group["lr"] / (1 - beta ** state["step"]), beta, 1 - beta)
