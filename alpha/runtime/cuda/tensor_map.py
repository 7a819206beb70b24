"""Tensor maps for TMA, each made once for a device: pycuda has no call for them, so the driver library is asked."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from alpha.errors import DeviceError
from alpha.runtime.cuda.array import DeviceArray, form_of
from alpha.runtime.device import HostArray

if TYPE_CHECKING:
    from alpha.runtime.cuda.cuda_device import CudaDevice


MAP_BYTES = 128
_TYPES = {"uint8": 0, "uint16": 1, "int32": 3, "float16": 6, "float32": 7, "float64": 8}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_L2_128B, _ZEROS, _NO_INTERLEAVE = 2, 0, 0


@functools.cache
def driver_call(name: str) -> Callable[..., int]:
    """A function of the driver library for which pycuda has none; it gives a CUresult.

    Raises:
        DeviceError: the library does not have it.
    """
    try:
        library = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
        function: Any = getattr(ctypes.CDLL(library), name)
    except (OSError, AttributeError) as error:
        raise DeviceError(f"no {name} ({error}): the driver is too old") from None
    function.restype = ctypes.c_int
    call: Callable[..., int] = function
    return call


def encode_tiled_map(
    dtype: npt.DTypeLike,
    address: int,
    dims: Sequence[int],
    strides_bytes: Sequence[int],
    box: Sequence[int],
    swizzle: int = 128,
) -> bytes:
    """The 128 bytes that tell TMA how to load a box of a tensor; outside of it are zeros.

    Args:
        dtype: of an element.
        address: of the tensor, 16-byte aligned.
        dims, box: elements, innermost first, 2 to 5 of them.
        strides_bytes: of every dimension but the innermost, multiples of 16.
        swizzle: 0, 32, 64 or 128 bytes.

    Raises:
        DeviceError: the driver refuses the map.
    """
    rank = len(dims)
    raw = ctypes.create_string_buffer(MAP_BYTES + 64)
    target = (ctypes.addressof(raw) + 63) & ~63
    status = driver_call("cuTensorMapEncodeTiled")(
        ctypes.c_void_p(target),
        ctypes.c_int(_TYPES[np.dtype(dtype).name]),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*dims),
        (ctypes.c_uint64 * (rank - 1))(*strides_bytes),
        (ctypes.c_uint32 * rank)(*box),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        ctypes.c_int(_NO_INTERLEAVE),
        ctypes.c_int(_SWIZZLES[swizzle]),
        ctypes.c_int(_L2_128B),
        ctypes.c_int(_ZEROS),
    )
    if status:
        raise DeviceError(
            f"cuTensorMapEncodeTiled: error {status} for {np.dtype(dtype).name} dims {tuple(dims)}, "
            f"strides {tuple(strides_bytes)} bytes, box {tuple(box)}, swizzle {swizzle}"
        )
    return ctypes.string_at(target, MAP_BYTES)


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
    as the step before it (see alpha/runtime/arena/repeats.py). A page goes back with the last of its maps.
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

    def arrays(self) -> list[DeviceArray]:
        """The arrays in which maps lie, and the page of the next ones."""
        return [*self._maps.values(), *self._older.values(), *([] if self._page is None else [self._page])]

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
