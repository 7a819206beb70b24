"""Adam and AdamW: one fused update a group."""

from __future__ import annotations

from alpha.ops.optimizer import adam_update
from alpha.optim.optimizer import Group, Optimizer, Parameters
from alpha.primitive import Array
from alpha.tensor import Tensor


class Adam(Optimizer):
    """Adam (Kingma & Ba, ICLR 2015), bias-corrected.

    Args:
        lr: learning rate.
        betas: decay of the first and second moment, each in [0, 1).
        eps: added to the root of the second moment.
        weight_decay: lambda of an L2 term in the gradient.
    """

    decoupled = False

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def _check(self, group: Group) -> None:
        super()._check(group)
        betas = tuple(group["betas"])
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"{self._name}: betas={betas} are not two numbers in [0, 1)")
        if group["eps"] < 0:
            raise ValueError(f"{self._name}: eps={group['eps']} is negative")

    def _update(self, group: Group, ready: list[Tensor], gradients: list[Array], step: int) -> None:
        adam_update(
            [p.array for p in ready],
            gradients,
            self._slots("first", ready),
            self._slots("second", ready),
            group["lr"],
            *group["betas"],
            group["eps"],
            group["weight_decay"],
            self.decoupled,
            step,
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
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)
