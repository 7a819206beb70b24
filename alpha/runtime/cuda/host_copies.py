"""Copies between host and device that neither of them waits for.

Uploads through page-locked memory: the caller's array is free at return, without a wait.

A copy from pageable memory may wait for the stream, or may still read the source after it returned; a copy from
page-locked memory does neither. A ring of buffers lets the host run some uploads ahead.

Each captured step uploads the few values that change from step to step. So small uploads have a ring of their own, of
many buffers: as many steps are queued, and a host that must share its cores can pause for so long while the GPU works.

`Flights` are the copies that are under way beside the host, with the memory that they read and write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.errors import ShapeError
from alpha.runtime.cuda.array import DeviceArray
from alpha.runtime.device import MIB, HostArray, Readback

if TYPE_CHECKING:
    from alpha.runtime.cuda.cuda_device import CudaDevice


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


class CudaReadback(Readback):
    """Values of a device array, copied behind the work so far while the host goes on."""

    def __init__(self, device: CudaDevice, array: DeviceArray) -> None:
        super().__init__(device, array)
        self._driver = device.driver
        self._buffer = device.driver.pinned(array.nbytes)
        self._pending: Any = None
        self._dropped = False  # whether nobody wants the answer that is under way

    def forget(self) -> None:
        self._values, self._dropped = None, self._pending is not None

    def request(self) -> None:
        self._collect()
        if self._pending is None:
            self._pending = self._driver.begin_download(self._buffer, self._array.address)

    def latest(self) -> HostArray | None:
        self._collect()
        return self._values

    def _collect(self) -> None:
        if self._pending is not None and self._driver.is_done(self._pending):
            self._pending = None
            if not self._dropped:
                self._values = self._buffer.view(self._array.dtype).reshape(self._array.shape).copy()
            self._dropped = False


class Conveyor:
    """Host arrays on their way to the device, each copied while the step before runs.

    Two device arrays of each kind take turns: one is copied into while a step reads the other. `put` starts a copy,
    `taken` says that the steps that read the last array are queued.

    Args:
        shapes, dtypes: of the largest arrays that will be put, one for each kind.
    """

    def __init__(self, device: CudaDevice, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[Any]) -> None:
        self._device = device
        kinds = list(zip(shapes, map(np.dtype, dtypes), strict=True))
        self._arrays = [[device.empty(shape, dtype) for shape, dtype in kinds] for _ in range(2)]
        self._buffers = [[device.driver.pinned(array.nbytes) for array in turn] for turn in self._arrays]
        self._copied: list[Any] = [None, None]
        # the arrays' memory may still be in use by work that is queued
        self._read: list[Any] = [device.driver.record_event()] * 2
        self._turn = 0

    def put(self, *sources: HostArray) -> list[DeviceArray]:
        """Start the copy of a host array of each kind, shorter ones too; return the device arrays that will hold them.

        What is queued after `wait` sees the values. The host arrays may be overwritten at return.
        """
        turn, driver = self._turn, self._device.driver
        if self._copied[turn] is not None:
            driver.wait_until(self._copied[turn])  # else the page-locked memory is still being read
        targets = []
        for array, buffer, source in zip(self._arrays[turn], self._buffers[turn], sources, strict=True):
            if source.shape[1:] != array.shape[1:] or len(source) > len(array) or source.dtype != array.dtype:
                raise ShapeError(f"put: {source.dtype} {source.shape} does not fit {array.dtype} {array.shape}")
            window = buffer[: source.nbytes]
            window.view(source.dtype).reshape(source.shape)[...] = source
            if source.nbytes:
                self._copied[turn] = driver.begin_upload(array.address, window, self._read[turn], array)
            targets.append(array.slice_rows(0, len(source)))
        return targets

    def takes(self, sources: Sequence[HostArray]) -> bool:
        """True if `put` has room for these arrays."""
        kinds = self._arrays[0]
        return len(sources) == len(kinds) and all(
            source.ndim == array.ndim
            and source.shape[1:] == array.shape[1:]
            and len(source) <= len(array)
            and source.dtype == array.dtype
            for source, array in zip(sources, kinds, strict=True)
        )

    def wait(self) -> None:
        """Let what is queued from here on begin after the copies of the last `put`."""
        if self._copied[self._turn] is not None:
            self._device.driver.wait_for(self._copied[self._turn])

    def close(self) -> None:
        """Wait for the copies that are under way; their memory may then be used for something else."""
        for event in filter(None, self._copied):
            self._device.driver.wait_until(event)

    def taken(self) -> None:
        """Say that all work that reads the arrays of the last `put` is queued; the next `put` takes the others."""
        self._read[self._turn] = self._device.driver.record_event()
        self._turn = 1 - self._turn
