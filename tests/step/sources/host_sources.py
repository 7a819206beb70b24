"""Sources of numbers on the host for captured steps: ways to hold a number, and the check that none is ever stale.

A source gives a function that reads the number, as a step would, and one that changes it. It is changed at several
moments, and each result is compared with that of the function itself. A step that reads it is captured, or refused.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.errors import CaptureError, CaptureWarning

Read = Callable[[], Any]
Write = Callable[[float], None]
Make = Callable[[], tuple[Read, Write]]
VALUES = (3.0, 0.5, -0.0, 2.0)


def holder(make: Callable[[], Any], read: Callable[[Any], Any], write: Callable[[Any, float], Any]) -> Any:
    """A source that is an object, which a closure has."""

    def build() -> tuple[Read, Write]:
        held = make()
        return lambda: read(held), lambda value: write(held, value)

    return build


class Sources(dict[str, tuple[Make, str]]):
    """Sources by name, each with the words of its refusal: none if a step that reads it is captured.

    Args:
        first: the number of the first row, by which rows take turns in the moments and in the places.
    """

    def __init__(self, first: int) -> None:
        super().__init__()
        self.first = first

    def add(self, refused: str = "") -> Callable[[Make], None]:
        """A row of the table: it is captured, or refused with words that match `refused`."""

        def add(make: Make) -> None:
            self[make.__name__.strip("_").replace("_", " ")] = make, refused

        return add

    def add_objects(self, rows: dict[str, tuple[Any, Any, Any]]) -> None:
        """Rows of objects that a closure has: how one is made, read and written."""
        for name, row in rows.items():
            self[name] = holder(*row), ""

    def check(self, name: str) -> None:
        """A step that reads the source is never stale."""
        make, refused = self[name]
        number = self.first + [*self].index(name)
        moments, place = MOMENTS[number % len(MOMENTS)], PLACES[number % len(PLACES)]
        if not refused:
            moments = MOMENTS[0] if number % 2 else moments
        check(make, refused, moments, place)

    def check_noticed(self, name: str) -> None:
        """The check of this source fails, since something is forgotten."""
        make, refused = self[name]
        with pytest.raises((AssertionError, StopIteration)):
            check(make, refused, MOMENTS[0], in_a_function)


def setter(name: str) -> Callable[[Any, float], None]:
    return lambda held, value: setattr(held, name, value)


def putter(key: Any) -> Callable[[Any, float], None]:
    return lambda held, value: held.__setitem__(key, value)


class Plain:
    scale = 1.0


@dataclasses.dataclass
class Config:
    scale: float = 1.0
    count: int = 0


MOMENTS = ((5, 5, 5, 5, 5), (1, 6, 1, 6), (2, 2, 2, 6))  # calls between two changes


def in_a_function(read: Read) -> Callable[[alpha.Tensor], alpha.Tensor]:
    return lambda x: x * read()


def in_a_method(read: Read) -> Callable[[alpha.Tensor], alpha.Tensor]:
    class Owner:
        def __init__(self) -> None:
            self.read = read

        def step(self, x: alpha.Tensor) -> alpha.Tensor:
            return self.inner(x)

        def inner(self, x: alpha.Tensor) -> alpha.Tensor:
            return x * self.read()

    return Owner().step


def in_a_network(read: Read) -> Callable[[alpha.Tensor], alpha.Tensor]:
    class Net(nn.Module):
        def forward(self, x: alpha.Tensor) -> alpha.Tensor:
            return x * read()

    net = nn.Sequential(Net(), nn.Identity())
    return lambda x: net(x)


def in_a_callback(read: Read) -> Callable[[alpha.Tensor], alpha.Tensor]:
    return functools.partial(lambda reads, x: x * next(iter([r() for r in reads])), (read,))


PLACES = (in_a_function, in_a_method, in_a_network, in_a_callback)


def check(make: Any, refused: str, moments: tuple[int, ...], place: Any) -> None:
    read, write = make()
    function = place(read)
    step = alpha.capture(function)
    x = alpha.tensor(np.array([1.0, -2.0], np.float32), device="cuda")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CaptureWarning)
        for change, calls in enumerate(moments):
            if change:
                write(VALUES[(change - 1) % len(VALUES)])
            for call in range(calls):
                got = step(x).numpy()
                if not refused:
                    expected = function(x).numpy()
                    np.testing.assert_array_equal(got, expected, err_msg=f"call {call} after change {change}")
                    assert np.array_equal(np.signbit(got), np.signbit(expected))
    said = [str(w.message) for w in caught if issubclass(w.category, CaptureWarning)]
    if refused:
        assert said
        assert re.search(refused, said[0]), said[0]
        assert not step.graphs
        read, write = make()
        strict = alpha.capture(strict=True)(place(read))

        def calls() -> None:
            strict(x)
            write(3.0)
            for _ in range(6):
                strict(x)

        with pytest.raises(CaptureError, match=refused):
            calls()
    else:
        assert not said, said
        assert step.graphs, step.describe()


def nothing(*_: Any) -> Any:
    return None
