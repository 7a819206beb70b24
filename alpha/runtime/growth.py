"""How an arena gets more memory from its device."""

from __future__ import annotations

from enum import Enum


class Growth(Enum):
    """What an arena asks for when no free block is large enough.

    DOUBLE: a segment as large as all that is held, for memory that costs nothing until it is written.
    EXACT: a segment as large as the block, rounded up to pages.
    RANGE: what is missing, as the next addresses of one range that grows. Blocks may cross from one segment into the
        next, and segments go back from the end of the range.
    ISOLATED: each block is a segment of exactly its size and goes back with it, for a driver that guards allocations.

    Except in a RANGE, segments stay apart even if their addresses touch, because the CUDA driver refuses a copy that
    crosses from one allocation into the next.
    """

    DOUBLE = "double"
    EXACT = "exact"
    RANGE = "range"
    ISOLATED = "isolated"
