"""The memory of a cuda device: the arena of its arrays and the scratch arena of captured steps, counted together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import ClassVar, TypeAlias, TypeVar

from alpha.errors import OutOfMemoryError
from alpha.runtime import recording
from alpha.runtime.arena.arena import Arena, Block
from alpha.runtime.arena.meter import Meter
from alpha.runtime.cuda.driver import Driver
from alpha.runtime.cuda.graphs import StepGraphs
from alpha.runtime.cuda.scratch import Scratch
from alpha.runtime.device import MemoryStats
from alpha.runtime.sharing.leases import Leases

A = TypeVar("A", bound=Arena)
Moves: TypeAlias = list[tuple[Block, Block]]  # blocks in scratch memory, and where they go


class CudaMemory:
    """Both arenas, which share one limit and give way to each other, and the graphs, which hold scratch memory.

    Attributes:
        on_shortage: tells for errors what its blocks are for; alpha/step/memory/shortage.py puts its own here.
        total: counts the bytes of both.
        leases: what is shared with other libraries.
    """

    on_shortage: ClassVar[Callable[[CudaMemory], str]] = lambda memory: ""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.total = Meter()
        self.arena = self._new_arena(Arena, scratch=False)
        self.scratch = self._new_arena(Scratch, scratch=True)
        self.graphs = StepGraphs(self.scratch, driver)
        self.leases = Leases(driver)

    def _new_arena(self, kind: type[A], scratch: bool) -> A:
        raw = self._driver.raw_memory(scratch)

        def spare() -> int:  # what the other arena holds and does not use
            self.leases.settle(wait=True)
            if not scratch:
                self.graphs.close_dropped()
            return self.arena.trim() if scratch else self.scratch.trim()

        def held(given: Callable[[], Collection[int]]) -> set[int]:  # by a driver that may have one list for both
            other = self.arena if scratch else self.scratch
            return set(given()).difference(other.segments.starts)

        free_bytes: Callable[[], int] = lambda: self._driver.memory_info()[0]  # noqa: E731
        made = kind(raw.allocate, raw.free, free_bytes, raw.growth, total=self.total, spare=spare)
        made.segments.held = raw.held and partial(held, raw.held)
        made.explain = lambda: self.on_shortage()
        return made

    def block_ids(self) -> set[int]:
        """The ids of all blocks that somebody holds."""
        return self.arena.block_ids() | self.scratch.block_ids()

    def stats(self) -> MemoryStats:
        self._driver.owner.check("memory_stats")
        self.leases.settle()
        arena, scratch = self.arena.stats(), self.scratch.stats()  # which take back what was returned
        stats = self.total.stats(arena.allocations + scratch.allocations)
        # between two replays the memory of a graph holds nothing, but it is not free
        live = stats.live + max(0, self.graphs.nbytes - scratch.live)
        self.total.peak = max(self.total.peak, live)  # no later peak is below it
        return replace(stats, live=live, peak=self.total.peak)

    def reset_peak(self) -> None:
        """The peak starts again from what is in use."""
        self._driver.owner.check("reset_peak_memory_stats")
        self.arena.reset_peak()
        self.scratch.reset_peak()

    def set_limit(self, nbytes: int | None) -> None:
        """Never hold more than this; None lifts the limit."""
        self._driver.owner.check("set_memory_limit")
        self.stats()  # whose counts are true in any case
        self.arena.set_limit(nbytes)

    def trim(self) -> None:
        """Give back what no array and no captured step uses; nothing while a step is captured, which may use it yet."""
        self._driver.owner.check("empty_cache")
        if recording.active() is not None:
            recording.refuse("memory is given back to the system")
            return
        self.leases.settle(wait=True)
        self.graphs.close_dropped()
        self.release_scratch()
        self.arena.trim()

    def release_scratch(self) -> None:
        """Give the scratch memory that no graph needs back to the device, though results of steps may lie there.

        They move to memory of their own. If there is no room for them, the memory around them stays.
        """
        if recording.active() is None:
            with suppress(OutOfMemoryError):
                self.clear_scratch()
        self.scratch.trim()

    def clear_scratch(self) -> None:
        """Move what is still alive in the scratch memory to memory of its own."""
        if recording.active() is None:
            self.scratch.abandon()  # what may be left of a capture in whose cleaning up an interrupt has come
        self.move(self.room_for_scratch())

    def room_for_scratch(self, dropped: Container[int] = ()) -> Moves:
        """Memory for what is alive in the scratch memory, but for the blocks of these ids; nothing moves yet."""
        return [
            (block, self.arena.allocate(block.nbytes))
            for block in self.scratch.live_blocks()
            if id(block) not in dropped
        ]

    def move(self, moves: Moves) -> None:
        """Move these blocks to the memory that was found for them; the list is empty afterwards."""
        while moves:
            block, target = moves[-1]
            self._driver.copy(target.address, block.address, block.nbytes)
            block.exchange(target)
            moves.pop()

    def keep_in_place(self, block: Block) -> None:
        """Let a block have an address that stays: it leaves the scratch memory, which the next replay uses again."""
        if block.arena is self.scratch:
            self.move([(block, self.arena.allocate(block.nbytes))])

    def close(self, free: bool = True) -> None:
        """Give up everything, and `free` it."""
        if free:
            self.leases.clear()
        self.scratch.close(free)
        self.arena.close(free)
