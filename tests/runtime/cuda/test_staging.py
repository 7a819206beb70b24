"""Uploads through the ring of page-locked buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alpha.runtime.cuda.host_copies import SMALL_BYTES, SMALL_SLOTS, PinnedRing, Staging


class Stream:
    """Copies only when an event behind them is waited for, as late as a GPU may."""

    def __init__(self, size: int) -> None:
        self.memory = np.zeros(size, np.uint8)
        self.pending: list[tuple[int, np.ndarray]] = []
        self.buffers = self.done = 0

    def pinned(self, nbytes: int) -> np.ndarray:
        self.buffers += 1
        return np.zeros(nbytes, np.uint8)

    def copy_in(self, address: int, source: np.ndarray) -> None:
        self.pending.append((address, source))

    def record(self) -> Any:
        return Event(self, len(self.pending))

    def run(self, count: int) -> None:
        for address, source in self.pending[self.done : count]:
            self.memory[address : address + source.nbytes] = source
        self.done = max(self.done, count)


class Event:
    def __init__(self, stream: Stream, count: int) -> None:
        self.stream, self.count = stream, count

    def synchronize(self) -> None:
        self.stream.run(self.count)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 16, 100])
def test_slots_are_not_overwritten_before_they_are_copied(size: int) -> None:
    stream = Stream(400)
    ring = PinnedRing(stream.pinned, stream.copy_in, stream.record, slot_bytes=8, slots=3)
    source = np.arange(size, dtype=np.float32)
    for _ in range(2):
        ring.upload(0, source)
        expected, source[:] = source.tobytes(), -1
        stream.run(len(stream.pending))
        np.testing.assert_array_equal(stream.memory[: 4 * size], list(expected))
        source[:] = np.arange(size) + 1
    assert stream.buffers == min(3, 2 * -(-4 * size // 8))


def test_a_scalar_and_a_matrix() -> None:
    stream = Stream(64)
    ring = Staging(stream.pinned, stream.copy_in, stream.record)
    ring.upload(0, np.float64(2.5).reshape(()))
    ring.upload(8, np.ones((2, 3), np.int16))
    stream.run(2)
    assert stream.memory[:8].view(np.float64)[0] == 2.5
    assert stream.memory[8:20].view(np.int16).tolist() == [1] * 6


@pytest.mark.parametrize(("nbytes", "ahead"), [(16, SMALL_SLOTS), (SMALL_BYTES, SMALL_SLOTS), (SMALL_BYTES + 1, 4)])
def test_many_small_uploads_wait_for_nothing(nbytes: int, ahead: int) -> None:
    stream = Stream(nbytes)
    staging = Staging(stream.pinned, stream.copy_in, stream.record)
    for _ in range(ahead):
        staging.upload(0, np.zeros(nbytes, np.uint8))
    assert stream.done == 0
    staging.upload(0, np.zeros(nbytes, np.uint8))
    assert stream.done == 1


def test_small_and_large_uploads_keep_their_order() -> None:
    stream = Stream(SMALL_BYTES + 1)
    staging = Staging(stream.pinned, stream.copy_in, stream.record)
    for value, nbytes in ((1, SMALL_BYTES + 1), (2, 8), (3, SMALL_BYTES + 1), (4, 4)):
        staging.upload(0, np.full(nbytes, value, np.uint8))
    stream.run(len(stream.pending))
    assert stream.memory[:9].tolist() == [4] * 4 + [3] * 5
