"""The emulated driver runs CUDA's language as CUDA defines it, in any order of threads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from kernel_emulator import Emulator

SOURCE = "semantics.cu"


@pytest.fixture(params=[0, 1, 2])
def seeded(request: pytest.FixtureRequest, emulator_for: Callable[..., Emulator]) -> Emulator:
    return emulator_for(ALPHA_EMULATED_SEED=request.param)


def test_indices(seeded: Emulator) -> None:
    out = np.empty((4, 3, 2, 2, 3, 5), np.int32)
    seeded(SOURCE, "indices", (2, 3, 4), (5, 3, 2), out)
    axes = np.indices(out.shape)
    weights = (100000, 10000, 1000, 100, 10, 1)
    np.testing.assert_array_equal(out, sum(w * a for w, a in zip(weights, axes, strict=True)))


def test_arguments_by_value(emulator: Emulator) -> None:
    kind = np.dtype([("count", "i4"), ("factor", "f4"), ("offset", "f4")], align=True)
    x, y = np.arange(50, dtype=np.float32), np.zeros(60)
    scale = np.array((50, 2.0, 1.0), kind)[()]
    emulator(SOURCE, "scale", 2, 32, x, y, scale, np.int64(10), np.uint8(1))
    np.testing.assert_array_equal(y[10:], -(2 * x + 1))


def test_static_and_dynamic_shared_memory(seeded: Emulator) -> None:
    x = np.random.default_rng(0).integers(0, 100, (3, 128)).astype(np.float32)
    y = np.empty_like(x)
    seeded(SOURCE, "block_sum", 3, 128, x, y, shared_bytes=4)
    np.testing.assert_array_equal(y, np.broadcast_to(x.sum(1, keepdims=True), y.shape))


def test_barrier_reductions(seeded: Emulator) -> None:
    out = np.empty(100, np.int32)
    seeded(SOURCE, "barrier_reductions", 1, 100, out)
    assert set(out) == {1 + 100 * 34 + 1000000}


def test_shuffles(seeded: Emulator) -> None:
    x = np.arange(64, dtype=np.float32)
    out = np.empty((6, 64), np.float32)
    seeded(SOURCE, "shuffles", 1, 64, x, out)
    i = np.arange(64)
    np.testing.assert_array_equal(out[0], i // 32 * 32 + 5)
    np.testing.assert_array_equal(out[1], i ^ 9)
    np.testing.assert_array_equal(out[2], np.where(i % 8 >= 3, i - 3, i))
    np.testing.assert_array_equal(out[3], np.where(i % 16 < 13, i + 3, i))
    np.testing.assert_array_equal(out[4], i // 8 * 8 + 2)
    np.testing.assert_array_equal(out[5], np.where(i % 32 < 16, i ^ 1, -(i ^ 2)))


def test_votes(seeded: Emulator) -> None:
    out = np.empty(64, np.uint32)
    seeded(SOURCE, "votes", 1, 64, out)
    assert set(out) == {sum(1 << i for i in range(0, 32, 3)) ^ 0b10}


def test_atomics(seeded: Emulator) -> None:
    total, counter = np.zeros(1, np.float32), np.zeros(1, np.int32)
    largest, bits = np.zeros(1, np.uint32), np.zeros(1, np.uint64)
    last = np.array([5, 0], np.int32)
    seeded(SOURCE, "atomics", 3, 50, total, counter, largest, bits, last)
    assert (total[0], counter[0], largest[0], bits[0]) == (75, 150, 149, 2**64 - 1)
    assert last[0] > 5
    assert last[1] == 7


def test_constant_memory(emulator: Emulator) -> None:
    out = np.empty(8, np.int32)
    emulator(SOURCE, "constants", 1, 8, out)
    np.testing.assert_array_equal(out, [1, 10, 100, 1000] * 2)


def test_lanes_that_exited_are_not_waited_for(seeded: Emulator) -> None:
    out = np.zeros(64, np.int32)
    seeded(SOURCE, "exited_lanes", 1, 64, out)
    i = np.arange(0, 64, 2)
    np.testing.assert_array_equal(out[::2], i ^ 2)


def test_named_barriers(seeded: Emulator) -> None:
    out = np.zeros((3, 64), np.int32)
    seeded(SOURCE, "named_barriers", 1, 96, out)
    np.testing.assert_array_equal(out, np.broadcast_to([[10], [11], [12]], out.shape))


def test_arithmetic(emulator: Emulator) -> None:
    out = np.empty(10, np.float32)
    emulator(SOURCE, "arithmetic", 1, 1, out)
    expected = [6.5, 0.25, 310802, 3, -1.5, 8, 3, 1.0, 1.015625, 34]
    np.testing.assert_array_equal(out, np.array(expected, np.float32))
