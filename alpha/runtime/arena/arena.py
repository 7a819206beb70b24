"""The memory arena: best fit with splitting and coalescing in segments of raw memory.

All work of a device is on one stream, so a freed block may be handed out at once: what writes to it
next is ordered after what read it last. Addresses are plain integers and the raw memory comes from
two functions, so the arena needs no GPU. `Growth` says what segments are.
Its state, and what an exception in the middle of a change leaves of it, are in places.py.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from heapq import heappop
from weakref import ref

from alpha.errors import OutOfMemoryError
from alpha.runtime.arena.free_blocks import SLAB_BYTES, SMALL_BYTES
from alpha.runtime.arena.meter import Meter, mib
from alpha.runtime.arena.places import Block as Block
from alpha.runtime.arena.places import Places, change
from alpha.runtime.arena.segments import GRAIN as GRAIN
from alpha.runtime.arena.segments import Growth as Growth
from alpha.runtime.arena.segments import Segments
from alpha.runtime.device import MIB, MemoryStats

MIN_SEGMENT = 64 * MIB
PAGE = 2 * MIB  # the memory of a GPU comes in pages of this size
LISTED_BLOCKS = 8  # how many of the largest live blocks an out-of-memory message names


class Arena(Places):
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
        small_bytes: blocks up to this size are pieces of slabs; 0: none are.
        label: names the blocks that are allocated while it is set.
        growth: what segments are.
        explain: tells more in the text of an `OutOfMemoryError`, when that is read.
    """

    small_bytes = SMALL_BYTES

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
        meter = Meter(total)
        segments = Segments(allocate, free, growth, min_segment, page, meter)
        is_isolated = growth is Growth.ISOLATED
        super().__init__(segments, meter, 0 if is_isolated else self.small_bytes, is_isolated)
        self.label = ""
        self.explain: Callable[[], str] | None = None
        self._free_on_device, self._spare = free_on_device, spare
        self.growth = growth
        self._grain = segments.grain

    def allocate(self, nbytes: int) -> Block:
        """A block of at least `nbytes`, aligned to GRAIN; `OutOfMemoryError` when nothing helps."""
        size = -(-nbytes // self._grain) * self._grain or self._grain
        with self._lock:
            block = self._obtain(size)
        if block is not None:
            return block
        for make_room in (gc.collect, self._spare):  # not under the lock: finalizers may do anything
            make_room()
            with self._lock:
                block = self._obtain(size)
            if block is not None:
                return block
        error = OutOfMemoryError(self._shortage(nbytes))
        if self.explain is not None:
            error.explain_by(self.explain)
        try:
            raise error
        finally:
            del error  # or it and this frame would hold each other, and all that the step has made, until gc runs

    @change
    def _obtain(self, size: int) -> Block | None:
        """A block of exactly `size`, or None; the lock is held."""
        if self._changing:
            self._recover()
        if self._closed:
            raise OutOfMemoryError("the device is closed")
        self._changing = True
        if self.returned:
            self._reclaim()
        pieces = self._slabs.free.get(size)
        address = heappop(pieces) if pieces else self._choose(size)
        block = None
        if address is not None:
            block = Block(self, address, size)
            self._live[ref(block, self._died)] = address, size, self.label
            self._meter.use(size)
        self._changing = False
        return block

    @change
    def mark_step(self) -> None:
        """Mark the end of a step of training and the beginning of the next one, see alpha/runtime/arena/repeats.py."""
        if self.is_isolated:
            return
        with self._lock:
            self._begin()
            followed = self._repeats.followed is not None
            if not followed:
                self._coalesce()  # so that the addresses of a step that is noted depend on nothing but what is live
            self._reclaim()
            if not self._repeats.mark(self._live.values(), self._small, self._dropped) and followed:
                self._find_free()
            self._dropped = []
            self._end()

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

    @change
    def trim(self) -> int:
        """Give wholly free segments back to the device and return the number of bytes."""
        with self._lock:
            self._begin()
            self._leave_step()
            self._repeats.forget()
            self._coalesce()
            self._free_unused_slabs()
            released = self.segments.release_unused()
            self._end()
        return released

    @change
    def stats(self) -> MemoryStats:
        """The counts of this arena alone."""
        with self._lock:
            self._begin()
            self._reclaim()
            self._end()
            return self._meter.stats(len(self._live))

    @change
    def reset_peak(self) -> None:
        """The peak starts again from what is in use."""
        with self._lock:
            self._begin()
            self._reclaim()
            self._meter.reset_peak()
            self._end()

    @change
    def largest_live(self, count: int = LISTED_BLOCKS) -> list[tuple[int, str]]:
        """(bytes, label) of the largest live blocks."""
        with self._lock:
            self._begin()
            self._reclaim()
            self._end()
            return sorted([(size, label) for _, size, label in self._live.values()], reverse=True)[:count]

    def block_ids(self) -> set[int]:
        """The ids of the blocks that somebody holds; nothing of the arena changes."""
        return {id(block) for reference in tuple(self._live) if (block := reference()) is not None}

    @change
    def live_blocks(self) -> list[Block]:
        """The blocks that somebody still holds."""
        with self._lock:
            self._begin()
            self._reclaim()
            self._end()
            blocks = [reference() for reference in self._live]
        return [block for block in blocks if block is not None]

    @change
    def close(self, free: bool = True) -> None:
        """Give up every segment, live blocks included, and `free` them; blocks that die later are ignored."""
        with self._lock:
            self._begin()
            self.segments.close(free)
            self._closed = True
            self._meter.use(-self._meter.in_use)
            self._recycled.clear()
            self._slabs.clear()
            self._live.clear()
            self._end()

    def _choose(self, size: int) -> int | None:
        """The address of free memory for a block, or None: as in the step that is followed, or by a search."""
        if size <= self._small:  # and no slab has a free piece
            return self._cut_slab(size)
        repeats, dropped, address = self._repeats, self._dropped, None
        if repeats.followed is not None:
            asked = next(repeats.followed, None)
            if asked is not None and asked[0] == size and asked[1] == dropped:
                address = asked[2]
            else:
                address = repeats.turn(size, dropped, asked)
                if address is None:
                    self._find_free()
        if address is None:
            address = self._search(size)
            if address is None:
                return None
            repeats.note(size, dropped, address)
        if dropped:
            self._dropped = []
        return address

    def _search(self, size: int) -> int | None:
        """The address of free memory for a block, or None.

        A step of training asks again for the sizes it has just returned: an exact fit is the best fit and costs a
        look-up. Other returned blocks wait, not joined, until no exact fit is left.
        """
        same = self._recycled.get(size)
        return same.pop() if same else self._take(size)

    def _take(self, size: int) -> int | None:
        """Take the beginning of the best fit among all free memory, unused slabs included; None if nothing fits."""
        self._coalesce()
        address = self._free.take(size)
        if address is None and self._free_unused_slabs():
            address = self._free.take(size)
        if address is None and self.segments.grow(size):
            self._repeats.forget()
            address = self._free.take(size)
        return address

    def _cut_slab(self, size: int) -> int | None:
        """The first piece of a new slab, or None. Where memory is short, the slab is this piece alone.

        A slab lies as low as possible: small blocks that live long then lie together and not between large ones.
        """
        self._leave_step()
        self._coalesce()
        whole = SLAB_BYTES // size * size
        free = self._free
        for nbytes, take in ((whole, free.take_lowest), (size, free.take), (whole, self._take), (size, self._take)):
            start = take(nbytes)
            if start is not None:
                self._repeats.forget()
                return self._slabs.cut(start, nbytes, size)
        return None

    @change
    def _shortage(self, nbytes: int) -> str:
        with self._lock:
            self._begin()
            self._end()
            free = self._free.largest
            meters = str(self._meter.total or self._meter)
            refusal = self.segments.refusal
        blocks = ", ".join(f"{mib(size)} {label}".rstrip() for size, label in self.largest_live())
        return (
            f"out of memory: asked {mib(nbytes)}, {meters}, largest free block {mib(free)}, "
            f"free on the device {mib(self._free_on_device())}{f' ({refusal})' if refusal else ''}; "
            f"largest live blocks: {blocks or 'none'}"
        )
