"""Which optimizers and schedules a Trainer takes, and when a schedule steps."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from alpha.optim import LBFGS, LRScheduler, Optimizer, ReduceLROnPlateau
from alpha.train.history import Result


def check_accepted(optimizer: Optimizer, schedule: LRScheduler | None) -> None:
    """Raises TypeError if the steps of an optimizer or a schedule need what a Trainer does not give them."""
    name = type(optimizer).__name__
    if isinstance(optimizer, LBFGS) or needed(optimizer.step):
        raise TypeError(
            f"Trainer: {name}.step needs a closure, which computes the loss of a batch anew; a Trainer calls step() "
            f"once for each batch. Train with {name} in a loop of your own, or take another optimizer"
        )
    if schedule is not None and not isinstance(schedule, ReduceLROnPlateau) and (names := needed(schedule.step)):
        raise TypeError(
            f"Trainer: {type(schedule).__name__}.step needs {', '.join(names)}; a Trainer calls step() after each step "
            "of the optimizer. Leave out schedule= and step it in your own loop"
        )


def needed(function: Callable[..., Any]) -> list[str]:
    """The arguments without which a function cannot be called."""
    parameters = inspect.signature(function).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in variable]


def after_step(schedule: LRScheduler | None) -> None:
    """The step of a schedule after one of the optimizer."""
    if schedule is not None and not isinstance(schedule, ReduceLROnPlateau):
        schedule.step()


def after_epoch(schedule: LRScheduler | None, result: Result) -> None:
    """The step of a `ReduceLROnPlateau` after an epoch, with what it is to make smaller or larger."""
    if isinstance(schedule, ReduceLROnPlateau):
        schedule.step(result.loss if schedule.mode == "min" else result.accuracy)
