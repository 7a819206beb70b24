"""The free blocks of an arena: the best fit among them, and the joining of neighbours.

Addresses are plain integers. Nothing here takes a lock; the arena does.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container


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
        self._sorted: list[tuple[int, int]] = []  # (size, address)

    @property
    def largest(self) -> int:
        """The size of the largest block; 0 if there is none."""
        return self._sorted[-1][0] if self._sorted else 0

    def add(self, address: int, size: int) -> None:
        """Add free memory, joined with the blocks beside it."""
        start, end = address, address + size
        if start in self._ends and start not in self._borders:
            start = self._ends.pop(start)
            del self._sorted[bisect_left(self._sorted, (self.sizes.pop(start), start))]
        if end in self.sizes and end not in self._borders:
            size = self.sizes.pop(end)
            del self._sorted[bisect_left(self._sorted, (size, end))]
            end += size
        self._put(start, end)

    def take(self, size: int) -> int | None:
        """Take the beginning of the smallest block that holds `size`; its address, or None if no block does."""
        index = bisect_left(self._sorted, (size, 0))
        if index == len(self._sorted):
            return None
        found, address = self._sorted.pop(index)
        del self.sizes[address]
        del self._ends[address + found]
        if found > size:
            self._put(address + size, address + found)
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
        index = bisect_left(self._sorted, (size, 0))
        return self._sorted[index][1] if index < len(self._sorted) else None

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
        insort(self._sorted, (end - start, start))
        self.sizes[start] = end - start
        self._ends[end] = start

    def _remove(self, start: int) -> None:
        size = self.sizes.pop(start)
        del self._sorted[bisect_left(self._sorted, (size, start))]
        del self._ends[start + size]
