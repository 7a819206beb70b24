"""Max pools that take the first step of the gradient of a rectifier behind them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conv2d_cases import hopper
from trials import trials

import alpha
import alpha.nn.functional as F
from alpha import Tensor
from alpha.errors import GradientError
from alpha.ops.kernel.rectifier import RectifierStep
from alpha.ops.pooling.max_pool import MaxPool2d

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 9, 8, 8)).astype(np.float32)
SPECIAL = np.where(RNG.random(X.shape) < 0.3, RNG.choice(np.float32([np.inf, -np.inf, np.nan, 0.0, -0.0]), X.shape), X)
SPECIAL[0, :4, :4] = -np.inf  # windows without a number above it
POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "apart": lambda x: F.max_pool2d(x, 2),
    "overlapping": lambda x: F.max_pool2d(x, 3, 2, 1),
    "everywhere": lambda x: F.max_pool2d(x, 3, 1, 1),
    "dilated": lambda x: F.max_pool2d(x, 2, 1, 1, 2),
    "with gaps": lambda x: F.max_pool2d(x, 2, 3),
    "beyond the border": lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    "with indices": lambda x: F.max_pool2d(x, 2, return_indices=True)[0],
    "adaptive": lambda x: F.adaptive_max_pool2d(x, (4, 3)),
}
RECTIFIERS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "leaky relu": lambda x: F.leaky_relu(x, 0.3),
    "in place": lambda x: F.relu_(x * 1.0),
    "convolution": lambda x: F.conv2d(x, one(x), negative_slope=0.25),
    "convolution with relu": lambda x: F.conv2d(x, one(x), negative_slope=0.0),
}


def one(x: Tensor) -> Tensor:
    """The filter that gives x."""
    return alpha.tensor(np.eye(x.shape[-1], dtype=np.float32)[:, None, None], device=x.device).astype(x.dtype)


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


def kept(y: Tensor) -> Tensor:
    """The same numbers, by a function that keeps y."""
    return y * alpha.ones(y.shape, dtype=y.dtype, device=y.device, requires_grad=True)


def gradient(call: Callable[[Tensor], Tensor], x: np.ndarray, dy: np.ndarray | None = None) -> np.ndarray:
    """The gradient of x for one of the result that is drawn, or that begins with `dy`."""
    given = alpha.tensor(x, device="cuda", requires_grad=True)
    y = kept(call(given))
    grad = np.random.default_rng(1).standard_normal(y.shape).astype(np.float32)
    if dy is not None:
        grad.reshape(-1)[: dy.size] = dy
    y.backward(alpha.tensor(grad, device="cuda").astype(y.dtype))
    assert given.grad is not None
    return given.grad.numpy()


def alone(call: Callable[[Tensor], Tensor], x: np.ndarray, dy: np.ndarray | None = None) -> np.ndarray:
    """The gradient of x where no pool takes a step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MaxPool2d, "takes_first_steps", False)
        return gradient(call, x, dy)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECTIFIERS)
def test_the_gradient_is_that_of_both_rules(name: str, taken: list[RectifierStep]) -> None:
    """Bit for bit, whatever the windows and the numbers are."""
    inputs = (X,) if "convolution" in name else (X, SPECIAL)
    with trials() as trial:
        for kind, pool in POOLS.items():

            def call(x: Tensor, pool: Callable[[Tensor], Tensor] = pool) -> Tensor:
                return pool(RECTIFIERS[name](x))

            for number, x in enumerate(inputs):
                for dy in (None, np.float32([np.inf, -np.inf, np.nan, 0.0, -0.0] * 8)):
                    with trial(kind, number, dy is None):
                        taken.clear()
                        found = gradient(call, x, dy)
                        assert len(taken) == 1
                        np.testing.assert_array_equal(found, alone(call, x, dy))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_other_dtypes(dtype: str, taken: list[RectifierStep]) -> None:
    def call(x: Tensor) -> Tensor:
        return F.max_pool2d(F.leaky_relu(x.astype(dtype), 0.25), 3, 2, 1)

    found = gradient(call, X)
    assert len(taken) == 1
    np.testing.assert_allclose(found, alone(call, X), rtol=1e-12 if dtype == "float64" else 1e-2)


@pytest.mark.slow
def test_a_pool_finds_the_magnitudes_of_its_result_and_its_gradient() -> None:
    """Magnitudes are found on Hopper, where a convolution needs them; of what is finite, over all blocks.

    The second launch of each, on smaller numbers, finds nothing of the first.
    """
    device = hopper()
    x = np.random.default_rng(0).standard_normal((4, 41, 40, 12)).astype(np.float32)
    calls: list[Callable[[Tensor], Tensor]] = [
        lambda x: F.max_pool2d(x, 2),
        lambda x: F.max_pool2d(F.leaky_relu(x, 0.3), 3, 2, 1),
        lambda x: F.adaptive_max_pool2d(x, (7, 5)),
    ]
    for call, scale in itertools.product(calls, (4, 1)):
        images = x * np.float32(scale)
        images[0, 0, 0, :3] = np.inf, np.nan, -np.inf
        y = call(Tensor(device.upload(images), requires_grad=True))
        values = y.numpy()
        assert device.download(y.array.magnitude).view(np.float32)[0] == np.abs(values[np.isfinite(values)]).max()
        grad = scale * np.random.default_rng(1).standard_normal(y.shape).astype(np.float32)
        grad[0, 0, 0, :3] = np.inf, np.nan, -np.inf
        dx = y._node.backward(device.upload(grad))  # type: ignore[union-attr]
        values = device.download(dx)
        bits = device.download(dx.magnitude).view(np.float32)
        assert bits[0] == np.abs(values[np.isfinite(values)]).max()
    lower = F.max_pool2d(Tensor(device.upload(x.astype(alpha.bfloat16)), requires_grad=True), 2)
    dx = lower._node.backward(lower.array)  # type: ignore[union-attr]
    assert dx.magnitude is None


