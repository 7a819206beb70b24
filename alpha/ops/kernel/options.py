"""Checks of numbers and options that operators and layers share, so that one mistake has one message everywhere."""

from __future__ import annotations

import functools
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from alpha.core.tensor import Tensor
from alpha.runtime import Device

_INTEGERS = tuple(np.dtype(code).type for code in np.typecodes["AllInteger"])

Pair = int | tuple[int, int]
Lengths = int | tuple[int, ...]  # one number for every axis, or a number for each


def integer(operator: str, name: str, value: Any, least: int | None = None) -> int:
    """Returns the argument as an int; numpy's integers are taken, bools and floats are refused.

    Raises:
        TypeError: the value is not an integer.
        ValueError: the value is below `least`.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
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
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
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


def real(operator: str, name: str, value: Any) -> float:
    """Returns the argument as a float.

    Raises:
        TypeError: the value is not a number.
        ValueError: the value is infinite or NaN.
    """
    if type(value) is float and math.isfinite(value):
        return value  # as layers keep it
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{operator}: {name}={value!r} is not a number")
    if not math.isfinite(value):
        raise ValueError(f"{operator}: {name}={value} is not finite")
    return float(value)


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


MOST_BYTES = 64 << 20  # of all tables that are kept, on the host; a device that reads them has as many
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class Rows:
    """Numbers of rows, (count,) of int64, or another small table."""

    numbers: npt.NDArray[Any]

    @property
    def nbytes(self) -> int:
        return int(self.numbers.nbytes)

    def on(self, device: Device) -> Tensor:
        """The numbers on a device; a captured step finds them there. They are not to be written."""
        return Tensor(device.table(self, lambda: self.numbers))


class KeptTables:
    """The tables that were used last, at most so many bytes of them, by what they were made from."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self.nbytes = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], R]) -> R:
        """What was made for the key, or else what `make` returns: an object with `nbytes`, or a tuple of such."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found[0]  # type: ignore[no-any-return]
        made = make()
        parts: Any = made if isinstance(made, tuple) else (made,)
        nbytes = sum(part.nbytes for part in parts) + _bytes_of(key)
        with self._lock:
            if key not in self._kept and nbytes <= self.most_bytes:
                self._kept[key] = made, nbytes
                self.nbytes += nbytes
                while self.nbytes > self.most_bytes:
                    self.nbytes -= self._kept.popitem(last=False)[1][1]
        return made


def _bytes_of(key: Any) -> int:
    """About as many bytes as a key has."""
    if isinstance(key, tuple):
        return 64 + sum(map(_bytes_of, key)) if len(key) < 8 else 64 + 40 * len(key)
    return len(key) if isinstance(key, bytes) else 64


TABLES = KeptTables()


def kept(function: Callable[P, R]) -> Callable[P, R]:
    """The function with a memory of its tables; its arguments are hashable and come by position."""

    @functools.wraps(function)
    def remembering(*args: P.args, **kwargs: P.kwargs) -> R:
        return TABLES.get((function, *args), lambda: function(*args, **kwargs))

    return remembering
