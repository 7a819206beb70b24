"""Medians, quantiles, running extremes and logarithms of sums, sums without NaN: values, places and gradients."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from helpers import check_gradient

import alpha
from alpha import ShapeError, Tensor

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

NAN = np.float32(np.nan)
SHAPES = [(), (1,), (4,), (5,), (3, 4), (2, 5, 3), (3, 1), (0, 3)]


def values(shape: tuple[int, ...], share: float = 0.0, seed: int = 0) -> np.ndarray:
    """Distinct numbers, a share of them replaced by NaN."""
    rng = np.random.default_rng(seed)
    found = rng.permutation(int(np.prod(shape))).astype(np.float32).reshape(shape) - 3
    return np.asarray(np.where(rng.random(shape) < share, NAN, found), np.float32)


def check(name: str, x: np.ndarray, device: str, *rest: Any, **named: Any) -> None:
    """All results and the gradient against PyTorch's."""
    ours, theirs = alpha.tensor(x, requires_grad=True, device=device), torch.tensor(x, requires_grad=True)
    given = [
        (v, v) if not isinstance(v, np.ndarray) else (alpha.tensor(v, device=device), torch.tensor(v)) for v in rest
    ]
    found = getattr(ours, name)(*(pair[0] for pair in given), **named)
    expected = getattr(theirs, name)(*(pair[1] for pair in given), **named)
    found, expected = ([r] if not isinstance(r, tuple) else list(r) for r in (found, expected))
    what = f"{name} {x.shape} {rest} {named}"
    for mine, other in zip(found, expected, strict=True):
        assert mine.shape == tuple(other.shape), what
        assert f"torch.{mine.dtype}" == str(other.dtype)
        np.testing.assert_allclose(mine.numpy(), other.detach().numpy(), rtol=1e-5, atol=1e-5, err_msg=what)
    seeds = [np.asarray(np.random.default_rng(1).standard_normal(tuple(r.shape)), np.float32) for r in expected]
    for mine, other, seed in zip(found, expected, seeds, strict=True):
        if other.requires_grad:
            mine.backward(alpha.tensor(seed, device=device), retain_graph=True)
            other.backward(torch.tensor(seed), retain_graph=True)
    assert ours.grad is not None
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-4, err_msg=what)


def axes(shape: tuple[int, ...]) -> list[int]:
    """The axes that are not empty, from both ends."""
    rank = max(1, len(shape))
    return [dim for dim in range(-rank, rank) if not shape or shape[dim]]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_medians(device: str, name: str) -> None:
    for shape in SHAPES:
        for share in (0.0, 0.0 if name == "median" else 0.4):  # PyTorch says another place of several NaN
            x = values(shape, share)
            check(name, x, device)
            for dim in axes(shape):
                if not (name == "nanmedian" and np.isnan(x).all(dim).any()):
                    check(name, x, device, dim)
                    check(name, x, device, dim, keepdim=True)


def test_medians_of_nan(device: str) -> None:
    x = alpha.tensor([[NAN, 1, 2], [NAN, NAN, NAN], [3, 1, 2]], device=device, requires_grad=True)
    np.testing.assert_array_equal(x.median(1).values.numpy(), [NAN, NAN, 2])
    np.testing.assert_array_equal(x.nanmedian(1).values.numpy(), [1, NAN, 2])
    assert x.median(1).indices.numpy()[2] == 2
    assert np.isnan(x.median().item())
    found = x.nanmedian()
    assert found.item() == 2
    found.backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), [[0, 0, 0.5], [0, 0, 0], [0, 0, 0.5]])  # equal ones share it


def test_medians_of_integers_and_of_nothing(device: str) -> None:
    x = alpha.tensor([[4, 1, 3, 2], [1, 1, 2, 2]], device=device)
    assert x.median().item() == 2
    assert (x.median(1).values.tolist(), x.nanmedian(1).indices.tolist()) == ([2, 1], [3, 1])
    assert np.isnan(alpha.zeros(0, device=device).median().item())
    for name in ("median", "nanmedian"):
        with pytest.raises(ShapeError, match=rf"{name}: axis 0 of shape \(0, 2\) is empty"):
            getattr(alpha, name)(alpha.zeros((0, 2), device=device), 0)
        with pytest.raises(TypeError, match=rf"{name}: keepdim needs dim"):
            getattr(alpha, name)(x, keepdim=True)


