"""inf, -inf and NaN in inputs and in gradients: pools, batch norm, cross-entropy and dropout against PyTorch.

Each place of a small array is one of a few numbers, finite or not, drawn at random; results must be the same number,
infinity or NaN at every place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers import nchw

import alpha
import alpha.nn.functional as F
from alpha import Tensor

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SPECIAL = (np.inf, -np.inf, np.nan)
SEEDS = range(4)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def drawn(seed: int, share: float, *shape: int, special: tuple[float, ...] = SPECIAL) -> np.ndarray:
    """Small integers, a share of them replaced by what is not finite."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-3, 4, shape).astype(np.float32)
    return np.where(rng.random(shape) < share, rng.choice(special, shape), values).astype(np.float32)


def both(
    ours: Callable[[Tensor], Tensor], theirs: Callable[[Any], Any], x: np.ndarray, seed: int, share: float, device: str
) -> list[tuple[np.ndarray, np.ndarray]]:
    """(Alpha's, PyTorch's) value and gradient."""
    a, t = alpha.tensor(x, requires_grad=True, device=device), torch.tensor(x, requires_grad=True)
    y, expected = ours(a), theirs(t)
    g = drawn(seed + 100, share, *y.shape)
    y.backward(alpha.tensor(np.asarray(g), device=device))
    expected.backward(torch.tensor(g))
    assert a.grad is not None
    return [(y.numpy(), expected.detach().numpy()), (a.grad.numpy(), t.grad.numpy())]


def same(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, equal_nan=True, err_msg=what)


def same_kind(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    """The finite numbers are equal and at the same places; a sum of infinities may be NaN by its order."""
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected), err_msg=what)
    finite = np.isfinite(expected)
    same(found[finite], expected[finite], what)


POOLS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    f"{name} {window}": (
        lambda x, name=name, window=window: getattr(F, name)(x, **window),
        nchw(lambda x, name=name, window=window: getattr(torch.nn.functional, name)(x, **window)),
    )
    for name, window in [
        ("max_pool2d", {"kernel_size": 2}),
        ("max_pool2d", {"kernel_size": 3, "stride": 2, "padding": 1}),
        ("max_pool2d", {"kernel_size": (3, 6), "stride": (1, 2), "padding": (1, 3), "ceil_mode": True}),
        ("avg_pool2d", {"kernel_size": 2}),
        ("avg_pool2d", {"kernel_size": 3, "stride": 1, "padding": 1}),
        ("adaptive_avg_pool2d", {"output_size": (3, 2)}),
    ]
}


@pytest.mark.parametrize("C", [3, 8])
@pytest.mark.parametrize("name", POOLS)
def test_pools(device: str, name: str, C: int) -> None:
    ours, theirs = POOLS[name]
    for seed in SEEDS:
        for special in (SPECIAL, (-np.inf,), (np.nan,)):
            for share in (0.3, 0.9):
                x = drawn(seed, share, 2, 7, 6, C, special=special)
                for what, pair in zip(("value", "gradient"), both(ours, theirs, x, seed, 0.2, device), strict=True):
                    same(*pair, f"{what}, seed {seed}, {special}")


def test_a_window_of_minus_infinity_keeps_its_gradient(device: str) -> None:
    x = alpha.tensor(np.full((1, 3, 3, 4), -np.inf, np.float32), requires_grad=True, device=device)
    y = F.max_pool2d(x, 3, 2, 1)
    y.sum().backward()
    assert x.grad is not None
    expected = np.zeros((3, 3))
    expected[[0, 0, 1, 1], [0, 1, 0, 1]] = 1  # the first place of each window that is not padding
    np.testing.assert_array_equal(x.grad.numpy()[0, :, :, 0], expected)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("special", [(np.inf,), (-np.inf,), (np.nan,), SPECIAL], ids=str)
