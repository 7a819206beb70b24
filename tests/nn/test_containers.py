"""Containers: Sequential, ModuleList, ModuleDict, and those of parameters."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn


def test_sequential_and_module_list() -> None:
    layers = [nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4), nn.Flatten()]
    for container in (nn.Sequential(*layers), nn.ModuleList(layers)):
        assert len(container) == 4
        assert list(container) == layers
        assert container[-1] is layers[3]
        part = container[1:3]
        assert type(part) is type(container)
        assert list(part) == layers[1:3]
        number = 2 if isinstance(container, nn.Sequential) else 1  # a Sequential keeps the names, as in PyTorch
        assert list(part.state_dict()) == [f"{number}.weight", f"{number}.bias"]
        container[1] = nn.Tanh()
        container.append(nn.ReLU()).extend([nn.ReLU()])
        assert [type(m).__name__ for m in container] == ["Linear", "Tanh", "Linear", "Flatten", "ReLU", "ReLU"]
        with pytest.raises(IndexError):
            container[6]
        with pytest.raises(TypeError, match="holds modules, not function"):
            container.append(lambda x: x)
    with pytest.raises(TypeError, match="Sequential holds modules, not Tensor"):
        nn.Sequential(alpha.tensor(1.0))  # type: ignore[arg-type]


def test_sequential_with_names() -> None:
    first, second = nn.Linear(2, 3), nn.ReLU()
    net = nn.Sequential(OrderedDict([("first", first), ("second", second)]))
    assert (net.first, net[1], len(net)) == (first, second, 2)
    assert list(net.state_dict()) == ["first.weight", "first.bias"]
    x = alpha.ones(1, 2)
    np.testing.assert_array_equal(net(x).numpy(), second(first(x)).numpy())
    assert [name for name, _ in net.append(nn.Tanh()).named_children()] == ["first", "second", "2"]
    assert not len(nn.Sequential({}))
    for name in ("", "a.b", "forward"):
        with pytest.raises(KeyError, match=r"Sequential: .* cannot be a name"):
            nn.Sequential({name: first})
    with pytest.raises(TypeError, match="Sequential holds modules, not int"):
        nn.Sequential({"a": 1})  # type: ignore[dict-item]
    with pytest.raises(KeyError, match="the next module would be '1', which is there under that name"):
        nn.Sequential({"1": first}).append(second)


@pytest.mark.parametrize("kind", [nn.Sequential, lambda *modules: nn.ModuleList(modules)])
def test_containers_are_lists(kind: Any) -> None:
    def names(container: Any) -> list[str]:
        return [name for name, _ in container._named_parts()]

    a, b, c = (nn.Linear(1, 1) for _ in range(3))
    both = kind(a, b).eval() + kind(c, a)
    assert list(both) == [a, b, c, a]
    assert (names(both), type(both), both.training) == (["0", "1", "2", "3"], type(kind()), False)
    one = kind(a)
    one += kind(b)
    one += one
    assert list(one) == [a, b, a, b]
    one.insert(1, c)
    one.insert(-1, c)
    one.insert(9, a)
    assert list(one) == [a, c, b, a, c, b, a]
    assert names(one) == list("0123456")
    del one[0], one[-1]
    assert list(one) == [c, b, a, c, b]
    del one[1:4:2]
    assert list(one) == [c, a, b]
    assert (one.pop(1), list(one), names(one)) == (a, [c, b], ["0", "1"])
    with pytest.raises(IndexError):
        del one[2]
    with pytest.raises(TypeError, match="holds modules, not int"):
        one.insert(0, 1)
    with pytest.raises(TypeError, match="unsupported operand"):
        one + 1
    with pytest.raises(TypeError, match="unsupported operand"):
        one += 1
    assert list(one) == [c, b]


def test_module_dict() -> None:
    first, second = nn.Linear(2, 3), nn.ReLU()
    container = nn.ModuleDict({"first": first})
    container["second"] = second
    assert (list(container), len(container), container["first"], "third" in container) == (
        ["first", "second"],
        2,
        first,
        False,
    )
    assert list(container.items()) == [("first", first), ("second", second)]
    assert (list(container.keys()), list(container.values())) == (["first", "second"], [first, second])
    assert list(container.state_dict()) == ["first.weight", "first.bias"]
    assert container.pop("second") is second
    del container["first"]
    assert not len(container)
    with pytest.raises(KeyError):
        container["first"]
    with pytest.raises(TypeError, match="ModuleDict holds modules, not function"):
        nn.ModuleDict([("a", lambda x: x)])  # type: ignore[list-item]
    for name in ("", "a.b", "items", "training"):
        with pytest.raises(KeyError, match="cannot be a name"):
            container[name] = second


def test_containers_of_parameters() -> None:
    first, second = nn.Parameter([1.0]), alpha.tensor([2.0, 3.0])
    listed = nn.ParameterList([first, second])
    assert (len(listed), listed[0], [p.shape for p in listed]) == (2, first, [(1,), (2,)])
    assert isinstance(listed[-1], nn.Parameter)
    listed[1] = nn.Parameter([4.0])
    assert list(listed.append(first).state_dict()) == ["0", "1", "2"]
    assert (len(listed[1:]), repr(listed)) == (2, "ParameterList(0: (1,), 1: (1,), 2: (1,))")
    named = nn.ParameterDict({"a": first})
    named["b"] = second
    assert (list(named), list(named.keys()), len(named), "c" in named) == (["a", "b"], ["a", "b"], 2, False)
    assert [name for name, _ in named.items()] == list(named.state_dict()) == ["a", "b"]
    assert named.pop("a") is first
    del named["b"]
    assert not list(named.values())
    with pytest.raises(TypeError, match="ParameterList holds parameters, not float"):
        listed.append(1.0)  # type: ignore[arg-type]
    with pytest.raises(KeyError, match="ParameterDict: 'items' cannot be a name"):
        named["items"] = first
