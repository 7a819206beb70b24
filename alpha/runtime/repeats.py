"""The addresses of a step of training that does what an earlier step did.

A step asks for the same blocks as the step before it, and drops them in the same order. If the same blocks are live at
its beginning, too, each new block can lie where it lay then. Then nothing is searched, the arena does not grow, and the
tables and tensor maps that hold addresses stay true.

A step reaches from one mark to the next (`Device.mark_step`, which the end of each backward pass calls). `Repeats`
notes the blocks between two marks. When a mark finds the live blocks with which a noted step began, that step is
followed, until it asks for another block than it did, or has dropped others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

MAX_STEPS = 8  # noted; a program that holds the loss or the batch of the step before has two that take turns
MAX_BLOCKS = 20_000  # of a step that is noted: what has no marks may ask for blocks without end
TRIED, PERIOD = 24, 96  # of so many steps so many are noted if none comes back

Live: TypeAlias = frozenset[tuple[int, int]]  # (address, bytes) of each block
Asked: TypeAlias = tuple[int, list[int], int]  # bytes, the addresses dropped since the block before, the address


@dataclass(frozen=True, eq=False)
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
        self._step: Step | None = None
        self._steps: dict[Live, Step] = {}
        self._start: Live | None = None  # of the step that is noted; None if none is
        self._blocks: list[Asked] = []
        self._misses = 0  # marks in a row at which no step could be followed

    def note(self, size: int, dropped: list[int], address: int) -> None:
        """Note a block that was not followed."""
        if self._start is not None:
            self._blocks.append((size, dropped.copy(), address))
            if len(self._blocks) > MAX_BLOCKS:
                self.leave()

    def leave(self) -> None:
        """Follow and note nothing until the next mark."""
        self.followed = self._step = self._start = None
        self._blocks = []

    def forget(self) -> None:
        """Drop all steps: their addresses are not what the arena would choose now, or no memory lies there."""
        self.leave()
        self._steps.clear()

    def mark(self, live: Mapping[int, tuple[int, str]], dropped: list[int]) -> bool:
        """End a step and begin another one.

        Args:
            live: the size and the label of each live block by its address.
            dropped: the addresses that were dropped since the last block was asked for.

        Returns:
            Whether a step is followed.
        """
        step, followed = self._step, self.followed
        if step is not None and followed is not None and next(followed, None) is None and dropped == step.dropped:
            end = step.end
        elif self._misses % PERIOD >= TRIED:
            self._misses += 1
            self.leave()
            return False
        else:
            end = frozenset([(address, size) for address, (size, _) in live.items()])
            if self._start is not None:
                if len(self._steps) >= MAX_STEPS:
                    del self._steps[next(iter(self._steps))]
                self._steps[self._start] = Step(self._blocks, dropped, end)
        self.leave()
        self._step = self._steps.get(end)
        if self._step is None:
            self._start = end
            self._misses += 1
            return False
        self.followed = iter(self._step.blocks)
        self._misses = 0
        return True
