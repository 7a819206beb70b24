"""Edges at which a program of PyTorch would give other results without a word, if modules did not do as PyTorch's."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.optim import SGD
from alpha.train import Trainer

X = np.ones((1, 2), np.float32)


class Counting(nn.Module):
    """A layer with a number of its own."""

    def __init__(self) -> None:
        self.layer, self.seen = nn.Linear(2, 2), 7


def with_methods(*names: str) -> Any:
    return type("Own", (Counting,), {name: lambda self, *args, **kwargs: {} for name in names})


# -- state that would be lost ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["get_extra_state", "set_extra_state", "_save_to_state_dict", "_load_from_state_dict"])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_state_of_its_own_is_not_lost_in_silence(name: str, depth: int) -> None:
    plain: nn.Module = nn.Sequential(nn.Sequential(Counting()))
    state = plain.state_dict()
    model = with_methods(name)()
    for _ in range(depth):
        model = nn.Sequential(model)
    path = ".".join(["0"] * depth) or "the module"
    for use in (model.state_dict, lambda: model.load_state_dict(state)):
        with pytest.raises(TypeError, match=f"_dict: {path}, a Own, defines {name}, which is not called"):
            use()
    with pytest.raises(TypeError, match=f"Trainer: {path}, a Own"):
        Trainer(model, SGD(model.parameters(), lr=0.1), "cpu")


def test_dicts_of_its_own() -> None:
    """Methods of a whole model are called; a part's `state_dict` is a warning, and PyTorch calls no part's loading."""
    assert with_methods("state_dict")().state_dict() == {}
    with pytest.warns(UserWarning, match="state_dict: 0, a Own, defines state_dict, which is not called"):
        state = nn.Sequential(with_methods("state_dict")()).state_dict()
    assert list(state) == ["0.layer.weight", "0.layer.bias"]
    loads = nn.Sequential(with_methods("load_state_dict")())
    assert not loads.load_state_dict(state).missing_keys


# -- gradients ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_a_model_has_no_gradients(way: Any, device: str) -> None:
    """First-order meta-learning copies a model behind a backward pass; the copy's first step is its own."""
    model = nn.Linear(2, 1).to(device)
    x = alpha.tensor(X, device=device)
    model(x).sum().backward()
    fast = way(model)
    assert model.weight.grad is not None
    assert all(parameter.grad is None for parameter in fast.parameters())
    before = fast.weight.numpy()
    (2 * fast(x)).sum().backward()
    SGD(fast.parameters(), lr=0.1).step()
    np.testing.assert_allclose(before - fast.weight.numpy(), 0.2 * X, rtol=1e-6)
    plain = alpha.tensor(X, requires_grad=True)
    plain.sum().backward()
    assert copy.deepcopy(plain).grad is not None  # that of a leaf that is no Parameter stays, as in PyTorch


@pytest.mark.parametrize("of_model", [False, True])
def test_gradients_are_filled_with_zeros_in_place(of_model: bool, device: str) -> None:
    model = nn.Linear(2, 1).to(device)
    flat = alpha.zeros((1, 2), device=device)
    model.weight.grad = flat
    x = alpha.tensor(X, device=device)
    model(x).sum().backward()
    owner: Any = model if of_model else SGD(model.parameters(), lr=0.1)
    owner.zero_grad(set_to_none=False)
    assert model.weight.grad is flat
    np.testing.assert_array_equal(flat.numpy(), 0 * X)
    (3 * model(x)).sum().backward()
    np.testing.assert_array_equal(flat.numpy(), 3 * X)
    owner.zero_grad()
    assert model.weight.grad is None


def test_gradients_of_one_sum_are_apart() -> None:
    first, second = (nn.Parameter(alpha.zeros(3)) for _ in range(2))
    (first + second).sum().backward()
    SGD([first], lr=0.1).zero_grad(set_to_none=False)
    np.testing.assert_array_equal(second.grad.numpy(), np.ones(3))


# -- names and order ---------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [None, 0, [], "later"])
def test_a_part_stands_where_it_became_one(before: Any) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            self.skip = before
            self.scale = before
            self.first = nn.Linear(2, 2, bias=False)
            self.bias = nn.Parameter(alpha.zeros(2))
            self.skip = nn.Linear(2, 2, bias=False)
            self.scale = nn.Parameter(alpha.ones(2))

    names = [name for name, _ in Net().named_parameters()]
    assert names == ["bias", "scale", "first.weight", "skip.weight"]


