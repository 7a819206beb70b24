"""Schedules that move the learning rate up and down, and the momentum the other way."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

from alpha.optim.hyper import Rule, flag, natural, number, positive_whole
from alpha.optim.lr_scheduler.base import LRScheduler, between, numbers, one_of
from alpha.optim.optimizer import Optimizer

__all__ = ["CyclicLR", "OneCycleLR"]


class _MomentumCycle(LRScheduler):
    """A schedule of the learning rates and, with `cycle_momentum`, of the groups' "momentum" or first beta."""

    cycle_momentum: bool

    def get_momentum(self) -> list[float]:
        """The momenta of the groups after `last_epoch` steps."""
        raise TypeError(f"{self._name} defines no momentum")

    def _take_cycle(self, optimizer: Optimizer, cycle_momentum: bool) -> None:
        self._take_optimizer(optimizer)
        self._take(cycle_momentum=cycle_momentum)
        if self.cycle_momentum and not {"momentum", "betas"} & set(optimizer.defaults):
            raise ValueError(
                f"{self._name}: {type(optimizer).__name__} has no momentum and no betas; give cycle_momentum=False"
            )

    def _begin(self) -> None:
        super()._begin()
        self._set_momentum()

    def step(self) -> None:
        super().step()
        self._set_momentum()

    def _set_momentum(self) -> None:
        if not self.cycle_momentum:
            return
        for group, momentum in zip(self.optimizer.param_groups, self.get_momentum(), strict=True):
            if "betas" in group:
                group["betas"] = (momentum, *group["betas"][1:])
            else:
                group["momentum"] = momentum


