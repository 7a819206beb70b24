"""A schedule that waits until a measure stops improving."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, SupportsFloat

from alpha.optim.hyper import Rule, natural, number, whole
from alpha.optim.lr_scheduler.base import LRScheduler, between, numbers, one_of
from alpha.optim.optimizer import Optimizer

__all__ = ["ReduceLROnPlateau"]


def real(value: Any) -> float:
    """A number, which may be infinite."""
    return value if isinstance(value, float) and math.isinf(value) else number(value)


class ReduceLROnPlateau(LRScheduler):
    """lr = factor lr when a measure has not improved for more than `patience` steps.

    Args:
        optimizer: its groups' "lr" is set.
        mode: "min" if a smaller measure is better, "max" if a larger one is.
        factor: below 1.
        patience: steps without an improvement that change nothing.
        threshold: how much better a measure must be to count.
        threshold_mode: "rel": relative to the best measure; "abs": in its unit.
        cooldown: steps after a change in which none is counted.
        min_lr: the least rate, or a list of one per group.
        eps: smaller changes of lr are not made.
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        "mode": one_of("min", "max"),
        "factor": between(0, 1 - 1e-16),
        "patience": whole,
        "threshold": number,
        "threshold_mode": one_of("rel", "abs"),
        "cooldown": whole,
        "min_lrs": numbers,
        "eps": natural,
        "best": real,
        "num_bad_epochs": whole,
        "cooldown_counter": whole,
    }
    mode: str
    factor: float
    patience: int
    threshold: float
    threshold_mode: str
    cooldown: int
    min_lrs: list[float]
    eps: float
    best: float
    num_bad_epochs: int
    cooldown_counter: int

    def __init__(
        self,
        optimizer: Optimizer,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        self._take_optimizer(optimizer)
        self._take(
            mode=mode,
            factor=factor,
            patience=patience,
            threshold=threshold,
            threshold_mode=threshold_mode,
            cooldown=cooldown,
            min_lrs=self._per_group("min_lr", min_lr),
            eps=eps,
            best=math.inf if mode == "min" else -math.inf,
            num_bad_epochs=0,
            cooldown_counter=0,
        )
        super().__init__(optimizer)

    @property
    def in_cooldown(self) -> bool:
        """True for `cooldown` steps after a change."""
        return self.cooldown_counter > 0

    def step(self, metrics: SupportsFloat) -> None:  # type: ignore[override]
        """Look at a measure, and set the learning rates for the next optimizer step.

        Args:
            metrics: the measure, such as the loss of the test set: a number, or a tensor of one element, which is
                read here.
        """
        current = float(metrics)
        self.last_epoch += 1
        self._note_new_groups()
        self.min_lrs += self.min_lrs[-1:] * (len(self.optimizer.param_groups) - len(self.min_lrs))
        if self._is_better(current):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._set([self._reduced(g["lr"], least) for g, least in zip(self._groups, self.min_lrs, strict=True)])
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        else:
            self._set([group["lr"] for group in self._groups])

    @property
    def _groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups

    def _reduced(self, lr: float, least: float) -> float:
        reduced = max(lr * self.factor, least)
        return reduced if lr - reduced > self.eps else lr

    def _is_better(self, current: float) -> bool:
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "rel":
            bound = self.best * (1 + sign * self.threshold)
        else:
            bound = self.best + sign * self.threshold
        return sign * current > sign * bound
