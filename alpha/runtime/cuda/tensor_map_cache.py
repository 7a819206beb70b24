"""The tensor maps of TMA that a device holds, each made once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from alpha.runtime.cuda.array import DeviceArray, form_of
from alpha.runtime.device import HostArray

if TYPE_CHECKING:
    from alpha.runtime.cuda.device import CudaDevice

# dtype name, address, dims, strides in bytes, box: the arguments of Driver.encode_tiled_map
TensorMap = tuple[str, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
MAX_TENSOR_MAPS = 4096
PAGE_BYTES = 64 * 1024
UINT8 = np.dtype(np.uint8)


class TensorMapCache:
    """Tensor maps in device memory.

    A map holds an address and no array: it says how to read whatever lies there at the launch. So maps are made once
    for each layout (a name, the boxes), address and form.

    TMA caches maps by where they lie, and no kernel tells it that another lies there now. So the memory of a map goes
    back only after MAX_TENSOR_MAPS others have been used since it was, more than any cache has.

    Maps lie side by side in pages of PAGE_BYTES. So a step that needs new maps still asks the arena for the same blocks
    as the step before it (see alpha/runtime/repeats.py). A page goes back with the last of its maps.
    """

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._maps: dict[Hashable, DeviceArray] = {}
        self._older: dict[Hashable, DeviceArray] = {}
        self._page: DeviceArray | None = None
        self._used = 0  # bytes of the page

    def of(self, array: DeviceArray, layout: Hashable, maps: Callable[[], Iterable[TensorMap]]) -> DeviceArray:
        """The maps of `array` for a layout, one after the other in device memory; `maps` says what they are."""
        key = (layout, array.block.address + array.offset, array.form)
        held = self._maps.get(key)
        if held is None:
            held = self._older.get(key)
            if held is None:
                encoded = b"".join(self._device.driver.encode_tiled_map(*map_) for map_ in maps())
                held = self._keep(np.frombuffer(encoded, np.uint8))
            if len(self._maps) >= MAX_TENSOR_MAPS:
                self._older, self._maps = self._maps, {}
            self._maps[key] = held
        return held

    def clear(self) -> None:
        """Forget every map."""
        self._maps.clear()
        self._older.clear()
        self._page = None

    def _keep(self, encoded: HostArray) -> DeviceArray:
        """The encoded maps in device memory."""
        device, nbytes = self._device, encoded.nbytes
        if device.arena.is_isolated or nbytes > PAGE_BYTES:
            return device.constant(encoded)

        def write() -> DeviceArray:
            if self._page is None or self._used + nbytes > PAGE_BYTES:
                self._page, self._used = device.empty(PAGE_BYTES, UINT8), 0
            held = DeviceArray(device, self._page.block, self._used, form_of((nbytes,), UINT8))
            self._used += nbytes  # first: whatever comes in between, no other map is written there
            device.write(held, encoded)
            return held

        return device.outside_capture(write)
