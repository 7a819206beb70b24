"""Counts of memory: bytes in use, the most ever in use, bytes held, and the limit."""

from __future__ import annotations

from alpha.runtime.device import MIB, MemoryStats


class Meter:
    """Counts bytes of blocks and segments. What is counted here is counted in `total`, too, which has the limit."""

    def __init__(self, total: Meter | None = None) -> None:
        self.total = total
        self.in_use = self.peak = self.reserved = self.blocks = 0
        self._limit: int | None = None

    @property
    def limit(self) -> int | None:
        return self._limit if self.total is None else self.total.limit

    @limit.setter
    def limit(self, limit: int | None) -> None:
        if self.total is None:
            self._limit = limit
        else:
            self.total.limit = limit

    @property
    def room(self) -> int | None:
        """How many more bytes may be held; None without a limit."""
        if self.total is not None:
            return self.total.room
        return None if self._limit is None else self._limit - self.reserved

    def use(self, nbytes: int, blocks: int) -> None:
        """Add to what is in use; negative numbers take away."""
        meter: Meter | None = self
        while meter is not None:
            meter.in_use += nbytes
            meter.blocks += blocks
            if meter.in_use > meter.peak:
                meter.peak = meter.in_use
            meter = meter.total

    def reserve(self, nbytes: int) -> None:
        """Add to what is held; a negative number takes away."""
        self.reserved += nbytes
        if self.total is not None:
            self.total.reserve(nbytes)

    def stats(self) -> MemoryStats:
        return MemoryStats(self.in_use, self.peak, self.reserved, self.limit, self.blocks)

    def __str__(self) -> str:
        limit = "none" if self.limit is None else mib(self.limit)
        return f"in use {mib(self.in_use)}, reserved {mib(self.reserved)}, limit {limit}"


def mib(nbytes: int) -> str:
    """A number of bytes, for people."""
    return f"{nbytes / MIB:.1f} MiB"
