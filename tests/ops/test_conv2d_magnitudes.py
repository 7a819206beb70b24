"""The largest magnitudes of a convolution's operands, each found once."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import choosing
from launch_log import observed_launches
from test_conv2d import hopper

import alpha
import alpha.nn.functional as F
from alpha import Tensor
from alpha.ops.conv2d.configuration import Configuration
from alpha.ops.conv2d.magnitudes import Magnitudes, absmax

SIZES = (32, 8, 8, 64), (64, 3, 3, 64)


def draw(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def test_each_array_is_read_once() -> None:
    device = hopper()
    a, b, c = (device.upload(np.array([value, -1, np.inf, np.nan], np.float32)) for value in (-2, 3, 4))
    with observed_launches(device) as log, Magnitudes() as magnitudes:
        found = [absmax(a, b), absmax(c, b), absmax(a, c)]
    assert [int(device.download(x)[0]) for pair in found for x in pair] == [bits(v) for v in (2, 3, 4, 3, 2, 4)]
    assert [launched.entry for launched in log].count("absmax") == 2
    with observed_launches(device) as log:
        absmax(a, b)  # outside nothing is remembered
        with magnitudes:
            absmax(a, b)
    assert [launched.entry for launched in log].count("absmax") == 1


def test_a_launch_finds_nothing_of_the_launch_before() -> None:
    device = hopper()
    many = np.zeros(9000, np.float32)  # of several blocks
    with Magnitudes() as magnitudes:
        for value in range(4, 0, -1):
            many[-5] = -value
            a, b = device.upload(many), device.upload(many[:5] + np.float32(value / 2))
            again = magnitudes.copy()
            found = [*again.of(a, b), *magnitudes.of(b, a)]
            expected = [value, value / 2, value / 2, value]
            assert [int(device.download(x)[0]) for x in found] == [bits(v) for v in expected]
            c = device.upload(many[-6:])
            assert int(device.download(magnitudes.of(a, c)[1])[0]) == bits(value)


def test_no_array_is_kept_alive() -> None:
    device = hopper()
    with Magnitudes():
        before = device.memory_stats().live
        absmax(*(device.upload(np.zeros(1 << 20, np.float32)) for _ in range(2)))
        assert device.memory_stats().live - before < 1 << 16


def in_fp16_terms(v: Configuration) -> bool:
    return "sm90_fp16x3" in v.name


@pytest.mark.parametrize("layer", ["conv2d", "conv_transpose2d"])
def test_a_convolution_finds_three_magnitudes(layer: str) -> None:
    device = hopper()
    x, w = (Tensor(device.upload(draw(shape, i)), requires_grad=True) for i, shape in enumerate(SIZES))
    with choosing(in_fp16_terms), observed_launches(device) as log:
        y = getattr(F, layer)(x, w, padding=1)
        y.backward(alpha.tensor(draw(y.shape, 2), device=device))
    assert [launched.entry for launched in log].count("absmax") == 2  # of x and w, of the gradient of y


def test_a_gradient_that_is_written_into_between_two_passes_has_its_own_scale() -> None:
    """Otherwise the fp16 terms of the second pass would overflow."""
    device = hopper()
    x, w = (Tensor(device.upload(draw(shape, i)), requires_grad=True) for i, shape in enumerate(SIZES))
    with choosing(in_fp16_terms):
        y = F.conv2d(x, w, padding=1)
        dy = alpha.tensor(draw(y.shape, 2), device=device)
        y.backward(dy, retain_graph=True)
        assert x.grad is not None
        first = x.grad.numpy()
        x.zero_grad()
        dy *= 2.0**20
        y.backward(dy)
        assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), first * np.float32(2.0**20))
