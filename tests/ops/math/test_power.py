"""Powers: exponents that are numbers and tensors, their gradients, and the edges that PyTorch defines."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import check_gradient, positive

import alpha
from alpha import Tensor

EDGES = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, np.inf, -np.inf, np.nan], np.float32)
EXPONENTS = [0, 1, 2, 3, 4, 0.5, -0.5, -1, -2, -3, 1.5, np.inf, -np.inf, np.nan]
SHAPES = [((2, 3), (2, 3)), ((4, 3), (3,)), ((3,), (4, 3)), ((2, 3), ()), ((), (2, 3)), ((3, 1), (1, 4)), ((2,), (1,))]


def agree(function: Callable[..., Any], *values: np.ndarray, device: str) -> None:
    """Values and gradients are PyTorch's, infinities and NaN included."""
    torch = pytest.importorskip("torch")
    xs = [alpha.tensor(v, requires_grad=True, device=device) for v in values]
    twins = [torch.tensor(v, requires_grad=True) for v in values]
    y, expected = function(*xs), function(*twins)
    np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), rtol=1e-6)
    y.backward(alpha.tensor(np.ones(y.shape, np.float32), device=device))
    expected.backward(torch.ones(expected.shape))
    for x, twin in zip(xs, twins, strict=True):
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), twin.grad.numpy(), rtol=1e-6)


@pytest.mark.torch
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_a_number_as_exponent(device: str, exponent: float) -> None:
    agree(lambda x: x**exponent, EDGES, device=device)


@pytest.mark.torch
@pytest.mark.parametrize("base", [2, 1, 0, 0.5, -1.5, np.inf])
def test_a_number_as_base(device: str, base: float) -> None:
    agree(lambda x: base**x, EDGES, device=device)


@pytest.mark.torch
def test_every_pair_of_edges(device: str) -> None:
    pairs = np.array(list(itertools.product(EDGES, EDGES)), np.float32)
    agree(lambda a, b: a**b, pairs[:, 0], pairs[:, 1], device=device)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["sqrt", "exp", "log"])
def test_edges_of_functions(device: str, name: str) -> None:
    agree(lambda x: getattr(x, name)(), EDGES, device=device)


@pytest.mark.torch
@pytest.mark.parametrize("number", [0, -0.0, 3, np.inf, np.nan])
def test_division_at_the_edges(device: str, number: float) -> None:
    agree(lambda x: x / number, EDGES, device=device)
    agree(lambda x: x * number, EDGES, device=device)
    agree(lambda x: x - number, EDGES, device=device)
    pairs = np.array(list(itertools.product(EDGES, EDGES)), np.float32)
    agree(lambda a, b: a / b, pairs[:, 0], pairs[:, 1], device=device)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_gradients(shapes: tuple[tuple[int, ...], ...]) -> None:
    check_gradient(lambda a, b: a**b, *(positive(*shape) for shape in shapes))


def test_the_only_element_of_an_exponent_gets_its_gradient(device: str) -> None:
    x = alpha.tensor([2.0, 3.0], device=device)
    e = alpha.tensor([2.0], requires_grad=True, device=device)
    (x**e).sum().backward()
    assert e.grad is not None
    np.testing.assert_allclose(e.grad.numpy(), [4 * np.log(2) + 9 * np.log(3)], rtol=1e-6)


def test_exponents_of_every_kind(device: str) -> None:
    x = alpha.tensor([1.0, 2.0], device=device)
    for exponent in (3, 3.0, np.float64(3), np.int32(3), np.float32(3), np.array([3, 3]), [3, 3], np.array(3)):
        np.testing.assert_array_equal((x**exponent).numpy(), [1, 8])
        np.testing.assert_array_equal(x.pow(exponent).numpy(), [1, 8])
    for base in (2, np.float32(2), np.int64(2), np.array([2, 2])):
        y = base**x
        assert isinstance(y, Tensor)
        np.testing.assert_array_equal(y.numpy(), [2, 4])
    for wrong in ("2", None, 1j):
        with pytest.raises(TypeError, match="unsupported operand"):
            x**wrong
        with pytest.raises(TypeError, match=f"pow: {type(wrong).__name__} is no exponent"):
            x.pow(wrong)


def test_true_division_bit_for_bit(device: str, rng: np.random.Generator) -> None:
    """The bits are numpy's: a product with a rounded reciprocal would have others."""
    values = rng.standard_normal(2000).astype(np.float32)
    x = alpha.tensor(values, device=device)
    for n in (3, 7, 10, 49, 0.1, 1e-30):
        np.testing.assert_array_equal((x / n).numpy(), values / np.float32(n))
        np.testing.assert_array_equal((n / x).numpy(), np.float32(n) / values)
        np.testing.assert_array_equal((x * 1.0).div_(n).numpy(), values / np.float32(n))


def test_the_sign_of_zero_survives(device: str) -> None:
    x = alpha.tensor([-0.0], device=device)
    for y in (x * 2.0, x / 2.0, x + -0.0, 0.0 - -x, x**1, x.sqrt()):
        assert np.signbit(y.numpy()).all(), y


def test_two_dtypes_meet_or_are_refused_by_the_name_of_the_operator(device: str) -> None:
    x, e = alpha.tensor(np.ones(2), device=device), alpha.tensor(np.ones(2, np.float32), device=device)
    if device == "cpu":
        assert (x**e).dtype == np.float64
        return
    with pytest.raises(TypeError, match=r"^pow: dtypes float64 and float32 differ"):
        x**e


@pytest.mark.parametrize("turned", [False, True])
def test_a_number_of_float64_beside_an_array_of_float32(device: str, turned: bool) -> None:
    """A tensor without axes takes the dtype of the other, in all five operators and in place."""
    x = alpha.tensor([1.0, 2.0, 4.0], device=device)
    number = alpha.tensor(2.0, dtype="float64", device=device, requires_grad=True)
    for operate in (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow):
        pair = (number, x) if turned else (x, number)
        y = operate(*pair)
        assert y.dtype.name == "float32"
        np.testing.assert_allclose(y.numpy(), operate(*(p.numpy() for p in pair)), rtol=1e-6)
    (x * number).sum().backward()
    assert (number.grad.dtype.name, number.grad.item()) == ("float64", 7.0)
    x += number.detach()
    assert x.dtype.name == "float32"
    if device == "cuda":  # on cpu they meet in float64
        with pytest.raises(TypeError, match="dtypes float32 and float64 differ"):
            x * alpha.ones(3, dtype="float64", device=device)
    half = alpha.ones(3, dtype="bfloat16", device=device)
    assert (half * alpha.tensor(1 / 3, device=device)).numpy()[0] == np.float32(1 / 3).astype(half.dtype)


def test_a_number_to_the_power_of_a_tensor(device: str) -> None:
    x = alpha.tensor([0.0, 1.0, 3.0], device=device, requires_grad=True)
    alpha.pow(2, x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.log(2.0) * np.array([1, 2, 8]), rtol=1e-5)  # type: ignore[union-attr]
    assert alpha.pow(2, alpha.tensor([1, 3], device=device)).tolist() == [2, 8]
    with pytest.raises(TypeError, match="pow: x is a int, a Tensor is needed"):
        alpha.pow(2, 3)  # type: ignore[arg-type]
