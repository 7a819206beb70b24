"""Command lines whose mistakes are answered in one line, and the types of their options."""

from __future__ import annotations

import argparse
import io
import math
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

from alpha.config import user_path
from alpha.distributed import process_group
from alpha.distributed.membership.environment import place_of
from alpha.errors import AlphaError, ConfigError, TrainingError
from alpha.runtime.ranks import rank

N = TypeVar("N", int, float)
P = ParamSpec("P")


def plain_warning(message: Warning | str, *_: object, **__: object) -> str:
    """Text of a warning for the user of a command, to whom a place in Alpha's code says nothing."""
    return f"warning: {message}\n"


def print_anything() -> None:
    """Let `print` write what the terminal or log cannot show (in a path, say) as \\x escapes; else it raises."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def join_ranks(device: str) -> None:
    """Join the other processes that a launcher has started with this one; only rank 0 prints from then on.

    Args:
        device: "auto", "cpu" or "cuda".
    """
    if place_of().world_size > 1:
        process_group.init(device)
        if rank() > 0:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123


def command(name: str, if_diverged: str = "") -> Callable[[Callable[P, int]], Callable[P, int]]:
    """Decorate the main function of a program, so that errors end it with a line and a status, and not a traceback.

    The statuses are 2 after an error of Alpha, 130 after Ctrl-C, and 141 when nobody reads the output any more, as
    behind `| head`; the last two print nothing. While the function runs, a warning is one line, too.

    Args:
        name: of the program, in front of its errors.
        if_diverged: advice behind a `TrainingError`.
    """

    def decorate(main: Callable[P, int]) -> Callable[P, int]:
        @wraps(main)
        def run(*args: P.args, **kwargs: P.kwargs) -> int:
            form, warnings.formatwarning = warnings.formatwarning, plain_warning
            try:
                try:
                    return main(*args, **kwargs)
                finally:
                    sys.stdout.flush()  # here, where an error can be answered, and not when the process ends
            except AlphaError as error:
                advice = f": {if_diverged}" if if_diverged and isinstance(error, TrainingError) else ""
                print(f"{name}: {error}{advice}", file=sys.stderr)
                process_group.fail(error, 2)  # the other ranks, if there are some, end with this one
                return 2
            except KeyboardInterrupt:
                return 128 + signal.SIGINT
            except BrokenPipeError:
                with suppress(OSError, ValueError):  # no file of the system, as in a test
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in the buffer
                return 128 + 13  # SIGPIPE, which Windows does not have
            finally:
                warnings.formatwarning = form

        return run

    return decorate


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


def fraction(text: str) -> float:
    """A number between 0 and 1, neither of them."""
    value = _number(float, text, "a number")
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def _number(kind: Callable[[str], N], text: str, name: str) -> N:
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {name}") from None


def positive_ints(text: str) -> list[int]:
    """The type of an option that takes whole numbers above 0, with commas between."""
    return [positive_int(part) for part in text.split(",")]


def names(offered: Sequence[str]) -> Callable[[str], list[str]]:
    """The type of an option that takes some of `offered`, with commas between."""

    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        for name in chosen:
            if name not in offered:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(offered)}")
        return list(dict.fromkeys(chosen))

    return parse
