"""Activations: gradients, in-place forms, extreme values, agreement with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from helpers import apart, check_gradient, check_torch
from rows.activations import ACTIVATIONS
from rows.kinds import ActivationRow

import alpha
import alpha.nn.functional as F
from alpha import Tensor
from alpha.core.numerics import BFLOAT16
from alpha.core.primitive import REGISTRY
from alpha.ops.kernel.elementwise import activation

SETTINGS = [
    pytest.param(row, settings, id=f"{row.name}-{settings}") for row in ACTIVATIONS for settings in row.settings
]
IN_PLACE = [
    pytest.param(row, settings, id=f"{row.name}-{settings}") for row in ACTIVATIONS for settings in row.in_place
]


def torch_twin(row: ActivationRow) -> Callable[..., Any]:
    torch = pytest.importorskip("torch")
    if row.own:
        pytest.skip(row.own)
    twin: Callable[..., Any] = getattr(torch.nn.functional, row.name)
    return twin


@pytest.mark.parametrize(("row", "settings"), SETTINGS)
def test_gradients(row: ActivationRow, settings: dict[str, Any]) -> None:
    check_gradient(partial(row.function, **settings), apart(5, 7))


@pytest.mark.parametrize(("row", "settings"), IN_PLACE)
def test_in_place_gradients(row: ActivationRow, settings: dict[str, Any]) -> None:
    check_gradient(lambda x: row.function(x * 2.0, **settings), apart(5, 7))


@pytest.mark.torch
@pytest.mark.parametrize(("row", "settings"), SETTINGS)
def test_as_in_pytorch(device: str, row: ActivationRow, settings: dict[str, Any]) -> None:
    twin = torch_twin(row)
    check_torch(partial(row.function, **settings), partial(twin, **settings), apart(3, 5) * 4, device=device)


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


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("row", ACTIVATIONS, ids=lambda row: row.name)
def test_special_values_as_in_pytorch(device: str, row: ActivationRow, dtype: str) -> None:
    """Every kind of number, with every kind of gradient, for every kind of parameter."""
    twin, torch = torch_twin(row), pytest.importorskip("torch")
    size = len(NUMBERS)
    if dtype in row.coarse:
        pytest.skip(f"PyTorch is less accurate in {dtype}")
    if dtype == "bfloat16":
        close = {"rtol": 2**-8, "atol": 1e-38}
    else:
        close = {"rtol": 16 * np.finfo(dtype).eps, "atol": 8 * np.finfo(dtype).eps}
    for options in row.special or [*row.settings, *row.in_place]:
        # one number at a time: PyTorch's vector loops of the cpu lose the gradient of elu(NaN), its scalar loops do not
        leaves = [torch.tensor([x], dtype=getattr(torch, dtype), requires_grad=True) for x in NUMBERS]
        results = [twin(leaf * 1, **options) for leaf in leaves]
        x = alpha.tensor(np.array(NUMBERS), dtype=dtype, requires_grad=True, device=device)
        with np.errstate(all="ignore"):
            y = row.function(x * 1.0, **options)
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


@pytest.mark.parametrize("step", [partial(F.leaky_relu, negative_slope=-0.5), partial(F.elu, alpha=-0.5), F.silu])
def test_in_place_where_the_gradient_reads_the_input(device: str, step: Callable[..., Tensor]) -> None:
    """The values and the gradient are those of the plain function, and x is written."""
    x, results = alpha.tensor([-2.0, 4.0], requires_grad=True, device=device), []
    for inplace in (False, True):
        x.grad, y = None, x * 1.0
        z = step(y, inplace=inplace)
        assert (z is y) == inplace
        (z * z).sum().backward()
        assert x.grad is not None
        results.append((z.numpy(), x.grad.numpy()))
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize(("row", "settings"), SETTINGS)
def test_extreme_values(device: str, row: ActivationRow, settings: dict[str, Any]) -> None:
    """Large numbers neither overflow nor warn; NaN stays NaN."""
    x = np.array([-1e4, -100, -1e-30, 0, 1e-30, 100, 1e4, np.nan], np.float32)
    y = row.function(alpha.tensor(x, device=device), **settings).numpy()
    assert np.isfinite(y[:-1]).all()
    assert np.isnan(y[-1])
    assert row.limits is None or (y[0], y[6]) == row.limits


def test_in_place_writes_the_same_memory(device: str) -> None:
    x = alpha.tensor([-1.0, 2.0], device=device)
    assert F.relu(x, inplace=True) is x
    np.testing.assert_array_equal(x.numpy(), [0, 2])


def test_empty(device: str) -> None:
    x = alpha.tensor(np.zeros((0, 4), np.float32), device=device)
    assert F.relu(x).shape == F.gelu(x).shape == (0, 4)


def test_a_new_activation_is_two_expressions(device: str) -> None:
    """One call defines both devices, as the documentation shows it."""
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
        assert cube(y := x * 1.0, inplace=True) is y
    finally:
        for way in ("forward", "backward"):
            del REGISTRY[f"{name}_{way}"]


def test_errors(device: str) -> None:
    x = alpha.tensor([1, 2], device=device)
    with pytest.raises(TypeError, match=r"relu: x has dtype int64; use .astype\('float32'\)"):
        F.relu(x)
    with pytest.raises(ValueError, match="gelu: approximate='sigmoid' is neither 'none' nor 'tanh'"):
        F.gelu(x.astype("float32"), approximate="sigmoid")
    with pytest.raises(ValueError, match="saves='Z' is neither"):
        activation("bad", ("a", np.copyto), ("a", np.copyto), saves="Z")


def test_gelu_of_what_overflows_when_it_is_squared() -> None:
    x = alpha.tensor(np.array([1e30, -1e30], np.float32), requires_grad=True)
    F.gelu(x).sum().backward()  # a warning is an error in tests
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), [1, 0])


def test_gelu_of_every_bfloat16(device: str) -> None:
    """Results are within 3e-5 of the exact one before it is rounded, also if it is tiny.

    cuda has a form for these numbers alone.
    """
    special = pytest.importorskip("scipy.special")
    bits = np.array([n for n in range(1 << 16) if not 0x7F80 < n % 0x8000 < 0x7FC0], np.uint16).view(BFLOAT16)
    x = alpha.tensor(bits, requires_grad=True, device=device)
    y = F.gelu(x)
    (slope,) = alpha.grad(y, [x], alpha.tensor(np.ones(bits.size, BFLOAT16), device=device))
    finite = np.isfinite(bits.astype(np.float64))
    exact_x = bits.astype(np.float64)[finite]
    below = 0.5 * special.erfc(-np.sqrt(0.5) * exact_x)
    dense = exact_x * np.exp(-0.5 * np.minimum(np.abs(exact_x), 1e3) ** 2) / np.sqrt(2 * np.pi)
    tiny = 2.0**-126  # what is smaller may count as 0
    for found, exact, terms in (
        (y, exact_x * below, exact_x * below),
        (slope, below + dense, np.maximum(below, np.abs(dense))),
    ):
        error = np.abs(found.numpy().astype(np.float64)[finite] - exact)
        allowed = 2.0**-8 * np.abs(exact) + 3e-5 * np.abs(terms) + 20 * tiny
        assert (error <= allowed).all(), exact_x[error > allowed]
    for value, expected, its_slope in ((np.inf, np.inf, np.nan), (-np.inf, np.nan, np.nan), (np.nan, np.nan, np.nan)):
        at = np.isnan(bits) if np.isnan(value) else bits == value
        np.testing.assert_array_equal(y.numpy()[at].astype(np.float32), np.float32(expected))
        np.testing.assert_array_equal(slope.numpy()[at].astype(np.float32), np.float32(its_slope))
