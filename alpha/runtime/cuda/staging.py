"""Uploads through page-locked memory: the caller's array is free at return, without a wait.

A copy from pageable memory may wait for the stream, or may still read the source after it returned; a copy from
page-locked memory does neither. A ring of buffers lets the host run some uploads ahead.

Each captured step uploads the few values that change from step to step. So small uploads have a ring of their own, of
many buffers: as many steps are queued, and a host that must share its cores can pause for so long while the GPU works.

`Flights` are the copies that are under way beside the host, with the memory that they read and write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpha.runtime.cuda.driver import HostArray
from alpha.runtime.device import MIB


@dataclass
class Flight:
    """A copy: what holds its memory, and the event behind it; None if it was cut off before that was recorded."""

    held: tuple[Any, ...]
    event: Any = None


class Flights:
    """Holds the memory of copies until they have ended, though the program may drop it before.

    Args:
        wait: waits for all copies.
    """

    def __init__(self, wait: Callable[[], None]) -> None:
        self._wait = wait
        self._flights: deque[Flight] = deque()

    def begin(self, *held: Any) -> Flight:
        """Hold these until the event is done that the caller gives to the result; let go of what has ended."""
        while self._flights:
            event = self._flights[0].event
            if event is None:  # nobody knows whether the copy had begun
                self._wait()
            elif not event.query():
                break
            self._flights.popleft()
        flight = Flight(held)
        self._flights.append(flight)
        return flight

    def clear(self) -> None:
        """Let go of everything, after a wait."""
        self._flights.clear()


SLOT_BYTES, SLOTS = 4 * MIB, 4
SMALL_BYTES, SMALL_SLOTS = 1 << 16, 16  # of uploads that take at most so many bytes


class Staging:
    """The ring of small uploads and that of large ones; for the arguments see `PinnedRing`."""

    def __init__(
        self, pinned: Callable[[int], HostArray], copy_in: Callable[[int, HostArray], None], record: Callable[[], Any]
    ) -> None:
        self._small = PinnedRing(pinned, copy_in, record, SMALL_BYTES, SMALL_SLOTS)
        self._large = PinnedRing(pinned, copy_in, record, SLOT_BYTES, SLOTS)

    def upload(self, address: int, source: HostArray) -> None:
        """Copy a contiguous array to the device."""
        ring = self._small if source.nbytes <= SMALL_BYTES else self._large
        ring.upload(address, source)


class PinnedRing:
    """A ring of page-locked buffers.

    `pinned(nbytes)` makes one (uint8), `copy_in(address, buffer)` starts a copy on the stream, and
    `record()` an event behind it, whose `synchronize` waits until the buffer may be written again.
    """

    def __init__(
        self,
        pinned: Callable[[int], HostArray],
        copy_in: Callable[[int, HostArray], None],
        record: Callable[[], Any],
        slot_bytes: int,
        slots: int,
    ) -> None:
        self._pinned = pinned
        self._copy_in = copy_in
        self._record = record
        self._slot_bytes = slot_bytes
        self._buffers: list[HostArray | None] = [None] * slots
        self._events: list[Any] = [None] * slots
        self._next = 0

    def upload(self, address: int, source: HostArray) -> None:
        """Copy a contiguous array to the device, a slot at a time."""
        content = source.reshape(-1).view(np.uint8)
        for start in range(0, content.nbytes, self._slot_bytes):
            piece = content[start : start + self._slot_bytes]
            buffer = self._free_slot()[: piece.nbytes]
            buffer[:] = piece
            self._copy_in(address + start, buffer)
            self._events[self._next] = self._record()
            self._next = (self._next + 1) % len(self._buffers)

    def _free_slot(self) -> HostArray:
        event, buffer = self._events[self._next], self._buffers[self._next]
        if event is not None:
            event.synchronize()
        if buffer is None:
            buffer = self._buffers[self._next] = self._pinned(self._slot_bytes)
        return buffer
