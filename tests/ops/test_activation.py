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
    "softplus, sharp": lambda x: F.softplus(x, 2.0, 1.0),
    "gelu": F.gelu,
    "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
}
IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: F.relu(x * 1.0, inplace=True),
    "leaky_relu": lambda x: F.leaky_relu(x * 2.0, 0.1, inplace=True),
    "elu": lambda x: F.elu(x * 1.0, inplace=True),
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
        "softplus, sharp": lambda x: functional.softplus(x, 2.0, 1.0),
        "gelu": functional.gelu,
        "gelu, tanh": lambda x: functional.gelu(x, approximate="tanh"),
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


INF, NAN = float("inf"), float("nan")
NUMBERS = (
    -INF,
    -1e20,
    -100.0,
    -30.0,
    -1.0,
    -1e-30,
    -0.0,
    0.0,
    1e-30,
    0.4,
    1.0,
    15.0,
    21.0,
    30.0,
    100.0,
    1e20,
    INF,
    NAN,
)
GRADIENTS = (1.0, 0.0, -2.0, 1e10, INF, -INF, NAN)
NEGATIVE_SIDE = (0.0, -0.3, 0.01, 1.0, 1.7, -2.0, 1e-40, INF)
# function of PyTorch's name: the keywords of each case
SPECIAL: dict[str, list[dict[str, Any]]] = {
    "relu": [{}, {"inplace": True}],
    "leaky_relu": [
        *({"negative_slope": p} for p in NEGATIVE_SIDE),
        *({"negative_slope": p, "inplace": True} for p in NEGATIVE_SIDE if p >= 0),
    ],
    "elu": [*({"alpha": p} for p in NEGATIVE_SIDE), *({"alpha": p, "inplace": True} for p in NEGATIVE_SIDE if p >= 0)],
    "sigmoid": [{}],
    "tanh": [{}],
    "softplus": [
        {"beta": beta, "threshold": t} for beta in (1.0, 3.0, 0.1, -1.0) for t in (20.0, 1.0, 0.0, -1.0, 50.0)
    ],
    "gelu": [{}, {"approximate": "tanh"}],
}


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values_as_in_pytorch(device: str, name: str, dtype: str) -> None:
    """Every kind of number, with every kind of gradient, for every kind of parameter."""
    torch = pytest.importorskip("torch")
    size = len(NUMBERS)
    if dtype == "bfloat16":
        close = {"rtol": 2**-8, "atol": 1e-38}
    else:
        close = {"rtol": 16 * np.finfo(dtype).eps, "atol": 8 * np.finfo(dtype).eps}
    for options in SPECIAL[name]:
        # one number at a time: PyTorch's vector loops of the cpu lose the gradient of elu(NaN), its scalar loops do not
        leaves = [torch.tensor([x], dtype=getattr(torch, dtype), requires_grad=True) for x in NUMBERS]
        results = [getattr(torch.nn.functional, name)(leaf * 1, **options) for leaf in leaves]
        x = alpha.tensor(np.array(NUMBERS), dtype=dtype, requires_grad=True, device=device)
        with np.errstate(all="ignore"):
            y = getattr(F, name)(x * 1.0, **options)
        assert y.dtype == x.dtype
        expected = np.array([float(r.detach()) for r in results])
        np.testing.assert_allclose(y.numpy().astype(float), expected, **close, err_msg=f"{options}")
        for dy in GRADIENTS:
            dY = alpha.tensor(np.full(size, dy), dtype=dtype, device=device)
            x.grad = None
            with np.errstate(all="ignore"):
                y.backward(dY, retain_graph=True)
            assert x.grad is not None
            seeds = [torch.full_like(r, dy) for r in results]
            expected = np.array([float(g) for g in torch.autograd.grad(results, leaves, seeds, retain_graph=True)])
            scale = max(1.0, abs(dy)) if np.isfinite(dy) else 1.0
            tolerance = {**close, "atol": close["atol"] * scale}
            message = f"{options}, dY = {dy}, X = {NUMBERS}"
            np.testing.assert_allclose(x.grad.numpy().astype(float), expected, **tolerance, err_msg=message)


def test_numbers_dropped_are_selected(device: str) -> None:
    """relu drops an infinite dY, and passes the one of NaN."""
    x = alpha.tensor([-1.0, 0.0, 2.0, NAN], requires_grad=True, device=device)
    F.relu(x).backward(alpha.tensor([INF, NAN, INF, 3.0], device=device))
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), [0, 0, INF, 3])


@pytest.mark.parametrize(
    "step", [lambda x: F.leaky_relu(x, -0.5, inplace=True), lambda x: F.elu(x, -0.5, inplace=True)]
)
def test_in_place_where_the_output_does_not_tell(device: str, step: Callable[[Tensor], Tensor]) -> None:
    """Refused with a gradient; without one it computes."""
    x = alpha.tensor([-2.0, 4.0], requires_grad=True, device=device)
    y = x * 1.0
    with pytest.raises(TypeError, match=r"elu with -0\.5: its gradient reads the input, so it has no in-place form"):
        step(y)
    np.testing.assert_array_equal(y.numpy(), [-2, 4])
    with alpha.no_grad():
        assert step(y) is y
    assert (y.numpy() > 0).all()


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
    assert F.relu(x, inplace=True) is x
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
            cube(x, inplace=True)
    finally:
        for way in ("forward", "backward"):
            del REGISTRY[f"{name}_{way}"]


def test_errors(device: str) -> None:
    x = alpha.tensor([1, 2], device=device)
    with pytest.raises(TypeError, match=r"relu: x has dtype int64; use .astype\('float32'\)"):
        F.relu(x)
    with pytest.raises(ValueError, match="gelu: approximate='sigmoid' is neither 'none' nor 'tanh'"):
        F.gelu(x.astype("float32"), approximate="sigmoid")
    with pytest.raises(ValueError, match="holds='Z' is neither"):
        activation("bad", ("a", np.copyto), ("a", np.copyto), holds="Z")


def test_gelu_of_what_overflows_when_it_is_squared() -> None:
    x = alpha.tensor(np.array([1e30, -1e30], np.float32), requires_grad=True)
    F.gelu(x).sum().backward()  # a warning is an error in tests
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), [1, 0])
