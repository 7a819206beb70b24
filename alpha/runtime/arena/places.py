"""Blocks and state of an arena: which blocks are alive, and what is free.

An exception may come between any two instructions: Ctrl-C, a signal handler that raises, a lack of memory. So each
change of an arena begins with `_changing = True` and ends with `_changing = False`. Whoever finds it true knows that a
change was cut off, and finds everything anew from what is known for certain at each moment (`_recover`): the segments
that the device has given, the slabs, and the blocks that are alive.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Callable
from heapq import heappush
from types import CodeType, FrameType
from typing import Any, TypeAlias, TypeVar
from weakref import getweakrefs, ref

from alpha.errors import DeviceError
from alpha.runtime.arena.free_blocks import Slabs
from alpha.runtime.arena.meter import Meter
from alpha.runtime.arena.repeats import Repeats
from alpha.runtime.arena.segments import Segments


class Block:
    """A piece of an arena; it goes back when its last reference dies, on whatever thread.

    The arena sees it die by a weak reference whose callback is no Python code. A `__del__` would be: what an interrupt
    raises there is printed and lost, and the memory would be lost with it.
    """

    __slots__ = ("__weakref__", "address", "arena", "nbytes")

    def __init__(self, arena: Places, address: int, nbytes: int) -> None:
        self.arena = arena
        self.address = address
        self.nbytes = nbytes

    def exchange(self, other: Block) -> None:
        """Take the memory of `other` and give it this block's; arrays on the block then lie at the new address."""
        self.arena.exchange(self, other)

    def swap(self, other: Block) -> None:
        """Exchange the memory of two blocks by one call of C code, so that no exception can come in the middle."""
        names = ("arena", "address", "nbytes")
        values = [getattr(block, name) for block in (other, self) for name in names]
        deque(map(setattr, (self,) * 3 + (other,) * 3, names * 2, values), 0)


Live: TypeAlias = dict[ref[Block], tuple[int, int, str]]  # address, bytes and label of each live block
M = TypeVar("M", bound=Callable[..., Any])

_changes: set[CodeType] = set()


def change(method: M) -> M:
    """Mark a method within which an arena changes; it holds the lock and calls `_begin` and `_end`."""
    _changes.add(method.__code__)
    return method


class Places:
    """Bookkeeping of an arena's memory.

    Args:
        segments: the raw memory.
        meter: counts its bytes.
        small: bytes up to which blocks are pieces of slabs.

    Attributes:
        segments: the raw memory.
        is_isolated: whether each block is raw memory of its own, so that an access beyond it is seen.
        returned: weak references to blocks that have died. A block can die inside of the arena's own critical section,
            when the garbage collector runs there, or on another thread. So its reference is only queued, without a
            lock, and whoever next holds the lock puts the memory back.
    """

    def __init__(self, segments: Segments, meter: Meter, small: int, is_isolated: bool) -> None:
        self.segments = segments
        self._meter, self._small = meter, small
        self._free = segments.free
        self.is_isolated = is_isolated
        self._recycled: defaultdict[int, list[int]] = defaultdict(list)  # size -> returned blocks, not joined yet
        self._slabs = Slabs()
        self._repeats = Repeats()
        self._dropped: list[int] = []  # addresses of large blocks, returned since the last such was asked for
        self._live: Live = {}
        self._closed = self._changing = False
        self.returned: deque[ref[Block]] = deque()
        self._died = self.returned.append
        self._lock = meter.lock
        meter.settle = self._settle

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

    @change
    def _settle(self) -> None:
        """Take back the blocks that have died, unless a change goes on or was cut off; the lock is held."""
        if self.returned and not self._changing:
            self._begin()
            self._reclaim()
            self._end()

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
            self.segments.release_unused()

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
        self.segments.free_all_but(large + self._slabs.places)

    def _free_unused_slabs(self) -> bool:
        """Make slabs without a live block free memory, joined with their neighbours; return True if there were any."""
        unused = self._slabs.pop_unused()
        for start, nbytes in unused:
            self._free.add(start, nbytes)
        if unused:
            self._repeats.forget()
        return bool(unused)

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
            self.segments.recover()
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
            self.segments.release_unused()
        self._meter.correct(sum(size for _, size, _ in self._live.values()), self.segments.nbytes)
        self._changing = False

    def _is_within_a_change(self, frame: FrameType | None) -> bool:
        """True if a change of this arena goes on in this frame or above, beside the one that has found it cut off."""
        changes = 0
        while frame is not None:
            if frame.f_code in _changes:
                changes += any(frame.f_locals.get(name) is self for name in ("self", "theirs"))
            frame = frame.f_back
        return changes > 1
