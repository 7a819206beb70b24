"""Counts of memory: bytes in use, the most ever in use, bytes held, and the limit."""

from __future__ import annotations

import threading
from collections.abc import Callable

from alpha.runtime import fork
from alpha.runtime.device import MIB, MemoryStats


class Meter:
    """Counts bytes of blocks and segments. What is counted here is counted in `total`, too, which has the limit.

    A total is part of no other one.

    Attributes:
        lock: of the arena that this counts, and of all other ones with the same total.
        settle: takes off the blocks of the arena that have died, unless the arena is being changed; the lock is held.
    """

    def __init__(self, total: Meter | None = None) -> None:
        self.total = total
        self.lock: threading.RLock = fork.held_across(threading.RLock()) if total is None else total.lock
        self.settle: Callable[[], object] = bool
        self._parts: list[Meter] = []
        if total is not None:
            total._parts.append(self)
        self.in_use = self.peak = self.reserved = 0
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
        """Number of bytes that may still be held; None without a limit."""
        if self.total is not None:
            return self.total.room
        return None if self._limit is None else self._limit - self.reserved

    def use(self, nbytes: int) -> None:
        """Add to what is in use; a negative number takes away."""
        self.in_use += nbytes
        if self.in_use > self.peak:
            self.peak = self.in_use
        total = self.total
        if total is not None:  # the same, without a call: each allocation comes here
            total.in_use += nbytes
            if total.in_use > total.peak:
                total._find_peak()

    def _find_peak(self) -> None:
        """Note the most ever in use, without blocks that have died and that no arena has taken back yet."""
        for part in self._parts:
            part.settle()
        self.peak = max(self.peak, self.in_use)

    def reserve(self, nbytes: int) -> None:
        """Add to what is held; a negative number takes away."""
        self.reserved += nbytes
        if self.total is not None:
            self.total.reserve(nbytes)

    def correct(self, in_use: int, reserved: int) -> None:
        """Set the counts, because an exception may have come before they were complete."""
        self.in_use, self.reserved = in_use, reserved
        self.peak = max(self.peak, in_use)
        if self.total is not None:
            parts = self.total._parts
            self.total.correct(sum(part.in_use for part in parts), sum(part.reserved for part in parts))

    def reset_peak(self) -> None:
        """The most ever in use starts again from what is in use now, in the total, too."""
        self.peak = self.in_use
        if self.total is not None:
            self.total.reset_peak()

    def stats(self, blocks: int) -> MemoryStats:
        """The counts, with that number of live blocks."""
        return MemoryStats(self.in_use, self.peak, self.reserved, self.limit, blocks)

    def __str__(self) -> str:
        limit = "none" if self.limit is None else mib(self.limit)
        return f"in use {mib(self.in_use)}, reserved {mib(self.reserved)}, limit {limit}"


def mib(nbytes: int) -> str:
    """A number of bytes, for people."""
    return f"{nbytes / MIB:.1f} MiB"