def test_kth_values(device: str) -> None:
    for shape in SHAPES:
        x = values(shape)
        for dim in axes(shape):
            length = shape[dim] if shape else 1
            for k in {1, length}:
                check("kthvalue", x, device, k, dim)
                check("kthvalue", x, device, k, dim, keepdim=True)
    x = alpha.tensor([NAN, 1.0, 2.0], device=device)
    assert np.isnan(x.kthvalue(3).values.item())
    for wrong in (0, 4):
        with pytest.raises(ShapeError, match=rf"kthvalue: k={wrong} of the 3 elements along axis 0"):
            x.kthvalue(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles(device: str, interpolation: str) -> None:
    # the device makes no difference to the interpolation, and each shape compiles kernels on cuda
    for shape in SHAPES[:-1] if device == "cpu" or interpolation == "linear" else SHAPES[1:2]:
        x = values(shape)
        for q in (0.0, 0.3, 0.5, 1.0, np.array(0.7, np.float32), np.array([0.9, 0.0, 0.35], np.float32)):
            check("quantile", x, device, q, interpolation=interpolation)
            check("quantile", x, device, q, keepdim=True, interpolation=interpolation)
            for dim in axes(shape):
                check("quantile", x, device, q, dim, interpolation=interpolation)
                check("quantile", x, device, q, dim, keepdim=True, interpolation=interpolation)


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles_of_numbers(device: str, interpolation: str) -> None:
    """Rows with NaN, and one of nothing else."""
    x = values((4, 5), 0.4)
    x[2] = NAN
    for q in (0.3, np.array([0.9, 0.0, 0.35], np.float32)):
        check("nanquantile", x, device, q, interpolation=interpolation)
        for dim in (0, 1):
            check("nanquantile", x, device, q, dim, keepdim=True, interpolation=interpolation)
    with pytest.raises(ValueError, match=r"nanquantile: q=-1\.0 is not within 0 and 1"):
        alpha.tensor(x).nanquantile(-1)


def test_quantiles_of_nan_and_bfloat16(device: str) -> None:
    x = alpha.tensor([[NAN, 1, 2], [0, 4, 2]], device=device)
    np.testing.assert_array_equal(x.quantile(0.25, 1).numpy(), [NAN, 1])
    low = x[1].bfloat16().quantile(0.25)
    assert (low.dtype.name, low.float().item()) == ("bfloat16", 1.0)


def test_wrong_arguments_of_quantile(device: str) -> None:
    x = alpha.ones(3, device=device)
    with pytest.raises(ValueError, match=r"quantile: q=1.5 is not within 0 and 1"):
        x.quantile(1.5)
    with pytest.raises(ValueError, match=r"quantile: interpolation='cubic' is none of linear, lower"):
        x.quantile(0.5, interpolation="cubic")
    with pytest.raises(ShapeError, match=r"quantile: q has shape \(1, 1\); a number or one axis is needed"):
        x.quantile(alpha.ones((1, 1), device=device))
    with pytest.raises(TypeError, match=r"quantile: x has dtype float32 and q int64"):
        x.quantile(alpha.tensor(1, device=device))
    with pytest.raises(ShapeError, match=r"quantile: x of shape \(0,\) is empty"):
        alpha.zeros(0, device=device).quantile(0.5)
    outside = alpha.tensor([2.0], device=device)
    if device == "cpu":
        with pytest.raises(ValueError, match="quantile: an element of q is not within 0 and 1"):
            x.quantile(outside)
    else:
        np.testing.assert_array_equal(x.quantile(outside).numpy(), [1.0])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extremes(device: str, name: str) -> None:
    rng = np.random.default_rng(0)
    for shape in [*SHAPES, (2, 40, 3), (3, 300)]:
        ties = np.asarray(rng.integers(-2, 3, shape), np.float32)
        for x in (ties, np.asarray(np.where(rng.random(shape) < 0.1, NAN, ties), np.float32)):
            for dim in axes(shape):
                check(name, x, device, dim)
    for dtype in ("int64", "int32", "uint8", "bool"):
        x = rng.integers(0, 3, (4, 5)).astype(dtype)
        found, expected = (
            getattr(alpha, name)(alpha.tensor(x, device=device), 1),
            getattr(torch, name)(torch.tensor(x), 1),
        )
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine.numpy(), other.numpy(), err_msg=dtype)


def exact_log_sums(x: np.ndarray) -> np.ndarray:
    return np.logaddexp.accumulate(x.astype(np.float64), axis=-1)


def test_running_logarithms_of_sums(device: str) -> None:
    rng = np.random.default_rng(0)
    for shape in [*SHAPES, (2, 40, 3), (3, 3000)]:
        for scale in (1, 200):
            x = np.asarray(rng.standard_normal(shape) * scale, np.float32)
            for dim in axes(shape):
                found = alpha.logcumsumexp(alpha.tensor(x, device=device), dim)
                expected = np.moveaxis(exact_log_sums(np.moveaxis(np.atleast_1d(x), dim, -1)), -1, dim).reshape(shape)
                np.testing.assert_allclose(found.numpy(), expected, rtol=2e-6, atol=2e-6)
    inf = np.float32(np.inf)
    x = np.array([[-inf, -inf, 1, inf, 2], [-inf, 0, 0, -inf, 1], [0, NAN, 1, -inf, inf]], np.float32)
    found = alpha.logcumsumexp(alpha.tensor(x, device=device), 1)
    np.testing.assert_allclose(found.numpy(), torch.logcumsumexp(torch.tensor(x), 1).numpy(), rtol=1e-6)


