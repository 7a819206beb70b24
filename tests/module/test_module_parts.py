"""Parts of a module: registered under new names, found by dotted names, replaced as in PyTorch."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from module_trees import Net

import alpha
from alpha import Tensor, nn


def test_parts_are_registered_under_new_names() -> None:
    net, values, layer = nn.Module(), alpha.tensor([1.0, 2.0]), nn.Linear(1, 1)
    net.register_buffer("mean", values)
    net.register_buffer("mask", values, persistent=False)
    net.register_buffer("later", None)
    net.register_parameter("scale", nn.Parameter([3.0]))
    net.register_parameter("offset", None)
    net.add_module("body", layer)
    net.register_module("head", None)
    assert isinstance(net.mean, nn.Buffer)
    assert net.mean.array is values.array
    assert [net.later, net.offset, net.head, net.body] == [None, None, None, layer]
    assert list(net.state_dict()) == ["mean", "scale", "body.weight", "body.bias"]
    assert [name for name, _ in net.named_buffers()] == ["mean", "mask"]
    net.register_buffer("later", values)
    net.add_module("body", nn.ReLU())
    assert list(net.state_dict()) == ["mean", "later", "scale"]


@pytest.mark.parametrize(("way", "own"), [("buffer", "count"), ("parameter", "scale"), ("module", "body")])
def test_parts_that_cannot_be_registered(way: str, own: str) -> None:
    net = Net()
    register = getattr(net, f"register_{way}")
    value = {"buffer": alpha.ones(1), "parameter": nn.Parameter([1.0]), "module": nn.ReLU()}[way]
    names = {"": "is empty", "a.b": "has a dot", "forward": "is another", "note": "is another"}
    names |= dict.fromkeys({"scale", "count", "body"} - {own}, "is another attribute")
    for name, why in names.items():
        with pytest.raises(KeyError, match=why):
            register(name, value)
    with pytest.raises(TypeError, match=r"the name 3 of a .* is not a string"):
        register(3, value)
    for other in (np.ones(1), nn.Parameter([1.0]) if way == "buffer" else nn.Buffer([1.0])):
        with pytest.raises(TypeError, match=r"Net\.new: a .* is not a (Tensor|Parameter|Module)"):
            register("new", other)
    register(own, value)


def test_parts_by_dotted_name() -> None:
    net = Net()
    assert net.get_submodule("") is net
    assert net.get_submodule("heads.1") is net.heads[1]
    assert net.get_parameter("body.0.weight") is net.body[0].weight
    assert net.get_buffer("count") is net.count
    for get, name in (
        (net.get_submodule, "body.7"),
        (net.get_submodule, "scale"),
        (net.get_parameter, "count"),
        (net.get_buffer, "body.0.weight"),
        (net.get_buffer, "x.y"),
    ):
        with pytest.raises(AttributeError, match=r"has no (Module|Parameter|Buffer) of the name"):
            get(name)


def kinds() -> nn.Module:
    net = nn.Module()
    net.weight, net.state, net.body = nn.Parameter([1.0]), nn.Buffer([1.0]), nn.ReLU()
    return net


@pytest.mark.parametrize("name", ["weight", "state", "body"])
@pytest.mark.parametrize(
    "value", [alpha.tensor([2.0]), nn.Parameter([2.0]), nn.Buffer([2.0]), nn.Tanh(), None, 2.0, np.ones(1), [2.0]]
)
def test_a_part_of_a_model_is_replaced_as_in_pytorch(name: str, value: Any) -> None:
    torch = pytest.importorskip("torch")
    net, twin = kinds(), torch.nn.Module()
    twin.weight = torch.nn.Parameter(torch.ones(1))
    twin.register_buffer("state", torch.ones(1))
    twin.body = torch.nn.ReLU()
    same: dict[type, Any] = {
        Tensor: torch.ones(1),
        nn.Parameter: torch.nn.Parameter(torch.ones(1)),
        nn.Buffer: torch.nn.Buffer(torch.ones(1)),
        nn.Tanh: torch.nn.Tanh(),
    }
    try:
        setattr(twin, name, same.get(type(value), value))
    except TypeError:
        with pytest.raises(TypeError, match=rf"Module.{name} is a .* cannot take its place; assign"):
            setattr(net, name, value)
        assert getattr(net, name) is not value
    else:
        setattr(net, name, value)
        assert getattr(net, name) is value or type(value) is Tensor
    assert set(net.state_dict()) == set(twin.state_dict())
    assert [n for n, _ in net.named_parameters()] == [n for n, _ in twin.named_parameters()]


def test_a_tensor_that_becomes_a_buffer_keeps_its_memory_and_graph() -> None:
    net = kinds()
    x = alpha.tensor([3.0], requires_grad=True)
    y = x * 2.0
    net.state = y
    assert isinstance(net.state, nn.Buffer)
    assert net.state.array is y.array
    (net.state * 5.0).sum().backward()
    assert x.grad is not None
    assert x.grad.item() == 10.0


def test_a_new_name_takes_anything() -> None:
    net = kinds()
    net.note = alpha.tensor([1.0])
    net.note = 3
    net.weight = None
    net.weight = nn.Parameter([4.0])
    assert list(net.state_dict()) == ["state", "weight"] or list(net.state_dict()) == ["weight", "state"]


def test_parts_under_pytorchs_private_names() -> None:
    net = Net()
    assert list(net._modules) == ["body", "heads"]
    assert list(net._parameters) == ["scale"]
    assert net._parameters.get("offset") is None
    assert [len(parts) for parts in (net._buffers, net._parameters, net.body._modules)] == [1, 1, 3]
    layer = net.body._modules["2"]
    assert layer is net.body[2]
    net.body._modules["1"] = nn.Tanh()
    assert [type(module).__name__ for module in net.body] == ["Linear", "Tanh", "Linear"]
    del net._buffers["count"]
    assert not hasattr(net, "count")
    net._parameters["offset"] = nn.Parameter([1.0])
    assert [name for name, _ in net.named_parameters(recurse=False)] == ["scale", "offset"]
    for name in ("body", "note"):
        with pytest.raises(KeyError, match=name):
            del net._parameters[name]
    with pytest.raises(TypeError, match="scale"):
        net._parameters["scale"] = 3


SWITCHES = ("bias", "affine", "elementwise_affine")
SWITCHED = [
    kind
    for name, kind in sorted(vars(nn).items())
    if inspect.isclass(kind) and issubclass(kind, nn.Module) and {*SWITCHES} & {*inspect.signature(kind).parameters}
]


@pytest.mark.parametrize("kind", SWITCHED, ids=lambda kind: kind.__name__)
def test_a_layer_without_a_parameter_takes_no_tensor_in_its_place(kind: type[nn.Module]) -> None:
    """Training would leave it as it is."""
    known = inspect.signature(kind).parameters
    needed = [4 for part in known.values() if part.default is part.empty and part.kind is part.POSITIONAL_OR_KEYWORD]
    full, bare = kind(*needed), kind(*needed, **dict.fromkeys({*SWITCHES} & {*known}, False))
    names = {name for name, value in vars(full).items() if isinstance(value, nn.Parameter)}
    for name in names:
        if vars(bare).get(name, ...) is None:
            with pytest.raises(TypeError, match=rf"\.{name} is None in the place of a Parameter"):
                setattr(bare, name, alpha.zeros(4))
            assert getattr(bare, name) is None
            setattr(bare, name, nn.Parameter(alpha.zeros(4)))
    assert [name for name, _ in full.named_parameters(recurse=False) if vars(bare).get(name) is not None] == [
        name for name, _ in bare.named_parameters(recurse=False)
    ]


def test_none_in_the_place_of_a_parameter() -> None:
    net = nn.Module()
    net.register_parameter("first", None)
    net.second = nn.Parameter([1.0])
    net.second = None
    net.third = None
    for name in ("first", "second"):
        for value in (alpha.ones(1), 3.0):
            with pytest.raises(
                TypeError, match=rf"{name} is None in the place of a Parameter, which {type(value).__name__}"
            ):
                setattr(net, name, value)
        delattr(net, name)
        setattr(net, name, 3.0)  # of which nothing is known now
    net.register_buffer("fourth", None)
    del net.fourth
    net.third = net.fourth = alpha.ones(1)
    assert not list(net.parameters())
    assert not list(net.buffers())
