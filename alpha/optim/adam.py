"""Adam and AdamW: one fused update per group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from alpha.ops.optimizer import in_chunks, launch_update
from alpha.optim.hyper import Rule, decays, flag, natural, refuse_others
from alpha.optim.optimizer import Group, Optimizer, Parameters, gradients
from alpha.primitive import Array, primitive
from alpha.runtime.recording import StepValue
from alpha.tensor import Tensor

__all__ = ["Adam", "AdamW"]


class AdamRule(NamedTuple):
    """The numbers of an Adam step."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    decay: float
    decoupled: bool
    maximize: bool
    step: int


@primitive
def adam_update(
    parameters: list[Array],
    gradients: list[Array],
    first: list[Array],
    second: list[Array],
    largest: list[Array],
    rule: StepValue[AdamRule],
) -> None:
    """Adam (Kingma & Ba 2015) in place, bias-corrected, as in PyTorch

    `maximize` changes the sign of g first. `decay` adds decay W to g, or shrinks W by lr decay if `decoupled`.
    m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
    W -= lr m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps)
    If `largest` is not empty (AMSGrad), it keeps the largest v so far, which replaces v in the last line.
    """


@adam_update.impl("cpu")
def _(
    parameters: list[Array],
    gradients: list[Array],
    first: list[Array],
    second: list[Array],
    largest: list[Array],
    rule: StepValue[AdamRule],
) -> None:
    lr, beta1, beta2, eps, decay, decoupled, maximize, step = rule.now()
    rate = lr / (1 - beta1**step)
    root = 1.0 / np.sqrt(1 - beta2**step)

    def update(w: Array, g: Array, m: Array, v: Array, *largest: Array) -> None:
        t = w.dtype.type
        if maximize:
            g = -g
        if decay:
            if decoupled:
                w *= t(1 - lr * decay)
            else:
                g = g + t(decay) * w
        # The gain comes first: gain g g is finite for larger g than g g is. v + gain (g g - v) would cancel.
        work = t(1 - beta1) * g
        m *= t(beta1)
        m += work
        np.multiply(g, t(1 - beta2), out=work)
        work *= g
        v *= t(beta2)
        v += work
        np.sqrt(np.maximum(largest[0], v, out=largest[0]) if largest else v, out=work)
        work *= t(root)
        work += t(eps)
        np.divide(m, work, out=work)
        work *= t(rate)
        w -= work

    in_chunks([parameters, gradients, first, second, *([largest] if largest else [])], update)


_NUMBERS = ("sign", "shrink", "l2", "beta1", "gain1", "beta2", "gain2", "root", "eps", "rate")
_RULE = np.dtype([(name, np.float32) for name in _NUMBERS], align=True)


def _numbers(rule: AdamRule) -> Any:
    """`Rule` of cuda/optimizer/adam.cu, its factors computed in double precision."""
    lr, beta1, beta2, eps, decay, decoupled, maximize, step = rule
    shrink, l2 = (1 - lr * decay, 0.0) if decoupled else (1.0, decay)
    rate, root = lr / (1 - beta1**step), 1 / np.sqrt(1 - beta2**step)
    sign = -1 if maximize else 1
    return np.array((sign, shrink, l2, beta1, 1 - beta1, beta2, 1 - beta2, root, eps, rate), _RULE)[()]


@adam_update.impl("cuda")
def _(
    parameters: list[Array],
    gradients: list[Array],
    first: list[Array],
    second: list[Array],
    largest: list[Array],
    rule: StepValue[AdamRule],
) -> None:
    arrays = [parameters, gradients, first, second, largest or second]
    launch_update("adam", arrays, rule, _numbers, (("AMSGRAD", int(bool(largest))),))


class Adam(Optimizer):
    """Adam (Kingma & Ba, ICLR 2015), bias-corrected, with PyTorch's arguments in PyTorch's order.

    Args:
        lr: learning rate.
        betas: decay of the first and second moment, each in [0, 1).
        eps: added to the root of the second moment.
        weight_decay: lambda of an L2 term in the gradient.
        amsgrad: divide by the root of the largest second moment so far (Reddi et al., ICLR 2018).
        maximize: go up along the gradient.
        foreach, capturable, differentiable, fused, decoupled_weight_decay: only PyTorch's defaults; one kernel updates
            all parameters anyway, and AdamW has the decoupled decay.
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        "lr": natural,
        "betas": decays,
        "eps": natural,
        "weight_decay": natural,
        "amsgrad": flag,
        "maximize": flag,
    }
    slots: ClassVar[tuple[str, ...]] = ("first", "second", "largest")
    decoupled = False

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        if decoupled_weight_decay is not False:
            raise ValueError(f"{self._name}: decoupled_weight_decay is not offered; alpha.optim.AdamW has it")
        refuse_others(
            self._name,
            foreach=(foreach, None),
            capturable=(capturable, False),
            differentiable=(differentiable, False),
            fused=(fused, None),
        )
        super().__init__(
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize
        )

    def _required_slots(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        return self.slots if group.get("amsgrad") else self.slots[:2]

    def _update(self, group: Group, ready: list[Tensor]) -> None:
        def rule() -> AdamRule:
            (beta1, beta2), decay, step = group["betas"], group["weight_decay"], self.state[ready[0]]["step"]
            return AdamRule(group["lr"], beta1, beta2, group["eps"], decay, self.decoupled, group["maximize"], step)

        adam_update(
            [p.array for p in ready],
            gradients(ready),
            self._slots("first", ready),
            self._slots("second", ready),
            self._slots("largest", ready) if group["amsgrad"] else [],
            StepValue(rule),
        )


class AdamW(Adam):
    """Adam whose weight decay is not in the gradient: W shrinks by lr weight_decay

    Loshchilov & Hutter, "Decoupled weight decay regularization", ICLR 2019.
    """

    decoupled = True

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            maximize=maximize,
            foreach=foreach,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
        )
