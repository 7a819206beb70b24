"""Segments of an arena: the raw memory that it holds, what of it is free, and how it gets more from its device.

Nothing here takes a lock; the arena does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum

from alpha.runtime.arena.free_blocks import FreeBlocks
from alpha.runtime.arena.meter import Meter

GRAIN = 512  # bytes; every array is aligned for any vector load and for TMA


class Segments:
    """Raw memory in segments. `Growth` says how large they are and which of them go back.

    Args:
        allocate, free: see `Arena`.
        least, page: bytes, `min_segment` and `page` of `Arena`.
        meter: counts the bytes of the segments, and knows how many more may be held.

    Attributes:
        grain: bytes of which blocks are multiples.
        free: the free blocks in the segments.
        held: says at which addresses there is memory that `allocate` has given and `free` has not taken back. Without
            it, memory that the device has given is lost if an exception comes before it is noted here.
        kept: (begin, end) of memory that does not go back to the device, though no block lies there now.
        refusal: text of the device's error, if it refused the last segment that was asked for; otherwise empty.
    """

    def __init__(
        self,
        allocate: Callable[[int], int],
        free: Callable[[int], None],
        growth: Growth,
        least: int,
        page: int,
        meter: Meter,
    ) -> None:
        self._raw_allocate, self._raw_free = allocate, free
        self.held: Callable[[], Collection[int]] | None = None
        self._growth, self._page, self._meter = growth, page, meter
        self.grain = 1 if growth is Growth.ISOLATED else GRAIN
        self._least = self._round_up(least)
        self._sizes: dict[int, int] = {}  # start -> size
        # no block may cross the beginning of a segment, except in a range
        self.free = FreeBlocks(() if growth is Growth.RANGE else self._sizes)
        self.kept: Sequence[tuple[int, int]] = ()
        self.refusal = ""

    def grow(self, size: int) -> bool:
        """Make room for `size`, in exchange for unused segments if the device or the limit is short."""
        if self._add(size):
            return True
        return self.release_unused() > 0 and self._add(size)

    def release_unused(self) -> int:
        """Free the segments that hold no live block (in a range: those at its end), and return the number of bytes."""
        released = 0
        if self._growth is Growth.RANGE:
            starts = list(reversed(self._sizes))
        else:  # no block crosses the beginning of a segment, so an unused one begins with a free block
            starts = [start for start in self.free.sizes if start in self._sizes]
        for start in starts:
            size = self._sizes[start]
            end = start + size
            if self.free.start_of(end) > start or any(low < end and start < high for low, high in self.kept):
                if self._growth is Growth.RANGE:
                    break
                continue
            self._raw_free(start)  # first: if the driver refuses, nothing has changed
            del self._sizes[start]
            self.free.take_at(start, size)
            self._meter.reserve(-size)
            released += size
        return released

    def extents(self) -> list[tuple[int, int]]:
        """(start, end) of the pieces of memory that no block may leave, in ascending order."""
        if self._growth is Growth.RANGE and self._sizes:
            last = next(reversed(self._sizes))
            return [(next(iter(self._sizes)), last + self._sizes[last])]
        return sorted((start, start + size) for start, size in self._sizes.items())

    def free_all_but(self, taken: Iterable[tuple[int, int]]) -> None:
        """Make everything free that is not in `taken`, (address, bytes) of pieces that do not overlap."""
        self.free.clear()
        places = sorted(taken, reverse=True)
        for start, end in self.extents():
            while places and start <= places[-1][0] < end:
                address, size = places.pop()
                if address > start:
                    self.free.add(start, address - start)
                start = address + size
            if start < end:
                self.free.add(start, end - start)

    @property
    def nbytes(self) -> int:
        """The bytes of all segments."""
        return sum(self._sizes.values())

    @property
    def starts(self) -> Collection[int]:
        """Addresses at which the segments begin."""
        return self._sizes.keys()

    def recover(self) -> None:
        """Agree with the device on which segments there are, because an exception may have come in between."""
        if self.held is None:
            return
        held = set(self.held())
        for start in [start for start in self._sizes if start not in held]:
            del self._sizes[start]
        for start in sorted(held.difference(self._sizes), reverse=True):
            self._raw_free(start)

    def close(self, free: bool) -> None:
        """Forget every segment, after `free` has given them back."""
        if not free:
            self.held = None
        for start in reversed(self._sizes) if free else ():
            self._raw_free(start)
        self._meter.reserve(-self._meter.reserved)
        self._sizes.clear()
        self.free.clear()

    def _add(self, size: int) -> bool:
        """Add a segment, so that some free block holds `size`."""
        least, wanted = self._sizes_for(size)
        self.refusal = ""
        if (room := self._meter.room) is not None:
            wanted = min(wanted, room // self.grain * self.grain)
        while wanted >= least:
            try:
                start = self._raw_allocate(wanted)
            except MemoryError as error:
                self.refusal = str(error)
                if wanted == least:
                    return False
                wanted = max(least, self._round_up(wanted // 2))
                continue
            self.refusal = ""
            self._sizes[start] = wanted
            self._meter.reserve(wanted)
            self.free.add(start, wanted)
            return True
        return False

    def _sizes_for(self, size: int) -> tuple[int, int]:
        """(the least, the wanted) bytes of a segment for a block of `size`."""
        if self._growth is Growth.DOUBLE:
            return size, max(size, self._least, self._meter.reserved)
        if self._growth is Growth.ISOLATED:
            return size, size
        if self._growth is Growth.RANGE:
            size -= self._free_at_the_end()
        pages = -(-size // self._page) * self._page
        return pages, pages

    def _free_at_the_end(self) -> int:
        """Bytes of the free block that ends where the range ends."""
        if not self._sizes:
            return 0
        start = next(reversed(self._sizes))
        end = start + self._sizes[start]
        return end - self.free.start_of(end)

    def _round_up(self, nbytes: int) -> int:
        return -(-nbytes // self.grain) * self.grain


class Growth(Enum):
    """Amount of memory that an arena asks for when no free block is large enough.

    DOUBLE: a segment as large as all that is held, for memory that costs nothing until it is written.
    EXACT: a segment as large as the block, rounded up to pages.
    RANGE: what is missing, as the next addresses of one range that grows. Blocks may cross from one segment into the
        next, and segments go back from the end of the range.
    ISOLATED: each block is a segment of exactly its size and goes back with it, for a driver that guards allocations.

    Except in a RANGE, segments stay apart even if their addresses touch, because the CUDA driver refuses a copy that
    crosses from one allocation into the next.
    """

    DOUBLE = "double"
    EXACT = "exact"
    RANGE = "range"
    ISOLATED = "isolated"
