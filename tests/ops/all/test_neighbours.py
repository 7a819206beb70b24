"""Windows as rows, instance and local response normalisation, similarities: gradients, PyTorch, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import check_gradient, check_torch, nchw

import alpha
import alpha.nn.functional as F
from alpha import ShapeError, nn

WINDOWS: list[dict[str, Any]] = [
    {"kernel_size": 2},
    {"kernel_size": (3, 2), "dilation": (1, 2), "padding": (1, 2), "stride": (2, 1)},
]
# name: (ours, PyTorch's, shapes)
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "instance_norm": (
        lambda x, w, b: F.instance_norm(x, None, None, w, b),
        lambda torch: nchw(lambda x, w, b: torch.nn.functional.instance_norm(x, None, None, w, b)),
        ((2, 4, 3, 4), (4,), (4,)),
    ),
    "local_response_norm": (
        lambda x: F.local_response_norm(x, 4, 0.5, 0.6, 1.2),
        lambda torch: nchw(lambda x: torch.nn.functional.local_response_norm(x, 4, 0.5, 0.6, 1.2)),
        ((2, 4, 3, 5),),
    ),
    "cosine_similarity": (
        lambda a, b: F.cosine_similarity(a, b, -1, 1.5),
        lambda torch: lambda a, b: torch.nn.functional.cosine_similarity(a, b, -1, 1.5),
        ((4, 3, 2), (3, 2)),
    ),
    "pairwise_distance": (
        lambda a, b: F.pairwise_distance(a, b, 3.0, 0.1, True),
        lambda torch: lambda a, b: torch.nn.functional.pairwise_distance(a, b, 3.0, 0.1, True),
        ((4, 3), (3,)),
    ),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", CASES)
def test_as_in_pytorch(device: str, name: str) -> None:
    ours, theirs, shapes = CASES[name]
    check_torch(ours, theirs(pytest.importorskip("torch")), *shapes, device=device)


@pytest.mark.parametrize("given", WINDOWS, ids=str)
def test_gradients_of_windows(given: dict[str, Any]) -> None:
    rows = F.unfold(alpha.zeros((2, 5, 4, 3)), **given).shape
    check_gradient(lambda x: F.unfold(x, **given), (2, 5, 4, 3))
    check_gradient(lambda x: F.fold(x, (5, 4), **given), rows)


@pytest.mark.torch
@pytest.mark.parametrize("given", WINDOWS, ids=str)
def test_windows_as_in_pytorch(device: str, given: dict[str, Any]) -> None:
    functional = pytest.importorskip("torch").nn.functional

    def unfold(x: Any) -> Any:
        return functional.unfold(x.permute(0, 3, 1, 2), **given).transpose(1, 2)

    def fold(x: Any) -> Any:
        return functional.fold(x.transpose(1, 2), (5, 4), **given).permute(0, 2, 3, 1)

    rows = F.unfold(alpha.zeros((2, 5, 4, 3)), **given).shape
    check_torch(lambda x: F.unfold(x, **given), unfold, (2, 5, 4, 3), device=device)
    check_torch(lambda x: F.fold(x, (5, 4), **given), fold, rows, device=device)


def test_running_statistics_of_instances(device: str) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 5, 2)).astype(np.float32) * 2 + 1
    layer = nn.InstanceNorm2d(2, momentum=0.25, track_running_stats=True).to(device)
    y = layer(alpha.tensor(x, device=device)).numpy()
    np.testing.assert_allclose(y.mean((1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(layer.running_mean.numpy(), 0.25 * x.mean((1, 2)).mean(0), rtol=1e-5)
    expected = 0.75 + 0.25 * x.var((1, 2), ddof=1).mean(0)
    np.testing.assert_allclose(layer.running_var.numpy(), expected, rtol=1e-5)
    y = layer.eval()(alpha.tensor(x, device=device)).numpy()
    scale = np.sqrt(layer.running_var.numpy() + layer.eps)
    np.testing.assert_allclose(y, (x - layer.running_mean.numpy()) / scale, rtol=1e-4, atol=1e-5)


def test_errors(device: str) -> None:
    x = alpha.tensor(np.zeros((1, 4, 4, 3), np.float32), device=device)
    with pytest.raises(ShapeError, match=r"unfold: there is no window of \(5, 5\) in images \(4, 4\) of 3 channels"):
        F.unfold(x, 5)
    with pytest.raises(ShapeError, match="fold: 3 x 3 windows need as many rows, x has 4"):
        F.fold(x.reshape(1, 4, 12), 4, 2)
    with pytest.raises(ShapeError, match=r"instance_norm: x \(N, \.\., C\) of more than one pixel is needed"):
        F.instance_norm(x[:, :1, :1])
    with pytest.raises(ShapeError, match="use_input_stats=False needs running_mean and running_var"):
        F.instance_norm(x, use_input_stats=False)
    with pytest.raises(ShapeError, match=r"InstanceNorm2d: x \(H, W, C\) or \(N, H, W, C\) is needed"):
        nn.InstanceNorm2d(3)(x.reshape(16, 3))
    with pytest.raises(ShapeError, match=r"unflatten: sizes=\(2, 3\) do not fit axis 1 of shape \(1, 4, 4, 3\)"):
        F.unflatten(x, 1, (2, 3))
