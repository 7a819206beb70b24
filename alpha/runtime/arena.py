"""The memory arena: best fit with splitting and coalescing in segments of raw memory.

All work of a device is on one stream, so a freed block may be handed out at once: what writes to it
next is ordered after what read it last. Addresses are plain integers and the raw memory comes from
two functions, so the arena needs no GPU. `Growth` says what segments are.

An exception may come between any two instructions: Ctrl-C, a signal handler that raises, a lack of memory. So each
change of an arena begins with `_changing = True` and ends with `_changing = False`. Whoever finds it true knows that a
change was cut off, and finds everything anew from what is known for certain at each moment (`_recover`): the segments
that the device has given, the slabs, and the blocks that are alive.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection
from heapq import heappop, heappush
from types import CodeType, FrameType
from typing import Any, TypeAlias, TypeVar
from weakref import getweakrefs, ref

from alpha.errors import DeviceError, OutOfMemoryError
from alpha.runtime import fork
from alpha.runtime.block import Block as Block
from alpha.runtime.device import MIB, MemoryStats
from alpha.runtime.growth import Growth as Growth
from alpha.runtime.meter import Meter, mib
from alpha.runtime.repeats import Repeats
from alpha.runtime.segments import GRAIN as GRAIN
from alpha.runtime.segments import Segments
from alpha.runtime.slabs import SLAB_BYTES, SMALL_BYTES, Slabs

MIN_SEGMENT = 64 * MIB
PAGE = 2 * MIB  # the memory of a GPU comes in pages of this size
LISTED_BLOCKS = 8  # how many of the largest live blocks an out-of-memory message names

Live: TypeAlias = dict[ref[Block], tuple[int, int, str]]  # address, bytes and label of each live block
M = TypeVar("M", bound=Callable[..., Any])

_changes: set[CodeType] = set()


def change(method: M) -> M:
    """Mark a method within which an arena changes; it holds the lock and calls `_begin` and `_end`."""
    _changes.add(method.__code__)
    return method


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
        held: the addresses that `allocate` has given and `free` has not taken back. Without it, memory that the device
            has given is lost if an exception comes before the arena has noted it.

    Attributes:
        small_bytes: blocks up to this size are pieces of slabs; 0: none are.
        is_isolated: whether each block is raw memory of its own, so that an access beyond it is seen.
        label: names the blocks that are allocated while it is set.
        returned: weak references to blocks that have died. A block can die inside of the arena's own critical section,
            when the garbage collector runs there, or on another thread. So its reference is only queued, without a
            lock, and whoever next holds the lock puts the memory back.
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
        held: Callable[[], Collection[int]] | None = None,
    ) -> None:
        self.label = ""
        self._free_on_device, self._spare = free_on_device, spare
        self._meter = Meter(total)
        self._growth = growth
        self._segments = Segments(allocate, free, growth, min_segment, page, self._meter, held)
        self._grain, self._free = self._segments.grain, self._segments.free
        self.is_isolated = growth is Growth.ISOLATED
        self._small = 0 if self.is_isolated else self.small_bytes
        self._recycled: defaultdict[int, list[int]] = defaultdict(list)  # size -> returned blocks, not joined yet
        self._slabs = Slabs()
        self._repeats = Repeats()
        self._dropped: list[int] = []  # addresses of large blocks, returned since the last such was asked for
        self._live: Live = {}
        self._closed = self._changing = False
        self.returned: deque[ref[Block]] = deque()
        self._died = self.returned.append
        self._lock = fork.held_across(threading.RLock())

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
        raise OutOfMemoryError(self._shortage(nbytes))

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
        """Here a step of training ends and the next one begins, see alpha/runtime/repeats.py."""
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

    @change
    def exchange(self, block: Block, other: Block) -> None:
        """Exchange the memory of a block of this arena and of a block of another one; see `Block.exchange`."""
        theirs = other.arena
        if theirs is self:
            raise ValueError("exchange: both blocks are of one arena")
        with self._lock, theirs._lock:
            self._begin()
            theirs._begin()
            before = [
                (arena, reference, arena._live[reference])
                for arena, held in ((self, block), (theirs, other))
                for reference in getweakrefs(held)
                if reference in arena._live
            ]
            # both blocks are noted for both places; those notes count that agree with the blocks, see `_recover`
            for (arena, _, place), held in zip(before, (other, block), strict=True):
                arena._live[ref(held, arena._died)] = place
            block.swap(other)
            for arena, reference, _ in before:
                arena._live.pop(reference, None)
            theirs._end()
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
        """Give wholly free segments back to the device; the number of bytes."""
        with self._lock:
            self._begin()
            self._leave_step()
            self._repeats.forget()
            self._coalesce()
            self._free_unused_slabs()
            released = self._segments.release_unused()
            self._end()
        return released

    @property
    def segments(self) -> Collection[int]:
        """Where the segments begin."""
        return self._segments.starts

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

    @change
    def close(self, free: bool = True) -> None:
        """Give up every segment, live blocks included, and `free` them; blocks that die later are ignored."""
        with self._lock:
            self._begin()
            self._segments.close(free)
            self._closed = True
            self._meter.use(-self._meter.in_use)
            self._recycled.clear()
            self._slabs.clear()
            self._live.clear()
            self._end()

    # -- changes that were cut off ------------------------------------------------------------

    def _begin(self) -> None:
        """Begin a change; the lock is held."""
        if self._changing:
            self._recover()
        self._changing = True

    def _end(self) -> None:
        self._changing = False

    def _recover(self) -> None:
        """Find everything anew, because an exception has cut off a change; the lock is held.

        Nothing here depends on how far the change had come, or on whether this is cut off, too.

        Raises:
            DeviceError: the change goes on further up in this thread, and a finalizer or a signal handler has come
                between.
        """
        if self._is_within_a_change(sys._getframe(1)):
            raise DeviceError(
                "a signal handler or a finalizer uses the memory of a device while memory is being found: "
                "let it set a flag, and do the work later"
            )
        if not self._closed:
            self._segments.recover()
        for reference, (address, *_) in list(self._live.items()):
            block = reference()
            if block is None or block.arena is not self or block.address != address:
                self._live.pop(reference, None)
            del block
        self._repeats.forget()
        self._dropped = []
        self._slabs.recover({address for address, size, _ in self._live.values() if size <= self._small})
        self._find_free()
        if self.is_isolated:
            self._segments.release_unused()
        self._meter.correct(sum(size for _, size, _ in self._live.values()), self._segments.nbytes)
        self._changing = False

    def _is_within_a_change(self, frame: FrameType | None) -> bool:
        """Whether a change of this arena goes on in this frame or above, beside the one that has found it cut off."""
        changes = 0
        while frame is not None:
            if frame.f_code in _changes:
                changes += any(frame.f_locals.get(name) is self for name in ("self", "theirs"))
            frame = frame.f_back
        return changes > 1

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
        if address is None and self._segments.grow(size):
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

    def _free_unused_slabs(self) -> bool:
        """Make slabs without a live block free memory, joined with their neighbours; whether there were any."""
        unused = self._slabs.pop_unused()
        for start, nbytes in unused:
            self._free.add(start, nbytes)
        if unused:
            self._repeats.forget()
        return bool(unused)

    def _reclaim(self) -> None:
        """Sort returned blocks by size; the lock is held."""
        nbytes, live, pieces, followed = 0, self._live, self._slabs.free, self._repeats.followed
        while self.returned:
            place = live.pop(self.returned.popleft(), None)
            if place is None:  # it outlived close()
                continue
            address, size, _ = place
            nbytes += size
            if size <= self._small:
                heappush(pieces[size], address)
                continue
            self._dropped.append(address)
            if followed is None:  # else `_find_free` will see it
                self._recycled[size].append(address)
        if nbytes:
            self._meter.use(-nbytes)
        if self.is_isolated and self._recycled:
            self._coalesce()
            self._segments.release_unused()

    def _coalesce(self) -> None:
        """Make all returned blocks free memory, joined with their neighbours; the lock is held."""
        if self.returned:
            self._reclaim()
        for size, addresses in self._recycled.items():
            for address in addresses:
                self._free.add(address, size)
        self._recycled.clear()

    def _leave_step(self) -> None:
        """Follow no noted step any longer; the lock is held."""
        if self._repeats.followed is not None:
            self._repeats.leave()
            self._find_free()

    def _find_free(self) -> None:
        """Find what is free from what is live, as only that is known while a step is followed; the lock is held."""
        self._recycled.clear()
        large = [(address, size) for address, size, _ in self._live.values() if size > self._small]
        self._segments.free_all_but(large + self._slabs.places)

    @change
    def _shortage(self, nbytes: int) -> str:
        with self._lock:
            self._begin()
            self._end()
            free = self._free.largest
            meters = str(self._meter.total or self._meter)
        blocks = ", ".join(f"{mib(size)} {label}".rstrip() for size, label in self.largest_live())
        return (
            f"out of memory: asked {mib(nbytes)}, {meters}, largest free block {mib(free)}, "
            f"free on the device {mib(self._free_on_device())}; "
            f"largest live blocks: {blocks or 'none'}"
        )
