"""Memory for the small workspaces of all plans, which is never given back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from alpha.runtime.cuda.array import ArrayForm, DeviceArray, side_by_side

if TYPE_CHECKING:
    from alpha.runtime.cuda.device import CudaDevice

WORKSPACE_BYTES = 2**20  # most workspaces are smaller


class SmallWorkspaces:
    """One piece of a device's memory in which the workspaces of each plan lie that fit.

    The launches of a plan follow those of the plan before it in the stream, so each plan finds the memory free. Without
    this, each launch of a plan would ask the arena for its workspaces.
    """

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._memory: DeviceArray | None = None

    def of(self, forms: tuple[ArrayForm, ...]) -> list[DeviceArray] | None:
        """Arrays for the workspaces of a plan; None if they do not fit, or if each array is isolated."""
        offsets, nbytes = side_by_side(forms)
        device = self._device
        if nbytes > WORKSPACE_BYTES or device.arena.is_isolated:
            return None
        if self._memory is None:
            with device.outside_capture():
                self._memory = device.empty((WORKSPACE_BYTES,), np.uint8)
        block = self._memory.block
        return [DeviceArray(device, block, offset, form) for offset, form in zip(offsets, forms, strict=True)]

    def clear(self) -> None:
        """Give the memory back; no plan may be launched any more."""
        self._memory = None
