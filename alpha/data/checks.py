"""Checks of arguments that datasets, samplers and the loader share; all raise DataError."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.core.generators import Generator
from alpha.core.host_values import is_integer
from alpha.errors import DataError


def whole_number(owner: str, name: str, value: Any, least: int) -> int:
    """The value as an int."""
    if not is_integer(value) or value < least:
        raise DataError(f"{owner}: {name} is {value!r}, expected a whole number, {least} or more")
    return int(value)


def flag(owner: str, name: str, value: Any) -> bool:
    """The value as a bool."""
    if not isinstance(value, (bool, np.bool_)):
        raise DataError(f"{owner}: {name} is {value!r}, expected True or False")
    return bool(value)


def seed_of(owner: str, seed: Any, generator: Any) -> int | None:
    """The seed, or None if each order takes a draw of the program for its seed.

    PyTorch's argument `generator` may be a whole number, or an `alpha.Generator`, which draws one.
    """
    if generator is None:
        return None if seed is None else whole_number(owner, "seed", seed, 0)
    if isinstance(generator, Generator):
        if seed is not None:
            raise DataError(f"{owner}: seed={seed!r} and generator= are both given; seed= is enough")
        return generator.next_seed()
    if not is_integer(generator):
        raise DataError(
            f"{owner}: generator={type(generator).__name__} is not offered; give a whole number, seed=, "
            "which alone fixes all orders"
        )
    if seed is not None:
        raise DataError(f"{owner}: seed={seed!r} and generator={generator!r} are both given; seed= is enough")
    return whole_number(owner, "generator", generator, 0)


def only_offered(owner: str, **arguments: tuple[Any, Any]) -> None:
    """Refuses each argument, name=(value, the only value that is offered), that has another value."""
    for name, (value, offered) in arguments.items():
        if value is not offered and (type(value) is bool or value != offered):
            raise DataError(f"{owner}: {name}={value!r} is not offered; only {offered!r}")


def index_of(owner: str, index: Any) -> int:
    """An index as an int."""
    if type(index) is int:
        return index
    if isinstance(index, np.integer):
        return int(index)
    try:
        if isinstance(index, (bool, np.bool_)) or "bool" in str(getattr(index, "dtype", "")):
            raise TypeError
        return operator.index(index)
    except TypeError:
        raise DataError(f"{owner}: an index is {index!r}, expected a whole number") from None


def indices_of(owner: str, indices: Any, count: int | None = None) -> NDArray[np.int64]:
    """Indices (M,) as an array; `count` is the length of the dataset, and negative ones count from its end."""
    try:
        given = indices if hasattr(indices, "__array__") else list(indices)
    except TypeError:
        raise DataError(
            f"{owner}: indices are {indices!r}, expected whole numbers (M,), as a list or a range"
        ) from None
    if isinstance(given, list) and not {bool, np.bool_}.isdisjoint(map(type, given)):
        given = np.zeros(len(given), bool)  # numpy makes numbers of bools that stand beside numbers
    values = np.asarray(given)
    if not values.size:
        return np.zeros(0, np.int64)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        hint = "; np.flatnonzero(mask) gives the indices of a mask" if values.dtype.kind == "b" else ""
        raise DataError(f"{owner}: indices are {values.dtype} {values.shape}, expected whole numbers (M,){hint}")
    values = values.astype(np.int64)
    if count is not None and not -count <= values.min() <= values.max() < count:
        raise DataError(
            f"{owner}: indices run from {values.min()} to {values.max()}, the dataset has {count} items, from 0 on"
        )
    return values


def say_where(error: Exception, text: str) -> None:
    """Add a text to an exception, which keeps its type: a note, or, before Python 3.11, a part of its message."""
    if hasattr(error, "add_note"):
        error.add_note(text)
    elif type(error).__str__ is BaseException.__str__ and list(map(type, error.args)) == [str]:
        error.args = (f"{error.args[0]} ({text})",)
    elif error.__cause__ is None:  # a traceback shows it
        error.__cause__ = DataError(text)
