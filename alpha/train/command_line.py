"""Command lines whose mistakes are answered in one line; optimizers and schedules that a Trainer takes."""

from __future__ import annotations

import argparse
import inspect
import io
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from alpha.config import user_path
from alpha.errors import ConfigError
from alpha.optim import LBFGS, LRScheduler, Optimizer, ReduceLROnPlateau
from alpha.train.files.history import Result

N = TypeVar("N", int, float)


def print_anything() -> None:
    """Let `print` write what the terminal or log cannot show (in a path, say) as \\x escapes; else it raises."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that answers a mistake with one line, not with its whole usage, and calls print_anything."""

    def parse_args(self, *args: Any, **kwargs: Any) -> Any:
        print_anything()
        return super().parse_args(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (--help lists the options)\n")


def path(text: str) -> Path:
    """A path; `~` at its beginning is the home folder, also in `--output=~/x`, which a shell leaves as it is."""
    try:
        return user_path(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive_int(text: str) -> int:
    """A whole number of at least 1."""
    value = _number(int, text, "a whole number")
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def natural_int(text: str) -> int:
    """A whole number of at least 0."""
    value = _number(int, text, "a whole number")
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is not 0 or more")
    return value


def positive_float(text: str) -> float:
    """A finite number above 0."""
    value = _number(float, text, "a number")
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a finite number above 0")
    return value


def _number(kind: Callable[[str], N], text: str, name: str) -> N:
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {name}") from None


def names(offered: Sequence[str]) -> Callable[[str], list[str]]:
    """The type of an option that takes some of `offered`, with commas between."""

    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        for name in chosen:
            if name not in offered:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(offered)}")
        return list(dict.fromkeys(chosen))

    return parse


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