class CyclicLR(_MomentumCycle):
    """Cycles of lr, linearly from `base_lr` to `max_lr` and back, again and again (Smith, WACV 2017).

    Args:
        optimizer: its groups' "lr" is set.
        base_lr: the least rate, or a list of one per group.
        max_lr: the largest rate of the first cycle, or a list of one per group.
        step_size_up: steps on the way up.
        step_size_down: steps on the way down, by default as many as on the way up.
        mode: "triangular"; "triangular2", in which each cycle is half as high as the one before; or "exp_range", in
            which the height is multiplied by gamma^steps.
        gamma: the factor of "exp_range".
        scale_fn: a function that replaces `mode`: the factor of the height from the number of the cycle, which counts
            from 1, or of the step. It is not in a `state_dict`.
        scale_mode: what `scale_fn` takes, "cycle" or "iterations".
        cycle_momentum: move the groups' "momentum", or their first beta, from `max_momentum` to `base_momentum` and
            back.
        base_momentum, max_momentum: its least and largest value, or lists of one per group.
        last_epoch: the number of the last step; -1 begins anew.
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        "low_lrs": numbers,
        "max_lrs": numbers,
        "step_size_up": positive_whole,
        "step_size_down": positive_whole,
        "mode": one_of("triangular", "triangular2", "exp_range"),
        "gamma": number,
        "scale_mode": one_of("cycle", "iterations"),
        "cycle_momentum": flag,
        "base_momentums": numbers,
        "max_momentums": numbers,
    }
    per_group: ClassVar[Mapping[str, str]] = {
        "low_lrs": "base_lr",
        "max_lrs": "max_lr",
        "base_momentums": "base_momentum",
        "max_momentums": "max_momentum",
    }
    low_lrs: list[float]
    max_lrs: list[float]
    step_size_up: int
    step_size_down: int
    mode: str
    gamma: float
    scale_mode: str
    base_momentums: list[float]
    max_momentums: list[float]
    functions = ("_scale_fn",)

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: Literal["triangular", "triangular2", "exp_range"] = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: Literal["cycle", "iterations"] = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        self._take_cycle(optimizer, cycle_momentum)
        self._take(
            low_lrs=self._per_group("base_lr", base_lr),
            max_lrs=self._per_group("max_lr", max_lr),
            step_size_up=step_size_up,
            step_size_down=step_size_up if step_size_down is None else step_size_down,
            mode=mode,
            gamma=gamma,
            scale_mode=scale_mode,
            base_momentums=self._per_group("base_momentum", base_momentum),
            max_momentums=self._per_group("max_momentum", max_momentum),
        )
        self._scale_fn = scale_fn
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, self.low_lrs, strict=True):
                group["lr"] = rate
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        height = self._height()
        return [low + (most - low) * height for low, most in zip(self.low_lrs, self.max_lrs, strict=True)]

    def get_first_lr(self) -> list[float]:
        return self.get_lr()

    def get_momentum(self) -> list[float]:
        height = self._height()
        pairs = zip(self.base_momentums, self.max_momentums, strict=True)
        return [most - (most - least) * height for least, most in pairs]

    def _height(self) -> float:
        """The share of the way to the largest rate."""
        total = self.step_size_up + self.step_size_down
        cycle = math.floor(1 + self.last_epoch / total)
        place, turn = 1 + self.last_epoch / total - cycle, self.step_size_up / total
        height = place / turn if place <= turn else (place - 1) / (turn - 1)
        if self._scale_fn is not None:
            return height * self._scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.mode == "exp_range":
            return height * float(self.gamma**self.last_epoch)
        return height / 2.0 ** (cycle - 1) if self.mode == "triangular2" else height


class OneCycleLR(_MomentumCycle):
    """One cycle of lr, up to `max_lr` and down to nearly nothing (Smith & Topin 2019).

    Args:
        optimizer: its groups' "lr" is set.
        max_lr: the largest rate, or a list of one per group.
        total_steps: steps of the cycle; without it `epochs` times `steps_per_epoch`.
        epochs, steps_per_epoch: give the number of steps if there is no `total_steps`.
        pct_start: the share of the steps on the way up.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: move the groups' "momentum", or their first beta, from `max_momentum` to `base_momentum` and
            back.
        base_momentum, max_momentum: its least and largest value, or lists of one per group.
        div_factor: the first rate is max_lr / div_factor.
        final_div_factor: the last rate is the first one / final_div_factor.
        three_phase: go down to the first rate in as many steps as up, and then to the last rate.
        last_epoch: the number of the last step; -1 begins anew.

    Raises:
        ValueError: also at a step after the last one.
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        "max_lrs": numbers,
        "total_steps": positive_whole,
        "pct_start": between(0, 1),
        "anneal_strategy": one_of("cos", "linear"),
        "cycle_momentum": flag,
        "base_momentums": numbers,
        "max_momentums": numbers,
        "div_factor": natural,
        "final_div_factor": natural,
        "three_phase": flag,
    }
    per_group: ClassVar[Mapping[str, str]] = {
        "max_lrs": "max_lr",
        "base_momentums": "base_momentum",
        "max_momentums": "max_momentum",
    }
    max_lrs: list[float]
    total_steps: int
    pct_start: float
    anneal_strategy: str
    base_momentums: list[float]
    max_momentums: list[float]
    div_factor: float
    final_div_factor: float
    three_phase: bool

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        self._take_cycle(optimizer, cycle_momentum)
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError(f"{self._name}: give total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        self._take(
            max_lrs=self._per_group("max_lr", max_lr),
            total_steps=total_steps,
            pct_start=pct_start,
            anneal_strategy=anneal_strategy,
            base_momentums=self._per_group("base_momentum", base_momentum),
            max_momentums=self._per_group("max_momentum", max_momentum),
            div_factor=div_factor,
            final_div_factor=final_div_factor,
            three_phase=three_phase,
        )
        if last_epoch == -1:
            for group, most in zip(optimizer.param_groups, self.max_lrs, strict=True):
                group["initial_lr"] = most / self.div_factor
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        rates = []
        for base, most in zip(self.base_lrs, self.max_lrs, strict=True):
            corners = [base, most, base] if self.three_phase else [base, most]
            rates.append(self._between([*corners, base / self.final_div_factor]))
        return rates

    def get_first_lr(self) -> list[float]:
        return self.get_lr()

    def get_momentum(self) -> list[float]:
        corners = ([most, least, most] for least, most in zip(self.base_momentums, self.max_momentums, strict=True))
        return [self._between([*three, three[-1]] if self.three_phase else three) for three in corners]

    def _between(self, corners: list[float]) -> float:
        """The value after `last_epoch` steps on the way through the corners."""
        if self.last_epoch > self.total_steps:
            raise ValueError(f"{self._name}: step {self.last_epoch} is after the last one, {self.total_steps}")
        up = self.pct_start * self.total_steps
        ends = [up - 1, *([2 * up - 2] if self.three_phase else []), self.total_steps - 1]
        phase = next((i for i, end in enumerate(ends) if self.last_epoch <= end), len(ends) - 1)
        begin = ends[phase - 1] if phase else 0.0
        share = (self.last_epoch - begin) / (ends[phase] - begin)
        start, end = corners[phase : phase + 2]
        if self.anneal_strategy == "linear":
            return start + (end - start) * share
        return end + (start - end) / 2 * (1 + math.cos(math.pi * share))
