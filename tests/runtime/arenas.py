"""Arenas over a driver of host memory, and a machine that does anything to one in any order."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from fake_driver import BASE, FakeDriver
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from alpha.errors import OutOfMemoryError
from alpha.runtime.arena.arena import GRAIN, PAGE, Arena, Block, Growth
from alpha.runtime.arena.free_blocks import SMALL_BYTES

SEGMENT = 64 * GRAIN
TOTAL = 12 * SEGMENT  # of the machines


class WithoutSlabs(Arena):
    """Small blocks lie among the others, so that a test can ask for few bytes to see where a block is put."""

    small_bytes = 0


def arena(
    total: int = 16 * SEGMENT, gap: int = 4096, growth: Growth = Growth.DOUBLE, kind: type[Arena] = WithoutSlabs
) -> tuple[Arena, FakeDriver]:
    driver = FakeDriver(total, gap)
    memory = kind(driver.allocate, driver.free, lambda: driver.memory_info()[0], growth, SEGMENT)
    return memory, driver


class ArenaMachine(RuleBasedStateMachine):
    """Any sequence of allocations, frees, trims and limits."""

    gap = 4096
    kind: type[Arena] = WithoutSlabs

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.driver = arena(TOTAL, self.gap, kind=self.kind)
        self.blocks: list[Block] = []
        self.limit = 1 << 60

    @rule(nbytes=st.one_of(st.integers(0, 4 * GRAIN), st.integers(0, 3 * SEGMENT), st.integers(0, 13 * SEGMENT)))
    def allocate(self, nbytes: int) -> None:
        """Allocate a block; it fails only if no hole and not the device, without unused segments, has the room."""
        try:
            self.blocks.append(self.memory.allocate(nbytes))
        except OutOfMemoryError:
            size = -(-max(nbytes, 1) // GRAIN) * GRAIN
            in_use = {start for start in self.driver.segments for block in self.blocks if self.holds(start, block)}
            assert in_use == self.driver.segments.keys(), "an unused segment was kept"
            largest = self.memory._free.largest
            reserved = sum(segment.nbytes for segment in self.driver.segments.values())
            assert size > largest
            assert size > min(TOTAL, self.limit) - reserved

    def holds(self, start: int, block: Block) -> bool:
        return start <= block.address < start + self.driver.segments[start].nbytes

    @precondition(lambda self: self.blocks)
    @rule(choice=st.integers(0, 1 << 20))
    def free(self, choice: int) -> None:
        del self.blocks[choice % len(self.blocks)]

    @rule()
    def trim(self) -> None:
        self.memory.trim()

    @rule()
    def mark_step(self) -> None:
        self.memory.mark_step()

    @rule(
        sizes=st.lists(st.integers(0, 3 * SMALL_BYTES), min_size=1, max_size=8),
        held=st.integers(0, 3),
        change=st.sampled_from([None, "size", "drop", "trim", "extra"]),
    )
    def repeat_a_step(self, sizes: list[int], held: int, change: str | None) -> None:
        """The same requests again and again, each block held until `held` others were asked for; one step differs."""
        before = len(self.blocks)
        for number in range(6):
            self.memory.mark_step()
            for index, nbytes in enumerate(sizes):
                differs = number == 4 and index == len(sizes) // 2
                if differs and change == "trim":
                    self.memory.trim()
                if differs and change == "extra":
                    self.allocate(GRAIN)
                self.allocate(nbytes + (GRAIN if differs and change == "size" else 0))
                if len(self.blocks) > before + (0 if differs and change == "drop" else held):
                    del self.blocks[before]
                self.nothing_overlaps_or_leaves_its_segment()
        del self.blocks[before + 1 :]

    @rule(segments=st.one_of(st.none(), st.integers(0, 12)))
    def limit_to(self, segments: int | None) -> None:
        try:
            self.memory.set_limit(None if segments is None else segments * SEGMENT)
        except OutOfMemoryError:
            return
        self.limit = 1 << 60 if segments is None else segments * SEGMENT

    @invariant()
    def nothing_overlaps_or_leaves_its_segment(self) -> None:
        blocks = sorted((b.address, b.nbytes) for b in self.blocks)
        for (start, size), (following, _) in pairwise(blocks):
            assert start + size <= following
        for start, size in blocks:
            assert start % GRAIN == 0
            assert self.driver.at(start, size).nbytes == size

    @invariant()
    def the_counts_are_true_and_within_the_limit(self) -> None:
        stats = self.memory.stats()
        assert stats.live == sum(b.nbytes for b in self.blocks)
        assert stats.live <= stats.peak
        assert stats.live <= stats.reserved <= self.limit
        assert stats.reserved == sum(s.nbytes for s in self.driver.segments.values())
        if self.memory._repeats.followed is not None:
            return  # what is free is not kept up
        free = sum(self.memory._free.sizes.values())
        for waiting in (self.memory._recycled, self.memory._slabs.free):
            free += sum(size * len(addresses) for size, addresses in waiting.items())
        assert stats.live + free == stats.reserved

    def teardown(self) -> None:
        self.blocks.clear()
        self.memory.trim()
        assert self.memory.stats().reserved == 0, "not everything coalesced"
        assert self.driver.segments == {}


class RangeDriver(FakeDriver):
    """Memory at consecutive addresses, of which the last piece goes back first."""

    def __init__(self, total: int) -> None:
        super().__init__(total, gap=0)

    def free(self, address: int) -> None:
        nbytes = self.segments[address].nbytes
        assert address + nbytes == self._next, "not the last piece"
        super().free(address)
        self._next = address

    def at(self, address: int, nbytes: int) -> np.ndarray:
        assert address >= BASE
        assert address + nbytes <= self._next
        return np.zeros(nbytes, np.uint8)


def growing(total: int = 16 * PAGE, page: int = PAGE, kind: type[Arena] = WithoutSlabs) -> tuple[Arena, RangeDriver]:
    driver = RangeDriver(total)
    return kind(driver.allocate, driver.free, lambda: driver.memory_info()[0], Growth.RANGE, page=page), driver
