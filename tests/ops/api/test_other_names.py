"""Other names of arguments, PyTorch's and numpy's: `input` is x, `axis` is dim and `keepdims` is keepdim."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from rows.every import FUNCTIONS
from rows.kinds import FunctionRow, joined

import alpha
import alpha.nn.functional as F
from alpha import Tensor

NAMES = {"input": "x", "axis": "dim", "keepdims": "keepdim"}
ROWS = [row for row in FUNCTIONS if {"x", "dim"} & set(inspect.signature(row.function).parameters)]
MORE: dict[str, dict[str, Any]] = {
    "split": {"split_size_or_sections": 2},
    "chunk": {"chunks": 2},
    "topk": {"k": 2},
}  # arguments that a method needs beside dim


def needed(method: Any) -> set[str]:
    parameters = list(inspect.signature(method).parameters.values())[1:]
    return {p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD} - {"dim"}


METHODS = [
    name
    for name, method in vars(Tensor).items()
    if inspect.isfunction(method)
    and name != "stride"  # it computes nothing along an axis; NumPy's is no method
    and "dim" in list(inspect.signature(method).parameters)[1:]
    and needed(method) <= MORE.get(name, {}).keys()
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_functions(row: FunctionRow) -> None:
    """The usual call with the other names gives the same."""
    given: dict[str, Any] = dict(row.usual)
    turned = {own: other for other, own in NAMES.items()}
    parameters = inspect.signature(row.function).parameters
    if "dim" in parameters and "dim" not in given and isinstance(row.arguments["dim"].value, int):
        given["dim"] = row.arguments["dim"].value
    alpha.manual_seed(1)
    expected = joined(row.function(**{name: put(value) for name, value in given.items()})).numpy()
    alpha.manual_seed(1)
    found = joined(row.function(**{turned.get(name, name): put(value) for name, value in given.items()})).numpy()
    np.testing.assert_array_equal(found, expected)


def put(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(part, np.ndarray) for part in value):
        return [alpha.tensor(part) for part in value]
    return alpha.tensor(value) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("name", METHODS)
def test_methods(name: str) -> None:
    method = getattr(Tensor, name)
    parameters = list(inspect.signature(method).parameters)[1:]
    values = np.arange(12.0).reshape(3, 4) + 1
    plain: dict[str, Any] = {"dim": 1, **MORE.get(name, {})}
    other: dict[str, Any] = {"axis": 1, **MORE.get(name, {})}
    if "keepdim" in parameters:
        plain["keepdim"], other["keepdims"] = True, True
    found, expected = (joined(method(alpha.tensor(values), **given)).numpy() for given in (other, plain))
    np.testing.assert_array_equal(found, expected)


def test_an_argument_that_is_given_twice() -> None:
    x = alpha.ones(2, 3)
    for call, message in (
        (lambda: x.sum(dim=0, axis=0), "sum: axis= and dim= are one argument"),
        (lambda: alpha.sum(x, dim=0, axis=0), "sum: axis= and dim= are one argument"),
        (lambda: F.relu(x=x, input=x), "relu: input= and x= are one argument"),
        (lambda: x.sum(keepdim=True, keepdims=True), "sum: keepdims= and keepdim= are one argument"),
    ):
        with pytest.raises(TypeError, match=message):
            call()
    with pytest.raises(TypeError, match="unexpected keyword"):
        F.relu(x, axis=1)
