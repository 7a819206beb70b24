"""Convolution as an operator: its gradients by central difference, in float64 on the cpu."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import check_gradient

import alpha
import alpha.nn.functional as F

# (x, weight, stride, padding)
SHAPES = [
    ((2, 5, 6, 3), (4, 3, 3, 3), 1, 1),
    ((2, 6, 5, 2), (3, 2, 3, 2), (2, 1), (0, 2)),
    ((1, 4, 4, 1), (1, 1, 1, 1), 3, 0),
    ((2, 2, 3, 2), (2, 4, 3, 2), 2, 3),
    ((40, 3, 3, 64), (64, 2, 2, 64), 1, 0),
]
# (x, weight, stride, padding, output_padding)
TRANSPOSED = [
    ((2, 3, 4, 3), (3, 3, 3, 2), 1, 1, 0),
    ((2, 3, 3, 2), (2, 3, 2, 3), (2, 3), (1, 0), (1, 2)),
    ((1, 1, 1, 1), (1, 4, 4, 2), 2, 1, 0),
]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_conv2d(case: tuple[Any, ...]) -> None:
    x, w, *options = case
    check_gradient(lambda x, w, b: F.conv2d(x, w, b, *options), x, w, (w[0],))
    check_gradient(lambda x, w: F.conv2d(x, w, None, *options), x, w)


@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_conv_transpose2d(case: tuple[Any, ...]) -> None:
    x, w, *options = case
    check_gradient(lambda x, w, b: F.conv_transpose2d(x, w, b, *options), x, w, (w[3],))


@pytest.mark.parametrize("slope", [0.0, 0.25])
def test_with_an_activation(slope: float) -> None:
    x, w, *options = SHAPES[0]
    check_gradient(lambda x, w, b: F.conv2d(x, w, b, *options, negative_slope=slope), x, w, (w[0],))
    x, w, *options = TRANSPOSED[0]
    check_gradient(lambda x, w, b: F.conv_transpose2d(x, w, b, *options, negative_slope=slope), x, w, (w[3],))


@pytest.mark.parametrize("slope", [-0.1, 1.5, float("nan")])
def test_a_slope_outside_0_to_1(slope: float) -> None:
    x, w = (alpha.tensor(np.zeros(shape, np.float32)) for shape in SHAPES[0][:2])
    with pytest.raises(ValueError, match="negative_slope"):
        F.conv2d(x, w, negative_slope=slope)
