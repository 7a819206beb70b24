"""The memory arena: best fit with splitting and coalescing in segments of raw memory.

All work of a device is on one stream, so a freed block may be handed out at once: what writes to it
next is ordered after what read it last. Addresses are plain integers and the raw memory comes from
two functions, so the arena needs no GPU. `Growth` says what segments are.
"""

from __future__ import annotations

import gc
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from alpha.errors import OutOfMemoryError
from alpha.runtime import fork
from alpha.runtime.device import MIB, MemoryStats
from alpha.runtime.free_blocks import FreeBlocks
from alpha.runtime.growth import Growth as Growth
from alpha.runtime.meter import Meter, mib

GRAIN = 512  # bytes; every array is aligned for any vector load and for TMA
MIN_SEGMENT = 64 * MIB
PAGE = 2 * MIB  # the memory of a GPU comes in pages of this size
LISTED_BLOCKS = 8  # how many of the largest live blocks an out-of-memory message names


class Block:
    """A piece of an arena; it goes back when its last reference dies, on whatever thread."""

    __slots__ = ("__weakref__", "address", "arena", "nbytes")

    def __init__(self, arena: Arena, address: int, nbytes: int) -> None:
        self.arena = arena
        self.address = address
        self.nbytes = nbytes

    def exchange(self, other: Block) -> None:
        """Take the memory of `other` and give it this block's; arrays on the block then lie at the new address."""
        self.arena, other.arena = other.arena, self.arena
        self.address, other.address = other.address, self.address
        self.nbytes, other.nbytes = other.nbytes, self.nbytes

    def __del__(self) -> None:
        self.arena.returned.append(self.address)


