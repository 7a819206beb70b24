"""A piece of an arena."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alpha.runtime.arena import Arena


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
