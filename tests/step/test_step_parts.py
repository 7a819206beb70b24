"""Parts of a captured step by themselves: keys of arguments, facts about code, what counts, and what is heard."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from trials import trials

import alpha
from alpha.step.call_arguments import Arguments, memories_of
from alpha.step.sources.code import facts
from alpha.step.sources.kinds import counts_of_alpha
from alpha.step.sources.ran import Ran

Point = namedtuple("Point", "x y")


class Thing:
    """An object that is no plain value."""


OBJECT = Thing()
VALUES: list[Callable[[], Any]] = [  # made anew at each call
    *(lambda: 1, lambda: 1.0, lambda: True, lambda: None, lambda: "1", lambda: 0.0, lambda: -0.0, lambda: 2),
    *(lambda: np.float32(1), lambda: np.float64(1), lambda: np.int64(1)),
    *(lambda: slice(1), lambda: slice(2), lambda: slice(1, None), lambda: slice(1, 2), lambda: slice(1, 2, 3)),
    *(lambda: slice(0.0), lambda: slice(-0.0), lambda: [slice(1, 2)], lambda: (slice(1, 2),)),
    *(lambda: (1, 2), lambda: [1, 2], lambda: [2, 1], lambda: ((1,), 2), lambda: (1, (2,)), lambda: Point(1, 2)),
    *(lambda: {"a": 1}, lambda: {"b": 1}, lambda: {"a": 2}, lambda: {"a": {"b": [1.0]}}, lambda: {"a": {"b": [2.0]}}),
    *(lambda: np.arange(3), lambda: np.arange(4), lambda: np.arange(3) * 2, lambda: np.arange(3, dtype=np.int32)),
    *(lambda: np.arange(3)[:, None], lambda: alpha.tensor([1, 2]), lambda: alpha.tensor([1, 3]), lambda: OBJECT),
]


def test_equal_arguments_alone_have_equal_keys() -> None:
    first, second = ([Arguments((make(),), {}).key for make in VALUES] for _ in range(2))
    with trials() as trial:
        for i, key in enumerate(first):
            for j, other in enumerate(second):
                with trial(VALUES[i](), VALUES[j]()):
                    assert (key == other) == (i == j)
    assert Arguments((1,), {}).key != Arguments((), {"x": 1}).key


def test_objects_among_arguments_are_known_by_their_places() -> None:
    given = Arguments(([1, OBJECT], slice(None, OBJECT)), {"table": {"a": (2, OBJECT)}, "size": Point(1, 2)})
    assert given.objects == {
        "argument[0][0][1]": OBJECT,
        "argument[0][1].stop": OBJECT,
        "argument[1]['table']['a'][1]": OBJECT,
        "the class of argument[1]['size']": Point,
    }


CODES: list[tuple[Callable[..., Any], bool]] = [  # and whether it may read what it does not name
    (lambda x: x.name, False),
    (lambda x: getattr(x, "name"), False),  # noqa: B009
    (lambda x: getattr(x, "name", None), False),
    (lambda x: hasattr(x, "name"), False),
    (lambda x: setattr(x, "name", 1), False),
    (lambda x: delattr(x, "name"), False),
    (lambda x: getattr(x.inner(1), "name"), False),  # noqa: B009
    (lambda x: [getattr(x, "name"), len(x)], False),  # noqa: B009
    (lambda x, name: getattr(x, name), True),
    (lambda x, name: getattr(x, name, "name"), True),
    (lambda x, name: hasattr(x, name), True),
    (lambda x, name: getattr(x, "na" + name), True),
    (lambda x, name: getattr(x, name)("name"), True),
    (lambda x: getattr(*x), True),
    (lambda x: map(getattr, x), True),
    (lambda x: vars(x), True),
    (lambda x: x.__dict__, True),
    (lambda x, text: text.format(x), True),
    (lambda x, text: str.format(text, x), True),
    (lambda x: "{0.name} {1}".format(x, 1), False),  # noqa: UP030, UP032
]


def test_a_name_that_is_a_constant_is_named() -> None:
    with trials() as trial:
        for i, (function, computes) in enumerate(CODES):
            with trial(i):
                found = facts(function.__code__)
                assert found.computes == computes
                assert computes or "name" in found.names


def test_which_members_of_a_class_of_alpha_count() -> None:
    def function() -> None:
        """A stand-in for a method."""

    cases = [  # whether it is named, whether the class is one of tensors, its name, the member, and whether it counts
        (True, False, "run", function, True),
        (False, False, "run", function, False),
        (False, False, "limit", 5, True),
        (False, False, "kind", int, False),
        (False, False, "size", property(function), False),
        (True, False, "size", property(function), True),
        (False, False, "__slots__", (), False),
        (True, False, "__slots__", (), True),
        (False, False, "__mul__", function, False),
        (False, True, "__mul__", function, True),
        (False, True, "__doc__", "text", False),
        (False, True, "relu", function, False),
    ]
    with trials() as trial:
        for named, of_tensors, key, member, counts in cases:
            with trial(named, of_tensors, key):
                assert counts_of_alpha({key} if named else set(), of_tensors, key, member) is counts


class Asking:
    """A stream, a handler and an object that ask the system when they write or die."""

    def write(self, text: str) -> int:
        return int(os.urandom(1) == b"")

    def __del__(self) -> None:
        self.write("")


def failed() -> None:
    with contextlib.suppress(TypeError):
        print("text", sep=1)  # type: ignore[call-overload]


def logged() -> None:
    logger, handler = logging.getLogger("of a step"), logging.StreamHandler(Asking())  # type: ignore[type-var]
    logger.propagate = False
    logger.addHandler(handler)
    logger.error("text")
    logger.removeHandler(handler)


QUIET: dict[str, Callable[[], object]] = {
    "print": lambda: print("text", file=Asking()),  # type: ignore[call-overload]
    "print that fails": failed,
    "logging": logged,
    "warnings": lambda: warnings.warn("text", stacklevel=1),
    "a finalizer": Asking,
}


@pytest.mark.filterwarnings("ignore:text")
@pytest.mark.parametrize("name", QUIET)
def test_what_is_asked_after_an_output_is_heard(name: str) -> None:
    """Questions of the output itself are not."""
    ran = Ran()

    def step(asks: bool) -> None:
        QUIET[name]()
        if asks:
            os.urandom(1)

    for asks in (False, True, False):
        with ran.watching():
            step(asks)
        assert [text.split(",")[0] for text in ran.asked] == ["it calls os.urandom"] * asks


def test_the_memories_of_a_copied_part_are_its_own_and_that_of_the_whole() -> None:
    whole = alpha.ones(3, 4)
    part = whole[:, 1:3]
    assert list(memories_of([whole])) == [id(whole._version)]
    assert set(memories_of([part])) == {id(part._version), id(whole._version)}
