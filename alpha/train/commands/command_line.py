"""Command lines whose mistakes are answered in one line, and the types of their options."""

from __future__ import annotations

import argparse
import io
import math
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

from alpha.config import user_path
from alpha.errors import ConfigError

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


def command(main: Callable[P, int]) -> Callable[P, int]:
    """Let a command end quietly, as SIGPIPE ends one, when nobody reads its output any more, as behind `| head`."""

    @wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            try:
                return main(*args, **kwargs)
            finally:
                sys.stdout.flush()  # here, where the error can be answered, and not when the process ends
        except BrokenPipeError:
            with suppress(OSError, ValueError):  # no file of the system, as in a test
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in the buffer goes there
            return 128 + 13

    return run


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that answers a mistake with one line, not with its whole usage, and calls print_anything."""

    def parse_args(self, *args: Any, **kwargs: Any) -> Any:
        print_anything()
        warnings.formatwarning = plain_warning
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


def names(offered: Sequence[str]) -> Callable[[str], list[str]]:
    """The type of an option that takes some of `offered`, with commas between."""

    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        for name in chosen:
            if name not in offered:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(offered)}")
        return list(dict.fromkeys(chosen))

    return parse