def test_a_part_that_was_none_keeps_its_place() -> None:
    """The place is kept if it was registered so, or became None in between."""
    model = nn.Module()
    model.register_parameter("a", None)
    model.register_buffer("c", None)
    model.register_parameter("b", nn.Parameter(alpha.zeros(1)))
    model.add_module("d", None)
    model.e = nn.Linear(1, 1)
    model.a = nn.Parameter(alpha.zeros(1))
    model.d = nn.Linear(1, 1)
    model.b = None
    model.f = nn.Parameter(alpha.zeros(1))
    model.b = nn.Parameter(alpha.zeros(1))
    names = [name for name, _ in model.named_parameters()]
    assert names == ["a", "b", "f", "d.weight", "d.bias", "e.weight", "e.bias"]
    layer = nn.Linear(2, 2, bias=False)
    layer.bias = nn.Parameter(alpha.zeros(2))
    assert list(layer.state_dict()) == ["weight", "bias"]


def test_a_bias_that_a_subclass_of_a_layer_adds() -> None:
    class Scaled(nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 2, bias=False)
            self.scale = nn.Parameter(alpha.ones(1))
            self.bias = nn.Parameter(alpha.ones(2))

    assert [name for name, _ in Scaled().named_parameters()] == ["weight", "bias", "scale"]


@pytest.mark.parametrize("kind", [nn.Sequential, lambda *modules: nn.ModuleList(modules)])
def test_a_container_that_iterates_in_another_way(kind: Any) -> None:
    class Other(type(kind())):  # type: ignore[misc]
        def __iter__(self) -> Any:
            return (self[i] for i in range(len(self)))

    model = Other()
    model.append(nn.Linear(2, 2)).append(nn.ReLU())
    assert list(model) == [model[0], model[1]]
    assert len(model[1:]) == 1


@pytest.mark.parametrize("part", [slice(1, None), slice(None, 2), slice(None, None, 2), slice(None, None, -1)], ids=str)
def test_a_slice_of_a_sequential_keeps_the_names(part: slice) -> None:
    """State of a slice goes back to the layers that it is from."""
    model = nn.Sequential(*[nn.Linear(1, 1, bias=False) for _ in range(4)])
    names = [f"{number}.weight" for number in range(4)][part]
    taken = model[part]
    assert list(taken) == list(model)[part]
    assert list(taken.state_dict()) == names
    assert [taken[i] for i in range(len(taken))] == list(taken)
    state = {name: value.numpy() + 1 for name, value in taken.state_dict().items()}
    before = model.state_dict().numpy()
    keys = model.load_state_dict(state, strict=False)
    assert not keys.unexpected_keys
    for name, value in model.state_dict().numpy().items():
        np.testing.assert_array_equal(value, before[name] + (name in names))
    both = taken + nn.Sequential(nn.Tanh())
    assert [name for name, _ in both.named_children()] == [str(number) for number in range(len(names) + 1)]


def test_a_shared_module_is_one_child() -> None:
    shared, calls = nn.ReLU(), []
    model = nn.Sequential(nn.Linear(2, 2), shared, nn.Linear(2, 2), shared)
    model.again = model[0]
    assert [name for name, _ in model.named_children()] == ["0", "1", "2"]
    for child in model.children():
        child.register_forward_hook(lambda module, args, output: calls.append(module))
    assert list(model) == [model[0], shared, model[2], shared, model[0]]
    model(alpha.tensor(X))
    assert calls == [model[0], shared, model[2], shared, model[0]]
    seen: list[Any] = []
    model.apply(seen.append)
    assert seen == [model[0], shared, model[2], model]
    assert "(3): ReLU()" in repr(model)


# -- tensors -----------------------------------------------------------------------------------------


def test_a_tensor_without_axes_is_no_sequence(device: str) -> None:
    loss = alpha.tensor(2.0, device=device)
    for use in (list, sum, max, lambda x: [*x], iter):
        with pytest.raises(TypeError, match="iteration over a 0-d tensor"):
            use(loss)
    rows = alpha.tensor([[1.0, 2.0], [3.0, 4.0]], device=device, requires_grad=True)
    first, second = rows
    (2 * first + second).sum().backward()
    assert rows.grad is not None
    np.testing.assert_array_equal(rows.grad.numpy(), [[2, 2], [1, 1]])
    assert [float(x) for x in alpha.tensor([1.0, 2.0])] == [1, 2]


@pytest.mark.parametrize("wanted", ["uint8", "int32", "int64", "bool", "float32"])
@pytest.mark.parametrize("values", [[200, 100, 0], [0, 0, 0], [1.5, 0.0, 0.25], [True, True, False]])
def test_a_sum_has_the_dtype_that_is_asked_for(values: Any, wanted: str, device: str) -> None:
    given = np.array(values)
    given = given.astype({"i": np.uint8, "f": np.float32, "b": np.bool_}[given.dtype.kind])
    for function in (alpha.sum, alpha.nansum):
        found = function(alpha.tensor(given, device=device), dtype=wanted)
        with np.errstate(over="ignore"):
            expected = given.astype(wanted).sum().astype(wanted)
        assert found.dtype == np.dtype(wanted)
        np.testing.assert_array_equal(found.numpy(), expected)
