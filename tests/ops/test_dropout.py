"""Dropout: the share dropped, the same mask on every device and in the backward pass, Philox itself."""

from __future__ import annotations

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import rng as random
from alpha.ops.dropout import dropout_apply
from alpha.rng import Stream
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
