"""A table of arguments: every argument of a callable must change what can be observed, or be refused.

A `Subject` says how a callable is tried and holds a row for each of its arguments. `check_complete` fails if an
argument has no row, so that a new argument cannot be forgotten; `check_argument` fails if an argument is dropped on the
way to the operator. The rows of layers and functions are in `tests/rows/`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

Facts = dict[str, Any]  # what was observed, by kind; "values" is what most arguments change


@dataclass(frozen=True)
class Row:
    """One argument: a value that is not its default, and the fact that tells both apart.

    Attributes:
        fact: the key of `Facts` that must differ; "error" if the value does not fit the input.
        given: other arguments without which the value has no effect.
        together: other arguments that come with the value, and not without it.
        refused: the value is an error that names the argument.
        silent: the value changes nothing, because what it asks for holds anyway.
    """

    value: Any
    fact: str = "values"
    given: Mapping[str, Any] = field(default_factory=dict)
    together: Mapping[str, Any] = field(default_factory=dict)
    refused: bool = False
    silent: bool = False


def changes(value: Any, fact: str = "values", **given: Any) -> Row:
    return Row(value, fact, given)


def instead(value: Any, of: str) -> Row:
    """A value in place of another argument, which becomes None."""
    return Row(value, together={of: None})


def refused(value: Any, **given: Any) -> Row:
    return Row(value, given=given, refused=True)


def silent(value: Any) -> Row:
    return Row(value, silent=True)


@dataclass(frozen=True)
class Subject:
    """A callable, how it is observed with some arguments, its usual arguments, and a row for each argument."""

    target: Callable[..., Any]
    observe: Callable[[dict[str, Any]], Facts]
    usual: Mapping[str, Any]
    rows: Mapping[str, Row]

    @property
    def name(self) -> str:
        return self.target.__name__


def check_complete(subject: Subject) -> None:
    """The rows are the arguments of the signature, no more and no less."""
    assert list(subject.rows) == list(inspect.signature(subject.target).parameters), subject.name


def check_argument(subject: Subject, argument: str) -> None:
    row = subject.rows[argument]
    usual = {**subject.usual, **row.given}
    plain = subject.observe(dict(usual))
    if row.refused:
        with pytest.raises((TypeError, ValueError), match=rf"{argument}.* is not offered"):
            subject.observe({**usual, argument: row.value})
        return
    found = subject.observe({**usual, **row.together, argument: row.value})
    assert plain[row.fact] == subject.observe(dict(usual))[row.fact], f"{subject.name}: {row.fact} are not repeatable"
    if row.silent:
        assert found[row.fact] == plain[row.fact], f"{subject.name}: {argument}={row.value!r} changes {row.fact}"
        return
    assert found[row.fact] != plain[row.fact], f"{subject.name}: {argument}={row.value!r} has no effect on {row.fact}"
    for facts in (plain, found if row.fact != "error" else plain):
        assert not np.any([facts.get("error")]), f"{subject.name}: {facts['error']}"
    if "repr" in plain:
        assert found["repr"] != plain["repr"], f"{subject.name}: repr does not show {argument}"


def frozen(value: Any) -> Any:
    """Arrays and tensors, also in containers, as something that `==` compares bit by bit."""
    if isinstance(value, Mapping):
        return {name: frozen(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [frozen(item) for item in value]
    if hasattr(value, "numpy"):
        value = value.numpy()
    return (value.shape, value.dtype.name, value.tobytes()) if isinstance(value, np.ndarray) else value