class Arena:
    """Blocks of the raw memory that `allocate(nbytes) -> address` and `free(address)` provide.

    `allocate` raises `MemoryError` when the device has no room.

    Args:
        free_on_device: says, for messages, how many bytes the device still has.
        growth: what segments are, see `Growth`.
        min_segment: bytes of the first segment with `Growth.DOUBLE`.
        page: bytes of which segments with `Growth.EXACT` and `Growth.RANGE` are multiples.
        total: counts the bytes of this arena and of others; its limit is for all of them together.
        spare: is called when there is no room, to give back memory that is held elsewhere; returns the bytes.

    Attributes:
        label: names the blocks that are allocated while it is set.
        kept: (begin, end) of memory that does not go back to the device, though no block lies there now.
        returned: addresses of blocks that have died. A block can die inside of the arena's own critical section, when
            the garbage collector runs there, or on another thread. So its address is only queued, without a lock, and
            whoever next holds the lock puts the memory back.
    """

    def __init__(
        self,
        allocate: Callable[[int], int],
        free: Callable[[int], None],
        free_on_device: Callable[[], int],
        growth: Growth = Growth.DOUBLE,
        min_segment: int = MIN_SEGMENT,
        page: int = PAGE,
        total: Meter | None = None,
        spare: Callable[[], int] = int,
    ) -> None:
        self.label = ""
        self._raw_allocate = allocate
        self._raw_free = free
        self._free_on_device = free_on_device
        self._growth = growth
        self._page = page
        self._meter = Meter(total)
        self._spare = spare
        self._grain = 1 if growth is Growth.ISOLATED else GRAIN
        self._min_segment = self._round_up(min_segment)
        self._segments: dict[int, int] = {}  # start -> size
        # no block may cross the beginning of a segment, except in a range
        self._free = FreeBlocks(() if growth is Growth.RANGE else self._segments)
        self._recycled: defaultdict[int, list[int]] = defaultdict(list)  # size -> returned blocks, not joined yet
        self._live: dict[int, tuple[int, str]] = {}  # address -> size, label
        self.kept: Sequence[tuple[int, int]] = ()
        self._closed = False
        self.returned: deque[int] = deque()
        self._lock = fork.held_across(threading.Lock())

    def allocate(self, nbytes: int) -> Block:
        """A block of at least `nbytes`, aligned to GRAIN; `OutOfMemoryError` when nothing helps."""
        size = -(-nbytes // self._grain) * self._grain or self._grain
        address = self._try_allocate(size)
        if address is None:
            gc.collect()  # not under the lock: finalizers may do anything
            address = self._try_allocate(size)
        if address is None and self._spare() > 0:
            address = self._try_allocate(size)
        if address is None:
            raise OutOfMemoryError(self._shortage(nbytes))
        return Block(self, address, size)

    def set_limit(self, limit: int | None) -> None:
        """Hold at most `limit` bytes, with the other arenas of the same total; frees unused segments first.

        `OutOfMemoryError` when live blocks need more; the old limit stays.
        """
        if limit is not None and limit < 0:
            raise ValueError(f"a memory limit is not negative: {limit}")
        meter = self._meter.total or self._meter
        for release in (self.trim, self._spare):
            if limit is not None and meter.reserved > limit:
                release()
        if limit is not None and meter.reserved > limit:
            raise OutOfMemoryError(f"a memory limit of {mib(limit)} is below what is in use: {meter}")
        meter.limit = limit

    def trim(self) -> int:
        """Give wholly free segments back to the device; the number of bytes."""
        with self._lock:
            self._coalesce()
            return self._release_free_segments()

    def stats(self) -> MemoryStats:
        """The counts of this arena alone."""
        with self._lock:
            self._reclaim()
            return self._meter.stats()

    def reset_peak(self) -> None:
        """The peak starts again from what is in use."""
        with self._lock:
            self._reclaim()
            self._meter.peak = self._meter.in_use

    def largest_live(self, count: int = LISTED_BLOCKS) -> list[tuple[int, str]]:
        """(bytes, label) of the largest live blocks."""
        with self._lock:
            self._reclaim()
            return sorted(self._live.values(), reverse=True)[:count]

    def close(self, free: bool = True) -> None:
        """Give up every segment, live blocks included, and `free` them; blocks that die later are ignored."""
        with self._lock:
            self._closed = True
            for start in reversed(self._segments) if free else ():
                self._raw_free(start)
            self._meter.use(-sum(size for size, _ in self._live.values()), -len(self._live))
            self._meter.reserve(-self._meter.reserved)
            self._segments.clear()
            self._recycled.clear()
            self._free.clear()
            self._live.clear()

    def _try_allocate(self, size: int) -> int | None:
        with self._lock:
            if self._closed:
                raise OutOfMemoryError("the device is closed")
            if self.returned:
                self._reclaim()
            address = self._choose(size)
            if address is None:
                return None
            self._live[address] = (size, self.label)
            self._meter.use(size, 1)
            return address

    def _choose(self, size: int) -> int | None:
        """The address of free memory for a block, or None.

        A step of training asks again for the sizes it has just returned: an exact fit is the best fit and costs a
        look-up. Other returned blocks wait, not joined, until no exact fit is left.
        """
        same = self._recycled.get(size)
        if same:
            return same.pop()
        self._coalesce()
        address = self._free.take(size)
        if address is None and self._grow(size):
            address = self._free.take(size)
        return address

    def _reclaim(self) -> None:
        """Sort returned blocks by size; the lock is held."""
        nbytes = blocks = 0
        while self.returned:
            address = self.returned.popleft()
            size, _ = self._live.pop(address, (0, ""))
            if size:  # else it outlived close()
                nbytes, blocks = nbytes + size, blocks + 1
                self._recycled[size].append(address)
        if blocks:
            self._meter.use(-nbytes, -blocks)
        if self._growth is Growth.ISOLATED and self._recycled:
            self._coalesce()
            self._release_free_segments()

    def _coalesce(self) -> None:
        """Make all returned blocks free memory, joined with their neighbours; the lock is held."""
        if self.returned:
            self._reclaim()
        for size, addresses in self._recycled.items():
            for address in addresses:
                self._free.add(address, size)
        self._recycled.clear()

    def _grow(self, size: int) -> bool:
        """Make room for `size`, in exchange for unused segments if the device or the limit is short."""
        if self._reserve(size):
            return True
        return self._release_free_segments() > 0 and self._reserve(size)

    def _reserve(self, size: int) -> bool:
        """Add a segment, so that some free block holds `size`."""
        least, wanted = self._segment_sizes(size)
        if (room := self._meter.room) is not None:
            wanted = min(wanted, room // self._grain * self._grain)
        while wanted >= least:
            try:
                start = self._raw_allocate(wanted)
            except MemoryError:
                if wanted == least:
                    return False
                wanted = max(least, self._round_up(wanted // 2))
                continue
            self._segments[start] = wanted
            self._meter.reserve(wanted)
            self._free.add(start, wanted)
            return True
        return False

    def _segment_sizes(self, size: int) -> tuple[int, int]:
        """(the least, the wanted) bytes of a segment for a block of `size`."""
        if self._growth is Growth.DOUBLE:
            return size, max(size, self._min_segment, self._meter.reserved)
        if self._growth is Growth.ISOLATED:
            return size, size
        if self._growth is Growth.RANGE:
            size -= self._free_at_the_end()
        pages = -(-size // self._page) * self._page
        return pages, pages

    def _free_at_the_end(self) -> int:
        """Bytes of the free block that ends where the range ends."""
        if not self._segments:
            return 0
        start = next(reversed(self._segments))
        end = start + self._segments[start]
        return end - self._free.start_of(end)

    def _release_free_segments(self) -> int:
        """Free the segments that hold no live block (in a range: those at its end); the number of bytes."""
        released = 0
        if self._growth is Growth.RANGE:
            starts = list(reversed(self._segments))
        else:  # no block crosses the beginning of a segment, so an unused one begins with a free block
            starts = [start for start in self._free.sizes if start in self._segments]
        for start in starts:
            size = self._segments[start]
            end = start + size
            if self._free.start_of(end) > start or any(low < end and start < high for low, high in self.kept):
                if self._growth is Growth.RANGE:
                    break
                continue
            self._raw_free(start)  # first: if the driver refuses, nothing has changed
            del self._segments[start]
            self._free.take_at(start, size)
            self._meter.reserve(-size)
            released += size
        return released

    def _round_up(self, nbytes: int) -> int:
        return -(-nbytes // self._grain) * self._grain

    def _shortage(self, nbytes: int) -> str:
        with self._lock:
            free = self._free.largest
            meters = str(self._meter.total or self._meter)
        blocks = ", ".join(f"{mib(size)} {label}".rstrip() for size, label in self.largest_live())
        return (
            f"out of memory: asked {mib(nbytes)}, {meters}, largest free block {mib(free)}, "
            f"free on the device {mib(self._free_on_device())}; "
            f"largest live blocks: {blocks or 'none'}"
        )
