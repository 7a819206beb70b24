"""Batch normalisation: gradients in both modes, running statistics, accuracy, agreement with PyTorch."""

from __future__ import annotations

import unittest.mock
from typing import Any

import numpy as np
import pytest
from helpers import assert_close, check_gradient, check_torch, positive
from launch_log import observed_launches

import alpha
import alpha.nn.functional as F
from alpha import ShapeError, nn
from alpha.ops.kernel.rectifier import Rectifier, rectifier_of

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


def test_running_statistics_that_move_before_the_backward_pass_are_seen(device: str) -> None:
    mean, var = statistics(3, device)
    x = alpha.tensor(np.arange(12, dtype=np.float32).reshape(4, 3), device=device, requires_grad=True)
    for reads in (lambda: F.batch_norm(x, mean, var), lambda: x * mean):
        reads().sum().backward()
        y = reads()
        trained = F.batch_norm(x, mean, var, training=True)
        with pytest.raises(alpha.GradientError, match="was written in place by batch_norm"):
            y.sum().backward()
        F.batch_norm(x, mean, var, training=True)
        trained.sum().backward()  # reads those of its batch


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
    for name, value in layer.state_dict().numpy().items():
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


# -- with a residual and an activation ------------------------------------------------------------

ACTIVATIONS = [None, nn.ReLU(), nn.ReLU6(), nn.LeakyReLU(0.2), F.relu, F.relu6, F.leaky_relu, F.gelu, nn.LeakyReLU(0.0)]
RECTIFIERS = [Rectifier(), Rectifier(bound=6.0), Rectifier(0.2), Rectifier(), Rectifier(bound=6.0), Rectifier(0.01)]


def test_which_activations_are_rectifiers() -> None:
    assert [rectifier_of(activation) for activation in ACTIVATIONS] == [None, *RECTIFIERS, None, None]
    assert rectifier_of(nn.LeakyReLU(-0.1)) is None  # the sign of Y would not be that of Z

    class Other(nn.ReLU):
        def forward(self, x: alpha.Tensor) -> alpha.Tensor:
            return -super().forward(x)

    assert rectifier_of(Other()) is None
    assert rectifier_of(unittest.mock.MagicMock(__hash__=None)) is None


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("with_residual", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda a: getattr(a, "__name__", str(a)))
def test_residual_and_activation_are_those_of_operators_of_their_own(
    device: str, activation: Any, with_residual: bool, training: bool, rng: np.random.Generator
) -> None:
    """Results, gradients and running statistics, with weights that make ReLU6 reach its bound."""
    arrays = [4 * rng.standard_normal(shape) for shape in ((3, 5, 4, 8), (3, 5, 4, 8), (8,), (8,))]
    dy = alpha.tensor(rng.standard_normal((3, 5, 4, 8)).astype(np.float32), device=device)
    found = []
    for fused in (True, False):
        x, residual, w, b = (alpha.tensor(a.astype(np.float32), device=device, requires_grad=True) for a in arrays)
        running = statistics(8, device)
        if fused:
            y = F.batch_norm(
                x, *running, w, b, training, residual=residual if with_residual else None, activation=activation
            )
        else:
            y = F.batch_norm(x, *running, w, b, training)
            y = y + residual if with_residual else y
            y = y if activation is None else activation(y)
        y.backward(dy)
        grads = [t.grad for t in (x, w, b, *([residual] if with_residual else []))]
        found.append([t.numpy() for t in (y, *running, *grads) if t is not None])
    assert len(found[0]) == len(found[1]) == 6 + with_residual
    for mine, own in zip(*found, strict=True):
        assert_close(mine, own, 60, "fused")


def test_gradients_with_a_residual_and_a_rectifier() -> None:
    for activation in (F.relu, F.relu6, F.leaky_relu):
        check_gradient(
            lambda x, r, w, b, a=activation: F.batch_norm(x, None, None, w, b, True, residual=r, activation=a),
            (6, 3),
            (6, 3),
            (3,),
            (3,),
        )
        check_gradient(
            lambda x, w, b, a=activation: F.batch_norm(x, None, None, w, b, True, activation=a), (6, 3), (3,), (3,)
        )


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("activation", [nn.ReLU(), nn.ReLU6(), nn.LeakyReLU(0.2)], ids=str)
@pytest.mark.parametrize("with_residual", [True, False])
def test_what_is_not_finite_passes_as_through_operators_of_their_own(
    device: str, activation: Any, with_residual: bool
) -> None:
    values = np.array([[np.inf, 1], [-np.inf, 2], [np.nan, -3], [0, 0]], np.float32)
    dy = alpha.tensor(np.array([[1, np.inf]] * 4, np.float32), device=device)
    found = []
    for fused in (True, False):
        x, residual = (alpha.tensor(v, device=device, requires_grad=True) for v in (values, values[::-1].copy()))
        r = residual if with_residual else None
        mean, var = statistics(2, device)
        if fused:
            y = F.batch_norm(x, mean, var, residual=r, activation=activation)
        else:
            y = F.batch_norm(x, mean, var)
            y = activation(y if r is None else y + r)
        y.backward(dy)
        assert x.grad is not None
        found.append((y.numpy(), x.grad.numpy()))
    for mine, own in zip(*found, strict=True):
        np.testing.assert_allclose(mine, own, rtol=1e-6)


