"""Activations: gradients, in-place forms, extreme values, agreement with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import apart, check_gradient, check_torch

import alpha
import alpha.nn.functional as F
from alpha import Tensor
from alpha.ops.activation import activation
from alpha.primitive import REGISTRY

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "leaky_relu, steep": lambda x: F.leaky_relu(x, 1.5),
    "elu": lambda x: F.elu(x, 1.5),
    "sigmoid": F.sigmoid,
    "tanh": F.tanh,
    "softplus": F.softplus,
    "gelu": F.gelu,
}
IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: F.relu(x * 1.0, in_place=True),
    "leaky_relu": lambda x: F.leaky_relu(x * 2.0, 0.1, in_place=True),
    "elu": lambda x: F.elu(x * 1.0, in_place=True),
}


def torch_twin(name: str) -> Any:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    return {
        "relu": functional.relu,
        "leaky_relu": lambda x: functional.leaky_relu(x, 0.2),
        "leaky_relu, steep": lambda x: functional.leaky_relu(x, 1.5),
        "elu": lambda x: functional.elu(x, 1.5),
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "softplus": functional.softplus,
        "gelu": lambda x: functional.gelu(x, approximate="tanh"),
    }[name]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients(name: str) -> None:
    check_gradient(ACTIVATIONS[name], apart(5, 7))


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_gradients(name: str) -> None:
    check_gradient(IN_PLACE[name], apart(5, 7))


@pytest.mark.torch
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_as_in_pytorch(device: str, name: str) -> None:
    check_torch(ACTIVATIONS[name], torch_twin(name), apart(3, 5) * 4, device=device)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_extreme_values(device: str, name: str) -> None:
    """Large numbers neither overflow nor warn; NaN stays NaN."""
    x = np.array([-1e4, -100, -1e-30, 0, 1e-30, 100, 1e4, np.nan], np.float32)
    y = ACTIVATIONS[name](alpha.tensor(x, device=device)).numpy()
    assert np.isfinite(y[:-1]).all()
    assert np.isnan(y[-1])
    limits = {"sigmoid": (0, 1), "tanh": (-1, 1), "softplus": (0, 1e4), "relu": (0, 1e4), "gelu": (0, 1e4)}
    if name in limits:
        assert (y[0], y[6]) == limits[name]


def test_in_place_writes_the_same_memory(device: str) -> None:
    x = alpha.tensor([-1.0, 2.0], device=device)
    assert F.relu(x, in_place=True) is x
    np.testing.assert_array_equal(x.numpy(), [0, 2])


def test_empty(device: str) -> None:
    x = alpha.tensor(np.zeros((0, 4), np.float32), device=device)
    assert F.relu(x).shape == F.gelu(x).shape == (0, 4)


def test_a_new_activation_is_two_expressions(device: str) -> None:
    """As the documentation shows it: one call defines both devices."""
    name = "cube"
    cube = activation(
        name,
        ("a * a * a", lambda y, a: np.multiply(a * a, a, out=y)),
        ("a * 3 * b * b", lambda dx, a, b: np.multiply(a, 3 * b * b, out=dx)),
    )
    try:
        x = alpha.tensor([1.0, -2.0], requires_grad=True, device=device)
        cube(x).sum().backward()
        assert x.grad is not None
        np.testing.assert_array_equal(x.grad.numpy(), [3, 12])
        with pytest.raises(TypeError, match="cube: its gradient reads the input"):
            cube(x, in_place=True)
    finally:
        for way in ("forward", "backward"):
            del REGISTRY[f"{name}_{way}"]


def test_errors(device: str) -> None:
    x = alpha.tensor([1, 2], device=device)
    with pytest.raises(TypeError, match=r"relu: dtype int64; use .astype\('float32'\)"):
        F.relu(x)
    with pytest.raises(ValueError, match="negative_slope=0 is not positive"):
        F.leaky_relu(x, 0)
    with pytest.raises(ValueError, match="alpha=-1 is not positive"):
        F.elu(x, -1)
    with pytest.raises(ValueError, match="holds='Z' is neither"):
        activation("bad", ("a", np.copyto), ("a", np.copyto), holds="Z")
