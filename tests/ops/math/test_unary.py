"""Elementwise functions of one tensor: their gradients, and numbers in place of NaN and infinities."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import apart, check_gradient

import alpha

NAMES = ("abs", "exp2", "expm1", "erf", "sin", "cos", "tan", "atan", "sinh", "cosh", "asinh", "reciprocal", "square")
WITHIN = ("log2", "log10", "log1p", "rsqrt", "asin", "acos", "atanh", "deg2rad", "rad2deg", "frac")


@pytest.mark.parametrize("name", [*NAMES, *WITHIN, "acosh"])
def test_gradients_of_elementwise_functions(name: str) -> None:
    values = apart(3, 5) if name in NAMES else np.linspace(0.1, 0.9, 15).reshape(3, 5) + (name == "acosh")
    check_gradient(lambda x: getattr(x, name)(), values)


def test_numbers_in_place_of_nan_and_infinities(device: str) -> None:
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 3.0], np.float32)
    x = alpha.tensor(values, device=device, requires_grad=True)
    np.testing.assert_array_equal(x.nan_to_num().numpy(), np.nan_to_num(values))
    y = x.nan_to_num(1.0, 2.0, -3.0)
    np.testing.assert_array_equal(y.numpy(), [1, 2, -3, 0, 3])
    (y * 2).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), [0, 0, 0, 2, 2])
