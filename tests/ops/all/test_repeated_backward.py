"""A gradient is the same each time: a graph that is kept gives it again, and neither the graph nor an array changes.

The calls are those of the rows in tests/rows/, and every in-place form of a function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows.every import FUNCTIONS
from rows.kinds import FunctionRow, each, joined

import alpha
from alpha import Tensor

IN_PLACE = [row for row in FUNCTIONS if "inplace" in row.arguments and not row.arguments["inplace"].refused]
MASK = np.array([[True, False, True], [False, False, True]])
METHODS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "masked_fill_ of a number": lambda x, v: x.masked_fill_(alpha.tensor(MASK), 0.5),
    "masked_fill_ of a tensor": lambda x, v: x.masked_fill_(alpha.tensor(MASK), v.sum()),
    "set to a number": lambda x, v: _set(x, 2.0),
    "set to a tensor": lambda x, v: _set(x, v),
    "copy_": lambda x, v: x.copy_(v),
    "clamp_": lambda x, v: x.clamp_(-0.5, 0.5),
    "add_": lambda x, v: x.add_(v, alpha=2),
    "sub_": lambda x, v: x.sub_(v),
    "mul_ by a number": lambda x, v: x.mul_(3.0),
}


def _set(x: Tensor, value: Any) -> Tensor:
    x[:, 1] = value if not isinstance(value, Tensor) else value[:, 1]
    return x


def check(leaves: list[Tensor], y: Tensor) -> None:
    """Three backward passes of a graph that is kept, and `alpha.grad` between them, have one gradient."""
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    if not y.requires_grad:
        return
    g = alpha.tensor(np.linspace(1, 2, y.size), dtype=y.dtype).reshape(y.shape)
    first = alpha.grad(y, wanted, g, retain_graph=True, allow_unused=True)
    for count in (1, 2, 3):
        y.backward(g, retain_graph=True)
        for leaf, once in zip(wanted, first, strict=True):
            if once is not None:
                np.testing.assert_allclose(leaf.grad.numpy(), count * once.numpy(), rtol=1e-9, atol=1e-12)


def call(row: FunctionRow, **more: Any) -> None:
    leaves: list[Tensor] = []

    def put(name: str, array: np.ndarray) -> Tensor:
        trained = array.dtype.kind == "f" and name not in row.constants and not name.startswith("running")
        wide = array.astype(np.float64) if array.dtype.kind == "f" else array
        leaves.append(alpha.tensor(wide, requires_grad=trained))
        return leaves[-1] * 1.0 if trained else leaves[-1]  # no leaf is written in place

    given = {name: each(lambda array, name=name: put(name, array), value) for name, value in row.usual.items()}
    alpha.manual_seed(2)
    check(leaves, wide_joined(row.function(**given, **more)))


def wide_joined(result: Any) -> Tensor:
    """One result as it is, or the sum of the floating ones among several, in float64."""
    if isinstance(result, Tensor):
        return result
    parts = [part for value in result for part in (value if isinstance(value, tuple) else (value,))]
    floats = [part for part in parts if part.dtype == np.float64]
    return sum((part.sum() for part in floats[1:]), floats[0].sum()) if floats else joined(result)


@pytest.mark.parametrize("row", FUNCTIONS, ids=lambda row: row.name)
def test_functions(row: FunctionRow) -> None:
    call(row)


@pytest.mark.parametrize("row", IN_PLACE, ids=lambda row: row.name)
def test_functions_in_place(row: FunctionRow) -> None:
    call(row, inplace=True)


@pytest.mark.parametrize("name", METHODS)
def test_methods_in_place(name: str) -> None:
    x, v = (alpha.tensor(np.arange(6.0).reshape(2, 3) / 4 + shift, requires_grad=True) for shift in (-0.7, 0.1))
    check([x, v], METHODS[name](x * 1.0, v))


def test_a_gradient_by_hand() -> None:
    x = alpha.tensor([1.0, 2.0], requires_grad=True)
    y = (x * 1.0).masked_fill_(alpha.tensor([True, False]), 0.0).sum()
    for count in range(1, 5):
        y.backward(retain_graph=True)
        assert x.grad.tolist() == [0, count]
