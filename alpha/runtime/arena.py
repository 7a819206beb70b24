"""The memory arena: best fit with splitting and coalescing in a few large segments of raw memory.

All work of a device is on one stream, so a freed block may be handed out at once: what writes to it
next is ordered after what read it last. Addresses are plain integers and the raw memory comes from
two functions, so the arena needs no GPU. Segments stay apart even where their addresses touch: the
CUDA driver refuses a copy that crosses from one allocation into the next.
"""

from __future__ import annotations

import gc
import threading
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable

from alpha.errors import OutOfMemoryError
from alpha.runtime import fork
from alpha.runtime.device import MIB, MemoryStats

GRAIN = 512  # bytes; every array is aligned for any vector load and for TMA
MIN_SEGMENT = 64 * MIB
LISTED_BLOCKS = 8  # how many of the largest live blocks an out-of-memory message names


class Block:
    """A piece of an arena; it goes back when its last reference dies, on whatever thread."""

    __slots__ = ("_arena", "address", "nbytes")

    def __init__(self, arena: Arena, address: int, nbytes: int) -> None:
        self._arena = arena
        self.address = address
        self.nbytes = nbytes

    def __del__(self) -> None:
        self._arena.give_back(self.address)


class Arena:
    """Blocks of the raw memory that `allocate(nbytes) -> address` and `free(address)` provide.

    `allocate` raises `MemoryError` when the device has no room.

    `free_on_device` says, for messages, how many bytes the device still has. `label` names the
    blocks that are allocated while it is set. `isolated`: each block is a segment of its own, of
    exactly its size, and goes back with it, for a driver that guards its allocations.
    """

    def __init__(
        self,
        allocate: Callable[[int], int],
        free: Callable[[int], None],
        free_on_device: Callable[[], int],
        min_segment: int = MIN_SEGMENT,
        isolated: bool = False,
    ) -> None:
        self.label = ""
        self._raw_allocate = allocate
        self._raw_free = free
        self._free_on_device = free_on_device
        self._isolated = isolated
        self._grain = 1 if isolated else GRAIN
        self._min_segment = 0 if isolated else self._round_up(min_segment)
        self._limit: int | None = None
        self._segments: dict[int, int] = {}  # start -> size
        self._by_size: list[tuple[int, int]] = []  # (size, address) of the free blocks, sorted: best fit
        self._by_start: dict[int, int] = {}  # free block: address -> size
        self._by_end: dict[int, int] = {}  # free block: end -> address
        self._fresh: dict[int, list[int]] = {}  # size -> returned blocks that are not joined yet
        self._live: dict[int, tuple[int, str]] = {}  # address -> size, label
        self._in_use = 0
        self._peak = 0
        self._reserved = 0
        self._closed = False
        # A block can die inside our own critical section, when the garbage collector runs there,
        # or on another thread. So a returned address is only queued, and whoever next holds the
        # lock puts it back.
        self._returned: deque[int] = deque()
        self._lock = fork.held_across(threading.Lock())

    def allocate(self, nbytes: int) -> Block:
        """A block of at least `nbytes`, aligned to GRAIN; `OutOfMemoryError` when nothing helps."""
        size = self._round_up(max(nbytes, 1))
        address = self._try_allocate(size)
        if address is None:
            gc.collect()  # not under the lock: finalizers may do anything
            address = self._try_allocate(size)
        if address is None:
            raise OutOfMemoryError(self._shortage(nbytes))
        return Block(self, address, size)

    def give_back(self, address: int) -> None:
        """Return a block's memory; called by the block when it dies. Takes no lock."""
        self._returned.append(address)

    def set_limit(self, limit: int | None) -> None:
        """Hold at most `limit` bytes; frees unused segments first.

        `OutOfMemoryError` when live blocks need more; the old limit stays.
        """
        if limit is not None and limit < 0:
            raise ValueError(f"a memory limit is not negative: {limit}")
        with self._lock:
            self._settle()
            if limit is not None and self._reserved > limit:
                self._release_free_segments()
            if limit is not None and self._reserved > limit:
                raise OutOfMemoryError(f"a memory limit of {_mib(limit)} is below what is in use: {self._meters()}")
            self._limit = limit

    def trim(self) -> int:
        """Give wholly free segments back to the device; the number of bytes."""
        with self._lock:
            self._settle()
            return self._release_free_segments()

    def stats(self) -> MemoryStats:
        with self._lock:
            self._take_back()
            return MemoryStats(self._in_use, self._peak, self._reserved, self._limit, len(self._live))

    def reset_peak(self) -> None:
        """The peak starts again from what is in use."""
        with self._lock:
            self._take_back()
            self._peak = self._in_use

    def largest_live(self, count: int = LISTED_BLOCKS) -> list[tuple[int, str]]:
        """(bytes, label) of the largest live blocks."""
        with self._lock:
            self._take_back()
            return sorted(self._live.values(), reverse=True)[:count]

    def close(self, free: bool = True) -> None:
        """Give up every segment, live blocks included, and `free` them; blocks that die later are ignored."""
        with self._lock:
            self._closed = True
            for start in self._segments if free else ():
                self._raw_free(start)
            self._segments.clear()
            self._fresh.clear()
            self._by_size.clear()
            self._by_start.clear()
            self._by_end.clear()
            self._live.clear()
            self._in_use = self._reserved = 0

    def _try_allocate(self, size: int) -> int | None:
        with self._lock:
            if self._closed:
                raise OutOfMemoryError("the device is closed")
            self._take_back()
            same = self._fresh.get(size)
            address = same.pop() if same else self._best_fit(size)
            if address is None:
                return None
            self._live[address] = (size, self.label)
            self._in_use += size
            self._peak = max(self._peak, self._in_use)
            return address

    def _best_fit(self, size: int) -> int | None:
        self._settle()
        index = bisect_left(self._by_size, (size, 0))
        if index == len(self._by_size):
            if not self._grow(size):
                return None
            index = bisect_left(self._by_size, (size, 0))
        found, address = self._by_size[index]
        self._remove_free(address, found)
        if found > size:
            self._add_free(address + size, found - size)
        return address

    def _take_back(self) -> None:
        """Sort returned blocks by size; the lock is held.

        A step of training asks again for the sizes it has just returned: an exact fit is the best fit and costs a
        look-up. The others wait uncoalesced until no exact fit is left.
        """
        while self._returned:
            address = self._returned.popleft()
            size, _ = self._live.pop(address, (0, ""))
            if size:  # else it outlived close()
                self._in_use -= size
                self._fresh.setdefault(size, []).append(address)
        if self._isolated and self._fresh:
            self._coalesce_fresh()
            self._release_free_segments()

    def _settle(self) -> None:
        """Put all returned blocks on the free lists, joined with their neighbours; the lock is held."""
        self._take_back()
        self._coalesce_fresh()

    def _coalesce_fresh(self) -> None:
        for size, addresses in self._fresh.items():
            for address in addresses:
                self._coalesce(address, size)
        self._fresh.clear()

    def _coalesce(self, address: int, size: int) -> None:
        left = None if address in self._segments else self._by_end.get(address)
        if left is not None:
            length = self._by_start[left]
            self._remove_free(left, length)
            address, size = left, size + length
        end = address + size
        length = 0 if end in self._segments else self._by_start.get(end, 0)
        if length:
            self._remove_free(end, length)
            size += length
        self._add_free(address, size)

    def _add_free(self, address: int, size: int) -> None:
        insort(self._by_size, (size, address))
        self._by_start[address] = size
        self._by_end[address + size] = address

    def _remove_free(self, address: int, size: int) -> None:
        del self._by_size[bisect_left(self._by_size, (size, address))]
        del self._by_start[address]
        del self._by_end[address + size]

    def _grow(self, size: int) -> bool:
        """Add a segment that holds `size`, in exchange for unused ones if there is no room."""
        if self._reserve(size):
            return True
        return self._release_free_segments() > 0 and self._reserve(size)

    def _reserve(self, size: int) -> bool:
        """Double what is held; less where the device or the limit is short."""
        wanted = size if self._isolated else max(size, self._min_segment, self._reserved)
        if self._limit is not None:
            wanted = min(wanted, (self._limit - self._reserved) // self._grain * self._grain)
        while wanted >= size:
            try:
                start = self._raw_allocate(wanted)
            except MemoryError:
                if wanted == size:
                    return False
                wanted = max(size, self._round_up(wanted // 2))
                continue
            self._segments[start] = wanted
            self._reserved += wanted
            self._add_free(start, wanted)
            return True
        return False

    def _release_free_segments(self) -> int:
        free = [s for s, size in self._segments.items() if self._by_start.get(s) == size]
        released = 0
        for start in free:
            size = self._segments[start]
            self._raw_free(start)  # first: if the driver refuses, nothing has changed
            del self._segments[start]
            self._remove_free(start, size)
            self._reserved -= size
            released += size
        return released

    def _round_up(self, nbytes: int) -> int:
        return -(-nbytes // self._grain) * self._grain

    def _meters(self) -> str:
        limit = "none" if self._limit is None else _mib(self._limit)
        return f"in use {_mib(self._in_use)}, reserved {_mib(self._reserved)}, limit {limit}"

    def _shortage(self, nbytes: int) -> str:
        with self._lock:
            free = self._by_size[-1][0] if self._by_size else 0
            meters = self._meters()
        blocks = ", ".join(f"{_mib(size)} {label}".rstrip() for size, label in self.largest_live())
        return (
            f"out of memory: asked {_mib(nbytes)}, {meters}, largest free block {_mib(free)}, "
            f"free on the device {_mib(self._free_on_device())}; "
            f"largest live blocks: {blocks or 'none'}"
        )


def _mib(nbytes: int) -> str:
    return f"{nbytes / MIB:.1f} MiB"
