"""A piece of an arena."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alpha.runtime.places import Places


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
        """What `exchange` does to the blocks: one call of C code, so that no exception can come in the middle."""
        names = ("arena", "address", "nbytes")
        values = [getattr(block, name) for block in (other, self) for name in names]
        deque(map(setattr, (self,) * 3 + (other,) * 3, names * 2, values), 0)
