"""The tensor maps of TMA that a device holds, each made once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from alpha.runtime.cuda.array import DeviceArray

if TYPE_CHECKING:
    from alpha.runtime.cuda.device import CudaDevice

# dtype name, address, dims, strides in bytes, box: the arguments of Driver.encode_tiled_map
TensorMap = tuple[str, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
MAX_TENSOR_MAPS = 4096


class TensorMapCache:
    """Tensor maps in device memory.

    A map holds an address and no array: it says how to read whatever lies there at the launch. So maps are made once
    for each layout (a name, the boxes), address and form.

    TMA caches maps by where they lie, and no kernel tells it that another lies there now. So the memory of a map goes
    back only after MAX_TENSOR_MAPS others have been used since it was, more than any cache has.
    """

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._maps: dict[Hashable, DeviceArray] = {}
        self._older: dict[Hashable, DeviceArray] = {}

    def of(self, array: DeviceArray, layout: Hashable, maps: Callable[[], Iterable[TensorMap]]) -> DeviceArray:
        """The maps of `array` for a layout, one after the other in device memory; `maps` says what they are."""
        key = (layout, array.block.address + array.offset, array.form)
        held = self._maps.get(key)
        if held is None:
            held = self._older.get(key)
            if held is None:
                encoded = b"".join(self._device.driver.encode_tiled_map(*map_) for map_ in maps())
                held = self._device.constant(np.frombuffer(encoded, np.uint8))
            if len(self._maps) >= MAX_TENSOR_MAPS:
                self._older, self._maps = self._maps, {}
            self._maps[key] = held
        return held

    def clear(self) -> None:
        """Forget every map."""
        self._maps.clear()
        self._older.clear()
