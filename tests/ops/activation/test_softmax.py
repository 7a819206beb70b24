"""Softmax and its relatives: agreement with PyTorch, lines of any length along any axis, infinities and NaN."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import apart, check_gradient, check_torch

import alpha
import alpha.nn.functional as F
from alpha import ShapeError, nn

NAMES = ("softmax", "log_softmax", "softmin")
INF, NAN = float("inf"), float("nan")


@pytest.mark.torch
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_as_in_pytorch(device: str, name: str, dim: int) -> None:
    torch = pytest.importorskip("torch")
    ours, twin = getattr(F, name), getattr(torch.nn.functional, name)
    check_torch(lambda x: ours(x, dim), lambda x: twin(x, dim), apart(3, 5, 4), device=device)


@pytest.mark.parametrize("name", NAMES)
def test_gradients(name: str) -> None:
    check_gradient(lambda x: getattr(F, name)(x, -1), apart(5, 7))
    check_gradient(lambda x: getattr(F, name)(x, 0), apart(5, 7))


@pytest.mark.parametrize(("shape", "dim"), [((3, 1), 1), ((2, 1031), 1), ((300, 3), 0), ((2, 70, 33), 1), ((7,), 0)])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_both_devices_agree(name: str, shape: tuple[int, ...], dim: int) -> None:
    rng = np.random.default_rng(0)
    X, dY = rng.standard_normal((2, *shape)).astype(np.float32) * 3
    found = []
    for device in ("cpu", "cuda"):
        x = alpha.tensor(X, requires_grad=True, device=device)
        y = getattr(F, name)(x, dim)
        y.backward(alpha.tensor(dY, device=device))
        assert x.grad is not None
        found.append((y.numpy(), x.grad.numpy()))
    for ours, other in zip(*found, strict=True):
        np.testing.assert_allclose(ours, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_infinities_and_nan(device: str, name: str) -> None:
    """A masked element has no share; a line without a finite share, of NaN or of +inf is NaN."""
    rows = np.array([[-INF, 0, 0], [-INF] * 3, [INF, 0, 1], [NAN, 0, 1], [1e30, -1e30, 1e30]], np.float32)
    y = getattr(F, name)(alpha.tensor(rows, device=device), -1).numpy()
    half = np.array([[0, 0.5, 0.5], [0.5, 0, 0.5]])
    with np.errstate(divide="ignore"):
        expected = (
            half if name == "softmax" else np.where(rows[[0, 4]] < -1e29, rows[[0, 4]] - [[0], [1e30]], np.log(0.5))
        )
    np.testing.assert_allclose(y[[0, 4]], expected, rtol=1e-6)
    assert np.isnan(y[1:4]).all()


def test_bfloat16_sums_in_float32(device: str) -> None:
    x = alpha.tensor(np.zeros((2, 1000)), dtype="bfloat16", device=device)
    y = F.softmax(x, -1)
    assert y.dtype == x.dtype
    np.testing.assert_allclose(y.numpy().astype(np.float32), 1e-3, rtol=2**-8)


def test_shapes_and_errors(device: str) -> None:
    x = alpha.tensor(np.zeros((2, 0, 3), np.float32), device=device)
    assert F.softmax(x, 1).shape == F.log_softmax(x, 2).shape == (2, 0, 3)
    assert F.softmax(alpha.tensor(3.0, device=device), 0).numpy() == 1
    with pytest.raises(ShapeError, match=r"softmax: 3 is not an axis of shape \(2, 0, 3\)"):
        F.softmax(x, 3)
    with pytest.raises(TypeError, match="softmax: the tensor has dtype int64"):
        F.softmax(alpha.tensor([1, 2], device=device), 0)
    with pytest.raises(ShapeError, match="Softmax2d: x"):
        nn.Softmax2d()(alpha.tensor(np.zeros((2, 3), np.float32), device=device))
