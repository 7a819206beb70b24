"""Small blocks of an arena are pieces of slabs, which are larger blocks that were cut into pieces of one size.

A step of training takes and returns hundreds of small blocks. A piece that comes back is not joined with its
neighbours, so that it is taken again at once, and small blocks that live long do not lie between large ones.
"""

from __future__ import annotations

from collections.abc import Container
from heapq import heappush

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
        """Cut a block into pieces of `size`, which divides `nbytes`, and take the first one; its address."""
        self._starts.setdefault(size, {})[start] = nbytes
        free = self.free.setdefault(size, [])
        for address in range(start + size, start + nbytes, size):
            heappush(free, address)
        return start

    def pop_unused(self) -> list[tuple[int, int]]:
        """Forget the slabs all of whose pieces are free; (start, bytes) of each."""
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
