"""Schedules that multiply each group's rate: at milestones, at each step, or by a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

from alpha.optim.hyper import Rule, natural, number, positive_whole, whole
from alpha.optim.lr_scheduler.base import LRScheduler, between, wholes
from alpha.optim.optimizer import Optimizer

__all__ = [
    "ConstantLR",
    "ExponentialLR",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "PolynomialLR",
    "StepLR",
]

Factor = Callable[[int], float]


class LambdaLR(LRScheduler):
    """lr = first lr x lr_lambda(steps)

    Args:
        optimizer: its groups' "lr" is set.
        lr_lambda: a function of the number of steps, or a list of one function per group. Functions are not in a
            `state_dict`; give the same ones when a run goes on.
        last_epoch: the number of the last step; -1 begins anew.
    """

    per_group: ClassVar[Mapping[str, str]] = {"lr_lambdas": "lr_lambda"}

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | list[Factor], last_epoch: int = -1) -> None:
        self._take_optimizer(optimizer)
        self.lr_lambdas: list[Factor] = self._per_group("lr_lambda", lr_lambda)
        if not all(map(callable, self.lr_lambdas)):
            raise TypeError(f"{self._name}: lr_lambda={lr_lambda!r} is no function")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return [base * factor(self.last_epoch) for base, factor in zip(self.base_lrs, self.lr_lambdas, strict=True)]

    def get_first_lr(self) -> list[float]:
        return self.get_lr()


class MultiplicativeLR(LambdaLR):
    """lr = lr x lr_lambda(steps) at each step; the arguments are those of `LambdaLR`."""

    def get_lr(self) -> list[float]:
        if self._begins:
            return self.get_first_lr()
        groups = self.optimizer.param_groups
        return [group["lr"] * factor(self.last_epoch) for group, factor in zip(groups, self.lr_lambdas, strict=True)]

    def get_first_lr(self) -> list[float]:
        return LRScheduler.get_first_lr(self)

    def restart(self) -> None:
        """Go on from the rates that there are, as PyTorch's does."""
        self._check_groups()
        self.last_epoch = 0
        self._note_new_groups()
        self._set(self.get_lr())


class StepLR(LRScheduler):
    """lr = gamma lr after every `step_size` steps.

    Args:
        optimizer: its groups' "lr" is set.
        step_size: steps from one change to the next.
        gamma: the factor.
        last_epoch: the number of the last step; -1 begins anew.
    """

    rules: ClassVar[Mapping[str, Rule]] = {"step_size": positive_whole, "gamma": number}
    step_size: int
    gamma: float

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self._take(step_size=step_size, gamma=gamma)
        super().__init__(optimizer, last_epoch)

    def _lr(self, lr: float, base: float) -> float:
        return lr * self.gamma if self.last_epoch and self.last_epoch % self.step_size == 0 else lr

    def _first_lr(self, lr: float, base: float) -> float:
        return self._lr(lr, base)


class MultiStepLR(LRScheduler):
    """lr = gamma lr at each milestone.

    Args:
        optimizer: its groups' "lr" is set.
        milestones: numbers of steps.
        gamma: the factor.
        last_epoch: the number of the last step; -1 begins anew.
    """

    rules: ClassVar[Mapping[str, Rule]] = {"milestones": wholes, "gamma": number}
    milestones: list[int]
    gamma: float

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self._take(milestones=milestones, gamma=gamma)
        super().__init__(optimizer, last_epoch)

    def _lr(self, lr: float, base: float) -> float:
        times = self.milestones.count(self.last_epoch)
        return lr * self.gamma**times if times else lr

    def _first_lr(self, lr: float, base: float) -> float:
        return self._lr(lr, base)


class ConstantLR(LRScheduler):
    """lr is `factor` times the first lr until `total_iters` steps are done.

    Args:
        optimizer: its groups' "lr" is set.
        factor: between 0 and 1.
        total_iters: the number of steps with this factor.
        last_epoch: the number of the last step; -1 begins anew.
    """

    rules: ClassVar[Mapping[str, Rule]] = {"factor": between(0, 1), "total_iters": whole}
    factor: float
    total_iters: int

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        self._take(factor=factor, total_iters=total_iters)
        super().__init__(optimizer, last_epoch)

    def _lr(self, lr: float, base: float) -> float:
        if self.last_epoch == 0:
            return lr * self.factor
        if self.last_epoch != self.total_iters:
            return lr
        return lr * (1 / self.factor) if self.factor else base

    def _first_lr(self, lr: float, base: float) -> float:
        return self._lr(lr, base)


class LinearLR(LRScheduler):
    """lr goes linearly from `start_factor` to `end_factor` times the first lr.

    Args:
        optimizer: its groups' "lr" is set.
        start_factor: above 0, at most 1.
        end_factor: between 0 and 1.
        total_iters: the number of steps on the way.
        last_epoch: the number of the last step; -1 begins anew.
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        "start_factor": between(1e-300, 1),
        "end_factor": between(0, 1),
        "total_iters": whole,
    }
    start_factor: float
    end_factor: float
    total_iters: int

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        self._take(start_factor=start_factor, end_factor=end_factor, total_iters=total_iters)
        super().__init__(optimizer, last_epoch)

    def _lr(self, lr: float, base: float) -> float:
        if self.last_epoch > self.total_iters:
            return lr
        rise = self.end_factor - self.start_factor
        return lr * (1 + rise / (self.total_iters * self.start_factor + (self.last_epoch - 1) * rise))

    def _first_lr(self, lr: float, base: float) -> float:
        return lr * self.start_factor if self.last_epoch == 0 else lr


class ExponentialLR(LRScheduler):
    """lr = gamma lr at each step.

    Args:
        optimizer: its groups' "lr" is set.
        gamma: the factor.
        last_epoch: the number of the last step; -1 begins anew.
    """

    rules: ClassVar[Mapping[str, Rule]] = {"gamma": number}
    gamma: float

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self._take(gamma=gamma)
        super().__init__(optimizer, last_epoch)

    def _lr(self, lr: float, base: float) -> float:
        return lr * self.gamma


class PolynomialLR(LRScheduler):
    """lr = first lr x (1 - steps / total_iters)^power, and 0 after that.

    Args:
        optimizer: its groups' "lr" is set.
        total_iters: steps until lr is 0.
        power: of the polynomial.
        last_epoch: the number of the last step; -1 begins anew.
    """

    rules: ClassVar[Mapping[str, Rule]] = {"total_iters": positive_whole, "power": natural}
    total_iters: int
    power: float

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self._take(total_iters=total_iters, power=power)
        super().__init__(optimizer, last_epoch)

    def _lr(self, lr: float, base: float) -> float:
        left = self.total_iters - self.last_epoch
        return lr if left < 0 else lr * (left / (left + 1)) ** self.power