def test_a_residual_of_another_shape_or_dtype_is_added_as_add_does(device: str) -> None:
    x = alpha.tensor(np.arange(12, dtype=np.float32).reshape(4, 3), device=device)
    shapes = [(), (3,), (2, 4, 3)]
    residuals = [(x, alpha.tensor(np.full(shape, -3, np.float32), device=device)) for shape in shapes]
    if device == "cuda":
        short = (x - 4.0).astype("bfloat16")
        residuals += [(x, short), (short, x)]
    for mine, r in residuals:
        y = F.batch_norm(mine, *statistics(3, device), residual=r, activation=F.relu)
        want = F.relu(F.batch_norm(mine, *statistics(3, device)) + r)
        assert y.dtype == want.dtype
        np.testing.assert_array_equal(y.astype("float32").numpy(), want.astype("float32").numpy())


def test_what_cannot_be_added_or_applied_is_refused_before_anything_changes(device: str) -> None:
    x = alpha.tensor(np.arange(12, dtype=np.float32).reshape(4, 3), device=device)
    running = statistics(3, device)
    before = [t.numpy() for t in running]
    for shape in ((5, 3), (4, 2), (2, 5, 3)):
        residual = alpha.tensor(np.zeros(shape, np.float32), device=device)
        with pytest.raises(ShapeError, match=r"batch_norm: residual \(.*\) cannot be added to x \(4, 3\)"):
            F.batch_norm(x, *running, training=True, residual=residual)
    with pytest.raises(TypeError, match=r"batch_norm: .* float32 and float64 differ"):
        F.batch_norm(x, *running, training=True, residual=alpha.tensor(np.ones((4, 3)), device=device))
    with pytest.raises(TypeError, match="activation='relu' is no layer and no function"):
        F.batch_norm(x, *running, training=True, activation="relu")
    np.testing.assert_array_equal([t.numpy() for t in running], before)


def test_without_a_residual_the_gradient_keeps_no_result(device: str) -> None:
    """The sign is computed again, so writing into y is no error and changes no gradient."""
    x = alpha.tensor(np.linspace(-2, 3, 12, dtype=np.float32).reshape(4, 3), device=device, requires_grad=True)
    grads = []
    for write in (False, True):
        x.grad = None
        y = F.batch_norm(x, None, None, training=True, activation=F.relu)
        total = y.sum(1)
        if write:
            with alpha.no_grad():
                y.mul_(-5.0)
        total.backward(alpha.tensor(np.arange(4, dtype=np.float32), device=device))
        assert x.grad is not None
        grads.append(x.grad.numpy())
    np.testing.assert_array_equal(*grads)
    y = F.batch_norm(x, None, None, training=True, activation=F.relu, residual=x)
    with alpha.no_grad():
        y.mul_(-5.0)
    with pytest.raises(alpha.GradientError, match="written in place"):
        y.sum().backward()


def test_a_rectified_layer_is_one_kernel_forward_and_two_backward() -> None:
    device = alpha.get_device("cuda")
    x, r = (alpha.tensor(np.ones((64, 8), np.float32), device=device, requires_grad=True) for _ in range(2))
    mean, var = statistics(8, "cuda")
    for residual in (None, r):
        with observed_launches(device) as launched:
            y = F.batch_norm(x, mean, var, mean, var, residual=residual, activation=F.relu)
        assert [launch.entry for launch in launched] == ["apply"]
        dy = alpha.tensor(np.ones((64, 8), np.float32), device=device)
        x.grad = r.grad = None
        with observed_launches(device) as launched:
            y.backward(dy)
        assert [launch.entry for launch in launched] == ["gradient_sums", "input_gradient"]


@pytest.mark.parametrize("training", [True, False])
def test_a_batch_of_no_images_is_taken(device: str, training: bool) -> None:
    """A detector that has found nothing makes such batches; the running statistics stay as they are."""
    mean, var = (alpha.tensor(np.full(3, value, np.float32), device=device) for value in (0.5, 2.0))
    weight, bias = (alpha.ones(3, device=device, requires_grad=True) for _ in range(2))
    for residual, activation in ((None, None), (alpha.zeros(0, 4, 3, device=device), F.relu)):
        x = alpha.zeros(0, 4, 3, device=device, requires_grad=True)
        y = F.batch_norm(x, mean, var, weight, bias, training, residual=residual, activation=activation)
        assert y.shape == (0, 4, 3)
        y.sum().backward()
        assert x.grad.shape == x.shape
        assert not weight.grad.numpy().any()
    assert mean.numpy()[0] == 0.5
    assert var.numpy()[0] == 2.0
    with pytest.raises(ShapeError, match="one row a channel"):
        F.batch_norm(alpha.ones(1, 3, device=device), mean, var, training=True)
