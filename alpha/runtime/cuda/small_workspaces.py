"""Memory for the small workspaces of all plans. The device keeps it until it is closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from alpha.runtime.cuda.array import ArrayForm, DeviceArray, side_by_side

if TYPE_CHECKING:
    from alpha.runtime.cuda.device import CudaDevice

WORKSPACE_BYTES = 2**20  # most workspaces are smaller


class SmallWorkspaces:
    """One piece of a device's memory, of `WORKSPACE_BYTES`, that all plans use for their workspaces if these fit.

    Plans may share it because the launches of one plan end before those of the next plan begin. A plan whose workspaces
    lie here does not ask the arena for memory each time that it is launched.
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
            self._memory = device.outside_capture(lambda: device.empty((WORKSPACE_BYTES,), np.uint8))
        block = self._memory.block
        return [DeviceArray(device, block, offset, form) for offset, form in zip(offsets, forms, strict=True)]

    def clear(self) -> None:
        """Give the memory back; no plan may be launched any more."""
        self._memory = None
