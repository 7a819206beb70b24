"""Free blocks of an arena: the best fit among them, the joining of neighbours, and slabs of small pieces.

Addresses are plain integers. Nothing here takes a lock; the arena does.

A slab is a larger block that was cut into pieces of one size. A step of training takes and returns hundreds of small
blocks. A piece that comes back is not joined with its neighbours, so that it is taken again at once, and small blocks
that live long do not lie between large ones.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container
from heapq import heappush

BITS = 64  # of an address
ADDRESS = (1 << BITS) - 1


class FreeBlocks:
    """Free memory in blocks, none of which touches another one, except at a border.

    Args:
        borders: addresses that no block may cross; whoever owns the container may change it.

    Attributes:
        sizes: the size of each block by its address.
    """

    def __init__(self, borders: Container[int]) -> None:
        self.sizes: dict[int, int] = {}
        self._borders = borders
        self._ends: dict[int, int] = {}  # end -> address
        self._sorted: list[int] = []  # size << BITS | address: one number is compared faster than a pair

    @property
    def largest(self) -> int:
        """The size of the largest block; 0 if there is none."""
        return self._sorted[-1] >> BITS if self._sorted else 0

    def add(self, address: int, size: int) -> None:
        """Add free memory, joined with the blocks beside it."""
        sizes, ends, ordered, borders = self.sizes, self._ends, self._sorted, self._borders
        start, end = address, address + size
        if start in ends and start not in borders:
            start = ends.pop(start)
            del ordered[bisect_left(ordered, sizes.pop(start) << BITS | start)]
        if end in sizes and end not in borders:
            behind = sizes.pop(end)
            del ordered[bisect_left(ordered, behind << BITS | end)]
            end += behind
        sizes[start] = end - start
        ends[end] = start
        insort(ordered, (end - start) << BITS | start)

    def take(self, size: int) -> int | None:
        """Take the beginning of the smallest block that holds `size` and return its address; None if no block does."""
        ordered = self._sorted
        index = bisect_left(ordered, size << BITS)
        if index == len(ordered):
            return None
        address = ordered.pop(index) & ADDRESS
        end = address + self.sizes.pop(address)
        rest = address + size
        if rest == end:
            del self._ends[end]
        else:
            self.sizes[rest] = end - rest
            self._ends[end] = rest
            insort(ordered, (end - rest) << BITS | rest)
        return address

    def take_lowest(self, size: int) -> int | None:
        """Take the beginning of the block at the lowest address that holds `size`; None if no block does."""
        address = min((start for start, length in self.sizes.items() if length >= size), default=None)
        if address is not None:
            self.take_at(address, size)
        return address

    def take_at(self, address: int, size: int) -> bool:
        """Take the memory at an address; False if it is not free."""
        for start, length in self.sizes.items():
            if start <= address and address + size <= start + length:
                break
        else:
            return False
        self._remove(start)
        if start < address:
            self._put(start, address)
        if address + size < start + length:
            self._put(address + size, start + length)
        return True

    def fit(self, size: int) -> int | None:
        """The address of the smallest block that holds `size`, which stays free; None if no block does."""
        index = bisect_left(self._sorted, size << BITS)
        return self._sorted[index] & ADDRESS if index < len(self._sorted) else None

    def start_of(self, end: int) -> int:
        """The address of the block that ends at `end`; `end` itself if there is none."""
        return self._ends.get(end, end)

    def clear(self) -> None:
        """Forget every block."""
        self.sizes.clear()
        self._ends.clear()
        self._sorted.clear()

    def _put(self, start: int, end: int) -> None:
        """Add a block that touches no other one."""
        insort(self._sorted, (end - start) << BITS | start)
        self.sizes[start] = end - start
        self._ends[end] = start

    def _remove(self, start: int) -> None:
        size = self.sizes.pop(start)
        del self._sorted[bisect_left(self._sorted, size << BITS | start)]
        del self._ends[start + size]


SMALL_BYTES = 4096  # the largest piece
SLAB_BYTES = 64 * 1024


class Slabs:
    """The slabs of an arena.

    Attributes:
        free: the addresses of the free pieces by their size, as heaps: the lowest is taken first. So a step that asks
            for the same blocks as the one before gets the same addresses, for which tables and tensor maps are known.
    """

    def __init__(self) -> None:
        self.free: dict[int, list[int]] = {}
        self._starts: dict[int, dict[int, int]] = {}  # size of a piece -> start of a slab -> its bytes

    def cut(self, start: int, nbytes: int, size: int) -> int:
        """Cut a block into pieces of `size`, which divides `nbytes`, take the first one, and return its address."""
        self._starts.setdefault(size, {})[start] = nbytes
        free = self.free.setdefault(size, [])
        for address in range(start + size, start + nbytes, size):
            heappush(free, address)
        return start

    def pop_unused(self) -> list[tuple[int, int]]:
        """Forget the slabs all of whose pieces are free, and return (start, bytes) of each."""
        unused = []
        for size, starts in self._starts.items():
            left = set(self.free[size])
            for start, nbytes in list(starts.items()):
                pieces = range(start, start + nbytes, size)
                if left.issuperset(pieces):
                    left.difference_update(pieces)
                    del starts[start]
                    unused.append((start, nbytes))
            self.free[size] = sorted(left)
        return unused

    def recover(self, live: Container[int]) -> None:
        """Find the free pieces anew: all but those at the addresses of `live`."""
        for size, starts in self._starts.items():
            pieces = [at for start, nbytes in starts.items() for at in range(start, start + nbytes, size)]
            self.free[size] = sorted([address for address in pieces if address not in live])

    @property
    def places(self) -> list[tuple[int, int]]:
        """(start, bytes) of each slab."""
        return [place for starts in self._starts.values() for place in starts.items()]

    def clear(self) -> None:
        """Forget every slab."""
        self.free.clear()
        self._starts.clear()
