"""The schedule of stochastic weight averaging, which `alpha.optim.swa_utils` offers, as PyTorch does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

from alpha.optim.hyper import Rule, whole
from alpha.optim.lr_scheduler.base import LRScheduler, numbers, one_of
from alpha.optim.optimizer import Optimizer


class SWALR(LRScheduler):
    """Change of lr from its value to `swa_lr`, where it stays, with PyTorch's arguments in PyTorch's order.

    Args:
        optimizer: its groups' "lr" is set.
        swa_lr: the last rate, or a list of one per group.
        anneal_epochs: steps on the way.
        anneal_strategy: "cos" or "linear".
        last_epoch: the number of the last step; -1 begins anew.
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        "swa_lrs": numbers,
        "anneal_epochs": whole,
        "anneal_strategy": one_of("cos", "linear"),
    }
    per_group: ClassVar[Mapping[str, str]] = {"swa_lrs": "swa_lr"}
    swa_lrs: list[float]
    anneal_epochs: int
    anneal_strategy: str

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float,
        anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        last_epoch: int = -1,
    ) -> None:
        self._take_optimizer(optimizer)
        swa_lrs = self._per_group("swa_lr", swa_lr)
        self._take(swa_lrs=swa_lrs, anneal_epochs=anneal_epochs, anneal_strategy=anneal_strategy)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        step = self.last_epoch if self.anneal_epochs else max(1, self.last_epoch)
        before, now = self._share(step - 1), self._share(step)
        rates = []
        for group, last in zip(self.optimizer.param_groups, self.swa_lrs, strict=True):
            first = last if before == 1 else (group["lr"] - before * last) / (1 - before)
            rates.append(last * now + first * (1 - now))
        return rates

    def get_first_lr(self) -> list[float]:
        return self.get_lr()

    def _share(self, step: int) -> float:
        """The share of the way that is done."""
        done = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * done)) / 2 if self.anneal_strategy == "cos" else done
