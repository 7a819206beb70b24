"""Weights with norms of their own, and parametrizations of one's own."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import ShapeError, Tensor, nn
from alpha.nn import utils
from alpha.nn.utils import parametrizations, parametrize

LAYERS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {  # of both libraries; an input with channels second
    "Linear": (lambda n: n.Linear(4, 3), (2, 4)),
    "Conv1d": (lambda n: n.Conv1d(4, 6, 3), (2, 4, 7)),
    "Conv2d": (lambda n: n.Conv2d(4, 6, 3, groups=2), (2, 4, 5, 6)),
    "Conv3d": (lambda n: n.Conv3d(2, 3, 2), (1, 2, 3, 4, 3)),
    "ConvTranspose2d": (lambda n: n.ConvTranspose2d(4, 3, 3, stride=2), (2, 4, 3, 3)),
}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "weight": ("weight_norm", {}),
    "weight, dim 1": ("weight_norm", {"dim": 1}),
    "weight, dim -1": ("weight_norm", {"dim": -1}),
    "weight, no dim": ("weight_norm", {"dim": None}),
    "spectral": ("spectral_norm", {}),
    "spectral, dim 1": ("spectral_norm", {"dim": 1, "n_power_iterations": 3}),
    "older weight": ("weight_norm", {}),
    "older weight, dim 1": ("weight_norm", {"dim": 1}),
    "older weight, no dim": ("weight_norm", {"dim": None}),
    "older spectral": ("spectral_norm", {}),
    "older spectral, dim 1": ("spectral_norm", {"dim": 1, "n_power_iterations": 3, "eps": 1e-3}),
}


def last(values: np.ndarray) -> np.ndarray:
    """Channels last."""
    return np.ascontiguousarray(np.moveaxis(values, 1, -1)) if values.ndim > 2 else values


def pair(layer: str, way: str, device: str) -> tuple[nn.Module, Any, Tensor, Any]:
    """The layers of Alpha and PyTorch with the same state, and an input of each."""
    torch = pytest.importorskip("torch")
    make, shape = LAYERS[layer]
    name, options = WAYS[way]
    older = way.startswith("older")
    ours = getattr(utils if older else parametrizations, name)(make(nn).to(device), **options)
    theirs = getattr(torch.nn.utils if older else torch.nn.utils.parametrizations, name)(make(torch.nn), **options)
    state = theirs.state_dict()
    assert set(ours.state_dict()) == set(state)
    ours.load_state_dict(state, layout="NCHW")
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x = alpha.tensor(last(values), device=device, requires_grad=True)
    return ours, theirs, x, torch.tensor(values, requires_grad=True)


def same(found: Tensor | None, expected: Any) -> None:
    assert found is not None
    values = last(expected.detach().numpy())
    np.testing.assert_allclose(found.numpy(), values, rtol=2e-4, atol=2e-4 * np.abs(values).max())


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*is deprecated in favor of:FutureWarning")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layer", LAYERS)
def test_values_gradients_and_states_are_pytorchs(device: str, layer: str, way: str) -> None:
    ours, theirs, x, other = pair(layer, way, device)
    for training in (True, True, False):
        ours.train(training)
        theirs.train(training)
        ours.zero_grad()
        theirs.zero_grad()
        x.grad = other.grad = None
        y, wanted = ours(x), theirs(other)
        (y * y * y).sum().backward()
        (wanted * wanted * wanted).sum().backward()
        same(y, wanted)
        same(x.grad, other.grad)
        gradients = {name: p.grad for name, p in ours.named_parameters()}
        for name, p in theirs.named_parameters():
            same(gradients[name], p.grad)
        for name, buffer in theirs.named_buffers():
            same(ours.get_buffer(name), buffer)


@pytest.mark.parametrize("way", ["weight", "spectral"])
def test_a_layer_stays_what_it_is(device: str, way: str) -> None:
    name, options = WAYS[way]
    layer = nn.Conv2d(3, 4, 3).to(device)
    before = layer.weight.numpy()
    made = getattr(parametrizations, name)(layer, **options)
    assert made is layer
    assert isinstance(layer, nn.Conv2d)
    assert type(layer).__name__ == "ParametrizedConv2d"
    assert parametrize.is_parametrized(layer)
    assert parametrize.is_parametrized(layer, "weight")
    assert not parametrize.is_parametrized(layer, "bias")
    assert "weight" not in dict(layer.named_parameters())
    if way == "weight":
        np.testing.assert_allclose(layer.weight.numpy(), before, rtol=1e-5, atol=1e-6)
    else:
        largest = np.linalg.svd(before.reshape(4, -1), compute_uv=False).max()
        sigma = np.linalg.norm(before) / np.linalg.norm(layer.eval().weight.numpy())
        assert 0.8 * largest < sigma < 1.001 * largest  # after 15 iterations
    with pytest.raises(AttributeError):
        layer.weight = nn.Parameter(before)
    twin = copy.deepcopy(layer)
    assert type(twin) is type(layer)
    assert {id(p) for p in twin.parameters()}.isdisjoint(id(p) for p in layer.parameters())
    value = layer.eval().weight.numpy()
    np.testing.assert_allclose(twin.eval().weight.numpy(), value, rtol=1e-5)
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Conv2d
    assert sorted(name for name, _ in layer.named_parameters()) == ["bias", "weight"]
    np.testing.assert_allclose(layer.weight.numpy(), value, rtol=1e-5)
    assert not parametrize.is_parametrized(layer)


def test_training_with_a_batch_normalisation(device: str) -> None:
    def made() -> nn.Module:
        conv = parametrizations.spectral_norm(nn.Conv2d(2, 3, 3))
        return nn.Sequential(conv, nn.BatchNorm2d(3), nn.ReLU()).to(device)

    net, other = made(), made()
    optimizer = alpha.optim.SGD(net.parameters(), lr=0.1)
    x = alpha.tensor(np.random.default_rng(0).standard_normal((2, 5, 5, 2)).astype(np.float32), device=device)
    before = net.state_dict().numpy()
    for _ in range(2):
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    after = net.state_dict().numpy()
    assert all((before[name] != after[name]).any() for name in before if name != "0.bias")
    other.load_state_dict(after)
    np.testing.assert_array_equal(other.eval()(x).numpy(), net.eval()(x).numpy())


class Symmetric(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.triu() + x.triu(1).transpose(0, 1)


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


def test_parametrizations_of_ones_own(device: str) -> None:
    layer = nn.Linear(3, 3).to(device)
    original, bias = layer.weight.numpy(), layer.bias.numpy()  # type: ignore[union-attr]
    parametrize.register_parametrization(layer, "weight", Symmetric())
    parametrize.register_parametrization(layer, "weight", Doubled())
    parametrize.register_parametrization(layer, "bias", Doubled())
    wanted = 2 * (np.triu(original) + np.triu(original, 1).T)
    np.testing.assert_allclose(layer.weight.numpy(), wanted, rtol=1e-6)
    np.testing.assert_allclose(layer.bias.numpy(), 2 * bias, rtol=1e-6)  # type: ignore[union-attr]
    names = ["parametrizations.weight.original", "parametrizations.bias.original"]
    assert [name for name, _ in layer.named_parameters()] == names
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    np.testing.assert_array_equal(layer.weight.numpy(), original)
    np.testing.assert_allclose(layer.bias.numpy(), 2 * bias, rtol=1e-6)  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="remove_parametrizations: ParametrizedLinear computes no parameter 'weight'"):
        parametrize.remove_parametrizations(layer, "weight")
    assert layer.parametrizations["bias"] is layer.parametrizations.bias
    assert "bias" in layer.parametrizations
    assert "weight" not in layer.parametrizations
    assert "training" not in layer.parametrizations
    with pytest.raises(KeyError, match="training"):
        layer.parametrizations["training"]
    with pytest.raises(KeyError, match="register_parametrization: ParametrizedLinear has no parameter 'other'"):
        parametrize.register_parametrization(layer, "other", Doubled())
    normed = parametrizations.weight_norm(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="weight is computed already"):
        parametrize.register_parametrization(normed, "weight", parametrizations.WeightNorm(0))
    with pytest.raises(ValueError, match="weight has 2 originals; use leave_parametrized=True"):
        parametrize.remove_parametrizations(normed, "weight", leave_parametrized=False)


def test_what_norms_refuse() -> None:
    with pytest.raises(AttributeError, match="Linear has no Parameter of the name 'other'"):
        parametrizations.weight_norm(nn.Linear(2, 2), "other")
    with pytest.raises(ShapeError, match=r"weight_norm: 2 is not an axis of weight \(2, 2\)"):
        parametrizations.weight_norm(nn.Linear(2, 2), dim=2)
    with pytest.raises(ValueError, match="spectral_norm: n_power_iterations=0 must be at least 1"):
        parametrizations.spectral_norm(nn.Linear(2, 2), n_power_iterations=0)
    with pytest.raises(TypeError, match="spectral_norm: eps='x' is not a number"):
        parametrizations.spectral_norm(nn.Linear(2, 2), eps="x")  # type: ignore[arg-type]


def test_a_vector_is_divided_by_its_norm(device: str) -> None:
    layer = nn.Linear(3, 4).to(device)
    bias = layer.get_parameter("bias").numpy()
    made: Any = parametrizations.spectral_norm(layer, "bias")
    np.testing.assert_allclose(made.bias.numpy(), bias / np.linalg.norm(bias), rtol=1e-5)
    layer = nn.Linear(3, 4).to(device)
    bias = layer.get_parameter("bias").numpy()
    made = parametrizations.weight_norm(layer, "bias")
    np.testing.assert_allclose(made.bias.numpy(), bias, rtol=1e-5)
    np.testing.assert_allclose(layer.get_parameter("parametrizations.bias.original0").numpy(), abs(bias), rtol=1e-6)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*is deprecated in favor of:FutureWarning")
@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm"])
def test_older_norms_come_and_go(device: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    put, removed = getattr(utils, name), getattr(utils, f"remove_{name}")
    layer = nn.Conv2d(3, 4, 3).to(device)
    before = layer.weight.numpy()
    assert put(layer) is layer
    theirs = getattr(torch.nn.utils, name)(torch.nn.Conv2d(3, 4, 3))
    assert [n for n, _ in layer.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    assert isinstance(layer, nn.Conv2d)
    assert type(layer).__name__ == "Conv2d"
    if name == "weight_norm":
        np.testing.assert_allclose(layer.weight.numpy(), before, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=f"{name}: weight has a norm already; remove that one first"):
        put(layer)
    with pytest.raises(AttributeError, match="Conv2d has no Parameter of the name 'other'"):
        put(layer, "other")
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        np.testing.assert_array_equal(twin.eval().weight.numpy(), layer.eval().weight.numpy())
        assert {id(p) for p in twin.parameters()}.isdisjoint(id(p) for p in layer.parameters())
    value = layer.train().eval().weight.numpy()
    assert removed(layer) is layer
    assert type(layer) is nn.Conv2d
    assert sorted(layer.state_dict()) == ["bias", "weight"]
    assert layer._filters == ("weight",)
    np.testing.assert_array_equal(layer.weight.numpy(), value)
    other = "spectral_norm" if name == "weight_norm" else "weight_norm"
    with pytest.raises(ValueError, match=f"remove_{name}: Conv2d has no such norm of 'weight'"):
        removed(layer)
    with pytest.raises(ValueError, match=f"remove_{name}: Conv2d has no such norm of 'weight'"):
        removed(getattr(utils, other)(layer))


def test_an_older_norm_of_each_weight(device: str) -> None:
    layer = nn.LSTM(2, 3).to(device)
    x = alpha.randn(4, 2, device=device)
    wanted = layer(x)[0].numpy()
    for name in ("weight_ih_l0", "weight_hh_l0"):
        utils.weight_norm(layer, name)
    assert "weight_ih_l0_g" in layer.state_dict()
    y = layer(x)[0]
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-4, atol=1e-5)
    y.sum().backward()
    assert all(p.grad is not None and p.grad.device is p.device for p in layer.parameters())
    utils.remove_weight_norm(layer, "weight_ih_l0")
    assert sorted(layer.state_dict())[-3:] == ["weight_hh_l0_g", "weight_hh_l0_v", "weight_ih_l0"]
    np.testing.assert_allclose(layer(x)[0].numpy(), wanted, rtol=1e-4, atol=1e-5)
    frozen = nn.Linear(2, 2)
    frozen.weight.requires_grad = False
    assert not any(p.requires_grad for n, p in utils.weight_norm(frozen).named_parameters() if n != "bias")
    assert not utils.remove_weight_norm(frozen).weight.requires_grad
