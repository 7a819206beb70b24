"""Dropout: the share dropped, the same mask on every device and in the backward pass, Philox itself."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from launch_log import observed_launches
from trials import trials

import alpha
import alpha.nn.functional as F
from alpha.core import rng as random
from alpha.core.rng import Stream
from alpha.ops.noise.dropout import dropout_apply
from alpha.runtime.recording import StepValue


def test_philox_known_answers() -> None:
    """The vectors of Random123 (kat_vectors) for philox4x32-10."""
    zero = random.philox(0, 0, 1)[0]
    assert [hex(w) for w in zero] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]
    ones = random.philox(2**64 - 1, 2**64 - 1, 1, start=2**64 - 1)[0]
    assert [hex(w) for w in ones] == ["0x408f276d", "0x41c83b0e", "0xa20bc7c6", "0x6d5451fd"]


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9])
def test_share_and_scale(device: str, p: float) -> None:
    alpha.manual_seed(7)
    x = alpha.tensor(np.ones((100, 101), np.float32), device=device)
    y = F.dropout(x, p).numpy()
    kept = y != 0
    assert abs(1 - kept.mean() - p) < 4 * np.sqrt(p * (1 - p) / y.size) + 1e-9
    np.testing.assert_allclose(y[kept], 1 / (1 - p), rtol=1e-6)


def test_the_mask_is_the_same_in_backward_and_on_every_device() -> None:
    masks = []
    for device in ("cpu", "cuda"):
        alpha.manual_seed(3)
        x = alpha.tensor(np.ones((5, 7), np.float32), requires_grad=True, device=device)
        y = F.dropout(x, 0.4)
        y.sum().backward()
        assert x.grad is not None
        np.testing.assert_array_equal(x.grad.numpy(), y.numpy())
        masks.append(y.numpy())
    np.testing.assert_array_equal(masks[0], masks[1])


def test_each_call_draws_anew(device: str) -> None:
    x = alpha.tensor(np.ones(200, np.float32), device=device)
    assert (F.dropout(x).numpy() != F.dropout(x).numpy()).any()


DROPS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "dropout": (F.dropout, (6, 8)),
    "dropout2d": (F.dropout2d, (4, 3, 3, 8)),
    "alpha_dropout": (F.alpha_dropout, (6, 8)),
    "feature_alpha_dropout": (F.feature_alpha_dropout, (4, 3, 8)),
}


@pytest.mark.parametrize("name", DROPS)
def test_in_place(device: str, name: str) -> None:
    """The numbers and gradients of the new tensor, in the memory of x."""
    function, shape = DROPS[name]
    leaf = alpha.randn(*shape, device=device, requires_grad=True)
    ends = []
    for inplace in (False, True):
        alpha.manual_seed(3)
        leaf.grad = None
        x = leaf * 2.0
        y = function(x, 0.5, True, inplace)
        assert (y is x) == inplace
        y.square().sum().backward()
        assert leaf.grad is not None
        ends.append((y.numpy(), leaf.grad.numpy()))
    np.testing.assert_array_equal(ends[1][0], ends[0][0])
    np.testing.assert_array_equal(ends[1][1], ends[0][1])
    with pytest.raises(alpha.GradientError, match="dropout: a leaf tensor that requires a gradient cannot be written"):
        function(leaf, 0.5, True, True)


def test_in_place_behind_an_activation(device: str) -> None:
    x = alpha.randn(6, 8, device=device)
    before, ends = x.numpy(), []
    for inplace in (False, True):
        for activation in (F.relu, F.gelu):  # of which the kernel computes one
            alpha.manual_seed(3)
            ends.append(F.dropout(x, 0.5, True, inplace, activation=activation).numpy())
    np.testing.assert_array_equal(x.numpy(), before)
    np.testing.assert_array_equal(ends[2], ends[0])
    np.testing.assert_array_equal(ends[3], ends[1])


def test_off_in_evaluation_and_empty(device: str) -> None:
    x = alpha.tensor([1.0, 2.0], device=device)
    assert F.dropout(x, 0.5, training=False) is x
    assert F.dropout(x[:0], 0.5).shape == (0,)


def test_dropped_numbers_are_zero_whatever_they_were(device: str) -> None:
    target = alpha.get_device(device)
    x = target.upload(np.full(64, np.inf, np.float32))
    y = target.download(dropout_apply(x, StepValue.fixed(Stream(1, 2)), 0.5))
    assert set(np.unique(y)) == {0.0, np.inf}


def test_everything_is_dropped_at_one(device: str) -> None:
    x = alpha.tensor([np.inf, np.nan, 1.0, -2.0], requires_grad=True, device=device)
    y = F.dropout(x, 1)
    np.testing.assert_array_equal(y.numpy(), np.zeros(4))
    y.backward(alpha.tensor([np.inf, np.nan, 1.0, 1.0], device=device))
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), np.zeros(4))
    assert F.dropout(x, 1, training=False) is x


@pytest.mark.parametrize("p", [-0.1, 1.1, 2.0])
def test_errors(device: str, p: float) -> None:
    with pytest.raises(ValueError, match=rf"dropout: p={p} is not in \[0, 1\]"):
        F.dropout(alpha.tensor([1.0], device=device), p)


def test_a_number(device: str) -> None:
    x = alpha.tensor(3.0, device=device, requires_grad=True)
    y = F.dropout(x, 0.5)
    y.backward()
    assert x.grad is not None
    assert (y.shape, x.grad.shape) == ((), ())
    assert (y.item(), x.grad.item()) in [(0.0, 0.0), (6.0, 2.0)]


# -- whole channels and images, alpha dropout ---------------------------------------------------------------


@pytest.mark.parametrize(("shape", "sizes"), [((6, 5, 3, 8), (6, 15, 8)), ((4, 3, 3), (4, 3, 3)), ((9, 4), (9, 4, 1))])
def test_groups_are_dropped_together(device: str, shape: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    """Channels of each image, packs of which are and are not multiples of four; whole images."""
    alpha.manual_seed(3)
    x = alpha.tensor(
        np.random.default_rng(0).standard_normal(shape).astype(np.float32) + 9, requires_grad=True, device=device
    )
    function = {4: F.dropout2d, 3: F.dropout1d, 2: lambda x, p: F.drop_path(x, p, True)}[len(shape)]
    y = function(x, 0.5)
    words = random.philox(3, 0, 100).reshape(-1)[: sizes[0] * sizes[2]]
    kept = np.broadcast_to((words >= 2**31).reshape(sizes[0], 1, sizes[2]), sizes).reshape(shape)
    np.testing.assert_array_equal(y.numpy(), np.where(kept, 2 * x.numpy(), 0))
    y.sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), np.where(kept, 2, 0))


def test_alpha_dropout_keeps_mean_and_variance(device: str) -> None:
    alpha.manual_seed(1)
    values = np.random.default_rng(0).standard_normal((64, 3, 256)).astype(np.float32)
    for function in (F.alpha_dropout, F.feature_alpha_dropout):
        x = alpha.tensor(values, requires_grad=True, device=device)
        y = function(x, 0.3, training=True)
        assert abs(y.numpy().mean()) < 0.05
        assert abs(y.numpy().var() - 1) < 0.05
        y.sum().backward()
        assert x.grad is not None
        kept = x.grad.numpy() != 0
        a = 1 / np.sqrt((1.7580993408473766**2 * 0.3 + 1) * 0.7)  # PyTorch's formula
        b = 1.7580993408473766 * a * 0.3
        expected = np.where(kept, values * a + b, b - 1.7580993408473766 * a)
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(x.grad.numpy()[kept], a, rtol=1e-6)
        np.testing.assert_array_equal(function(x, 1.0, training=True).numpy(), 0)


def test_drop_path_without_a_scale_and_errors(device: str) -> None:
    x = alpha.tensor(np.ones((50, 2), np.float32), device=device)
    assert set(np.unique(F.drop_path(x, 0.5, True, scale_by_keep=False).numpy())) == {0, 1}
    with pytest.raises(ValueError, match=r"drop_path: drop_prob=1\.5 is not in \[0, 1\]"):
        F.drop_path(x, 1.5)
    with pytest.raises(alpha.ShapeError, match=r"dropout2d: x \(N, H, W, C\) is needed  \(x \(100,\)\)"):
        F.dropout2d(x.reshape(100))


def test_packs_are_aligned_in_all_arrays() -> None:
    """The gradient of an activation reads the argument, too."""
    device: Any = alpha.get_device("cuda")
    whole = alpha.tensor(np.linspace(-1, 1, 65, dtype=np.float32), device=device)
    for x, vector in ((whole[:64].detach(), 4), (whole[1:].detach(), 1)):
        x.requires_grad = True
        y = F.dropout(x, 0.5, activation=F.relu).sum()
        with observed_launches(device) as launched:
            y.backward()
        assert [launch.defines["VECTOR"] for launch in launched if launch.entry == "dropout"] == [vector]


def test_a_captured_step_draws_other_channels(device: str) -> None:
    if device == "cpu":
        pytest.skip("steps are captured on cuda")
    x = alpha.tensor(np.ones((4, 3, 3, 8), np.float32), device=device)
    step = alpha.capture(lambda: F.dropout2d(x))
    drawn = []
    for captured in (True, False):
        alpha.manual_seed(5)
        drawn.append([(step() if captured else F.dropout2d(x)).numpy() for _ in range(6)])
    np.testing.assert_array_equal(*drawn)
    assert not np.array_equal(drawn[0][4], drawn[0][5])


@pytest.mark.torch
@pytest.mark.parametrize("name", ["dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"])
def test_x_of_any_number_of_axes_is_dropped_as_pytorchs(name: str, device: str) -> None:
    """The same axes share what is dropped, and the same numbers of axes are refused or warned of."""
    torch = pytest.importorskip("torch")
    layer = (
        "".join(part.title() for part in name.split("_")).replace("1D", "1d").replace("2D", "2d").replace("3D", "3d")
    )
    with trials() as trial:
        for ndim in range(1, 7):
            found = []
            for room, kind in ((alpha.nn, alpha), (torch.nn, torch)):
                shape = [16 if ndim < 3 else 5] * ndim
                x = torch.ones(*shape) if kind is torch else alpha.ones(*shape, device=device)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    try:
                        torch.manual_seed(1)
                        alpha.manual_seed(2)
                        y = getattr(room, layer)(0.5)(x).numpy()
                    except (RuntimeError, ValueError):
                        found.append("refused")
                        continue
                varies = [(y != y.take([0], axis)).any() for axis in range(ndim)]
                if kind is torch and ndim > 2:  # the channels come second, or first if x is one image
                    varies = [varies[0], *varies[2:], varies[1]] if varies[1] else [*varies[1:], varies[0]]
                found.append((varies, bool(caught)))
            with trial(ndim):
                if (name, ndim) in (("dropout3d", 1), ("dropout3d", 2)):
                    assert found[0] == "refused"  # PyTorch drops whole elements of the first axis
                elif (name, ndim) == ("dropout1d", 2):
                    assert found[0] == ([False, True], False)  # (L, C), PyTorch's (C, L)
                else:
                    assert found[0] == found[1]
