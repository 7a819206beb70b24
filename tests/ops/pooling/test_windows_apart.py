"""Maximum pools whose windows share no pixel: a thread of a GPU makes the gradients of a cell, window and gap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conv2d_cases import hopper

import alpha
import alpha.nn.functional as F
from alpha import Tensor
from alpha.ops.pooling.pool_shape import LARGEST_CELL, PoolShape

# (x, kernel_size, stride, padding, ceil_mode), and whether an input has at most one window
POOLS = [
    (((2, 6, 8, 8), 2, 2, 0, False), True),
    (((2, 7, 9, 8), 2, 2, 0, False), True),  # pixels without a window at the border
    (((2, 7, 9, 4), 2, 2, 0, True), True),  # windows over the border
    (((3, 8, 11, 3), 2, 3, 0, False), True),  # gaps between windows
    (((2, 9, 8, 16), (1, 2), (2, 4), (0, 1), False), True),
    (((2, 9, 9, 4), 3, 3, 1, False), True),
    (((2, 5, 6, 8), 1, 2, 0, False), True),
    (((1, 5, 5, 8), 4, 4, 2, True), True),
    (((1, 10, 11, 4), 5, 5, 0, False), False),  # a cell of more pixels than one thread makes
    (((2, 7, 7, 8), 3, 2, 1, False), False),
    (((2, 7, 7, 8), (2, 3), 2, 0, False), False),
]


def gradient(x: np.ndarray, dtype: str, case: tuple[Any, ...], slope: float | None, on: Any) -> np.ndarray:
    """The gradient of a pool of x, or of a leaky ReLU before it, of whole numbers."""
    size, stride, padding, ceil_mode = case
    x = alpha.tensor(x, device=on).astype(dtype).detach()
    x.requires_grad = True
    y = F.max_pool2d(x if slope is None else F.leaky_relu(x, slope), size, stride, padding, ceil_mode=ceil_mode)
    grad = np.arange(1, y.size + 1).reshape(y.shape) % 61 + 1
    y.backward(alpha.tensor(grad.astype(np.float32), device=on).astype(dtype))
    assert x.grad is not None
    return x.grad.astype("float64").numpy()


@pytest.mark.parametrize("slope", [None, 0.25])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_gradients_are_those_of_numpy(dtype: str, slope: float | None) -> None:
    for (shape, *case), _ in POOLS:
        x = np.random.default_rng(0).permutation(np.arange(np.prod(shape)) - 40.0).reshape(shape)
        found, expected = (gradient(x, dtype, tuple(case), slope, on) for on in (hopper(), "cpu"))
        np.testing.assert_array_equal(found, expected, err_msg=str((shape, *case)))


def test_cells_are_counted_where_windows_are_apart() -> None:
    """Together the cells hold every pixel, and a window never has more pixels than its cell."""
    for (shape, *case), apart in POOLS:
        s = pool_shape(shape, tuple(case))
        assert (s.cells is not None) == apart, s
        if s.cells is not None:
            assert s.cells * s.sh * s.sw >= s.N * s.IH * s.IW
            assert s.cells >= s.N * s.OH * s.OW
            assert s.FH * s.FW <= s.sh * s.sw <= LARGEST_CELL


def pool_shape(shape: tuple[int, ...], case: tuple[Any, ...]) -> PoolShape:
    size, stride, padding, ceil_mode = case
    x = Tensor(np.zeros(shape, np.float32), requires_grad=True)
    node = F.max_pool2d(x, size, stride, padding, ceil_mode=ceil_mode)._node
    while not hasattr(node, "s"):
        node = node.edges[0]  # type: ignore[union-attr]
    s: PoolShape = node.s
    return s
