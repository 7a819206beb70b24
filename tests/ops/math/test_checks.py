"""Checks of elements: finite, negative, close, among others; and the equality of two tensors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import alpha
from alpha import CaptureError, Tensor
from alpha.ops.reduction.sort import FEW

UNUSUAL = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, -np.nan, 1e-40], np.float32)
CHECKS = ("isfinite", "isinf", "isposinf", "isneginf", "signbit", "isnan")


@pytest.mark.parametrize("name", CHECKS)
def test_floating_numbers(device: str, name: str) -> None:
    for dtype in ("float32", "bfloat16", *(("float64",) if device == "cpu" else ())):
        x = alpha.tensor(UNUSUAL.astype(dtype), device=device, requires_grad=True)
        for found in (getattr(alpha, name)(x), getattr(x, name)()):
            assert found.dtype == bool
            assert not found.requires_grad
            np.testing.assert_array_equal(found.numpy(), getattr(np, name)(UNUSUAL), err_msg=dtype)


@pytest.mark.parametrize("name", CHECKS)
def test_integers(device: str, name: str) -> None:
    for values in (np.array([-3, 0, 2]), np.array([0, 255], np.uint8), np.array([True, False]), np.zeros((0, 2), int)):
        found = getattr(alpha, name)(alpha.tensor(values, device=device))
        np.testing.assert_array_equal(found.numpy(), getattr(np, name)(values.astype(np.float64)))


def test_closeness(device: str) -> None:
    numbers = np.array([0.0, 1.0, 1.00001, 1.1, -1.0, np.inf, -np.inf, np.nan], np.float32)
    a, b = np.repeat(numbers, len(numbers)), np.tile(numbers, len(numbers))
    x, y = alpha.tensor(a, device=device), alpha.tensor(b, device=device)
    for rtol, atol, equal_nan in itertools.product((0.0, 1e-5, 0.2), (0.0, 0.15), (False, True)):
        found = alpha.isclose(x, y, rtol, atol, equal_nan)
        np.testing.assert_array_equal(found.numpy(), np.isclose(a, b, rtol, atol, equal_nan), err_msg=f"{rtol} {atol}")
    column = alpha.tensor(numbers[:, None], device=device)
    np.testing.assert_array_equal(
        alpha.isclose(column, x[:8]).numpy(), np.isclose(numbers[:, None], a[:8]), err_msg="broadcast"
    )


def test_closeness_of_integers(device: str) -> None:
    x, y = alpha.tensor([2**53, 100], device=device), alpha.tensor([2**53 + 1, 101], device=device)
    np.testing.assert_array_equal(alpha.isclose(x, y).numpy(), [True, False])
    np.testing.assert_array_equal(alpha.isclose(x, y, rtol=0, atol=0).numpy(), [False, False])
    np.testing.assert_array_equal(alpha.isclose(x, y, atol=1).numpy(), [True, True])


def test_wrong_arguments_of_closeness() -> None:
    x = alpha.ones(2)
    with pytest.raises(TypeError, match=r"isclose: x has dtype float32 and other int64; use \.astype"):
        alpha.isclose(x, alpha.tensor([1, 2]))
    with pytest.raises(ValueError, match=r"isclose: rtol=-1.0 must be at least 0"):
        alpha.isclose(x, x, rtol=-1.0)
    with pytest.raises(ValueError, match=r"isclose: atol=-0.5 must be at least 0"):
        alpha.isclose(x, x, atol=-0.5)


@pytest.mark.parametrize("count", [0, 1, 3, FEW, FEW + 1, 300])
def test_membership(device: str, count: int) -> None:
    """Few test elements are each compared; many are sorted together with the others."""
    rng = np.random.default_rng(count)
    for kind, special in ((np.float32, [np.nan, np.inf, -0.0, 0.0]), (np.int64, [2**60, -(2**60)]), (np.uint8, [255])):
        elements = np.concatenate([rng.integers(0, 9, 44), special]).astype(kind).reshape(-1, 1)
        tests = rng.choice(np.concatenate([np.arange(7) * 3, special]), count).astype(kind)
        x, y = alpha.tensor(elements, device=device), alpha.tensor(tests.reshape(-1, 1), device=device)
        expected = np.isin(elements, tests)
        np.testing.assert_array_equal(alpha.isin(x, y).numpy(), expected)
        np.testing.assert_array_equal(alpha.isin(x, y, invert=True).numpy(), ~expected)
        empty = alpha.isin(alpha.zeros((0, 3), dtype=x.dtype, device=device), y)
        assert (empty.shape, empty.dtype) == ((0, 3), bool)


def test_membership_of_mixed_dtypes(device: str) -> None:
    x = alpha.tensor([1, 2, 3], device=device)
    np.testing.assert_array_equal(alpha.isin(x, alpha.tensor([2.0, 2.5], device=device)).numpy(), [False, True, False])
    np.testing.assert_array_equal(alpha.isin(alpha.tensor(2, device=device), x).numpy(), True)


def test_equality(device: str) -> None:
    x = alpha.tensor([[1.0, 2.0]], device=device)
    for other, equal in (
        ([[1.0, 2.0]], True),
        ([[1, 2]], True),
        ([[1.0, 2.5]], False),
        ([1.0, 2.0], False),
        ([[1.0, np.nan]], False),
    ):
        for found in (alpha.equal(x, alpha.tensor(other, device=device)), x.equal(alpha.tensor(other, device=device))):
            assert found is equal, other
    assert alpha.equal(alpha.zeros((0, 2), device=device), alpha.zeros((0, 2), device=device))
    assert not alpha.equal(alpha.zeros((0, 2), device=device), alpha.zeros((2, 0), device=device))


def test_equality_is_refused_in_a_captured_step() -> None:
    def step(x: Tensor) -> Tensor:
        return x * 2 if alpha.equal(x, x) else x

    with pytest.raises(CaptureError):
        alpha.capture(step, strict=True)(alpha.ones(3, device="cuda"))


def test_counts(device: str) -> None:
    values = np.array([[0.0, -0.0, np.nan], [1.0, 0.0, 2.0]], np.float32)
    x = alpha.tensor(values, device=device)
    for dim in (None, 0, -1, (0, 1)):
        found = alpha.count_nonzero(x, dim)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found.numpy(), np.count_nonzero(values, dim), err_msg=str(dim))
    np.testing.assert_array_equal(alpha.count_nonzero(alpha.zeros((0, 3), device=device), 0).numpy(), [0, 0, 0])


def test_isnan(device: str) -> None:
    assert alpha.isnan(alpha.tensor([np.nan, 1.0, np.inf], device=device)).tolist() == [True, False, False]
    assert alpha.tensor([1, 2], device=device).isnan().tolist() == [False, False]


def test_allclose(device: str) -> None:
    x = alpha.tensor([1.0, 100.0], device=device)
    assert alpha.allclose(x, x + 1e-6) is True
    assert not alpha.allclose(x, x + 1e-3)
    assert alpha.allclose(x, x + 1e-3, atol=1e-2)
    assert alpha.allclose(x, x * 1.01, rtol=0.02)
    nan = alpha.tensor([np.nan, 1.0], device=device)
    assert not alpha.allclose(nan, nan)
    assert alpha.allclose(nan, nan, equal_nan=True)
    with pytest.raises(TypeError, match="allclose: x has dtype float32 and other float64"):
        alpha.allclose(x, x.double())
    with pytest.raises(alpha.ShapeError, match=r"allclose: the shapes do not broadcast  \(x \(2,\), other \(3,\)\)"):
        alpha.allclose(x, alpha.ones(3, device=device))
