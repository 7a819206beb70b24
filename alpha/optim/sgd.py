"""Stochastic gradient descent: one fused update a group."""

from __future__ import annotations

from alpha.ops.optimizer import sgd_update
from alpha.optim.optimizer import Group, Optimizer, Parameters
from alpha.primitive import Array
from alpha.tensor import Tensor


class SGD(Optimizer):
    """Stochastic gradient descent, as in PyTorch.

    Args:
        lr: learning rate.
        momentum: decay of the velocity, 0 for none.
        weight_decay: lambda of an L2 term in the gradient.
        nesterov: look ahead by one momentum step; needs momentum > 0.
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(params, lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov)

    def _check(self, group: Group) -> None:
        super()._check(group)
        if group["momentum"] < 0 or (group["nesterov"] and group["momentum"] == 0):
            raise ValueError(f"SGD: momentum={group['momentum']} must be >= 0, and > 0 with nesterov")

    def _update(self, group: Group, ready: list[Tensor], gradients: list[Array], step: int) -> None:
        # zeros are a right first velocity: momentum 0 + g = g
        velocities = self._slots("velocity", ready) if group["momentum"] else []
        sgd_update(
            [p.array for p in ready],
            gradients,
            velocities,
            group["lr"],
            group["momentum"],
            group["nesterov"],
            group["weight_decay"],
        )
