"""Tiles of rows: how a kernel's threads share rows of neighbouring elements and keep them in registers."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from alpha.ops.kernel.casts import BLOCK

WARP = 32  # threads


_NEIGHBOURS = {1: 16, 4: 32, 8: 32}  # by elements of a pack: what the lanes of a row read together, if it has as many


_LANE_BYTES = 96  # of registers that a lane fills with elements at most


_MOST_ROWS = 4


@dataclass(frozen=True)
class RowTile:
    """The macros of common/rows.cuh: what a thread holds of the rows.

    Attributes:
        vector: elements of a pack.
        lanes: threads that share a row.
        packs: of a row, per lane.
        rows: that a thread takes at the same time.
    """

    vector: int
    lanes: int
    packs: int
    rows: int

    @property
    def macros(self) -> dict[str, int | str]:
        return {"VECTOR": self.vector, "LANES": self.lanes, "PACKS": self.packs, "ROWS": self.rows}

    def blocks(self, count: int) -> int:
        """The blocks of a kernel in which each thread takes its rows once, for `count` rows."""
        return -(-count // (BLOCK // self.lanes * self.rows))


@functools.lru_cache(maxsize=4096)
def row_tile(
    length: int, vector: int, itemsize: int, bytes_in_flight: int = 32, elements: int = 24, widened: bool = True
) -> RowTile | None:
    """The tile that leaves the fewest threads idle; None if a row is too long for the registers of a block.

    Args:
        length: elements of a row, a multiple of `vector`.
        vector, itemsize: elements of a pack, bytes of an element.
        bytes_in_flight: of each array that a thread should load at the same time.
        elements: of each array that a thread holds at most; at most 12 if they are float64.
        widened: whether a thread holds numbers of at least four bytes, or elements as they lie in memory.
    """
    most = min(elements, _LANE_BYTES // (max(4, itemsize) if widened else itemsize))
    best, least = None, 0
    lanes = 1
    while lanes <= BLOCK:
        packs = -(-length // (vector * lanes))
        # a lane's work: each of its elements, and a few instructions per round of the butterfly
        cost = lanes * (8 * packs * vector + lanes.bit_length() - 1)
        apart = lanes * vector < _NEIGHBOURS[vector] and packs > 1
        if packs * vector <= most and not apart and (best is None or cost < least):
            best, least = (lanes, packs), cost
        lanes *= 2
    if best is None:
        return None
    lanes, packs = best
    rows, held = 1, packs * vector
    while lanes <= WARP and rows < _MOST_ROWS and rows * held * itemsize < bytes_in_flight and 2 * rows * held <= most:
        rows *= 2
    return RowTile(vector, lanes, packs, rows)