def test_gradient_of_running_logarithms(device: str) -> None:
    """Exact for numbers whose exponentials are far apart, and 0 at a leading -inf that nothing follows."""
    x = np.array([[0, 80, -80, 81], [-90, -91, 60, 0]], np.float32)
    ours = alpha.tensor(x, requires_grad=True, device=device)
    seed = np.array([[1, 2, 3, 4], [-1, 2, 0.5, 1]], np.float32)
    ours.logcumsumexp(1).backward(alpha.tensor(seed, device=device))
    sums = exact_log_sums(x)
    weights = np.tril(np.exp(x[:, None, :].astype(np.float64) - sums[:, :, None]))
    assert ours.grad is not None
    np.testing.assert_allclose(ours.grad.numpy(), np.einsum("ar,arc->ac", seed, weights), rtol=1e-5, atol=1e-30)
    if device == "cpu":
        check_gradient(lambda a: a.logcumsumexp(0), values((4, 3)) / 5)


@pytest.mark.slow
def test_sums_without_nan(device: str) -> None:
    """PyTorch multiplies by the gradient of a mean of nothing, which is infinite; in Alpha what is NaN has none."""
    for shape, share in itertools.product(SHAPES, (0.0, 0.4, 1.0)):
        x = values(shape, share)
        for dim in (None, *axes(shape)):
            check("nansum", x, device, dim)
            check("nansum", x, device, dim, keepdim=True)
            if not np.isnan(x).all(dim).any() or not x.size:
                check("nanmean", x, device, dim)
                check("nanmean", x, device, dim, keepdim=True)
    x = alpha.tensor([[NAN, NAN], [NAN, 3]], device=device, requires_grad=True)
    found = x.nanmean(1)
    np.testing.assert_array_equal(found.numpy(), [NAN, 3])
    found.sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), [[0, 0], [0, 1]])
    ones = alpha.full((1000,), 1.0, dtype="bfloat16", device=device)
    assert ones.nanmean().float().item() == 1.0  # bfloat16 has no 999
    assert alpha.nansum(alpha.tensor([True, True], device=device)).item() == 2


@pytest.mark.parametrize(("name", "single"), [("var_mean", "var"), ("std_mean", "std")])
def test_means_beside_variances(device: str, name: str, single: str) -> None:
    x = alpha.tensor(values((4, 3)), device=device)
    for dim, more in ((None, {}), (0, {"correction": 0}), ((0, 1), {"keepdim": True}), (-1, {"unbiased": False})):
        spread, mean = getattr(alpha, name)(x, dim, **more)
        np.testing.assert_array_equal(spread.numpy(), getattr(x, single)(dim, **more).numpy())
        np.testing.assert_array_equal(mean.numpy(), x.mean(dim, keepdim=more.get("keepdim", False)).numpy())


def test_both_extremes(device: str) -> None:
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 12):
        pytest.skip("older versions of PyTorch have no gradient of aminmax")
    for shape in SHAPES[:-1]:
        check("aminmax", values(shape), device)
        check("aminmax", values(shape), device, keepdim=True)
        for dim in axes(shape):
            check("aminmax", values(shape), device, dim=dim)
    with pytest.raises(ShapeError, match="is empty"):
        alpha.aminmax(alpha.zeros((0, 2), device=device))


def test_differences(device: str) -> None:
    for shape in SHAPES[1:]:
        for dim in range(-len(shape), len(shape)):
            for n in (0, 1, 2, 7):
                check("diff", values(shape), device, n, dim)
    x, front, back = (values(shape) for shape in ((3, 4), (3, 1), (3, 2)))
    check("diff", x, device, 2, 1, front, back)
    ours = [alpha.tensor(part, requires_grad=True, device=device) for part in (x, front, back)]
    alpha.diff(ours[0], 1, -1, *ours[1:]).sum().backward()
    gradients: list[Any] = [part.grad for part in ours]
    assert all(isinstance(grad, Tensor) for grad in gradients)
    np.testing.assert_array_equal(gradients[1].numpy(), -np.ones((3, 1)))
    np.testing.assert_array_equal(gradients[2].numpy(), [[0, 1]] * 3)
    with pytest.raises(ShapeError, match="diff: x has no axis"):
        alpha.tensor(1.0, device=device).diff()
    with pytest.raises(ValueError, match=r"diff: n=-1 must be at least 0"):
        ours[0].diff(-1)
