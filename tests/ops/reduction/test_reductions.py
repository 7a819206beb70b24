"""Extremes, variances, norms, products, choices, orders and running sums: PyTorch's values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import apart, check_gradient

import alpha
from alpha import ShapeError, Tensor
from alpha.errors import CaptureError
from alpha.runtime.recording import Recording, recorded

DIMS: list[Any] = [None, 0, -1, (0, 2), (0, 1, 2)]
_rng = np.random.default_rng(0)
X, ROW = _rng.standard_normal((4, 5, 6)), _rng.standard_normal((5, 1))
TIES = np.round(X * 2) / 2
ZEROS = np.where(_rng.random((4, 5, 6)) < 0.2, 0.0, X)
# a function of x (and of a row that broadcasts), and the array that x is
CASES: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
    **{
        f"{name} {dim} {keepdim}": (lambda x, n=name, d=dim, k=keepdim: getattr(x, n)(dim=d, keepdim=k), values)
        for name, values in (("amax", TIES), ("amin", TIES), ("var", X), ("std", X))
        for dim in DIMS[name[0] == "a" :]
        for keepdim in (False, True)
    },
    **{
        f"norm {p} {dim}": (lambda x, p=p, d=dim: x.norm(p, d), X)
        for p in (2, 1, 3, 1.5, np.inf, -np.inf)
        for dim in DIMS[1:]
    },
    "var 0": (lambda x: x.var(1, correction=0), X),
    "std of equal ones": (lambda x: (x * 0 + 1).std(1), X),
    **{name: (lambda x, n=name: getattr(x, n)(), TIES) for name in ("max", "min")},
    **{f"{name} 1": (lambda x, n=name: getattr(x, n)(1, True).values, X) for name in ("max", "min")},
    **{f"prod {dim}": (lambda x, d=dim: x.prod(d), ZEROS) for dim in (0, 1, 2)},
    "prod": (lambda x: x[:1].prod(), X),
    **{name: (lambda x, row, n=name: getattr(x, n)(row), TIES) for name in ("maximum", "minimum")},
    "where": (lambda x, row: x.where(x > 0, row), X),
    "masked_fill": (lambda x: x.masked_fill(x > 0, 2.0), X),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), TIES),
    "clamp below": (lambda x: x.clamp(min=0.3), X),
    "clamp by tensors": (lambda x, row: x.clamp(row, row + 0.5), X),
    "sort": (lambda x: x.sort(1, True).values, X),
    "topk": (lambda x: x.topk(3, 1, False).values, X),
    **{f"cumsum {dim}": (lambda x, d=dim: x.cumsum(d), X) for dim in (0, 1, 2)},
    **{f"cumprod {dim}": (lambda x, d=dim: x.cumprod(d), ZEROS) for dim in (1, 2)},
    **{f"logsumexp {dim}": (lambda x, d=dim: x.logsumexp(d, True), 90 * X) for dim in (1, (0, 2))},
    **{name: (lambda x, row, n=name: getattr(x * 0.5, n)(row), X) for name in ("atan2", "hypot")},
    "tril": (lambda x: x.tril(-1), X),
    "triu": (lambda x: x.triu(1), X),
    "T": (lambda x: x[0].T * x[1].mT, X),
    "clone": (lambda x: x.clone() * x, X),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(device: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    function, values = CASES[name]
    arrays = [values, *([ROW] if function.__code__.co_varnames[1:2] == ("row",) else [])]
    arrays = [array.astype(np.float32) for array in arrays]
    ours = [alpha.tensor(array, device=device, requires_grad=True) for array in arrays]
    theirs = [torch.tensor(array, requires_grad=True) for array in arrays]
    y, expected = function(*ours), function(*theirs)
    assert y.shape == tuple(expected.shape)
    np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-5)
    g = _rng.standard_normal(y.shape).astype(np.float32)
    y.backward(alpha.tensor(np.asarray(g), device=device))
    expected.backward(torch.tensor(g))
    for x, twin in zip(ours, theirs, strict=True):
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), twin.grad.numpy(), rtol=1e-4, atol=1e-5)


NAMES = ("abs", "exp2", "expm1", "erf", "sin", "cos", "tan", "atan", "sinh", "cosh", "asinh", "reciprocal", "square")
WITHIN = ("log2", "log10", "log1p", "rsqrt", "asin", "acos", "atanh", "deg2rad", "rad2deg", "frac")


@pytest.mark.parametrize("name", [*NAMES, *WITHIN, "acosh"])
def test_gradients_of_elementwise_functions(name: str) -> None:
    values = apart(3, 5) if name in NAMES else np.linspace(0.1, 0.9, 15).reshape(3, 5) + (name == "acosh")
    check_gradient(lambda x: getattr(x, name)(), values)


def test_long_rows(device: str) -> None:
    """Rows that are cut into segments, sorted by several launches, and summed piece by piece."""
    values = _rng.standard_normal((3, 20001)).astype(np.float32)
    values[1, 7] = np.nan
    x = alpha.tensor(values, device=device)
    np.testing.assert_array_equal(x.argmax(1).numpy(), values.argmax(1))
    np.testing.assert_array_equal(x.amin(0).numpy(), values.min(0))
    assert x.argmin().item() == values.argmin()
    assert x.any(1).numpy().all()
    np.testing.assert_array_equal(x.sort(1).indices.numpy(), np.argsort(values, 1, kind="stable"))
    np.testing.assert_allclose(x[0].cumsum(0).numpy(), values[0].cumsum(dtype=np.float64), atol=2e-3)


def test_random_numbers_are_those_of_the_seed() -> None:
    found = []
    for device in ("cpu", "cuda"):
        alpha.manual_seed(3)
        x, y = alpha.rand(3, 7, device=device), alpha.randint(-2, 9, (5,), device=device)
        z = alpha.randn(4, 3, device=device)
        found.append((x.numpy(), y.numpy(), alpha.rand_like(x).numpy()))
        assert x.device.name == y.device.name == device
        assert 0 <= found[-1][0].min() <= found[-1][0].max() < 1
        np.testing.assert_allclose(z.numpy().mean(), 0.0, atol=1.0)
    for cpu, cuda in zip(*found, strict=True):
        np.testing.assert_array_equal(cpu, cuda)


def test_a_captured_step_draws_other_numbers_at_each_replay() -> None:
    @alpha.capture
    def step(x: Tensor) -> Tensor:
        return (
            x + alpha.rand(4, device="cuda") * alpha.arange(1, 5, device="cuda").float() + alpha.eye(4, device="cuda")
        )

    x = alpha.zeros(4, device="cuda")
    alpha.manual_seed(0)
    found = [step(x).numpy() for _ in range(6)]
    alpha.manual_seed(0)
    times = np.arange(1, 5, dtype=np.float32)
    expected = [alpha.rand(4).numpy() * times + np.eye(4, dtype=np.float32) for _ in range(6)]
    np.testing.assert_array_equal(found, expected)


def test_new_tensors(device: str) -> None:
    for x, expected in (
        (alpha.zeros(2, 3, device=device), np.zeros((2, 3), np.float32)),
        (alpha.ones((2,), dtype="int32", device=device), np.ones(2, np.int32)),
        (alpha.full((2, 1), 7, device=device), np.full((2, 1), 7)),
        (alpha.arange(5, device=device), np.arange(5)),
        (alpha.arange(1, 2, 0.25, device=device), np.arange(1, 2, 0.25, dtype=np.float32)),
        (alpha.arange(7, 1, -2, device=device), np.arange(7, 1, -2)),
        (alpha.linspace(-1, 1, 9, device=device), np.linspace(-1, 1, 9, dtype=np.float32)),
        (alpha.eye(3, 2, device=device), np.eye(3, 2, dtype=np.float32)),
        (alpha.eye(2, 3, dtype="bool", device=device), np.eye(2, 3, dtype=bool)),
    ):
        assert x.device.name == device
        assert x.dtype == expected.dtype
        np.testing.assert_array_equal(x.numpy(), expected)
    assert alpha.empty(2, 3, device=device, requires_grad=True).requires_grad
    assert alpha.full_like(alpha.zeros(2, device=device), 3, dtype="int64").tolist() == [3, 3]


def test_conversions(device: str) -> None:
    x = alpha.tensor([1.5, 0.0], device=device, requires_grad=True)
    assert [x.to(kind).dtype.name for kind in ("float64", np.int32, "bool")] == ["float64", "int32", "bool"]
    assert x.to("cpu", "int64").device.name == x.cpu().device.name == "cpu"
    assert x.to(device) is x.to(dtype="float32") is x.float() is x
    assert (x.numel(), x.dim(), x.tolist(), x.bool().tolist()) == (2, 1, [1.5, 0.0], [True, False])
    y = x.clone()
    y[0] = 5.0
    assert x.tolist() == [1.5, 0.0]


def test_errors(device: str) -> None:
    x = alpha.tensor(np.zeros((0, 3), np.float32), device=device)
    with pytest.raises(ShapeError, match=r"amax: axis 0 of shape \(0, 3\) is empty"):
        x.amax(0)
    with pytest.raises(ShapeError, match="topk: k=4 of the 3 elements"):
        x.topk(4)
    with pytest.raises(TypeError, match="max: keepdim needs dim"):
        x.max(keepdim=True)
    with pytest.raises(TypeError, match="where: the condition has dtype float32; bools are needed"):
        alpha.where(x, x, x)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="clamp: min or max is needed"):
        x.clamp()
    with pytest.raises(ValueError, match="arange: step=-1 does not lead from 0 to 3"):
        alpha.arange(0, 3, -1)
    with pytest.raises(ValueError, match="randint: 0 integers from low=3 to high=3"):
        alpha.randint(3, 3, (2,))


def test_numbers_in_place_of_nan_and_infinities(device: str) -> None:
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 3.0], np.float32)
    x = alpha.tensor(values, device=device, requires_grad=True)
    np.testing.assert_array_equal(x.nan_to_num().numpy(), np.nan_to_num(values))
    y = x.nan_to_num(1.0, 2.0, -3.0)
    np.testing.assert_array_equal(y.numpy(), [1, 2, -3, 0, 3])
    (y * 2).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), [0, 0, 0, 2, 2])


def test_logsumexp_without_overflow(device: str) -> None:
    x = alpha.tensor(np.array([[1000, 1000], [-np.inf, -np.inf], [np.inf, 0]], np.float32), device=device)
    np.testing.assert_allclose(x.logsumexp(1).numpy(), [1000 + np.log(2), -np.inf, np.inf], rtol=1e-6)


def test_nonzero_is_no_part_of_a_captured_step() -> None:
    x = alpha.tensor(np.array([[0, 1], [2, 0]], np.float32))
    rows, columns = x.nonzero(as_tuple=True)
    np.testing.assert_array_equal(x[rows, columns].numpy(), [1, 2])
    recording = Recording(capturing=True)
    with recorded(recording), pytest.raises(CaptureError, match="nonzero has a number of elements that only the host"):
        x.nonzero()


# -- at the top of the package -------------------------------------------------------------------------


@pytest.mark.torch
def test_functions_of_alpha_are_pytorchs(device: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 3, 3)).astype(np.float32) + 0.5, rng.random((2, 3, 3)).astype(np.float32)
    pair = [alpha.tensor(v, device=device) for v in (x, y)], [torch.tensor(v) for v in (x, y)]
    for name in ("exp", "log", "sqrt", "sigmoid", "tanh", "relu", "isnan"):
        ours, theirs = (getattr(space, name)(given[0]) for space, given in zip((alpha, torch), pair, strict=True))
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)
    for name in ("add", "mul", "matmul", "bmm"):
        ours, theirs = (getattr(space, name)(*given) for space, given in zip((alpha, torch), pair, strict=True))
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)
    for name, rest in (("softmax", (1,)), ("log_softmax", (2,)), ("flatten", (1,)), ("reshape", ((3, 6),))):
        ours, theirs = (
            getattr(space, name)(given[0], *rest) for space, given in zip((alpha, torch), pair, strict=True)
        )
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)
    for space, given in zip((alpha, torch), pair, strict=True):
        np.testing.assert_allclose(space.add(*given, alpha=2).numpy(), x + 2 * y, rtol=1e-6)


def test_functions_of_alpha_name_what_is_no_tensor() -> None:
    for name in ("exp", "log", "sqrt", "isnan"):
        with pytest.raises(TypeError, match=rf"^{name}: x is a ndarray, a Tensor is needed"):
            getattr(alpha, name)(np.ones(2))


def test_isnan(device: str) -> None:
    assert alpha.isnan(alpha.tensor([np.nan, 1.0, np.inf], device=device)).tolist() == [True, False, False]
    assert alpha.tensor([1, 2], device=device).isnan().tolist() == [False, False]


def test_allclose(device: str) -> None:
    x = alpha.tensor([1.0, 100.0], device=device)
    assert alpha.allclose(x, x + 1e-6) is True
    assert not alpha.allclose(x, x + 1e-3)
    assert alpha.allclose(x, x + 1e-3, atol=1e-2)
    assert alpha.allclose(x, x * 1.01, rtol=0.02)
    nan = alpha.tensor([np.nan, 1.0], device=device)
    assert not alpha.allclose(nan, nan)
    assert alpha.allclose(nan, nan, equal_nan=True)
    with pytest.raises(TypeError, match="allclose: x has dtype float32 and other float64"):
        alpha.allclose(x, x.double())
    with pytest.raises(alpha.ShapeError, match=r"allclose: the shapes do not broadcast  \(x \(2,\), other \(3,\)\)"):
        alpha.allclose(x, alpha.ones(3, device=device))


def test_tensors_of_what_is_given(device: str) -> None:
    x = alpha.tensor([1.0, 2.0], device=device)
    assert alpha.as_tensor(x) is x
    assert alpha.as_tensor(x, dtype="float64", device="cpu").dtype == np.float64
    made = alpha.as_tensor([1, 2], "float32", device)
    assert (made.dtype.name, made.device.name) == ("float32", device)
    values = np.arange(3.0)
    made = alpha.from_numpy(values)
    values[:] = 0
    assert made.tolist() == [0, 1, 2]
    assert made.dtype == np.float64
    with pytest.raises(TypeError, match="from_numpy: a list is no numpy array"):
        alpha.from_numpy([1.0])


def test_random_orders(device: str) -> None:
    alpha.manual_seed(1)
    x = alpha.randperm(300, device=device)
    assert (x.dtype.name, x.device.name) == ("int64", device)
    assert sorted(x.tolist()) == list(range(300))
    assert x.tolist() != list(range(300))
    assert alpha.randperm(300, device=device).tolist() != x.tolist()
    alpha.manual_seed(1)
    assert alpha.randperm(300, device=device, dtype="int32").tolist() == x.tolist()
    assert alpha.randperm(0, device=device).shape == (0,)
    with pytest.raises(ValueError, match="randperm: n=-1"):
        alpha.randperm(-1)


def test_where_without_values_names_the_places(device: str) -> None:
    x = alpha.tensor([[0.0, 2.0], [3.0, 0.0]], device=device)
    rows, columns = alpha.where(x > 0)
    assert (rows.tolist(), columns.tolist()) == ([0, 1], [1, 0])
    with pytest.raises(TypeError, match="where: a NoneType is no operand"):
        alpha.where(x > 0, 1.0)


def test_a_correction_is_given_once(device: str) -> None:
    x = alpha.tensor([1.0, 2.0, 4.0], device=device)
    assert alpha.var(x, unbiased=False).item() == alpha.var(x, correction=0).item()
    assert x.std(unbiased=True).item() == x.std().item()
    for operator in (alpha.var, alpha.std):
        assert operator(x, False).item() == operator(x, correction=0).item()
        assert operator(x, True).item() == operator(x).item()
        assert operator(x, 0, False, True).shape == operator(x, 0, keepdim=True).shape
        assert operator(x, 0, False).tolist() == operator(x, 0, correction=0).tolist()
    for several in (alpha.var_mean, alpha.std_mean):
        given, expected = several(x, False), several(x, correction=0)
        assert [found.item() for found in given] == [found.item() for found in expected]
    with pytest.raises(TypeError, match="std: dim=True is a bool, an axis or several are needed"):
        x.std(True, False)
    with pytest.raises(TypeError, match="var: correction=0 and unbiased=True say the same; give one of them"):
        x.var(correction=0, unbiased=True)


def test_products_of_batches_are_refused_with_their_shapes(device: str) -> None:
    x = alpha.ones(2, 3, 4, device=device)
    with pytest.raises(
        alpha.ShapeError, match=r"bmm: x \(D, M, K\) and mat2 \(D, K, N\) are needed  \(x \(2, 3, 4\), mat2"
    ):
        alpha.bmm(x, x)
    with pytest.raises(alpha.ShapeError, match=r"index_add: index \(I,\) and source as x, but I long on axis 1"):
        x.index_add(1, alpha.tensor([0, 1], device=device), x)
    with pytest.raises(TypeError, match="index_add: x of dtype int64 cannot hold source of dtype float32"):
        x.long().index_add(0, alpha.tensor([0, 1], device=device), x)


@pytest.mark.parametrize("make", [alpha.zeros, alpha.ones, alpha.empty, alpha.rand, alpha.randn])
def test_lengths_may_be_named(make: Any, device: str) -> None:
    assert make(size=(2, 3), device=device).shape == make(2, 3, device=device).shape == (2, 3)
    assert make(size=4).shape == (4,)
    assert make(size=()).shape == make(()).shape == ()
    with pytest.raises(TypeError, match=rf"{make.__name__}: the lengths are given twice, as \(2,\) and as size=3"):
        make(2, size=3)
