"""Gradients that nobody wants are not computed: no operator of any function gives one for an input that needs none.

The calls are those of the rows in tests/rows/, with one tensor that requires a gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from rows.every import FUNCTIONS
from rows.kinds import FunctionRow, each, joined

import alpha
from alpha import Function, Tensor

pytestmark = pytest.mark.filterwarnings("ignore")
ANYWAY = {  # operators that have a gradient of each input anyway
    "BatchNorm": "one kernel computes all of them",
    "ScatterAdd": "that of X is dY itself",
    "ScatterFold": "both come from the same shares",
}
SEVERAL = [row for row in FUNCTIONS if len(row.tensors) + len(row.lists) > 1]


def nodes(y: Tensor) -> Iterator[Function]:
    """All operators of the graph."""
    found: set[int] = set()
    left: list[Any] = [y._node]
    while left:
        node = left.pop()
        if isinstance(node, Function) and node.id not in found:
            found.add(node.id)
            left += node.edges
            yield node


def watched(node: Function, unwanted: list[str]) -> None:
    """Let `backward` note each gradient of an input that needs none."""
    backward = node.backward

    def noted(dY: Any) -> Any:
        gradients = backward(dY)
        given = gradients if isinstance(gradients, (tuple, list)) else (gradients,)
        for place, (gradient, needed) in enumerate(zip(given, node.needs_input_grad, strict=True)):
            if gradient is not None and not needed and node.name not in ANYWAY:
                unwanted.append(f"{node.name}: input {place}")
        return gradients

    node.backward = noted  # type: ignore[method-assign]


@pytest.mark.parametrize("row", SEVERAL, ids=lambda row: row.name)
def test_an_input_that_needs_no_gradient_gets_none(row: FunctionRow) -> None:
    for wanted, array in row.tensors.items():
        if array.dtype.kind != "f" or wanted in row.constants or wanted.startswith("running"):
            continue

        def put(values: np.ndarray, wanted: bool) -> Tensor:
            return alpha.tensor(values, requires_grad=True) * 1.0 if wanted else alpha.tensor(values)

        given = {k: each(lambda v, is_wanted=k == wanted: put(v, is_wanted), value) for k, value in row.usual.items()}
        alpha.manual_seed(2)
        y = joined(row.function(**given))
        if not y.requires_grad:
            continue
        unwanted: list[str] = []
        for node in nodes(y):
            watched(node, unwanted)
        y.backward(alpha.ones(y.shape, dtype=y.dtype))
        assert not unwanted, f"only {wanted} needs a gradient"
