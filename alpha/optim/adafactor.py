"""Adafactor: second moments of matrices as a row and a column, and steps that are relative to the parameter."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import KW_ONLY, InitVar
from typing import Any, ClassVar

import numpy as np

from alpha.autograd.grad_mode import no_grad
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.kernel.tables.deferred import deferred, make
from alpha.optim.fused import Decay, update_weights
from alpha.optim.hyper import flag, hyper, hyper_parameters, natural, number, several, unused
from alpha.optim.optimizer import Group, Optimizer, Parameters, gradients
from alpha.optim.sgd import SgdNumbers, sgd_update
from alpha.runtime.recording import StepValue

__all__ = ["Adafactor"]


def not_positive(value: Any) -> float:
    """A finite number of at most 0."""
    checked = number(value)
    if checked > 0:
        raise ValueError("is above 0")
    return checked


def threshold(value: Any) -> float:
    """A finite number of at least 1."""
    checked = number(value)
    if checked < 1:
        raise ValueError("is below 1")
    return checked


def _natural_or_none(value: Any) -> float | None:
    return None if value is None else natural(value)


_two_least = several(2, _natural_or_none, "numbers, the first of which may be None")


def least(value: Any) -> tuple[float | None, float]:
    """None or a number of at least 0, and a number of at least 0."""
    checked: tuple[float | None, float] = _two_least(value)
    natural(checked[1])  # this one may not be None
    return checked


@hyper_parameters
class Adafactor(Optimizer):
    """Descent with factored second moments (Shazeer & Stern 2018), with PyTorch's arguments in PyTorch's order.

    In step t new squares have the share s = t^beta2_decay, and the relative length is rho = min(lr, 1 / sqrt(t)). A
    parameter W of two axes or more is a stack of matrices, its last two axes, with a number for each row and column:

    R = (1 - s) R + s mean of g^2 over columns;  C = (1 - s) C + s mean of g^2 over rows
    V = R C / max(mean of R, eps1), or of any other parameter V = (1 - s) V + s g^2
    U = g / max(sqrt(V), eps1);  W = (1 - lr weight_decay) W - rho max(eps2, rms(W)) U / max(1, rms(U) / d)

    The filters of a convolution end in (.., FW, IC) here and in (.., FH, FW) in PyTorch, so the steps of these differ.

    Args:
        lr: the largest relative length of a step, and the rate of the weight decay.
        beta2_decay: at most 0.
        eps: eps1, by default the distance from 1 to the next number of the parameter's dtype, and eps2.
        d: the largest root mean square of U, at least 1.
        weight_decay: lambda of a decoupled L2 decay.
        foreach: changes nothing.
        maximize: go up along the gradient.
    """

    params: InitVar[Parameters]
    lr: InitVar[float] = hyper(1e-2, natural)
    beta2_decay: InitVar[float] = hyper(-0.8, not_positive)
    eps: InitVar[tuple[float | None, float]] = hyper((None, 1e-3), least)
    d: InitVar[float] = hyper(1.0, threshold)
    weight_decay: InitVar[float] = hyper(0.0, natural)
    _: KW_ONLY
    foreach: InitVar[bool | None] = unused()
    maximize: InitVar[bool] = hyper(False, flag)

    slots: ClassVar[tuple[str, ...]] = ("row", "column", "second")
    in_pytorch: ClassVar[Mapping[str, str] | None] = {"row": "row_var", "column": "col_var", "second": "variance"}

    def _slot_shape(self, name: str, parameter: Tensor) -> tuple[int, ...] | None:
        shape = parameter.shape
        if len(shape) < 2:
            return shape if name == "second" else None
        return {"row": (*shape[:-1], 1), "column": (*shape[:-2], 1, shape[-1])}.get(name)

    def _required_slots(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        return self.slots

    def _update(self, group: Group, ready: list[Tensor]) -> None:
        state = self.state[ready[0]]
        names = [[n for n in self.slots if self._slot_shape(n, p) is not None] for p in ready]
        held = [[Tensor(*self._slots(n, [p], group)) for n in own] for p, own in zip(ready, names, strict=True)]
        with no_grad():
            given = [Tensor(array) if not group["maximize"] else -Tensor(array) for array in gradients(ready)]
            means = [_squares(g) for g in given]
            averages = [[part.device.copy(part.array) for part in parts] for parts in held]
            squares = [part.array for parts in means for part in parts]
            flat = [average for parts in averages for average in parts]
            numbers: StepValue[Any] = StepValue(functools.partial(_averaging, group, state))
            for update in deferred(lambda: sgd_update(flat, squares, [[]], numbers)):  # the directions need it at once
                update()
            new = [list(map(Tensor, parts)) for parts in averages]
            steps = [_direction(group, p, g, v) for p, g, v in zip(ready, given, new, strict=True)]
        for array, average in zip([part.array for parts in held for part in parts], flat, strict=True):
            make(functools.partial(_put, array, average))
        update_weights(sgd_update, ready, steps, [[]], StepValue(functools.partial(_step, group, state)))


def _put(target: Array, source: Array) -> None:
    if isinstance(target, np.ndarray):
        np.copyto(target, source)
    else:
        target.device.copy_into(target, source)


def _squares(g: Tensor) -> list[Tensor]:
    """The tensors that enter the state arrays of a parameter: means of the squares of its gradient, or the squares."""
    square = g * g
    return [square.mean(-1, keepdim=True), square.mean(-2, keepdim=True)] if g.ndim > 1 else [square]


def _direction(group: Group, parameter: Tensor, g: Tensor, held: list[Tensor]) -> Array:
    """max(eps2, rms(W)) U / max(1, rms(U) / d)"""
    eps1, eps2 = group["eps"]
    if eps1 is None:
        eps1 = float(np.finfo(parameter.dtype).eps)
    if g.ndim > 1:
        row, column = held
        second = row * column / row.mean(-2, keepdim=True).clamp(min=eps1)
    else:
        (second,) = held
    u = g / second.clamp(min=eps1 * eps1).sqrt()
    scale = _rms(parameter.detach()).clamp(min=eps2) / (_rms(u) / group["d"]).clamp(min=1.0)
    return (u * scale).array


def _rms(x: Tensor) -> Tensor:
    return (x * x).mean().sqrt()


def _averaging(group: Group, state: Mapping[str, Any]) -> SgdNumbers:
    """The numbers with which `sgd_update` makes (1 - s) V + s x of V and x."""
    share = float(state["step"]) ** group["beta2_decay"]
    return SgdNumbers(Decay(shrink=1 - share), -share)


def _step(group: Group, state: Mapping[str, Any]) -> SgdNumbers:
    length = min(group["lr"], state["step"] ** -0.5)
    return SgdNumbers(Decay(shrink=1 - group["lr"] * group["weight_decay"]), length)
