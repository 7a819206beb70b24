"""Addresses for the arrays of a step whose lifetimes are known: the least memory, before the step runs.

A step asks for the same arrays each time. `Trace` notes when each is made and dropped; `Plan` then places the largest
first, each in the smallest gap between the arrays that live at the same time. An allocator that learns of an array only
when it is asked for leaves gaps that no later array fits.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf


@dataclass
class Life:
    """A block of `nbytes`: it is the `birth`-th that was asked for, and gone when the `death`-th was."""

    nbytes: int
    birth: int
    death: float = inf


class Trace:
    """The blocks of a step, in the order in which they were asked for."""

    def __init__(self) -> None:
        self.lives: list[Life] = []
        self.begin, self.end = 0, 0  # of the memory that the blocks have lain in
        self._living: dict[int, Life] = {}

    @property
    def count(self) -> int:
        """How many blocks were asked for."""
        return len(self.lives)

    def born(self, address: int, nbytes: int) -> None:
        """Note a new block."""
        self.begin = min(self.begin, address) if self.lives else address
        self.end = max(self.end, address + nbytes)
        life = self._living[address] = Life(nbytes, self.count)
        self.lives.append(life)

    def died(self, address: int) -> None:
        """Note that a block was dropped; one from before the trace is left out."""
        life = self._living.pop(address, None)
        if life is not None:
            life.death = self.count


class Plan:
    """Offsets for the blocks of a step.

    Attributes:
        lives: of the blocks.
        nbytes: of all blocks together.
    """

    def __init__(self, lives: Sequence[Life]) -> None:
        self.lives = lives
        self._offsets = min(
            (_place(lives, smallest_gap) for smallest_gap in (True, False)), key=lambda offsets: _end(lives, offsets)
        )
        self.nbytes = _end(lives, self._offsets)

    def offset(self, number: int, nbytes: int) -> int | None:
        """Where the block that is asked for as the `number`-th lies; None if the plan has another one there."""
        if number < len(self.lives) and self.lives[number].nbytes == nbytes:
            return self._offsets[number]
        return None


def _end(lives: Sequence[Life], offsets: Sequence[int]) -> int:
    return max((offset + life.nbytes for offset, life in zip(offsets, lives, strict=True)), default=0)


def _place(lives: Sequence[Life], smallest_gap: bool) -> list[int]:
    """The offset of each block, the largest placed first; in the smallest gap that holds it, or in the lowest."""
    offsets = [0] * len(lives)
    placed: list[tuple[int, int, int, float]] = []  # (offset, end, birth, death), by offset
    for number in sorted(range(len(lives)), key=lambda i: (-lives[i].nbytes, i)):
        life = lives[number]
        place, best, end = -1, inf, 0
        for low, high, birth, death in placed:
            if birth >= life.death or life.birth >= death:
                continue
            if low - end >= life.nbytes and (low - end < best if smallest_gap else place < 0):
                place, best = end, low - end
            end = max(end, high)
        offsets[number] = place if place >= 0 else end
        insort(placed, (offsets[number], offsets[number] + life.nbytes, life.birth, life.death))
    return offsets