# -- where it is not taken ----------------------------------------------------------------------------


def two_pools(x: Tensor) -> Tensor:
    y = F.relu(x)
    return F.max_pool2d(y, 2) + F.max_pool2d(y, 2, 2)


def with_another_user(x: Tensor) -> Tensor:
    y = F.relu(x)
    return F.max_pool2d(y, 3, 1, 1) * y


def with_a_hook(x: Tensor) -> Tensor:
    y = F.relu(x)
    y.register_hook(lambda grad: grad * 2.0)
    return F.max_pool2d(y, 2)


def with_a_kept_gradient(x: Tensor) -> Tensor:
    y = F.relu(x)
    y.retain_grad()
    return F.max_pool2d(y, 2)


def written(x: Tensor) -> Tensor:
    """The maxima are written in place, which the gradient of the pool alone allows."""
    return F.max_pool2d(F.leaky_relu(x, 0.3), 2).mul_(-2.0)


def of_another_activation(x: Tensor) -> Tensor:
    return F.max_pool2d(F.leaky_relu(x, -0.3), 2)


def of_a_slope_of_0(x: Tensor) -> Tensor:
    """Products of 0 and inf are NaN, as a rectifier's gradient never is."""
    return F.max_pool2d(F.leaky_relu(x, 0.0), 2)


@pytest.mark.parametrize(
    "call",
    [two_pools, with_another_user, with_a_hook, with_a_kept_gradient, written, of_another_activation, of_a_slope_of_0],
)
def test_where_no_step_is_taken(call: Callable[[Tensor], Tensor], taken: list[RectifierStep]) -> None:
    found = gradient(call, X)
    assert not taken
    np.testing.assert_array_equal(found, alone(call, X))


def test_a_graph_is_walked_twice(taken: list[RectifierStep]) -> None:
    x = alpha.tensor(X, device="cuda", requires_grad=True)
    y = kept(F.max_pool2d(F.leaky_relu(x, 0.3), 3, 2)).sum()
    y.backward(retain_graph=True)
    assert x.grad is not None
    first = x.grad.numpy()
    (asked,) = alpha.grad(y, [x], retain_graph=True)
    y.backward()
    assert len(taken) == 2
    np.testing.assert_array_equal(x.grad.numpy(), first + first)
    np.testing.assert_array_equal(asked.numpy(), first)
    with pytest.raises(GradientError, match="freed by an earlier backward"):
        y.backward()


@pytest.mark.parametrize("mode", ["fast", "balanced", "least"])
def test_memory_modes(mode: str, taken: list[RectifierStep]) -> None:
    """The maxima are kept where another function keeps them in any case."""
    for number, then in ((1, lambda y: y * y), (0, lambda y: y + 1.0), (0, lambda y: F.dropout(y, 0.3))):

        def call(x: Tensor, then: Callable[[Tensor], Tensor] = then) -> Tensor:
            alpha.manual_seed(0)
            return then(F.max_pool2d(F.relu(x), 2))

        with alpha.memory_mode(mode):
            taken.clear()
            np.testing.assert_array_equal(gradient(call, X), alone(call, X))
        assert len(taken) == number


def test_a_checkpoint(taken: list[RectifierStep]) -> None:
    def call(x: Tensor) -> Tensor:
        return kept(F.max_pool2d(F.leaky_relu(x, 0.3), 2)) * 2.0

    found = gradient(lambda x: alpha.checkpoint(call, x), X)
    assert len(taken) == 1
    np.testing.assert_array_equal(found, alone(call, X))


def test_a_rectifier_whose_result_was_written_is_refused() -> None:
    x = alpha.tensor(X, device="cuda", requires_grad=True)
    y = F.relu(x)
    z = F.max_pool2d(y, 2).sum()
    with alpha.no_grad():
        y.mul_(2.0)
    with pytest.raises(GradientError, match="written in place"):
        z.backward()


def test_nothing_is_kept_on_the_cpu(taken: list[RectifierStep]) -> None:
    x = alpha.tensor(X, requires_grad=True)
    y = F.max_pool2d(F.relu(x), 2)
    assert y._node is not None
    assert len(y._node.saved) == 1
    y = kept(y)
    assert len(y._node.edges[0].saved) == 1  # type: ignore[union-attr]
    y.sum().backward()
    assert not taken
