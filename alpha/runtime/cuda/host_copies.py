"""Copies between host and device that neither of them waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.errors import ShapeError
from alpha.runtime.cuda.array import DeviceArray
from alpha.runtime.device import HostArray, Readback

if TYPE_CHECKING:
    from alpha.runtime.cuda.device import CudaDevice


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
        """Start the copy of one host array of each kind, shorter ones too; the device arrays that will hold them.

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
