"""Schedules along a cosine, without and with restarts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from alpha.optim.hyper import Rule, natural, positive_whole
from alpha.optim.lr_scheduler.base import LRScheduler
from alpha.optim.optimizer import Optimizer

__all__ = ["CosineAnnealingLR", "CosineAnnealingWarmRestarts"]


class CosineAnnealingLR(LRScheduler):
    """lr goes from its first value to `eta_min` and back along a cosine, as in PyTorch, without restarts.

    lr = eta_min + (first - eta_min) (1 + cos(pi steps / T_max)) / 2   (Loshchilov & Hutter, ICLR 2017)

    Each step follows from the rate before, so that another schedule may act on the same rate.

    Args:
        optimizer: its groups' "lr" is set.
        T_max: steps until `eta_min` is reached. After 2 T_max steps lr has its first value again.
        eta_min: the least learning rate.
        last_epoch: the number of the last step; -1 begins anew.

    Examples:
        >>> import alpha
        >>> optimizer = alpha.optim.SGD([alpha.ones(1, requires_grad=True)], lr=1.0)
        >>> schedule = alpha.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
        >>> rates = []
        >>> for _ in range(2):
        ...     rates.append(round(optimizer.param_groups[0]["lr"], 2))
        ...     optimizer.step()
        ...     schedule.step()
        ...
        >>> rates
        [1.0, 0.5]
    """

    rules: ClassVar[Mapping[str, Rule]] = {"T_max": positive_whole, "eta_min": natural}
    T_max: int
    eta_min: float

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self._take(T_max=T_max, eta_min=eta_min)
        super().__init__(optimizer, last_epoch)

    def _lr(self, lr: float, base: float) -> float:
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # after eta_min: nothing is left to multiply
            return lr + (base - self.eta_min) * (1 - math.cos(math.pi / self.T_max)) / 2
        return self.eta_min + (lr - self.eta_min) * self._height(self.last_epoch) / self._height(self.last_epoch - 1)

    def _height(self, steps: int) -> float:
        return 1 + math.cos(math.pi * steps / self.T_max)


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cycles of lr from its first value to `eta_min` along a cosine (Loshchilov & Hutter, ICLR 2017).

    Args:
        optimizer: its groups' "lr" is set.
        T_0: steps of the first period.
        T_mult: each period is this many times as long as the one before.
        eta_min: the least learning rate.
        last_epoch: the number of the last step; -1 begins anew.

    Attributes:
        T_i: the length of the period.
        T_cur: steps since it began.
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        "T_0": positive_whole,
        "T_mult": positive_whole,
        "eta_min": natural,
        "T_cur": natural,
        "T_i": positive_whole,
    }
    T_0: int
    T_mult: int
    eta_min: float
    T_cur: float
    T_i: int

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self._take(T_0=T_0, T_mult=T_mult, eta_min=eta_min)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def get_first_lr(self) -> list[float]:
        return self.get_lr()

    def _begin(self) -> None:
        self._place(self.last_epoch)
        super()._begin()

    def step(self, epoch: float | None = None) -> None:
        """Set the learning rates for the next optimizer step.

        Args:
            epoch: go to this number of steps, which may have a fraction, such as epoch + batch / batches.
        """
        steps = self.last_epoch + 1 if epoch is None else natural(epoch)
        self.last_epoch = math.floor(steps)
        self._place(steps)
        self._note_new_groups()
        self._set(self.get_lr())

    def _place(self, steps: float) -> None:
        """Find the period that has the step."""
        self.T_cur, self.T_i = steps, self.T_0
        if self.T_mult == 1:
            self.T_cur %= self.T_0
        while self.T_cur >= self.T_i:
            self.T_cur -= self.T_i
            self.T_i *= self.T_mult
