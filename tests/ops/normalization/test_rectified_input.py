"""Batch normalisations whose input gradient takes the first step of a rectifier behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conv2d_cases import hopper
from launch_log import observed_launches
from trials import trials

import alpha
import alpha.nn.functional as F
from alpha import Tensor, nn
from alpha.core.primitive import REGISTRY
from alpha.ops.kernel.rectifier import RectifiedInput, Rectifier, RectifierStep
from alpha.ops.normalization.batch_norm import BatchNorm
from alpha.runtime.registry import standing_in

RNG = np.random.default_rng(0)
X, OTHER = (RNG.standard_normal((4, 5, 6, 12)).astype(np.float32) for _ in range(2))
SPECIAL = np.where(RNG.random(X.shape) < 0.2, RNG.choice(np.float32([np.inf, -np.inf, np.nan, 0.0, -0.0]), X.shape), X)
RECTIFIERS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "leaky relu": lambda x: F.leaky_relu(x, 0.3),
    "in place": lambda x: F.relu_(x * 1.0),
}


def numbers(seed: int, on: Any) -> list[Tensor]:
    """Mean, variance, weight and bias."""
    draws = np.random.default_rng(seed).uniform(0.5, 2.0, (4, 12)).astype(np.float32)
    return [alpha.tensor(draw, device=on) for draw in draws]


def norm(x: Tensor, training: bool = True, **more: Any) -> Tensor:
    mean, var, weight, bias = numbers(0, x.device)
    return F.batch_norm(x, mean, var, weight, bias, training, **more)


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "training": norm,
    "evaluation": lambda x: norm(x, False),
    "with a rectifier": lambda x: norm(x, activation=F.relu),
    "with a residual": lambda x: norm(x, residual=alpha.tensor(OTHER, device=x.device).astype(x.dtype)),
    "with both": lambda x: norm(
        x, activation=nn.LeakyReLU(0.2), residual=alpha.tensor(OTHER, device=x.device).astype(x.dtype)
    ),
}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[RectifierStep]:
    """The steps that are taken."""
    steps: list[RectifierStep] = []
    note = RectifierStep.note_taken

    def noted(step: RectifierStep, part: Any) -> None:
        steps.append(step)
        note(step, part)

    monkeypatch.setattr(RectifierStep, "note_taken", noted)
    return steps


def gradient(call: Callable[[Tensor], Tensor], x: np.ndarray) -> np.ndarray:
    given = alpha.tensor(x, device="cuda", requires_grad=True)
    y = call(given)
    y.backward(alpha.tensor(np.random.default_rng(1).standard_normal(y.shape), device="cuda").astype(y.dtype))
    assert given.grad is not None
    return given.grad.numpy()


def alone(call: Callable[[Tensor], Tensor], x: np.ndarray) -> np.ndarray:
    """The gradient of x where no batch normalisation takes a step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchNorm, "takes_first_steps", False)
        return gradient(call, x)


@pytest.mark.parametrize("name", RECTIFIERS)
def test_the_gradient_is_that_of_both_rules(name: str, taken: list[RectifierStep]) -> None:
    """Bit for bit, also of an input that is not finite."""
    with trials() as trial:
        for kind, normalize in KINDS.items():
            for x in (X, SPECIAL):

                def call(x: Tensor, normalize: Callable[[Tensor], Tensor] = normalize) -> Tensor:
                    return normalize(RECTIFIERS[name](x))

                with trial(kind, x is X):
                    taken.clear()
                    found = gradient(call, x)
                    assert len(taken) == 1
                    np.testing.assert_array_equal(found, alone(call, x))


def test_bfloat16(taken: list[RectifierStep]) -> None:
    def call(x: Tensor) -> Tensor:
        return norm(F.leaky_relu(x.astype(alpha.bfloat16), 0.3), activation=F.relu)

    found = gradient(call, X)
    assert len(taken) == 1
    np.testing.assert_allclose(found, alone(call, X), rtol=1e-2)


def of_itself(x: Tensor) -> Tensor:
    y = F.relu(x)
    return norm(y, residual=y)


