"""PReLU, RReLU, GLU and Threshold: agreement with PyTorch, and what is drawn."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import apart, check_gradient, check_torch

import alpha
import alpha.nn.functional as F
from alpha import ShapeError

X, SLOPES = apart(2, 3, 4), np.array([0.25, -0.5, 2.0, 0.0])


@pytest.mark.torch
@pytest.mark.parametrize("slopes", [SLOPES, SLOPES[:1]], ids=["channels", "one"])
def test_prelu_as_in_pytorch(device: str, slopes: np.ndarray) -> None:
    torch = pytest.importorskip("torch")

    def twin(x, weight):  # type: ignore[no-untyped-def]
        return torch.nn.functional.prelu(x.movedim(-1, 1), weight).movedim(1, -1)

    check_torch(F.prelu, twin, X, slopes, device=device)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("dim", [0, 2, -1])
def test_glu_as_in_pytorch(device: str, dim: int) -> None:
    torch = pytest.importorskip("torch")
    check_torch(lambda x: F.glu(x, dim), lambda x: torch.nn.functional.glu(x, dim), X, device=device)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("value", [-1.0, 2.0])
def test_threshold_as_in_pytorch(device: str, value: float) -> None:
    torch = pytest.importorskip("torch")
    check_torch(
        lambda x: F.threshold(x, 0.13, value), lambda x: torch.nn.functional.threshold(x, 0.13, value), X, device=device
    )


def test_gradients() -> None:
    check_gradient(F.prelu, X, SLOPES)
    check_gradient(F.glu, X)
    for value in (-1.0, 0.5):
        check_gradient(lambda x, value=value: F.threshold(x * 1.0, 0.13, value, inplace=True), X)


def test_rrelu_draws_slopes_within_its_bounds(device: str) -> None:
    """The gradient has the slopes of the forward pass, and each call draws others."""
    x = alpha.tensor(np.full((500,), -2.0, np.float32), requires_grad=True, device=device)
    alpha.manual_seed(1)
    y, other = F.rrelu(x, 0.2, 0.4, training=True), F.rrelu(x, 0.2, 0.4, training=True)
    slopes = y.numpy() / -2
    assert (slopes >= 0.2).all()
    assert (slopes <= 0.4).all()
    assert slopes.std() > 0.04
    assert (other.numpy() != y.numpy()).any()
    y.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), slopes, rtol=1e-6)
    np.testing.assert_allclose(F.rrelu(x, 0.2, 0.4).numpy(), -0.6, rtol=1e-6)


def test_rrelu_in_place_has_the_numbers_of_rrelu(device: str) -> None:
    x, results = alpha.tensor(X, requires_grad=True, device=device), []
    for inplace in (False, True):
        x.grad, y = None, x * 1.0
        alpha.manual_seed(1)
        z = F.rrelu(y, training=True, inplace=inplace)
        assert (z is y) == inplace
        (z * z).sum().backward()
        assert x.grad is not None
        results.append((z.numpy(), x.grad.numpy()))
    np.testing.assert_array_equal(*results)


def test_errors(device: str) -> None:
    x = alpha.tensor(np.zeros((2, 3), np.float32), device=device)
    with pytest.raises(ShapeError, match=r"prelu: weight has shape \(2,\), x \(2, 3\) needs \(3,\)"):
        F.prelu(x, alpha.tensor(np.zeros(2, np.float32), device=device))
    with pytest.raises(ShapeError, match=r"glu: axis -1 of x \(2, 3\) has no two equal halves"):
        F.glu(x)
    with pytest.raises(ValueError, match=r"rrelu: lower=0\.5 is above upper=0\.1"):
        F.rrelu(x, 0.5, 0.1)
    with pytest.raises(ValueError, match=r"hardtanh: min_val=2\.0 is above max_val=1\.0"):
        F.hardtanh(x, 2, 1)
    with pytest.raises(ValueError, match="celu: alpha must not be 0"):
        F.celu(x, 0.0)
    with pytest.raises(ValueError, match=r"softshrink: lambd=-1\.0 is negative"):
        F.softshrink(x, -1)
