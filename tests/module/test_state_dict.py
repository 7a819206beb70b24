"""State dicts of modules: they share memory, go from one model to another, and a mismatch changes nothing."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from module_trees import NAMES, Net

import alpha
from alpha import CheckpointError, Tensor, nn


def test_a_state_dict_shares_memory_with_the_module(device: str) -> None:
    """Memory may be written through the dict, as through PyTorch's: an exponential mean of weights is."""
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(device)
    shared, own, before = net.state_dict(), net.state_dict(keep_vars=True), net.state_dict().numpy()
    assert all(isinstance(value, Tensor) and not value.requires_grad for value in shared.values())
    assert own["0.weight"] is net[0].weight
    assert own["1.running_mean"] is net[1].running_mean
    for value in shared.values():
        value *= 0.5
        value += 1
    copied = copy.deepcopy(shared)
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name] * np.float32(0.5) + 1)
    shared["0.bias"].zero_()
    assert net[0].bias.tolist() == [0, 0]
    assert copied["0.bias"].tolist() != [0, 0]
    assert list(net.state_dict(prefix="net.")) == [f"net.{name}" for name in before]


def test_state_goes_from_one_model_to_another(device: str) -> None:
    source, target = Net(), Net().to(device)
    state = source.state_dict().numpy()
    target.load_state_dict(state)
    for name, value in target.named_tensors():
        assert value.device.name == device
        np.testing.assert_array_equal(value.numpy(), state[name])
    state["scale"][0] = 77  # neither side is an alias
    assert source.scale.item() == target.scale.item() == 2.0


def test_load_state_dict_lists_every_mismatch_and_changes_nothing() -> None:
    net = Net()
    before = net.state_dict().numpy()
    state: dict[str, Any] = {name: value + 1 for name, value in before.items()}
    del state["scale"], state["body.0.bias"]
    state["body.0.weight"] = np.zeros((4, 5), np.float32)
    state["heads.0.bias"] = np.array(["a", "b"])
    state["tail.weight"] = np.zeros(3)
    with pytest.raises(CheckpointError) as error:
        net.load_state_dict(state)
    assert str(error.value).splitlines() == [
        "5 mismatches between the weights and Net:",
        "  shape       body.0.weight: the weights have (4, 5), the model (4, 3)",
        "  dtype       heads.0.bias: <U1 is not a number",
        "  missing     scale (1,)",
        "  missing     body.0.bias (4,)",
        "  unexpected  tail.weight",
    ]
    for name, value in net.state_dict().numpy().items():
        np.testing.assert_array_equal(value, before[name])


def test_load_state_dict_names_what_is_no_array() -> None:
    layer = nn.Linear(2, 2)
    for state in (None, 5, [1], "x"):
        with pytest.raises(TypeError, match=r"^load_state_dict: the state is a \w+, not a dict of arrays"):
            layer.load_state_dict(state)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError) as error:
        layer.load_state_dict({"weight": [[1, 2], [3]], "bias": {"a": 1}, 5: 1})  # type: ignore[dict-item]
    assert str(error.value).splitlines() == [
        "3 mismatches between the weights and Linear:",
        "  values      weight: lists of 1 and of 2 elements are side by side; all need one length",
        "  dtype       bias: object is not a number",
        "  unexpected  5",
    ]


def test_load_state_dict_not_strict() -> None:
    net = Net()
    keys = net.load_state_dict({"scale": alpha.tensor([5.0]), "tail": np.zeros(1)}, strict=False)
    assert net.scale.item() == 5.0
    assert keys.missing_keys == NAMES[1:]
    assert keys.unexpected_keys == ["tail"]
    assert net.load_state_dict(net.state_dict()) == ([], [])
    with pytest.raises(CheckpointError, match="1 mismatch between"):
        net.load_state_dict({"scale": np.zeros(2)}, strict=False)


def test_a_buffer_that_is_not_persistent(device: str) -> None:
    net = nn.Module()
    net.mask, net.mean = nn.Buffer([1.0, 0.0], persistent=False), nn.Buffer([3.0])
    for twin in (net, copy.deepcopy(net), pickle.loads(pickle.dumps(net)), net.to(device)):
        assert list(twin.state_dict()) == ["mean"]
        assert [name for name, _ in twin.named_buffers()] == ["mask", "mean"]
        assert twin.load_state_dict({"mean": np.zeros(1)}) == ([], [])
    assert net.mask.device.name == device
    net.mask = net.mask * 2.0  # the name stays what it is
    assert list(net.state_dict()) == ["mean"]
    net.mask = nn.Buffer([1.0])
    assert list(net.state_dict()) == ["mask", "mean"]


def test_a_buffer_that_comes_later(device: str) -> None:
    """A Tensor in the place of None is a Buffer, which is saved and moved; None takes it away and keeps the place."""
    net = nn.Module()
    net.register_buffer("table", None)
    net.register_buffer("scratch", None, persistent=False)
    assert not net.state_dict()
    net.table, net.scratch = alpha.ones(2), alpha.zeros(3)
    assert list(net.state_dict()) == ["table"]
    assert sorted(name for name, _ in net.named_buffers()) == ["scratch", "table"]
    assert net.to(device).table.device.name == device
    net.table = None
    assert not net.state_dict()
    twin = copy.deepcopy(net)
    twin.table = alpha.full((2,), 3.0)
    assert list(twin.state_dict()) == ["table"]
    assert net.table is None
    net.other = None
    net.other = alpha.ones(1)  # a plain tensor is no state
    assert not net.state_dict()


def test_weights_that_are_loaded_before_the_backward_pass_are_seen(device: str) -> None:
    net = nn.Linear(2, 2).to(device)
    y = net(alpha.tensor(np.ones((1, 2), np.float32), device=device, requires_grad=True))
    net.load_state_dict(net.state_dict())
    with pytest.raises(alpha.GradientError, match="written in place by load_state_dict"):
        y.sum().backward()
