"""The cpu device: numpy arrays whose memory comes from an arena.

A fresh page costs more than the arithmetic on it (the system zeroes it first), and numpy returns a large array to the
system when it dies. So large arrays live in arena blocks that are used again, as on a GPU.
"""

from __future__ import annotations

import functools
import mmap
import os
from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from alpha.runtime.arena.arena import Arena, Block
from alpha.runtime.device import Device, HostArray, MemoryStats, Shape, as_shape, native

SMALL = 1 << 15  # bytes; smaller arrays are left to numpy's own allocator


class CpuDevice(Device):
    """Device of numpy; memory statistics count the arrays from 32 KiB on that operators made or `upload` copied."""

    name = "cpu"

    def __init__(self) -> None:
        self._pages = _Pages()
        self.arena = Arena(self._pages.allocate, self._pages.free, _available_bytes)
        self.arena.segments.held = self._pages.held

    def empty(self, shape: Shape | int, dtype: npt.DTypeLike) -> HostArray:
        sizes, kind = as_shape(shape), np.dtype(dtype)
        nbytes = kind.itemsize
        for size in sizes:
            nbytes *= size
        if nbytes < SMALL:
            return np.empty(sizes, kind)
        return np.asarray(_Window(self.arena.allocate(nbytes), nbytes)).view(kind).reshape(sizes)

    def zeros(self, shape: Shape | int, dtype: npt.DTypeLike) -> HostArray:
        array = self.empty(shape, dtype)
        array.fill(0)
        return array

    def upload(self, source: HostArray) -> HostArray:
        return self.copy(native(source))

    def download(self, array: HostArray) -> HostArray:
        return np.array(array, order="C", copy=True)

    def copy(self, array: HostArray) -> HostArray:
        target = self.empty(np.shape(array), array.dtype)
        target[...] = array
        return target

    def fill(self, array: HostArray, value: float) -> None:
        array.fill(value)

    def synchronize(self) -> None:
        """Nothing is pending: numpy has finished when it returns."""

    def memory_stats(self) -> MemoryStats:
        return self.arena.stats()

    def reset_peak(self) -> None:
        self.arena.reset_peak()

    def trim(self) -> None:
        self.arena.trim()

    def set_memory_limit(self, nbytes: int | None) -> None:
        self.arena.set_limit(nbytes)


class _Window:
    """A block's bytes as numpy sees them (the interface has no name for bfloat16).

    Arrays and their views keep it, and so the block, alive.
    """

    __slots__ = ("__array_interface__", "_block")

    def __init__(self, block: Block, nbytes: int) -> None:
        self._block = block
        self.__array_interface__ = {"data": (block.address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}


# The default of Python's mmap is memory that a forked child would share with its parent.
_PRIVATE: dict[str, Any] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}  # not on Windows
)


class _Pages:
    """Anonymous memory of the system: untouched pages of a segment cost nothing."""

    def __init__(self) -> None:
        self._held: dict[int, HostArray] = {}

    def allocate(self, nbytes: int) -> int:
        try:
            pages = mmap.mmap(-1, nbytes, **_PRIVATE)
        except (OSError, OverflowError) as error:
            raise MemoryError(str(error)) from None
        if hasattr(mmap, "MADV_HUGEPAGE"):
            pages.madvise(mmap.MADV_HUGEPAGE)
        view = np.frombuffer(pages, np.uint8)
        address = int(view.ctypes.data)
        self._held[address] = view
        return address

    def held(self) -> Collection[int]:
        return self._held.keys()

    def free(self, address: int) -> None:
        del self._held[address]  # the mapping dies with its last view


def _available_bytes() -> int:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # a system that does not tell
        return 0


@functools.cache
def _device() -> CpuDevice:
    from alpha.runtime.registry import get_device

    device = get_device("cpu")
    assert isinstance(device, CpuDevice)
    return device


def empty(shape: Shape | int, dtype: npt.DTypeLike) -> HostArray:
    """An array of unspecified content; what the cpu operators allocate their results with."""
    return _device().empty(shape, dtype)
