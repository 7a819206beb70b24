"""Batch normalisation: gradients in both modes, running statistics, accuracy, agreement with PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import assert_close, check_gradient, check_torch, positive

import alpha
import alpha.nn.functional as F
from alpha import ShapeError, nn

SHAPES = [(6, 3), (2, 3, 4, 5), (3, 4, 8), (300, 4), (2, 1)]


def statistics(C: int, device: str, dtype: Any = np.float32) -> list[alpha.Tensor]:
    mean = np.linspace(-1, 1, C).astype(dtype)
    return [alpha.tensor(a, device=device) for a in (mean, positive(C).astype(dtype))]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients(shape: tuple[int, ...]) -> None:
    C = shape[-1]
    check_gradient(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), shape, (C,), (C,))
    mean, var = statistics(C, "cpu", np.float64)
    check_gradient(lambda x, w, b: F.batch_norm(x, mean, var, w, b), shape, (C,), (C,))


@pytest.mark.torch
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [s for s in SHAPES if s != (2, 1)], ids=str)
def test_as_in_pytorch(device: str, shape: tuple[int, ...], training: bool) -> None:
    torch = pytest.importorskip("torch")
    C = shape[-1]
    ours = statistics(C, device)
    theirs = [torch.tensor(t.numpy().astype(np.float64)) for t in ours]

    def twin(x, w, b):  # type: ignore[no-untyped-def]
        rows = x.reshape(-1, C)
        y = torch.nn.functional.batch_norm(rows, *theirs, w, b, training, 0.3, 1e-4)
        return y.reshape(x.shape)

    check_torch(
        lambda x, w, b: F.batch_norm(x, *ours, w, b, training=training, momentum=0.3, eps=1e-4),
        twin,
        shape,
        positive(C),
        (C,),
        device=device,
        length=1000,
    )
    for mine, his in zip(ours, theirs, strict=True):
        assert_close(mine.numpy(), his.numpy(), 64, "running statistics")


def test_a_large_mean_does_not_cancel(device: str, rng: np.random.Generator) -> None:
    """Deviations of 1 about 4096: a sum of squares would leave float32 no digit of the variance."""
    x = (4096 + rng.standard_normal((2000, 6))).astype(np.float32)
    one, zero = (alpha.tensor(np.full(6, v, np.float32), device=device) for v in (1, 0))
    y = F.batch_norm(alpha.tensor(x, device=device), None, None, one, zero, training=True).numpy()
    exact = (x - x.mean(0, dtype=np.float64)) / np.sqrt(x.astype(np.float64).var(0) + 1e-5)
    assert np.abs(y - exact).max() < 1e-3


def test_running_statistics_wait_for_training(device: str) -> None:
    mean, var = statistics(3, device)
    before = mean.numpy(), var.numpy()
    x = alpha.tensor(np.ones((4, 3), np.float32), device=device)
    one = alpha.tensor(np.ones(3, np.float32), device=device)
    F.batch_norm(x, mean, var, one, one)
    np.testing.assert_array_equal((mean.numpy(), var.numpy()), before)
    F.batch_norm(x, mean, var, one, one, training=True, momentum=1.0)
    np.testing.assert_array_equal(mean.numpy(), [1, 1, 1])
    np.testing.assert_array_equal(var.numpy(), [0, 0, 0])


def test_empty_in_evaluation(device: str) -> None:
    mean, var = statistics(3, device)
    x = alpha.tensor(np.zeros((0, 3), np.float32), requires_grad=True, device=device)
    w = alpha.tensor(np.ones(3, np.float32), requires_grad=True, device=device)
    F.batch_norm(x, mean, var, w, w).sum().backward()
    assert x.grad is not None
    assert x.grad.shape == (0, 3)
    assert w.grad is not None
    assert not w.grad.numpy().any()


@pytest.mark.torch
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("tracks", [True, False])
def test_the_layer_without_some_of_its_parts_as_in_pytorch(device: str, affine: bool, tracks: bool) -> None:
    torch = pytest.importorskip("torch")
    layer = alpha.nn.BatchNorm2d(3, 1e-3, 0.3, affine, tracks).to(device)
    twin = torch.nn.BatchNorm2d(3, 1e-3, 0.3, affine, tracks).double()
    for mode in (True, False):
        layer.train(mode)
        twin.train(mode)
        check_torch(layer, lambda x: twin(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1), (2, 4, 5, 3), device=device)
    names = [name for name in twin.state_dict() if name != "num_batches_tracked"]
    assert list(layer.state_dict()) == names
    for name, value in layer.state_dict().items():
        assert_close(value, twin.state_dict()[name].numpy(), 64, name)


def test_without_weight_and_bias(device: str) -> None:
    x = alpha.tensor(np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32), device=device)
    one, zero = (alpha.tensor(np.full(3, v, np.float32), device=device) for v in (1, 0))
    whole = F.batch_norm(x, None, None, one, zero, True).numpy()
    for weight, bias in ((None, None), (one, None), (None, zero)):
        np.testing.assert_array_equal(F.batch_norm(x, None, None, weight, bias, True).numpy(), whole)


@pytest.mark.parametrize(("name", "value"), [("eps", -1e-5), ("eps", np.nan), ("momentum", np.inf)])
def test_numbers_that_mean_nothing(name: str, value: float | None) -> None:
    x = alpha.tensor(np.ones((4, 3), np.float32))
    for refuse in (
        lambda: F.batch_norm(x, None, None, training=True, **{name: value}),
        lambda: alpha.nn.BatchNorm2d(3, **{name: value}),
    ):
        with pytest.raises((TypeError, ValueError), match=f"{name}={value}"):
            refuse()


def test_statistics_on_another_device(device: str) -> None:
    x = alpha.tensor(np.ones((4, 3), np.float32), device=device)
    other = "cpu" if device == "cuda" else "cuda"
    mean, var = statistics(3, other)
    with pytest.raises(alpha.DeviceError, match=f"x is on {device} and running_mean on {other}"):
        F.batch_norm(x, mean, var)
    with pytest.raises(ShapeError, match="running_mean and running_var are needed together"):
        F.batch_norm(x, statistics(3, device)[0], None, training=True)


def test_errors(device: str) -> None:
    x, w = (alpha.tensor(np.ones(s, np.float32), device=device) for s in ((2, 3), (4,)))
    three = alpha.tensor(np.ones(3, np.float32), device=device)
    with pytest.raises(ShapeError, match=r"batch_norm: weight has shape \(4,\), x \(2, 3\) needs \(3,\)"):
        F.batch_norm(x, None, None, w, three, training=True)
    with pytest.raises(ShapeError, match=r"one row a channel has no variance to train on  \(x \(1, 3\)\)"):
        F.batch_norm(x[:1], None, None, three, three, training=True)
    with pytest.raises(ShapeError, match="evaluation needs running_mean and running_var"):
        F.batch_norm(x, None, None, three, three)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "shape"), [("BatchNorm1d", (5, 3)), ("BatchNorm1d", (5, 4, 3)), ("BatchNorm3d", (2, 3, 4, 2, 3))], ids=str
)
def test_layers_of_other_axes_as_in_pytorch(device: str, name: str, shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    ours, twin = getattr(nn, name)(3).to(device), getattr(torch.nn, name)(3)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for training in (True, False):
        found = ours.train(training)(alpha.tensor(x, device=device)).numpy()
        given = torch.from_numpy(x).movedim(-1, 1)
        expected = twin.train(training)(given).movedim(1, -1).detach().numpy()
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(ours.running_var.numpy(), twin.running_var.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "ranks"), [("BatchNorm1d", (2, 3)), ("BatchNorm2d", (4,)), ("BatchNorm3d", (5,))], ids=str
)
def test_layers_check_the_number_of_axes(device: str, name: str, ranks: tuple[int, ...]) -> None:
    layer = getattr(nn, name)(3).to(device)
    for rank in range(1, 6):
        x = alpha.tensor(np.ones((2,) * (rank - 1) + (3,), np.float32), device=device)
        if rank in ranks:
            assert layer(x).shape == x.shape
        else:
            with pytest.raises(ShapeError, match=rf"{name}: x \(N, .*C\) is needed, the channels last"):
                layer(x)