def test_batch_norm(device: str, training: bool, special: tuple[float, ...]) -> None:
    for seed, (R, C) in enumerate([(5, 3), (300, 8), (40, 33)]):
        x = drawn(seed, 0, R, C)
        x[seed % R, 0] = special[0]
        x[-1, 1] = special[-1]
        x[R // 2, 2] = x[0, 2] = special[0]
        statistics = [np.zeros(C, np.float32), np.ones(C, np.float32)]
        w, b = drawn(seed + 1, 0, C) + 5, drawn(seed + 2, 0, C)
        mine = [alpha.tensor(a, device=device) for a in statistics]
        his = [torch.tensor(a) for a in statistics]
        ours = [alpha.tensor(a, requires_grad=True, device=device) for a in (w, b)]
        theirs = [torch.tensor(a, requires_grad=True) for a in (w, b)]
        for _ in range(2):  # the second batch meets running statistics that are not finite
            value, gradient = both(
                lambda t: F.batch_norm(t, *mine, *ours, training=training),  # noqa: B023
                lambda t: torch.nn.functional.batch_norm(t, *his, *theirs, training=training),  # noqa: B023
                x,
                seed,
                0.02,
                device,
            )
            same_kind(*value, "value")
            same_kind(*gradient, "gradient")
            for found, expected in zip(ours, theirs, strict=True):
                same_kind(found.grad.numpy(), expected.grad.numpy(), "parameters")
            same(mine[0].numpy(), his[0].numpy(), "running_mean")
            same(mine[1].numpy(), his[1].numpy(), "running_var")


@pytest.mark.parametrize("special", [(np.inf,), (-np.inf,), (np.nan,)], ids=str)
@pytest.mark.parametrize("which", [0, 1])
def test_batch_norm_in_evaluation_with_statistics_that_are_not_finite(
    device: str, special: tuple[float, ...], which: int
) -> None:
    statistics = [np.array([0, 1, 2], np.float32), np.array([1, 2, 3], np.float32)]
    statistics[which][1] = special[0]
    x = drawn(0, 0, 6, 3)
    value, gradient = both(
        lambda t: F.batch_norm(t, *(alpha.tensor(a, device=device) for a in statistics)),
        lambda t: torch.nn.functional.batch_norm(t, *map(torch.tensor, statistics)),
        x,
        0,
        0.1,
        device,
    )
    same_kind(*value, "value")
    same_kind(*gradient, "gradient")


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("classes", [5, 2050])
def test_cross_entropy(device: str, classes: int, reduction: str, smoothing: float) -> None:
    labels = np.array([0, 1, 2, 3, 4, -100, 0, 1])
    for seed in SEEDS:
        x = drawn(seed, 0, 8, classes)
        rng = np.random.default_rng(seed)
        for row in (1, 3, 5, 6):
            x[row, rng.integers(0, 5, 2)] = rng.choice(SPECIAL, 2)
        value, gradient = both(
            lambda t: F.cross_entropy(
                t, alpha.tensor(labels, device=device), reduction=reduction, label_smoothing=smoothing
            ),
            lambda t: torch.nn.functional.cross_entropy(
                t, torch.tensor(labels), reduction=reduction, label_smoothing=smoothing
            ),
            x,
            seed,
            0.3,
            device,
        )
        same(*value, f"value, seed {seed}")
        found, expected = gradient
        assert not found[5].any()  # of the ignored label; PyTorch's is NaN if a logit of the row is
        expected[5] = 0
        expected[(found == 0) & np.isneginf(x)] = 0  # PyTorch multiplies the share 0 of a masked logit by dY = inf
        same_kind(found, expected, f"gradient, seed {seed}")


def test_dropout_selects(device: str) -> None:
    """PyTorch multiplies by its mask, so that a dropped inf is NaN; in Alpha it is 0, in both directions."""
    x = alpha.tensor(drawn(0, 0.7, 200), requires_grad=True, device=device)
    alpha.manual_seed(1)
    kept = F.dropout(alpha.tensor(np.ones(200, np.float32), device=device), 0.25).numpy() != 0
    alpha.manual_seed(1)
    y = F.dropout(x, 0.25)
    g = drawn(1, 0.7, 200)
    y.backward(alpha.tensor(g, device=device))
    assert x.grad is not None
    scale = np.float32(1 / 0.75)
    same(y.numpy(), np.where(kept, x.numpy() * scale, 0), "value")
    same(x.grad.numpy(), np.where(kept, g * scale, 0), "gradient")
