"""Arithmetic of tensors: gradients, broadcasting, numbers, in-place forms, errors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from helpers import check_gradient, check_torch, positive

import alpha
import alpha.nn.functional as F
from alpha import GradientError, ShapeError, Tensor

BROADCASTS = [
    ((2, 3), (2, 3)),
    ((4, 3), (3,)),
    ((3,), (4, 3)),
    ((2, 1, 3), (5, 1)),
    ((2, 3), ()),
    ((), (2, 3)),
    ((1,), (1, 1)),
    ((2, 3, 4), (3, 1)),
    ((3, 1), (1, 4)),
    ((2, 3, 4), (1, 3, 4)),
    ((1, 5), (4, 1)),
]
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
}
UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "number on the right": lambda x: (x + 2.0) * 3.0 - 1.5,
    "number on the left": lambda x: 1.0 - 2.0 * x,
    "division by a number": lambda x: x / 4.0,
    "division of a number": lambda x: 3.0 / x,
    "negative": lambda x: -x,
    "square": lambda x: x**2,
    "power": lambda x: x**-1.5,
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "sqrt": lambda x: x.sqrt(),
    "itself twice": lambda x: x * x + x,
    "array on the left": lambda x: np.full(x.shape, 2.0) - x,
}
IN_PLACE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add_": lambda a, b: (a * 1.0).add_(b),
    "add_ a number": lambda a, b: (a * b).add_(2.0),
    "mul_ a number": lambda a, b: (a * b).mul_(-3.0),
    "mul_ a constant": lambda a, b: (a + b).mul_(b.detach()[:1].reshape(3) * 0.0 + 2.0),
    "chain": lambda a, b: (a * 2.0).add_(b).mul_(0.5).add_(a),
}


@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_binary_gradients(name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    check_gradient(BINARY[name], *(positive(*shape) for shape in shapes))


@pytest.mark.parametrize("name", UNARY)
def test_unary_gradients(name: str) -> None:
    check_gradient(UNARY[name], positive(3, 4))


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_gradients(name: str) -> None:
    check_gradient(IN_PLACE[name], (4, 3), (4, 3))


@pytest.mark.torch
@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
def test_broadcasting_as_in_pytorch(device: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    def function(a, b):  # type: ignore[no-untyped-def]
        return (a + b) * a - b / (a * a + 1.0)

    check_torch(function, function, *shapes, device=device)


@pytest.mark.torch
@pytest.mark.parametrize("name", [name for name in UNARY if name != "array on the left"])
def test_unary_as_in_pytorch(device: str, name: str) -> None:
    check_torch(UNARY[name], UNARY[name], positive(5, 3), device=device)


def test_in_place_writes_the_same_memory(device: str) -> None:
    x = alpha.tensor([1.0, 2.0], device=device)
    y = x
    y += 1.0
    y *= alpha.tensor([2.0, 3.0], device=device)
    y.add_(alpha.tensor(0.5, device=device))
    assert y is x
    np.testing.assert_array_equal(x.numpy(), [4.5, 9.5])


def test_in_place_with_a_part_of_itself(device: str) -> None:
    """The rows are added as they were, though the first of them is written meanwhile."""
    values = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    x = alpha.tensor(values, device=device)
    x.add_(x[0] + 0.0)
    np.testing.assert_array_equal(x.numpy(), values + values[0])
    x = alpha.tensor(values + 1, device=device)
    x.mul_(x[1])
    np.testing.assert_array_equal(x.numpy(), (values + 1) * (values + 1)[1])


def test_empty(device: str) -> None:
    x = alpha.tensor(np.zeros((0, 3), np.float32), requires_grad=True, device=device)
    b = alpha.tensor(np.ones(3, np.float32), requires_grad=True, device=device)
    y = (x * 2.0 + b) / b
    assert y.shape == (0, 3)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == (0, 3)
    assert b.grad is not None
    np.testing.assert_array_equal(b.grad.numpy(), [0, 0, 0])


def test_rows_off_every_alignment(device: str) -> None:
    """Views that begin anywhere: no vector load may be assumed."""
    values = np.arange(35, dtype=np.float32).reshape(7, 5)
    x = alpha.tensor(values, device=device)
    np.testing.assert_array_equal((x[1:6] * 2.0 + x[2:7]).numpy(), values[1:6] * 2 + values[2:7])
    np.testing.assert_array_equal((x[3] + x[4]).numpy(), values[3] + values[4])
    np.testing.assert_array_equal(x[1:5].sum(0).numpy(), values[1:5].sum(0))
    np.testing.assert_array_equal((x[2:4] @ F.transpose(x[1:3], 0, 1)).numpy(), values[2:4] @ values[1:3].T)


def test_errors(device: str) -> None:
    a, b = (alpha.tensor(np.ones(s, np.float32), device=device) for s in ((2, 3), (4,)))
    with pytest.raises(ShapeError, match=r"add: shapes \(2, 3\) and \(4,\) do not broadcast"):
        a + b
    with pytest.raises(ShapeError, match=r"add_: \(2, 3\) does not fit into \(3,\)"):
        alpha.tensor(np.ones(3, np.float32), device=device).add_(a)
    with pytest.raises(TypeError, match="dtypes float32 and float64 differ"):
        a * alpha.tensor(np.ones(3), device=device)
    with pytest.raises(TypeError, match="add: the tensor has dtype int32"):
        alpha.tensor(np.ones(3, np.int32), device=device) + 1.0
    leaf = alpha.tensor([1.0], requires_grad=True, device=device)
    with pytest.raises(GradientError, match="leaf"):
        leaf.add_(1.0)
    with pytest.raises(TypeError, match="mul_: the operand requires a gradient"):
        (leaf * 1.0).mul_(leaf)
