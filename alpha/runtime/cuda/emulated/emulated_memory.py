"""Device memory of the emulated driver: host memory in which an access out of bounds is seen.

Each allocation has pages around it that nobody may touch, and ends as close to the second of them
as its 512-byte alignment allows: a kernel that runs over the end is stopped by the processor at the
access. The few bytes between allocation and page hold poison, which a launch checks afterwards.
Freed memory stays untouchable for a while, so a kernel that still uses it is stopped too.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import weakref
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from alpha.errors import DeviceError

ALIGNMENT = 512
GUARD_BYTES = 2**20  # of untouchable pages on either side; they cost address space, no memory
POISON = 0xFF  # NaN as a float, -1 as an integer
QUARANTINE = 256  # freed allocations that stay untouchable
TOTAL_BYTES = 8 * 2**30
MAX_THREADS = 1024  # kMaxThreads of cuda/common/emulation/thread.h

_PROT_NONE = 0
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.memmove.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
_libc.memmove.restype = _libc.memset.restype = None
move, fill = _libc.memmove, _libc.memset  # which return None


@dataclass(frozen=True)
class Allocation:
    """`nbytes` at `address`, in pages from `first` to `last`, in a mapping that adds the guards."""

    address: int
    nbytes: int
    first: int
    last: int
    slot: int  # its two rows of the zone table

    @property
    def end(self) -> int:
        return self.address + self.nbytes


class GuardedMemory:
    """Allocations by address; `zones` is the table of poisoned bytes that launches check."""

    def __init__(self) -> None:
        self.used = 0
        self.zones = np.zeros((128, 2), np.uint64)  # (address, bytes); unused rows have no bytes
        self._free_slots: list[int] = []
        self._slots = 0
        self._live: dict[int, Allocation] = {}
        self._starts: list[int] = []
        self._freed: deque[Allocation] = deque()
        self._changing = False

    def addresses(self) -> Collection[int]:
        """Addresses of all allocations."""
        return self._live.keys()

    def allocate(self, nbytes: int) -> int:
        """A 512-byte aligned address of `nbytes` poisoned bytes; `MemoryError` when full."""
        self._ready()
        if nbytes > TOTAL_BYTES - self.used:
            raise MemoryError(f"{nbytes} bytes; {self.used} of {TOTAL_BYTES} are in use")
        size = max(nbytes, 1)
        pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        mapping = _libc.mmap(None, pages + 2 * GUARD_BYTES, _PROT_NONE, _PRIVATE, -1, 0)
        if mapping == _FAILED:
            raise MemoryError(f"{nbytes} bytes: the host gives no address space")
        first, last = mapping + GUARD_BYTES, mapping + GUARD_BYTES + pages
        address: int = last - -(-size // ALIGNMENT) * ALIGNMENT
        try:
            if _libc.mprotect(first, pages, mmap.PROT_READ | mmap.PROT_WRITE):
                raise MemoryError(f"{nbytes} bytes: the host gives no memory")
            ctypes.memset(first, POISON, pages)
            self._changing = True
            allocation = Allocation(address, nbytes, first, last, self._take_slot())
            self._set_zones(allocation)
            self._poison(allocation, True)
            insort(self._starts, address)
            self.used += nbytes
            self._live[address] = allocation
            self._changing = False
        except BaseException:
            self._changing = True
            self._live.pop(address, None)
            _libc.munmap(mapping, pages + 2 * GUARD_BYTES)
            raise
        return address

    def free(self, address: int) -> None:
        """Make the memory untouchable; `DeviceError` for an address that is not an allocation."""
        self._ready()
        allocation = self._live.get(address)
        if allocation is None:
            raise DeviceError(f"free: {address:#x} is not an allocation")
        self._changing = True
        self._freed.append(allocation)
        del self._live[address]
        del self._starts[bisect_right(self._starts, address) - 1]
        self.zones[allocation.slot : allocation.slot + 2] = 0
        self._free_slots.append(allocation.slot)
        self.used -= allocation.nbytes
        self._poison(allocation, False)
        pages = allocation.last - allocation.first
        _libc.mmap(allocation.first, pages, _PROT_NONE, _PRIVATE | _MAP_FIXED, -1, 0)
        if len(self._freed) > QUARANTINE:
            self._unmap(self._freed.popleft())
        self._changing = False

    def check(self, call: str, address: int, nbytes: int) -> None:
        """`DeviceError` unless these bytes lie in one allocation."""
        self._ready()
        found = self._before(address)
        if found is None or address + nbytes > found.end:
            raise DeviceError(f"{call}: {nbytes} bytes at {self.describe(address + nbytes - 1)}")

    def describe(self, address: int) -> str:
        """Description of the place of an address: in, before or after which allocation."""
        near = [a for a in self._live.values() if _distance(a, address) <= GUARD_BYTES]
        if near:
            closest = min(near, key=lambda a: _distance(a, address))
            relation = _relation(closest, address)
            return f"{address:#x}, {relation} an allocation of {closest.nbytes} bytes"
        for freed in reversed(self._freed):
            if freed.address <= address < freed.end:
                return f"{address:#x}, inside a freed allocation of {freed.nbytes} bytes"
        return f"{address:#x}, near no allocation"

    @property
    def zone_count(self) -> int:
        """Rows of `zones` that may hold a zone."""
        self._ready()
        return 2 * self._slots

    def close(self) -> None:
        """Unmap everything."""
        for address in list(self._live):
            self.free(address)
        while self._freed:
            self._unmap(self._freed.popleft())

    def _ready(self) -> None:
        """Find everything anew from the live allocations, if an exception has cut off a change."""
        if not self._changing:
            return
        live = list(self._live.values())
        self._freed = deque([freed for freed in self._freed if self._live.get(freed.address) is not freed])
        for freed in self._freed:
            _libc.mmap(freed.first, freed.last - freed.first, _PROT_NONE, _PRIVATE | _MAP_FIXED, -1, 0)
        self._starts = sorted(self._live)
        self.used = sum(allocation.nbytes for allocation in live)
        taken = {allocation.slot for allocation in live}
        self._free_slots = [slot for slot in range(0, 2 * self._slots, 2) if slot not in taken]
        self.zones[:] = 0
        for allocation in live:
            self._set_zones(allocation)
        self._changing = False

    def _set_zones(self, allocation: Allocation) -> None:
        self.zones[allocation.slot] = allocation.first, allocation.address - allocation.first
        self.zones[allocation.slot + 1] = allocation.end, allocation.last - allocation.end

    def _before(self, address: int) -> Allocation | None:
        index = bisect_right(self._starts, address)
        return self._live[self._starts[index - 1]] if index else None

    def _take_slot(self) -> int:
        if self._free_slots:
            return self._free_slots.pop()
        slot = 2 * self._slots
        if slot + 2 > len(self.zones):
            self.zones = np.concatenate([self.zones, np.zeros_like(self.zones)])
        self._slots += 1
        return slot

    def _poison(self, allocation: Allocation, poison: bool) -> None:
        """Tell AddressSanitizer, where it runs, of the zones that no guard page covers."""
        name = "__asan_poison_memory_region" if poison else "__asan_unpoison_memory_region"
        if not hasattr(_libc, name):
            return
        call = getattr(_libc, name)
        call.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        call(allocation.first, allocation.address - allocation.first)
        call(allocation.end, allocation.last - allocation.end)

    @staticmethod
    def _unmap(allocation: Allocation) -> None:
        start = allocation.first - GUARD_BYTES
        _libc.munmap(start, allocation.last + GUARD_BYTES - start)


class FiberStacks:
    """Stacks of the threads of a block, each above a page that nobody may touch: two mappings for each.

    They are unmapped with the object.
    """

    def __init__(self, each: int) -> None:
        self.each = each
        mapping = _libc.mmap(None, MAX_THREADS * each, mmap.PROT_READ | mmap.PROT_WRITE, _PRIVATE, -1, 0)
        if mapping == _FAILED:
            raise DeviceError(f"the host gives no address space for {MAX_THREADS} stacks")
        self.address: int | None = mapping
        self._unmap = weakref.finalize(self, _libc.munmap, mapping, MAX_THREADS * each)
        self._unmap.atexit = False
        for i in range(MAX_THREADS):
            _libc.mprotect(mapping + i * each, mmap.PAGESIZE, _PROT_NONE)

    def close(self) -> None:
        """Unmap them; safe to call twice."""
        if self.address is not None:
            self._unmap()
            self.address = None


class _OfThread(threading.local):
    """Stacks by their bytes, of the thread that asks."""

    def __init__(self) -> None:
        self.stacks: dict[int, FiberStacks] = {}


_of_thread = _OfThread()


def stacks_of_thread(each: int) -> FiberStacks:
    """The stacks on which a thread runs the kernels of all its devices, one kernel at a time.

    Linux gives a process 65,530 mappings, of which 32 devices with stacks of their own would take all.
    """
    found = _of_thread.stacks.get(each)
    if found is None:
        found = _of_thread.stacks[each] = FiberStacks(each)
    return found


def _distance(allocation: Allocation, address: int) -> int:
    return max(allocation.address - address, address - allocation.end + 1, 0)


def _relation(allocation: Allocation, address: int) -> str:
    if address < allocation.address:
        return f"{allocation.address - address} bytes before the start of"
    if address >= allocation.end:
        return f"{address - allocation.end} bytes past the end of"
    return f"byte {address - allocation.address} of"
