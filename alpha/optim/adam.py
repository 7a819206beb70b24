"""Adam and AdamW: one fused update per group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from alpha.ops.optimizer import AdamRule, adam_update
from alpha.optim.hyper import Rule, decays, flag, natural, refuse_others
from alpha.optim.optimizer import Group, Optimizer, Parameters, gradients
from alpha.runtime.recording import StepValue
from alpha.tensor import Tensor


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