def with_another_user(x: Tensor) -> Tensor:
    y = F.relu(x)
    return norm(y) * y


def with_a_hook(x: Tensor) -> Tensor:
    y = F.relu(x)
    y.register_hook(lambda grad: grad * 2.0)
    return norm(y)


def before_the_rectifier(x: Tensor) -> Tensor:
    return norm(F.leaky_relu(x, 0.3).reshape(-1, 12))


@pytest.mark.parametrize("call", [of_itself, with_another_user, with_a_hook, before_the_rectifier])
def test_where_no_step_is_taken(call: Callable[[Tensor], Tensor], taken: list[RectifierStep]) -> None:
    found = gradient(call, X)
    assert not taken
    np.testing.assert_array_equal(found, alone(call, X))


def test_where_the_output_is_kept(taken: list[RectifierStep]) -> None:
    """X is not there then."""
    with alpha.memory_mode("balanced"):
        found = gradient(lambda x: F.conv2d(norm(F.relu(x)), alpha.ones(2, 1, 1, 12, device="cuda")), X)
    assert not taken
    np.testing.assert_allclose(
        found, gradient(lambda x: F.conv2d(norm(F.relu(x)), alpha.ones(2, 1, 1, 12, device="cuda")), X), atol=1e-5
    )


@pytest.mark.parametrize("dtype", [np.float32, alpha.bfloat16])
@pytest.mark.parametrize("slope", [0.0, 0.25])
def test_after_its_own_first_step(dtype: Any, slope: float) -> None:
    """The primitive on both devices, against itself without the rectifier."""
    dZ, x = (array.reshape(-1, 12).astype(dtype) for array in (OTHER, X))
    part = RNG.standard_normal((2, 3, 12)).astype(np.float32)
    mean, var, weight = (tensor.numpy() for tensor in numbers(0, "cpu")[:3])
    rule = REGISTRY["batch_norm_gradients_begun"]

    def found(on: str, rectified: bool) -> list[np.ndarray]:
        device = alpha.get_device(on)
        kept = device.upload(x)
        arrays = [device.upload(array) for array in (mean, var, weight)]
        given = RectifiedInput(kept, Rectifier(slope)) if rectified else kept
        made = rule(device.upload(dZ), device.upload(part), given, *arrays, None, 1e-5)
        return [device.download(array).astype(np.float32) for array in made]

    limit = 1e-5 if dtype is np.float32 else 1e-2
    plain, cpu, cuda = found("cpu", False), found("cpu", True), found("cuda", True)
    np.testing.assert_allclose(cpu[0], np.where(x > 0, plain[0], slope * plain[0]), rtol=limit, atol=1e-6)
    for mine, own in zip(cpu, cuda, strict=True):
        np.testing.assert_allclose(mine, own, rtol=limit, atol=limit)


@pytest.mark.slow
def test_the_sums_of_its_own_step_are_from_a_convolution(
    monkeypatch: pytest.MonkeyPatch, taken: list[RectifierStep]
) -> None:
    """A convolution on Hopper takes the step of a batch normalisation, and this that of the convolution before it."""
    monkeypatch.setenv("ALPHA_CONV_KERNEL", "ks_deconv_sm90_tf32_128x64")
    alpha.manual_seed(0)
    modules = nn.Sequential(
        nn.Conv2d(12, 16, 3, padding=1), nn.LeakyReLU(0.2), nn.BatchNorm2d(16), nn.Conv2d(16, 8, 3, padding=1)
    )
    with standing_in(hopper()), alpha.precision("tf32"):
        modules = modules.to("cuda")
        with observed_launches(alpha.get_device("cuda")) as log:
            found = gradient(modules, X)
        assert [bool(step.normalized) for step in taken] == [True, False]
        entries = [launched.entry for launched in log]
        assert "map" not in entries[entries.index("ks_deconv_first_step_sm90") :]
        np.testing.assert_allclose(found, alone(modules, X), rtol=1e-3, atol=1e-5)
