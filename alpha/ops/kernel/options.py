"""Checks of numbers and options that operators and layers share, so that one mistake has one message everywhere."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from alpha.core.host_values import is_integer
from alpha.core.tensor import Tensor

_INTEGERS = tuple(np.dtype(code).type for code in np.typecodes["AllInteger"])

Pair = int | tuple[int, int]
Lengths = int | tuple[int, ...]  # one number for every axis, or a number for each


def integer(operator: str, name: str, value: Any, least: int | None = None) -> int:
    """Returns the argument as an int; numpy's integers are taken, bools and floats are refused.

    Raises:
        TypeError: the value is not an integer.
        ValueError: the value is below `least`.
    """
    if type(value) is not int and not is_integer(value):  # what layers keep needs no call
        raise TypeError(f"{operator}: {name}={value!r} is not an integer")
    if least is not None and value < least:
        raise ValueError(f"{operator}: {name}={value} must be at least {least}")
    return int(value)


positive_integer = functools.partial(integer, least=1)


def pair(operator: str, name: str, value: Pair, least: int | None = None) -> tuple[int, int]:
    """Returns an integer, or a pair (height, width) of integers, as a pair.

    Raises:
        TypeError: the value is neither.
        ValueError: the value has another length than 2, or one of the two is below `least`.
    """
    if isinstance(value, (tuple, list)) or (isinstance(value, np.ndarray) and value.ndim == 1):
        if len(value) != 2:
            raise ValueError(f"{operator}: {name}={value!r} is neither an integer nor a pair (height, width)")
        return integer(operator, name, value[0], least), integer(operator, name, value[1], least)
    if not is_integer(value):
        raise TypeError(f"{operator}: {name}={value!r} is neither an integer nor a pair (height, width) of integers")
    both = integer(operator, name, value, least)
    return both, both


def lengths(operator: str, name: str, value: Lengths, rank: int, least: int | None = None) -> tuple[int, ...]:
    """Returns an integer, or a number for each of `rank` axes, as a tuple.

    Raises:
        TypeError: the value is neither.
        ValueError: there are more or fewer numbers than axes, or one of them is below `least`.
    """
    if type(value) is tuple and [*map(type, value)] == [int] * rank and (least is None or min(value) >= least):
        return value  # as layers keep it, without a call for each number
    if type(value) is int and (least is None or value >= least):
        return (value,) * rank
    if rank == 2:
        return pair(operator, name, value, least)  # type: ignore[arg-type]
    if isinstance(value, (tuple, list)) or (isinstance(value, np.ndarray) and value.ndim == 1):
        if len(value) != rank:
            raise ValueError(f"{operator}: {name}={value!r} is neither an integer nor {rank} of them")
        return tuple(integer(operator, name, each, least) for each in value)
    return (integer(operator, name, value, least),) * rank


def lengths_as_given(operator: str, name: str, value: Lengths, rank: int, least: int | None = None) -> Lengths:
    """Returns what `lengths` checks as PyTorch's layers keep it: one integer, or a tuple of `rank` of them."""
    found = lengths(operator, name, value, rank, least)
    return found if isinstance(value, (tuple, list, np.ndarray)) else found[0]


def number(operator: str, name: str, value: Any) -> float:
    """Returns the argument as a float, which may be infinite or NaN.

    Raises:
        TypeError: the value is not a number.
    """
    if type(value) is float:
        return value  # as layers keep it
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{operator}: {name}={value!r} is not a number")
    return float(value)


def real(operator: str, name: str, value: Any) -> float:
    """Returns the argument as a float.

    Raises:
        TypeError: the value is not a number.
        ValueError: the value is infinite or NaN.
    """
    found = number(operator, name, value)
    if not math.isfinite(found):
        raise ValueError(f"{operator}: {name}={value} is not finite")
    return found


def only_offered(operator: str, **arguments: tuple[Any, Any]) -> None:
    """Refuses each argument that PyTorch has and Alpha does not, unless it has its default.

    Args:
        operator: the name of the function or the layer.
        arguments: name=(value, the only value that is offered). A pair of an offered integer is taken, too.

    Raises:
        ValueError: an argument has another value.
    """
    for name, (value, offered) in arguments.items():
        if value is offered:
            continue
        parts = value if type(offered) is int and isinstance(value, (tuple, list)) else (value,)
        kinds = _LIKE.get(type(offered), ())
        if not parts or any(type(part) not in kinds or part != offered for part in parts):
            raise ValueError(f"{operator}: {name}={_brief(value)} is not offered; only {offered!r}")


# what may stand for a default of each type; True is no number
_LIKE: dict[type, tuple[type, ...]] = {int: (int, *_INTEGERS), bool: (bool, np.bool_), str: (str, np.str_)}


def _brief(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, (Tensor, np.ndarray)) else repr(value)


FORMS = {1: "(N, L, C)", 2: "(N, H, W, C)", 3: "(N, D, H, W, C)"}
