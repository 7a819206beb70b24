"""Command lines whose mistakes are answered in one line."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import NoReturn, TypeVar

N = TypeVar("N", int, float)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that answers a mistake with one line, not with its whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (--help lists the options)\n")


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
