"""Models and optimizers copied and pickled together: the copy trains as the original would, and apart from it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn

WAYS: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
}


def trained(device: str) -> tuple[nn.Module, alpha.optim.Optimizer, Any]:
    alpha.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).to(device)
    optimizer = alpha.optim.Adam(model.parameters(), lr=0.1)
    parts = model, optimizer, alpha.optim.StepLR(optimizer, 2)
    steps(*parts)
    return parts


def steps(model: nn.Module, optimizer: alpha.optim.Optimizer, schedule: Any, count: int = 3) -> None:
    x = alpha.tensor(np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3), device=model.device)
    for _ in range(count):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
        schedule.step()


def weights(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: np.array(value) for name, value in model.state_dict().numpy().items()}


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_trains_as_the_original_would_and_apart_from_it(device: str, way: str) -> None:
    parts = trained(device)
    before = weights(parts[0])
    other = WAYS[way](parts)
    steps(*other)
    for name, value in weights(parts[0]).items():
        np.testing.assert_array_equal(value, before[name])
    steps(*parts)
    assert other[1].param_groups[0]["lr"] == parts[1].param_groups[0]["lr"]
    for name, value in weights(parts[0]).items():
        np.testing.assert_array_equal(weights(other[0])[name], value)


@pytest.mark.parametrize("way", WAYS)
def test_a_tensor_and_its_device(device: str, way: str) -> None:
    x = alpha.tensor([[1.0, 2.0], [3.0, 4.0]], device=device, requires_grad=True)
    y = WAYS[way](x)
    assert y.device is x.device
    assert WAYS[way](x.device) is x.device
    assert y.requires_grad
    np.testing.assert_array_equal(y.numpy(), x.numpy())
    with alpha.no_grad():
        y.fill_(0)
    assert x.numpy().all()


@pytest.mark.parametrize("way", WAYS)
def test_a_part_of_an_array_and_an_empty_one(device: str, way: str) -> None:
    x = alpha.tensor(np.arange(12, dtype=np.float32).reshape(4, 3), device=device)
    np.testing.assert_array_equal(WAYS[way](x[1:3]).numpy(), x.numpy()[1:3])
    assert WAYS[way](x[2:2]).shape == (0, 3)


def test_an_optimizer_alone(device: str) -> None:
    _, optimizer, _ = trained(device)
    other = pickle.loads(pickle.dumps(optimizer))
    found, expected = other.state_dict(), optimizer.state_dict()
    assert found["param_groups"] == expected["param_groups"]
    for index, slots in expected["state"].items():
        for name, value in slots.items():
            np.testing.assert_array_equal(found["state"][index][name], value)
