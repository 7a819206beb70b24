"""Scalars, empty tensors and single elements: values, shapes and gradients of every operator are PyTorch's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows.activations import ACTIVATIONS
from rows.kinds import ActivationRow

import alpha

SHAPES = [(), (0,), (0, 3), (1,), (1, 1), (2, 3)]
UNARY: dict[str, Callable[[Any], Any]] = {
    "-x": lambda x: -x,
    "x + 2": lambda x: x + 2,
    "2 - x": lambda x: 2 - x,
    "x * 3": lambda x: x * 3,
    "x / 3": lambda x: x / 3,
    "x / 0": lambda x: x / 0,
    "3 / x": lambda x: 3 / x,
    **{f"x ** {e}": lambda x, e=e: x**e for e in (0, 1, 2, 3, 0.5, -0.5, -1, -2, 1.5, -3)},
    "2 ** x": lambda x: 2**x,
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "sqrt": lambda x: x.sqrt(),
    "sum": lambda x: x.sum(),
    "sum 0": lambda x: x.sum(0),
    "sum -1, keepdim": lambda x: x.sum(dim=-1, keepdim=True),
    "sum ()": lambda x: x.sum(()),
    "sum (), keepdim": lambda x: x.sum((), True),
    "mean": lambda x: x.mean(),
    "mean 0": lambda x: x.mean(0),
    "mean -1, keepdim": lambda x: x.mean(dim=-1, keepdim=True),
    "mean ()": lambda x: x.mean(()),
    "flatten": lambda x: x.flatten(),
    "flatten -1": lambda x: x.flatten(-1),
    "reshape": lambda x: x.reshape(-1),
    "transpose": lambda x: x.transpose(0, -1),
    "itself": lambda x: x * x + x / x - x**x,
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "**": lambda a, b: a**b,
    "add alpha": lambda a, b: a.add(b, alpha=0.5),
    "sub alpha": lambda a, b: a.sub(b, alpha=-2),
}
RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def fits(*shapes: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


PAIRS = [pair for pair in itertools.product([*SHAPES, (3,), (2, 1)], repeat=2) if fits(*pair)]


def check(ours: Callable[..., Any], theirs: Callable[..., Any], shapes: Any, device: str) -> None:
    """Value and gradients against PyTorch, in float32."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    values = [np.asarray(rng.uniform(0.5, 2.0, shape), np.float32) for shape in shapes]
    xs = [alpha.tensor(v, requires_grad=True, device=device) for v in values]
    twins = [torch.tensor(v, requires_grad=True) for v in values]
    y, expected = ours(*xs), theirs(*twins)
    assert y.shape == tuple(expected.shape)
    np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    g = np.asarray(rng.standard_normal(y.shape), np.float32)
    y.backward(alpha.tensor(g, device=device))
    expected.backward(torch.tensor(g))
    for x, twin in zip(xs, twins, strict=True):
        assert x.grad is not None
        assert x.grad.shape == x.shape
        np.testing.assert_allclose(x.grad.numpy(), twin.grad.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.torch
@pytest.mark.parametrize("name", UNARY)
def test_unary(device: str, name: str) -> None:
    for shape in SHAPES:
        check(UNARY[name], UNARY[name], [shape], device)


@pytest.mark.torch
@pytest.mark.parametrize("row", [row for row in ACTIVATIONS if not row.own], ids=lambda row: row.name)
def test_activations(device: str, row: ActivationRow) -> None:
    torch = pytest.importorskip("torch")
    for shape in SHAPES:
        check(row.function, getattr(torch.nn.functional, row.name), [shape], device)


@pytest.mark.torch
@pytest.mark.parametrize("name", BINARY)
def test_binary(device: str, name: str) -> None:
    for pair in PAIRS:
        check(BINARY[name], BINARY[name], pair, device)


@pytest.mark.torch
@pytest.mark.parametrize("name", RELATIONS)
def test_comparisons(device: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    for shapes in PAIRS:
        values = [np.random.default_rng(1).integers(0, 3, shape).astype(np.float32) for shape in shapes]
        found = RELATIONS[name](*(alpha.tensor(v, device=device) for v in values))
        expected = RELATIONS[name](*(torch.tensor(v) for v in values))
        assert (found.shape, found.dtype, found.device.name) == (tuple(expected.shape), np.bool_, device)
        np.testing.assert_array_equal(found.numpy(), expected.numpy())


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
def test_scalars_through_a_whole_graph(device: str, shape: tuple[int, ...]) -> None:
    """Gradients of every step have the shape of their input; a mismatch would raise."""
    x = alpha.tensor(np.full(shape, 2.0, np.float32), requires_grad=True, device=device)
    y = ((x * x).sqrt().exp().log() / x).sum().reshape(1, 1).flatten().mean()
    y.backward()
    assert x.grad is not None
    assert x.grad.shape == shape
    assert abs(x.grad.numpy().item()) < 1e-6
