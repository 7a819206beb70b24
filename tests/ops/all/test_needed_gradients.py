"""A gradient rule computes no gradient that nobody wants.

The calls are those of the rows in tests/rows/, in which one tensor alone wants a gradient.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from helpers import nodes_of
from rows.every import FUNCTIONS
from rows.kinds import FunctionRow, each, joined
from trials import trials

import alpha
from alpha.autograd.function import Function

# operators whose other gradients cost nothing, or come from the same kernel
TOGETHER = {"BatchNorm", "GroupNormStep", "ScatterAdd", "ScatterFold"}


def computed(node: Function) -> list[int]:
    """The inputs whose gradient a node gives though it is not wanted; a list that fills when the rule runs."""
    found: list[int] = []
    rule = node.backward

    def watched(dY: Any) -> Any:
        gradients = rule(dY)
        several = gradients if isinstance(gradients, (tuple, list)) else (gradients,)
        pairs = enumerate(zip(several, node.needs_input_grad, strict=True))
        found.extend(i for i, (gradient, needed) in pairs if gradient is not None and not needed)
        return gradients

    node.backward = watched  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize("row", FUNCTIONS, ids=lambda row: row.name)
def test_a_gradient_that_nobody_wants_is_not_computed(row: FunctionRow) -> None:
    usual = {name: each(alpha.tensor, value) for name, value in row.usual.items()}
    floats = {name: values for name, values in row.tensors.items() if values.dtype == np.float32}
    with trials() as trial:
        for wanted, beside in itertools.product(floats, floats):
            if wanted in row.constants or wanted.startswith("running"):
                continue
            leaf = alpha.tensor(floats[wanted], requires_grad=True)
            with trial(wanted, beside):
                result = row.function(**{**usual, beside: alpha.tensor(floats[beside]), wanted: leaf * 1.0})
                y = joined(result)
                unwanted = [(node.name, computed(node)) for node in nodes_of(y) if node.name not in TOGETHER]
                if y.requires_grad:
                    y.backward(alpha.tensor(np.ones(y.shape, y.dtype)))
                assert not any(inputs for _, inputs in unwanted), unwanted
