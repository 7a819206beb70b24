"""The addresses of a step of training that does what an earlier step did.

A step asks for the same blocks as the step before it, and drops them in the same order. If the same blocks are live at
its beginning, too, each new block can lie where it lay then. Then nothing is searched, the arena does not grow, and the
tables and tensor maps that hold addresses stay true.

A step reaches from one mark to the next (`Device.mark_step`, which the end of each backward pass calls). `Repeats`
notes the blocks between two marks. When a mark finds the live blocks with which a noted step began, that step is
followed. If the program then asks for another block, or has dropped others, another step is followed that was noted
with the same beginning; if there is none, the rest is searched and noted. So a program may do several things in turns,
as several backward passes for each step of the optimizer, or an evaluation now and then.

Pieces of slabs are no part of this (see free_blocks.py): a loss may live as long as it wants.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from operator import length_hint
from typing import TypeAlias

MAX_STARTS = 16  # of noted steps; a program that holds the batch of the step before has two that take turns
MAX_STEPS = 4  # that are noted with one start
MAX_BLOCKS = 20_000  # of a step that is noted: what has no marks may ask for blocks without end
TRIED, PERIOD = 24, 96  # of so many steps so many are noted if none comes back

Placed: TypeAlias = tuple[int, int, str]  # address, bytes and label of a block
Live: TypeAlias = frozenset[tuple[int, int]]  # (address, bytes) of each block
Asked: TypeAlias = tuple[int, list[int], int]  # bytes, the addresses dropped since the block before, the address


@dataclass(frozen=True)
class Step:
    """The blocks that were asked for between two marks.

    Attributes:
        blocks: in their order.
        dropped: the addresses that were dropped after the last of them.
        end: the blocks that were live at its end.
    """

    blocks: list[Asked]
    dropped: list[int]
    end: Live


class Repeats:
    """The steps that were noted, by what was live at their beginning.

    Attributes:
        followed: the blocks of the step that is followed which are still to come; None if none is followed.
    """

    def __init__(self) -> None:
        self.followed: Iterator[Asked] | None = None
        self._step: Step | None = None  # which is followed
        self._steps: dict[Live, list[Step]] = {}
        self._start: Live | None = None  # of the step that is noted or followed; None if nothing is
        self._blocks: list[Asked] = []  # of the step that is noted
        self._misses = 0  # marks in a row at which no step could be followed

    def note(self, size: int, dropped: list[int], address: int) -> None:
        """Note a block that was not followed."""
        if self._start is not None:
            self._blocks.append((size, dropped.copy(), address))
            if len(self._blocks) > MAX_BLOCKS:
                self.leave()

    def turn(self, size: int, dropped: list[int], expected: Asked | None) -> int | None:
        """Follow another step that began as this one did.

        Args:
            size, dropped: what is asked for, see `Asked`.
            expected: what the step that is followed has asked for instead; None if it was at its end.

        Returns:
            The address of the block. None if no noted step goes on in this way: then what follows must be noted.
        """
        begun = self._begun(expected is not None)
        count = len(begun)
        for other in self._noted():
            blocks = other.blocks
            if len(blocks) > count and blocks[count][:2] == (size, dropped) and blocks[:count] == begun:
                self._step, self.followed = other, iter(blocks[count + 1 :])
                return blocks[count][2]
        self._step = self.followed = None
        self._blocks = begun
        return None

    def leave(self) -> None:
        """Follow and note nothing until the next mark."""
        self.followed = self._step = self._start = None
        self._blocks = []

    def forget(self) -> None:
        """Drop all steps: their addresses are not what the arena would choose now, or no memory lies there."""
        self.leave()
        self._steps.clear()

    def mark(self, live: Collection[Placed], small: int, dropped: list[int]) -> bool:
        """End a step and begin another one.

        Args:
            live: the live blocks.
            small: the bytes up to which blocks do not matter.
            dropped: the addresses that were dropped since the last block was asked for.

        Returns:
            Whether a step is followed.
        """
        step, followed = self._step, self.followed
        if step is None or followed is None or length_hint(followed) or dropped != step.dropped:
            if self._misses % PERIOD >= TRIED:
                self._misses += 1
                self.leave()
                return False
            step = self._ended(live, small, dropped)
        self._begin(step.end)
        return self.followed is not None

    def _ended(self, live: Collection[Placed], small: int, dropped: list[int]) -> Step:
        """The step that ends here, which is kept if it was noted from its beginning."""
        end = frozenset([(address, size) for address, size, _ in live if size > small])
        step = Step(self._begun(False), dropped, end)
        if self._start is not None:
            noted = self._noted()
            if step in noted:
                noted.remove(step)
            self._steps[self._start] = [step, *noted[: MAX_STEPS - 1]]
            if len(self._steps) > MAX_STARTS:
                del self._steps[next(iter(self._steps))]
        return step

    def _begin(self, start: Live) -> None:
        """Begin a step: follow one that was noted with the same start, or note this one."""
        self._start, self._blocks, self._step, self.followed = start, [], None, None
        noted = self._steps.pop(start, None)
        if noted is None:
            self._misses += 1
        else:
            self._steps[start] = noted  # as the last one: it goes last
            self._misses = 0
            self._step, self.followed = noted[0], iter(noted[0].blocks)

    def _begun(self, is_ahead: bool) -> list[Asked]:
        """The blocks since the mark; `is_ahead`: without the last one that was taken from `followed`."""
        if self._step is None or self.followed is None:
            return self._blocks
        blocks = self._step.blocks
        return blocks[: len(blocks) - length_hint(self.followed) - is_ahead]

    def _noted(self) -> list[Step]:
        return self._steps.get(self._start, []) if self._start is not None else []
