"""The comparison itself: every kind of fault is found, and a refusal is told from a breakdown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from parity_names import Way
from test_parity_operators import one

import alpha
from alpha import Function, Tensor


class Halved(Function):
    """Y = X, with a gradient of half the size."""

    def forward(self, *arrays: Any, **options: Any) -> Any:
        return arrays[0].copy()

    def backward(self, dY: Any) -> Any:
        return dY * 0.5


class Reshaped(Halved):
    """Y = X, with a gradient of another shape."""

    def backward(self, dY: Any) -> Any:
        return dY.reshape(-1)


def written(x: Tensor) -> Tensor:
    y = x * 2.0
    x.array[...] = 0
    return y


def inside_alpha(expression: str) -> Callable[[Tensor], Any]:
    """A function of x that stands in a file of Alpha's, as the traceback sees it."""
    space: dict[str, Any] = {}
    exec(compile(f"def function(x): return {expression}", str(Path(alpha.__file__).parent / "none.py"), "exec"), space)
    result: Callable[[Tensor], Any] = space["function"]
    return result


# Y = 2 X, or not quite: what the comparison says of it
FAULTS: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "right": (lambda x: x * 2.0, "right"),
    "value": (lambda x: x * 2.001, "wrong: result: off by"),
    "shape": (lambda x: (x * 2.0).reshape(3, 2), "wrong: result: shape"),
    "dtype": (lambda x: (x * 2.0).astype("float64"), "wrong: result: dtype float64"),
    "array": (lambda x: (x * 2.0).numpy(), "wrong: the result is a ndarray"),
    "no gradient": (lambda x: x.detach() * 2.0, "wrong: the result's requires_grad is False"),
    "gradient": (lambda x: Halved.apply(x) * 2.0, "wrong: gradient of argument 0: off by"),
    "gradient's shape": (lambda x: Reshaped.apply(x) * 2.0, "wrong: backward broke with ShapeError"),
    "written": (written, "wrong: argument 0 afterwards: off by"),
    "KeyError": (lambda x: {}[x.shape], "wrong: broke with KeyError"),
    "numpy's TypeError": (lambda x: np.add(x.array, "2"), "wrong: broke with"),
    "None's TypeError": (inside_alpha("None * 3"), "wrong: broke with TypeError"),
    "inner signature": (inside_alpha("(lambda: 0)(x)"), "wrong: broke with TypeError"),
    "refused": (lambda x: x.reshape(5, 5), "refused: ShapeError: reshape"),
    "signature": (lambda x: alpha.nn.functional.relu(x, beta=2), "refused: TypeError: "),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(databases: None, fault: str) -> None:
    import torch

    function, expected = FAULTS[fault]
    entry = SimpleNamespace(op=lambda x: x * 2)
    sample = SimpleNamespace(input=torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_(), args=(), kwargs={})
    outcome = one(entry, sample, Way(fault, function), "double", "cpu")
    assert outcome is not None
    assert ": ".join(part for part in outcome if part).startswith(expected)
