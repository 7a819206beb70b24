"""Rules of hyper-parameters: each returns the checked value, or raises TypeError or ValueError with the reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import WeakSet

import numpy as np

Rule = Callable[[Any], Any]


def number(value: Any) -> float:
    """A finite number; numpy's scalars become Python's."""
    plain = value.item() if isinstance(value, (np.integer, np.floating)) else value
    if not isinstance(plain, (int, float)) or isinstance(plain, bool):
        raise TypeError(f"is a {type(value).__name__}, not a number")
    if not math.isfinite(plain):
        raise ValueError("is not finite")
    return plain


def natural(value: Any) -> float:
    """A finite number of at least 0."""
    checked = number(value)
    if checked < 0:
        raise ValueError("is negative")
    return checked


def written(rule: Rule) -> Rule:
    """The rule of what is given with a group or written into it: there a negative number is no slip, as in PyTorch."""
    return number if rule is natural else rule


def share(value: Any) -> float:
    """A number in [0, 1)."""
    checked = number(value)
    if not 0 <= checked < 1:
        raise ValueError("is not in [0, 1)")
    return checked


def closed_share(value: Any) -> float:
    """A number in [0, 1]."""
    checked = number(value)
    if not 0 <= checked <= 1:
        raise ValueError("is not in [0, 1]")
    return checked


def whole(value: Any) -> int:
    """A whole number of at least 0."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 0:
        raise ValueError("is not a whole number of at least 0")
    return int(value)


def flag(value: Any) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"is a {type(value).__name__}, not True or False")
    return bool(value)


def decays(value: Any) -> tuple[float, float]:
    """Two numbers in [0, 1)."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError("is not a tuple of two numbers in [0, 1)")
    first, second = (number(beta) for beta in value)
    if not (0 <= first < 1 and 0 <= second < 1):
        raise ValueError("are not two numbers in [0, 1)")
    if isinstance(value, tuple) and value[0] is first and value[1] is second:
        return value  # the same object, so that a captured step sees at once that nothing has changed
    return first, second


def check(owner: str, values: dict[str, Any], rules: Mapping[str, Rule]) -> None:
    """Refuse values that mean nothing; what the rules return replaces them."""
    for name, rule in rules.items():
        if name not in values:
            continue
        try:
            values[name] = rule(values[name])
        except (TypeError, ValueError) as error:
            raise type(error)(f"{owner}: {name}={values[name]!r} {error}") from None


def ordered(owner: str, params: Iterable[Any]) -> list[Any]:
    """A list of parameters; `TypeError` for a set, since a state belongs to a parameter by its place."""
    if isinstance(params, (set, frozenset, WeakSet)):
        raise TypeError(f"{owner}: params is a set, whose order changes from run to run; give a list")
    return list(params)


def refuse_others(owner: str, **options: tuple[Any, Any]) -> None:
    """Refuse each option, given as (value, the only one offered), that PyTorch has and Alpha does not offer."""
    for name, (value, only) in options.items():
        if value is not only:
            raise ValueError(f"{owner}: {name}={value!r} is not offered; only {only!r}")


def without_effect(owner: str, **options: Any) -> None:
    """Check options of PyTorch's that choose an implementation, and change nothing here: None, True or False.

    Raises:
        TypeError: one is something else.
        ValueError: two of them are True.
    """
    for name, value in options.items():
        if value is not None:
            try:
                flag(value)
            except TypeError as error:
                raise TypeError(f"{owner}: {name}={value!r} {error}") from None
    if sum(bool(value) for value in options.values()) > 1:
        raise ValueError(f"{owner}: {' and '.join(options)} cannot be True together")
