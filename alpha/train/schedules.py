"""Optimizers and schedules that a Trainer takes, and when it steps a schedule."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from alpha.optim import LBFGS, CosineAnnealingLR, LRScheduler, Optimizer, ReduceLROnPlateau
from alpha.train.files.history import Result

STEP, EPOCH = "step", "epoch"


def check_accepted(optimizers: Sequence[Optimizer], schedules: Sequence[LRScheduler], step: Any) -> None:
    """Raise an error for an optimizer or a schedule that a Trainer would step without an effect, or cannot step.

    Args:
        step: of the user, which may step other optimizers by itself; None if there is none.

    Raises:
        TypeError: its steps need what a Trainer does not give them.
        ValueError: a schedule sets the rates of an optimizer that is not the trainer's.
    """
    for optimizer in optimizers:
        name = type(optimizer).__name__
        if isinstance(optimizer, LBFGS) or needed(optimizer.step):
            raise TypeError(
                f"Trainer: {name}.step needs a closure, which computes the loss of a batch anew; a Trainer calls "
                f"step() once for each batch. Train with {name} in a loop of your own, or take another optimizer"
            )
    groups = {id(group) for optimizer in optimizers for group in optimizer.param_groups}
    for schedule in schedules:
        if step is None and not any(id(group) in groups for group in schedule.optimizer.param_groups):
            raise ValueError(
                f"Trainer: the {type(schedule).__name__} sets the rates of another {type(schedule.optimizer).__name__} "
                "than the trainer's; make the schedule anew for each optimizer"
            )
        if not isinstance(schedule, ReduceLROnPlateau) and (names := needed(schedule.step)):
            raise TypeError(
                f"Trainer: {type(schedule).__name__}.step needs {', '.join(names)}; a Trainer calls step() by itself. "
                "Leave out schedule= and step it in your own loop"
            )


def needed(function: Callable[..., Any]) -> list[str]:
    """The arguments without which a function cannot be called."""
    parameters = inspect.signature(function).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in variable]


def change_rates(trainer: Any, lr: float, steps: int) -> None:
    """Give a trainer another rate from here on, or let the cosine that it follows end at another step.

    Args:
        trainer: whose optimizers have one rate each, constant or along a `CosineAnnealingLR`.
        lr: the next rate, from which a new cosine falls. If it is the rate with which the present cosine began, the
            trainer goes on at the place on it that belongs to the steps that are done.
        steps: those from here to the end of the cosine.
    """
    rate = lr
    for schedule in trainer.schedules:
        if not isinstance(schedule, CosineAnnealingLR):
            raise TypeError(f"Trainer: the rates of a {type(schedule).__name__} cannot be changed")
        if set(schedule.base_lrs) != {lr}:
            schedule.base_lrs, schedule.last_epoch = [lr] * len(schedule.base_lrs), 0
        schedule.T_max = max(1, schedule.last_epoch + steps)
        height = 1 + math.cos(math.pi * min(schedule.last_epoch / schedule.T_max, 1.0))
        rate = schedule.eta_min + (lr - schedule.eta_min) * height / 2
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate
            if trainer.schedules:
                group["initial_lr"] = lr


def after_step(schedules: Sequence[LRScheduler], per: str) -> None:
    """The steps of schedules after one of the optimizer."""
    if per == STEP:
        for schedule in schedules:
            if not isinstance(schedule, ReduceLROnPlateau):
                schedule.step()


def after_epoch(schedules: Sequence[LRScheduler], per: str, result: Result) -> None:
    """The steps of schedules after an epoch; a `ReduceLROnPlateau` gets what it is to make smaller or larger.

    Raises ValueError if that is an accuracy, and the loss has no labels of classes.
    """
    for schedule in schedules:
        if isinstance(schedule, ReduceLROnPlateau):
            value = result.loss if schedule.mode == "min" else result.accuracy
            if value is None:
                raise ValueError('Trainer: ReduceLROnPlateau with mode="max" needs an accuracy, which there is not')
            schedule.step(value)
        elif per == EPOCH:
            schedule.step()
