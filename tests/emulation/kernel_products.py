"""Products of matrices by the small kernels, and what they read on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from kernel_emulator import Emulator

HostArray = npt.NDArray[Any]


class OnDevice:
    """Arrays and tensor maps in device memory until the test ends."""

    def __init__(self, launch: Emulator) -> None:
        self.driver: Any = launch.driver

    def upload(self, array: HostArray) -> int:
        address = self.driver.allocate(array.nbytes)
        self.driver.upload(address, np.ascontiguousarray(array))
        return address

    def tensor_map(self, array: HostArray, box: tuple[int, ...], swizzle: int = 128) -> np.uint64:
        """A map of the array; `box` innermost first, as the map has it."""
        packed = self.driver.encode_tiled_map(
            array.dtype, self.upload(array), array.shape[::-1], array.strides[-2::-1], box, swizzle
        )
        return np.uint64(self.upload(np.frombuffer(packed, np.uint8)))


def widened(x: npt.NDArray[np.uint16]) -> HostArray:
    """The float32 of bfloat16."""
    return (x.astype(np.uint32) << 16).view(np.float32)


def tile_product(launch: Emulator, kind: str, a: Any, b: Any) -> HostArray:
    """a @ b.T by a kernel of tiles.cu: "ffma" | "tf32"."""
    c = np.empty((a.shape[0], b.shape[0]), np.float32)
    grid = (c.shape[1] // 64, c.shape[0] // 64, 1)
    block, shared_bytes = {"ffma": (256, 0), "tf32": (128, 3 * 128 * 32 * 4)}[kind]
    args = (a, b, c, b.shape[0], a.shape[1])
    launch("tiles.cu", f"product_{kind}", grid, block, *args, shared_bytes=shared_bytes)
    return c


def wgmma_product(
    launch: Emulator, kernel: str, maps: tuple[Any, Any], m: int, k: int, stage: int, **defines: int
) -> HostArray:
    """The product (m, 2 N) of matrices that TMA brings, with k elements of each row, by a kernel of hopper.cu."""
    width = defines.get("N", 64)
    c = np.full((m, 2 * width), np.nan, np.float32)
    args = (*maps, c, 2 * width, k)
    nbytes = 3 * stage + 1024
    launch("hopper.cu", kernel, (2, m // 64, 1), 256, *args, shared_bytes=nbytes, defines=defines)
    return c
