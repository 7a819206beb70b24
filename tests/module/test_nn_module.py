"""Module: the tree and the names in it, modes, copies, text."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from module_trees import NAMES, Net

import alpha
from alpha import nn


def test_names_come_in_order_of_assignment() -> None:
    net = Net()
    assert list(net.state_dict()) == NAMES
    assert [name for name, _ in net.named_parameters()] == [n for n in NAMES if n != "count"]
    assert [name for name, _ in net.named_buffers()] == ["count"]
    assert [name for name, _ in net.named_children()] == ["body", "heads"]
    assert list(net.children()) == [net.body, net.heads]
    assert len(list(net.modules())) == 8
    assert [name for name, _ in net.named_modules()][:3] == ["", "body", "body.0"]


def test_a_shared_module_counts_once() -> None:
    layer = nn.Linear(2, 2)
    net = nn.Sequential(layer, nn.ReLU(), layer)
    assert [name for name, _ in net.named_parameters()] == ["0.weight", "0.bias"]
    assert len(list(net.modules())) == 3
    assert [name for name, _ in net.named_modules(remove_duplicate=False)] == ["", "0", "1", "2"]
    x = alpha.tensor(np.ones((1, 2), np.float32))
    expected = layer(nn.functional.relu(layer(x)))
    np.testing.assert_array_equal(net(x).numpy(), expected.numpy())


def test_names_with_a_prefix_and_of_one_module_only() -> None:
    net = Net()
    net.tied = net.body[0].weight
    names = [name for name, _ in net.named_parameters("net")]
    assert names == [f"net.{name}" for name, _ in net.named_parameters()]
    for of, one, many in (
        (net.named_parameters, net.parameters, ["scale", "tied"]),
        (net.named_buffers, net.buffers, ["count"]),
        (net.named_tensors, None, ["scale", "count", "tied"]),
    ):
        assert [name for name, _ in of("a.b", False)] == [f"a.b.{name}" for name in many]
        if one is not None:
            assert [id(value) for value in one(recurse=False)] == [id(getattr(net, name)) for name in many]
    assert "tied" in dict(net.named_parameters(recurse=False))
    assert "body.0.weight" not in dict(net.named_parameters())
    assert "body.0.weight" in dict(net.named_parameters(remove_duplicate=False))
    net.twin = net.count
    assert [name for name, _ in net.named_buffers()] == ["count"]
    assert [name for name, _ in net.named_buffers(remove_duplicate=False)] == ["count", "twin"]


def test_parameters_take_what_tensor_takes() -> None:
    for values in ([1.0, 2.0], np.array([1, 2], np.float32), alpha.tensor([1.0, 2.0])):
        parameter = nn.Parameter(values)
        np.testing.assert_array_equal(parameter.numpy(), [1, 2])
        assert parameter.requires_grad
    assert not nn.Parameter([1.0], requires_grad=False).requires_grad
    with pytest.raises(TypeError, match="only floating tensors have gradients"):
        nn.Parameter([1, 2])


def test_train_eval_and_freezing() -> None:
    net = Net()
    assert net.eval() is net
    assert not any(module.training for module in net.modules())
    net.train()
    assert all(module.training for module in net.modules())
    net.body.requires_grad_(False)
    net(alpha.tensor(np.ones((1, 3), np.float32))).sum().backward()
    assert [n for n, p in net.named_parameters() if p.grad is not None] == [
        n for n in NAMES if n != "count" and not n.startswith("body")
    ]
    net.zero_grad()
    assert all(parameter.grad is None for parameter in net.parameters())


def test_deepcopy_is_independent(device: str) -> None:
    net = Net().to(device)
    x = alpha.tensor(np.ones((2, 3), np.float32), device=device)
    expected = net(x).numpy()
    twin = copy.deepcopy(net)
    with alpha.no_grad():
        for parameter in net.parameters():
            parameter.mul_(0.0)
    np.testing.assert_array_equal(twin(x).numpy(), expected)
    assert list(twin.state_dict()) == NAMES
    shared = nn.Sequential(net.body, net.body)
    copied = copy.deepcopy(shared)
    assert copied[0] is copied[1]


def test_zero_grad_with_zeros(device: str) -> None:
    net = nn.Linear(2, 3).to(device)
    net(alpha.ones(1, 2, device=device)).sum().backward()
    net.bias.grad = None
    net.zero_grad(set_to_none=False)
    assert net.bias.grad is None
    assert net.weight.grad is not None
    np.testing.assert_array_equal(net.weight.grad.numpy(), np.zeros((3, 2)))
    net.zero_grad()
    assert net.weight.grad is None


def test_train_asks_each_child() -> None:
    class Frozen(nn.BatchNorm2d):
        def train(self, mode: bool = True) -> Frozen:
            return super().train(False)

    net = nn.Sequential(nn.Sequential(Frozen(3), nn.ReLU()), nn.BatchNorm2d(3)).train()
    assert [module.training for module in net.modules()] == [True, True, False, True, True]
    assert not any(module.training for module in net.eval().modules())


def test_apply_begins_with_the_children() -> None:
    order: list[str] = []
    net = nn.Sequential(nn.Sequential(nn.Linear(1, 1)), nn.ReLU())
    net.apply(lambda module: order.append(type(module).__name__))
    assert order == ["Linear", "Sequential", "ReLU", "Sequential"]


def test_apply_returns_the_module() -> None:
    def zero(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            module.weight.array[...] = 0

    net = Net().apply(zero)
    assert not net.body[0].weight.numpy().any()


def test_repr_shows_the_tree() -> None:
    assert repr(nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.2, inplace=True))) == (
        "Sequential(\n  (0): Linear(3, 4, bias=True)\n  (1): LeakyReLU(negative_slope=0.2, inplace=True)\n)"
    )


def test_a_module_without_forward() -> None:
    with pytest.raises(TypeError, match="Blank defines no forward"):
        type("Blank", (nn.Module,), {})()(1)
