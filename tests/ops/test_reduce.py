"""Sums and means over axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import assert_close, check_gradient, check_torch

import alpha
import alpha.nn.functional as F
from alpha import ShapeError
from alpha.ops.reduce import COLUMN_THREADS, column_block

AXES: list[Any] = [None, 0, 1, -1, (0, 1), (1, 2), (0, 2), (0, 1, 2), (0, 1, 2, 3), (1, 3), (2, 0), ()]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=str)
def test_gradients(axis: Any, keepdims: bool) -> None:
    check_gradient(lambda x: F.sum(x, axis, keepdims), (2, 3, 4, 5))
    check_gradient(lambda x: F.mean(x, axis, keepdims) * 2.0, (2, 3, 4, 5))


@pytest.mark.torch
@pytest.mark.parametrize("axis", [a for a in AXES if a is not None and a != ()], ids=str)
def test_as_in_pytorch(device: str, axis: Any) -> None:
    def twin(x):  # type: ignore[no-untyped-def]
        return x.sum(axis) + x.mean(axis)

    check_torch(lambda x: F.sum(x, axis) + F.mean(x, axis), twin, (3, 4, 5, 6), device=device)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5000), (5000, 1), (257, 33), (3, 4096), (70001,), (2, 3, 1)], ids=str)
def test_sums_of_any_length(device: str, shape: tuple[int, ...], rng: np.random.Generator) -> None:
    x = rng.standard_normal(shape).astype(np.float32)
    for axis in (*range(len(shape)), None):
        total = F.sum(alpha.tensor(x, device=device), axis).numpy()
        assert_close(total, x.sum(axis=axis, dtype=np.float64), x.size, f"axis {axis}")


def test_float64(device: str) -> None:
    x = np.arange(300.0).reshape(100, 3) + 1e-9
    np.testing.assert_allclose(alpha.tensor(x, device=device).sum(0).numpy(), x.sum(0), rtol=1e-14)


def test_empty(device: str) -> None:
    x = alpha.tensor(np.zeros((0, 3), np.float32), requires_grad=True, device=device)
    y = F.sum(x, 0)
    np.testing.assert_array_equal(y.numpy(), [0, 0, 0])
    y.backward(alpha.tensor([1.0, 1.0, 1.0], device=device))
    assert x.grad is not None
    assert x.grad.shape == (0, 3)
    assert F.sum(x, 1).shape == (0,)
    with pytest.raises(ShapeError, match=r"mean: no element to average  \(x \(0, 3\), axis 0\)"):
        F.mean(x, 0)


def test_errors(device: str) -> None:
    x = alpha.tensor(np.zeros((2, 3), np.float32), device=device)
    for axis in (2, -3, (0, 0), (0, -2)):
        with pytest.raises(ShapeError, match=r"sum: axis=.* are not distinct axes of shape \(2, 3\)"):
            F.sum(x, axis)
    with pytest.raises(TypeError, match="sum: the tensor has dtype int64"):
        F.sum(alpha.tensor([1, 2], device=device))


def test_blocks_of_a_column_sum_fit() -> None:
    """Any shape: powers of two of threads, no more than a block may have, none without work at the least."""
    sizes = (1, 2, 3, 5, 16, 17, 64, 100, 1000, 131072)
    for A in sizes:
        for R in sizes:
            for packs in sizes:
                across, lanes, slabs = column_block(A, R, packs)
                assert across * lanes * slabs <= COLUMN_THREADS
                assert slabs <= 64
                assert all(n & (n - 1) == 0 and n >= 1 for n in (across, lanes, slabs))
                assert lanes <= max(1, R)
                assert across < 2 * packs
                assert slabs < 2 * A
