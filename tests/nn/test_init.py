"""Initial values: PyTorch's distributions, by layers and by `nn.init`."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.nn import init
from alpha.nn.init import gain


def test_one_seed_gives_one_model() -> None:
    def weights() -> dict[str, np.ndarray]:
        alpha.manual_seed(7)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(4, 2)).state_dict()

    first, second = weights(), weights()
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name])
    assert (first["1.weight"].reshape(-1)[0] != first["0.weight"].reshape(-1)[0]).all()


def test_initial_values_are_pytorchs_distributions() -> None:
    alpha.manual_seed(0)
    layer = nn.Conv2d(16, 64, 5)
    bound = 1 / math.sqrt(16 * 25)
    for parameter in layer.parameters():
        values = parameter.numpy()
        assert np.abs(values).max() <= bound
        assert abs(values.std() - bound / math.sqrt(3)) < 0.1 * bound
    assert abs(layer.weight.numpy().mean()) < 0.02 * bound


@pytest.mark.parametrize(
    ("values", "std"),
    [
        (lambda s: init.kaiming_normal(s), math.sqrt(2 / 300)),
        (lambda s: init.kaiming_uniform(s, 0.0), math.sqrt(2 / 300)),
        (lambda s: init.kaiming_normal(s, nonlinearity="tanh"), 5 / 3 / math.sqrt(300)),
        (lambda s: init.xavier_uniform(s), math.sqrt(2 / 700)),
        (lambda s: init.xavier_normal(s, gain=2.0), 2 * math.sqrt(2 / 700)),
    ],
)
def test_initialisers_have_their_standard_deviation(values, std: float) -> None:
    alpha.manual_seed(0)
    drawn = values((400, 300))
    assert drawn.dtype == np.float32
    assert abs(drawn.std() / std - 1) < 0.01
    assert abs(drawn.mean()) < 0.02 * std


def test_fans_under_pytorchs_names() -> None:
    weight = nn.Conv2d(3, 8, (5, 7)).weight
    assert init._calculate_fan_in_and_fan_out(weight) == (3 * 35, 8 * 35)
    assert init._calculate_fan_in_and_fan_out(nn.Linear(3, 4).weight) == (3, 4)
    assert [init._calculate_correct_fan(weight, mode) for mode in ("fan_in", "FAN_OUT")] == [3 * 35, 8 * 35]
    with pytest.raises(ValueError, match="_calculate_correct_fan: mode='fan' is not one of 'fan_in', 'fan_out'"):
        init._calculate_correct_fan(weight, "fan")
    with pytest.raises(TypeError, match="_calculate_fan_in_and_fan_out: a ndarray is not a tensor"):
        init._calculate_fan_in_and_fan_out(np.ones((2, 2)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a weight has at least 2 axes"):
        init._calculate_fan_in_and_fan_out(alpha.ones(3))


def test_initialisers_refuse() -> None:
    with pytest.raises(ValueError, match="gain: 'swish' is not one of linear"):
        init.gain("swish")
    with pytest.raises(ValueError, match="a weight has at least 2 axes"):
        init.kaiming_uniform((3,))


IN_PLACE = [  # what is drawn for a weight (400, 3, 100), its mean, its standard deviation, and its limits or None
    (lambda w: init.uniform_(w, -1.0, 3.0), 1.0, 4 / math.sqrt(12), (-1.0, 3.0)),
    (lambda w: init.normal_(w, 2.0, 0.5), 2.0, 0.5, None),
    (lambda w: init.trunc_normal_(w), 0.0, 0.879626, (-2.0, 2.0)),
    (lambda w: init.trunc_normal_(w, 1.0, 2.0, -1.0, 2.0), 0.58674, 0.83132, (-1.0, 2.0)),
    (lambda w: init.trunc_normal_(w, 0.0, 0.02), 0.0, 0.02, (-0.2, 0.2)),
    (lambda w: init.trunc_normal_(w, 0.0, 1.0, 8.0, 20.0), 8.1214, 0.11969, (8.0, 10.0)),
    (lambda w: init.xavier_uniform_(w, 2.0), 0.0, 2 * math.sqrt(2 / 1500), (-0.1265, 0.1265)),
    (lambda w: init.xavier_normal_(w, 2.0), 0.0, 2 * math.sqrt(2 / 1500), None),
    (lambda w: init.kaiming_uniform_(w), 0.0, math.sqrt(2 / 300), (-0.1415, 0.1415)),
    (lambda w: init.kaiming_uniform_(w, 1.0, "fan_out"), 0.0, math.sqrt(1 / 1200), (-0.0501, 0.0501)),
    (lambda w: init.kaiming_uniform_(w, nonlinearity="tanh"), 0.0, 5 / 3 / math.sqrt(300), None),
    (lambda w: init.kaiming_normal_(w, 1.0), 0.0, math.sqrt(1 / 300), None),
    (lambda w: init.kaiming_normal_(w, mode="fan_out", nonlinearity="selu"), 0.0, 0.75 / math.sqrt(1200), None),
]


@pytest.mark.parametrize(("draw", "mean", "std", "limits"), IN_PLACE)
def test_initialisers_in_place(device: str, draw: Any, mean: float, std: float, limits: Any) -> None:
    drawn = []
    for where in (device, "cpu", device):
        weight = nn.Module()
        weight.value = nn.Parameter(np.zeros((400, 3, 100), np.float32))
        parameter = weight.to(where).value
        memory = parameter.array
        alpha.manual_seed(0)
        assert draw(parameter) is parameter
        assert parameter.array is memory
        assert parameter.is_leaf
        drawn.append(parameter.numpy())
    values = drawn[0]
    for other in drawn[1:]:
        np.testing.assert_array_equal(values, other)
    assert abs(values.std() / std - 1) < 0.01
    assert abs(values.mean() - mean) < 0.02 * std
    low, high = limits or (-np.inf, np.inf)
    assert low <= values.min() <= values.max() <= high
    assert np.unique(values).size > 1000


def test_initialisers_write_the_memory_of_a_tensor(device: str) -> None:
    whole = alpha.ones(4, 3, device=device)
    init.constant_(whole[1], 5.0)
    init.zeros_(whole[2:])
    np.testing.assert_array_equal(whole.numpy()[:, 0], [1, 5, 0, 0])
    np.testing.assert_array_equal(init.ones_(whole).numpy(), np.ones((4, 3)))
    np.testing.assert_array_equal(init.eye_(whole).numpy(), np.eye(4, 3))
    assert init.constant_(alpha.zeros(2, dtype="int64", device=device), 3).tolist() == [3, 3]
    for draw in (init.normal_, init.kaiming_normal_, init.orthogonal_):
        assert draw(alpha.zeros(0, 3, device=device)).shape == (0, 3)
    x = alpha.ones(2, device=device, requires_grad=True)
    y = x * x
    init.zeros_(x)
    with pytest.raises(alpha.GradientError, match=r"nn\.init\.zeros_"):
        y.sum().backward()


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5), (4, 3, 3, 2), (20, 2, 3)])
def test_orthogonal(device: str, shape: tuple[int, ...]) -> None:
    alpha.manual_seed(1)
    values = init.orthogonal_(alpha.zeros(shape, device=device), 2.0).numpy().reshape(shape[0], -1)
    product = values @ values.T if values.shape[0] <= values.shape[1] else values.T @ values
    np.testing.assert_allclose(product, 4 * np.eye(min(values.shape)), atol=1e-5)


def test_sparse() -> None:
    values = init.sparse_(alpha.zeros(50, 400), 0.3, 2.0).numpy()
    assert ((values == 0).sum(0) == 15).all()
    assert abs(values[values != 0].std() / 2 - 1) < 0.02
    assert 100 < (values[0] == 0).sum() < 140
    assert (init.sparse_(alpha.zeros(3, 2), 0.5).numpy() == 0).sum() == 4


@pytest.mark.torch
@pytest.mark.parametrize(("shape", "groups"), [((4, 3, 3), 1), ((6, 2, 4, 3), 3), ((2, 5, 3, 3, 2), 2), ((7, 3, 3), 1)])
def test_dirac_is_pytorchs(shape: tuple[int, ...], groups: int) -> None:
    torch = pytest.importorskip("torch")
    expected = torch.nn.init.dirac_(torch.zeros(shape), groups).numpy()
    given = alpha.full((shape[0], *shape[2:], shape[1]), 9.0)
    np.testing.assert_array_equal(init.dirac_(given, groups).numpy(), np.moveaxis(expected, 1, -1))


@pytest.mark.torch
def test_names_of_initialisers_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    names = [name for name in vars(init) if name.endswith("_") and name[0] != "_"]
    assert set(names) == {name for name in vars(torch.nn.init) if name.endswith("_") and name[0] != "_"}
    for name in [*names, "calculate_gain"]:
        own, other = (inspect.signature(getattr(room, name)).parameters for room in (init, torch.nn.init))
        assert [(n, p.default) for n, p in own.items()] == [
            (n, p.default) for n, p in other.items() if n != "generator"
        ]
    for name in ("linear", "conv1d", "conv_transpose3d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"):
        assert init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert init.calculate_gain("leaky_relu", 0.3) == torch.nn.init.calculate_gain("leaky_relu", 0.3)


def test_initialisers_in_place_refuse() -> None:
    weight = alpha.zeros(3, 4)
    for call, error, message in (
        (lambda: init.normal_(np.zeros(3)), TypeError, "normal_: a ndarray is not a tensor of Alpha"),
        (lambda: init.kaiming_normal_((3, 4)), TypeError, "kaiming_normal_: a tuple is not a tensor"),
        (lambda: init.uniform_(alpha.zeros(3, dtype="int64")), TypeError, "uniform_: the tensor is int64"),
        (lambda: init.kaiming_uniform_(weight, mode="fan"), ValueError, "mode='fan' is not one of 'fan_in'"),
        (lambda: init.kaiming_normal_(weight, nonlinearity="swish"), ValueError, "'swish' is not one of linear"),
        (lambda: init.xavier_normal_(alpha.zeros(3)), ValueError, "a weight has at least 2 axes"),
        (lambda: init.trunc_normal_(weight, a=2.0, b=1.0), ValueError, "a=2.0 is not below b=1.0"),
        (lambda: init.trunc_normal_(weight, std=0.0), ValueError, "or std=0.0 is not above 0"),
        (lambda: init.eye_(alpha.zeros(3)), ValueError, r"eye_: the tensor has 1 axes \(3,\), not one of \(2,\)"),
        (lambda: init.sparse_(alpha.zeros(3), 0.1), ValueError, "sparse_: the tensor has 1 axes"),
        (lambda: init.dirac_(weight), ValueError, "dirac_: the tensor has 2 axes"),
        (lambda: init.dirac_(alpha.zeros(3, 3, 4), 2), ValueError, "3 filters do not divide into groups=2"),
    ):
        with pytest.raises(error, match=message):
            call()


def test_gains_are_those_of_he_and_pytorch() -> None:
    expected = {"linear": 1, "sigmoid": 1, "tanh": 5 / 3, "relu": 2**0.5, "leaky_relu": 2**0.5}
    assert {name: gain(name) for name in expected} == pytest.approx(expected)
    assert gain("leaky_relu", 0.5) == pytest.approx((2 / 1.25) ** 0.5)
    with pytest.raises(ValueError, match="gain: 'swish' is not one of linear, sigmoid, tanh, relu, leaky_relu"):
        gain("swish")


@pytest.mark.parametrize("name", ["kaiming_uniform", "kaiming_normal", "xavier_uniform", "xavier_normal"])
def test_names_without_an_underscore_take_no_tensor(name: str) -> None:
    with pytest.raises(TypeError, match="end in _, as kaiming_normal_"):
        getattr(alpha.nn.init, name)(alpha.ones(3, 4))
