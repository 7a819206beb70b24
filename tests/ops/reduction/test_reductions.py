"""Extremes, variances, norms, products, orders and running sums: PyTorch's values and gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from trials import trials

import alpha
from alpha import ShapeError

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


OVER_AXES = ("amax", "amin", "sum", "mean", "var", "std", "norm", "nansum", "nanmean", "var_mean", "std_mean")
ALONG_ONE = ("max", "min", "argmax", "argmin", "all", "any", "prod", "median", "nanmedian", "aminmax")
WITH_ONES: list[tuple[tuple[int, ...], tuple[Any, ...]]] = [  # shapes, and axes of each
    ((2, 1, 3), (0, 1, -1, (0, -1), (1, 2))),
    ((1, 1, 1), (0, -1, (1, 2))),
    ((4,), (0, -1)),
    ((1,), (0, -1)),
    ((), (0, -1)),
]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.parametrize("name", [*OVER_AXES, *ALONG_ONE])
def test_every_result_has_its_own_axes_and_memory(device: str, name: str) -> None:
    """Each of several results, also over axes of length 1, of a tensor without axes, and with keepdim."""
    torch = pytest.importorskip("torch")
    with trials() as trial:
        for shape, dims in WITH_ONES:
            for dim, keepdim in itertools.product(dims, (False, True)):
                if isinstance(dim, tuple) and name in ALONG_ONE:
                    continue
                values = _rng.standard_normal(shape).astype(np.float32)
                x = alpha.tensor(values, device=device)
                with trial(shape, dim, keepdim):
                    found = getattr(alpha, name)(x, dim=dim, keepdim=keepdim)
                    expected = getattr(torch, name)(torch.tensor(values), dim=dim, keepdim=keepdim)
                    found, expected = (r if isinstance(r, tuple) else (r,) for r in (found, expected))
                    for y, other in zip(found, expected, strict=True):
                        assert y.shape == tuple(other.shape)
                        np.testing.assert_allclose(y.numpy(), other.numpy(), rtol=1e-5, atol=1e-6)
                        y.zero_()
                    np.testing.assert_array_equal(x.numpy(), values)


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


def test_errors(device: str) -> None:
    x = alpha.tensor(np.zeros((0, 3), np.float32), device=device)
    with pytest.raises(ShapeError, match=r"amax: axis 0 of shape \(0, 3\) is empty"):
        x.amax(0)
    with pytest.raises(ShapeError, match="topk: k=4 of the 3 elements"):
        x.topk(4)
    with pytest.raises(TypeError, match="max: keepdim needs dim; use amax"):
        x.max(keepdim=True)
    with pytest.raises(TypeError, match="min: keepdim needs dim; use amin"):
        x.min(keepdim=True)
    with pytest.raises(TypeError, match="prod: keepdim needs dim"):
        x.prod(keepdim=True)
    with pytest.raises(TypeError, match="norm: p='nuc' is not a number, 'fro' or None"):
        x.norm("nuc")
    for name in ("max", "min", "argmax", "argmin"):
        with pytest.raises(ShapeError, match=rf"{name}: axis 0 of shape \(0, 3\) is empty"):
            getattr(x, name)(0)
    with pytest.raises(TypeError, match="where: the condition has dtype float32; bools are needed"):
        alpha.where(x, x, x)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="clamp: min or max is needed"):
        x.clamp()
    with pytest.raises(ValueError, match="arange: step=-1 does not lead from 0 to 3"):
        alpha.arange(0, 3, -1)
    with pytest.raises(ValueError, match="randint: 0 integers from low=3 to high=3"):
        alpha.randint(3, 3, (2,))


def test_logsumexp_without_overflow(device: str) -> None:
    x = alpha.tensor(np.array([[1000, 1000], [-np.inf, -np.inf], [np.inf, 0]], np.float32), device=device)
    np.testing.assert_allclose(x.logsumexp(1).numpy(), [1000 + np.log(2), -np.inf, np.inf], rtol=1e-6)


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
