"""Learning-rate schedules: call `step()` after each optimizer step."""

from __future__ import annotations

import math

from alpha.optim.optimizer import Optimizer


class CosineAnnealing:
    """lr falls from its first value to `final` along half a cosine (Loshchilov & Hutter, ICLR 2017).

    Args:
        optimizer: whose groups' "lr" is set.
        total_steps: steps until `final` is reached; it stays there.
        final: the last learning rate.
    """

    def __init__(self, optimizer: Optimizer, total_steps: int, final: float = 0.0) -> None:
        if total_steps < 1:
            raise ValueError(f"CosineAnnealing: total_steps={total_steps} must be at least 1")
        self.optimizer, self.total_steps, self.final = optimizer, total_steps, final
        self.first = [float(group["lr"]) for group in optimizer.param_groups]
        self.steps = 0

    def step(self) -> None:
        self.steps = min(self.steps + 1, self.total_steps)
        share = 0.5 * (1.0 + math.cos(math.pi * self.steps / self.total_steps))
        for group, first in zip(self.optimizer.param_groups, self.first, strict=True):
            group["lr"] = self.final + (first - self.final) * share
