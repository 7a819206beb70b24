"""Normalisation of layers, groups, instances and neighbours: gradients, PyTorch's values, accuracy, sizes, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import check_gradient, check_torch, nchw

import alpha
import alpha.nn.functional as F
from alpha import ShapeError, nn
from alpha.ops.normalization.group import normalize_groups, normalize_groups_gradients

ROWS = [((3, 5, 7), (7,)), ((2, 3, 40), (3, 40)), ((5, 1100), (1100,)), ((70, 3), (3,))]
GROUPS = [((2, 4, 5, 6), 3), ((2, 7, 16), 2), ((3, 4, 8), 8), ((4, 6), 2), ((1, 40, 30, 4), 1)]


@pytest.mark.torch
@pytest.mark.parametrize("eps", [1e-5, 0.3])
@pytest.mark.parametrize(("shape", "last"), ROWS, ids=str)
def test_rows_as_in_pytorch(device: str, shape: tuple[int, ...], last: tuple[int, ...], eps: float) -> None:
    twins: Any = pytest.importorskip("torch").nn.functional
    check_torch(
        lambda x, w, b: F.layer_norm(x, last, w, b, eps),
        lambda x, w, b: twins.layer_norm(x, last, w, b, eps),
        *(shape, last, last),
        device=device,
    )
    check_torch(lambda x: F.layer_norm(x, last), lambda x: twins.layer_norm(x, last), shape, device=device)


@pytest.mark.torch
@pytest.mark.parametrize("eps", [None, 0.3])
@pytest.mark.parametrize(("shape", "last"), ROWS, ids=str)
def test_rms_as_in_pytorch(device: str, shape: tuple[int, ...], last: tuple[int, ...], eps: float | None) -> None:
    twins: Any = pytest.importorskip("torch").nn.functional
    check_torch(
        lambda x, w: F.rms_norm(x, last, w, eps),
        lambda x, w: twins.rms_norm(x, last, w, eps),
        *(shape, last),
        device=device,
    )


@pytest.mark.torch
@pytest.mark.parametrize(("shape", "groups"), GROUPS, ids=str)
def test_groups_as_in_pytorch(device: str, shape: tuple[int, ...], groups: int) -> None:
    twins: Any = pytest.importorskip("torch").nn.functional
    C = shape[-1:]

    def twin(x, w=None, b=None):  # type: ignore[no-untyped-def]
        return twins.group_norm(x.movedim(-1, 1), groups, w, b, 0.1).movedim(1, -1)

    check_torch(lambda x, w, b: F.group_norm(x, groups, w, b, 0.1), twin, shape, C, C, device=device)
    check_torch(lambda x: F.group_norm(x, groups, eps=0.1), twin, shape, device=device)


@pytest.mark.torch
def test_instances_as_in_pytorch(device: str) -> None:
    twins: Any = pytest.importorskip("torch").nn.functional
    check_torch(
        lambda x, w, b: F.instance_norm(x, None, None, w, b),
        nchw(lambda x, w, b: twins.instance_norm(x, None, None, w, b)),
        *((2, 4, 3, 4), (4,), (4,)),
        device=device,
    )


@pytest.mark.torch
def test_local_responses_as_in_pytorch(device: str) -> None:
    twins: Any = pytest.importorskip("torch").nn.functional
    check_torch(
        lambda x: F.local_response_norm(x, 4, 0.5, 0.6, 1.2),
        nchw(lambda x: twins.local_response_norm(x, 4, 0.5, 0.6, 1.2)),
        (2, 4, 3, 5),
        device=device,
    )


def test_gradients() -> None:
    check_gradient(lambda x, w, b: F.layer_norm(x, 7, w, b), (3, 5, 7), (7,), (7,))
    check_gradient(lambda x, b: F.layer_norm(x, (5, 7), None, b), (3, 5, 7), (5, 7))
    check_gradient(lambda x, w: F.rms_norm(x, 7, w), (3, 5, 7), (7,))
    check_gradient(lambda x, w, b: F.group_norm(x, 2, w, b), (2, 5, 6), (6,), (6,))


def test_a_large_mean_does_not_cancel(device: str) -> None:
    x = np.random.default_rng(0).standard_normal((4, 300)) + 3000
    y = F.layer_norm(alpha.tensor(x.astype(np.float32), device=device), 300).numpy()
    exact = x.astype(np.float32).astype(np.float64)
    exact = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, exact, atol=1e-3)


@pytest.mark.parametrize(
    "function", [lambda x: F.layer_norm(x, 600), lambda x: F.rms_norm(x, 600)], ids=["layer", "rms"]
)
def test_bfloat16_sums_in_float32(device: str, function: Any) -> None:
    x = alpha.tensor(np.random.default_rng(0).standard_normal((3, 600)), dtype="bfloat16", device=device)
    y = function(x)
    assert y.dtype == x.dtype
    exact = function(alpha.tensor(x.numpy().astype(np.float64))).numpy()
    np.testing.assert_allclose(y.numpy().astype(np.float64), exact, rtol=2**-8, atol=1e-5)


def test_the_same_bits_twice(device: str) -> None:
    rng = np.random.default_rng(0)
    X, W = rng.standard_normal((900, 24)).astype(np.float32), rng.standard_normal(24).astype(np.float32)
    runs = []
    for _ in range(2):
        x, w = (alpha.tensor(values, requires_grad=True, device=device) for values in (X, W))
        F.group_norm(x.reshape(9, 100, 24), 4, w).sum().backward()
        assert x.grad is not None
        assert w.grad is not None
        runs.append((x.grad.numpy(), w.grad.numpy()))
    for first, second in zip(*runs, strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    "kind", [nn.LayerNorm, nn.RMSNorm, lambda C: nn.GroupNorm(2, C)], ids=["layer", "rms", "group"]
)
def test_no_rows(device: str, kind: Any) -> None:
    """All gradients are 0, each in memory of its own."""
    x = alpha.tensor(np.zeros((0, 4), np.float32), requires_grad=True, device=device)
    layer = kind(4).to(device)
    layer(x).sum().backward()
    for parameter in layer.parameters():
        assert parameter.grad is not None
        np.testing.assert_array_equal(parameter.grad.numpy(), np.zeros(4))
        parameter.grad.add_(1)
    assert x.grad is not None
    assert x.grad.shape == (0, 4)


@pytest.mark.parametrize("sizes", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 5, 0, 4), (2, 5, 3, 0)], ids=str)
def test_groups_of_nothing_have_the_shapes_of_the_contract(device: str, sizes: tuple[int, int, int, int]) -> None:
    A, _, G, K = sizes
    for dtype in ("float32", "bfloat16"):
        x = alpha.zeros(*sizes, dtype=dtype, device=device).array
        Y, mean, rstd = normalize_groups(x, None, None, 1e-5, True)
        assert [tuple(y.shape) for y in (Y, mean, rstd)] == [sizes, (A, G), (A, G)]
        dX, dw, db = normalize_groups_gradients(x, x, mean, rstd, None, True)
        assert [tuple(y.shape) for y in (dX, dw, db)] == [sizes, (G * K,), (G * K,)]
        assert [y.dtype.name for y in (Y, dX)] == [dtype] * 2
        assert [y.dtype.name for y in (mean, rstd, dw, db)] == ["float32"] * 4


def test_errors(device: str) -> None:
    x, w = (alpha.tensor(np.ones(shape, np.float32), device=device) for shape in ((2, 3, 6), (4,)))
    with pytest.raises(ShapeError, match=r"layer_norm: normalized_shape \(4,\) is not that of the last axes of x"):
        F.layer_norm(x, 4)
    with pytest.raises(ShapeError, match=r"rms_norm: weight has shape \(4,\), normalized_shape \(6,\) is needed"):
        F.rms_norm(x, 6, w)
    with pytest.raises(ShapeError, match=r"group_norm: x \(N, .., C\) is needed, C a multiple of num_groups=4"):
        F.group_norm(x, 4)
    with pytest.raises(ShapeError, match=r"group_norm: bias has shape \(4,\), x \(2, 3, 6\) needs \(6,\)"):
        F.group_norm(x, 3, None, w)
    with pytest.raises(ValueError, match="GroupNorm: num_channels=6 is no multiple of num_groups=4"):
        nn.GroupNorm(4, 6)
    with pytest.raises(ShapeError, match=r"GroupNorm: x \(N, .., 4\) is needed, the channels last"):
        nn.GroupNorm(2, 4).to(device)(x)
    for bad in (-1.0, float("nan"), float("inf")):
        for function in (F.layer_norm, F.rms_norm):
            with pytest.raises(ValueError, match="eps="):
                function(x, 6, eps=bad)
        with pytest.raises(ValueError, match="eps="):
            nn.RMSNorm(6, eps=bad)
    with pytest.raises(ShapeError, match=r"rms_norm: normalized_shape=\(\) names no axis"):
        F.rms_norm(x, ())
    with pytest.raises(TypeError, match=r"normalized_shape=2\.5 is not an integer"):
        F.layer_norm(x, 2.5)  # type: ignore[arg-type]


def test_errors_of_instances(device: str) -> None:
    x = alpha.tensor(np.zeros((1, 4, 4, 3), np.float32), device=device)
    with pytest.raises(ShapeError, match=r"instance_norm: x \(N, \.\., C\) of more than one pixel is needed"):
        F.instance_norm(x[:, :1, :1])
    with pytest.raises(ShapeError, match="use_input_stats=False needs running_mean and running_var"):
        F.instance_norm(x, use_input_stats=False)
    with pytest.raises(ShapeError, match=r"InstanceNorm2d: x \(H, W, C\) or \(N, H, W, C\) is needed"):
        nn.InstanceNorm2d(3)(x.reshape(16, 3))


@pytest.mark.parametrize("layer", [nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d])
def test_what_an_instance_norm_refuses(layer: Any) -> None:
    name = layer.__name__
    with pytest.raises(ValueError, match=f"^{name}: momentum=None is not offered; only a number"):
        layer(3, momentum=None)
    x = alpha.zeros(2, *[4] * int(name[-2]), 3)
    with pytest.raises(ShapeError, match=f"^{name}: x has 3 channels, num_features=4"):
        layer(4, affine=True)(x)
    late = layer(3).eval()
    late.track_running_stats = True
    with pytest.raises(
        ValueError, match=f"^{name}: track_running_stats=True was written to a layer that was made with"
    ):
        late(x)


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
