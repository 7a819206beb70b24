"""Uploads through page-locked memory: the caller's array is free at return, without a wait.

A copy from pageable memory may wait for the stream, or may still read the source after it returned;
a copy from page-locked memory does neither. A ring of buffers lets the host run a few uploads
ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from alpha.runtime.cuda.driver import HostArray
from alpha.runtime.device import MIB

SLOT_BYTES = 4 * MIB
SLOTS = 4


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
        slot_bytes: int = SLOT_BYTES,
        slots: int = SLOTS,
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
