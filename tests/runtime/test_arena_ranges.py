"""Arenas that take exactly what is asked, or grow along a range of addresses, and arenas that share a total."""

from __future__ import annotations

import pytest
from arenas import SEGMENT, TOTAL, ArenaMachine, arena, growing
from fake_driver import BASE, FakeDriver
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant

from alpha.errors import OutOfMemoryError
from alpha.runtime.arena.arena import PAGE, Arena, Block, Growth
from alpha.runtime.arena.meter import Meter


def test_a_segment_is_no_larger_than_what_is_asked() -> None:
    memory, driver = arena(total=40 * PAGE, growth=Growth.EXACT)
    blocks = [memory.allocate(nbytes) for nbytes in (100, 5 * PAGE, 200, 3 * PAGE - 7)]
    assert sorted(s.nbytes for s in driver.segments.values()) == [PAGE, 3 * PAGE, 5 * PAGE]
    del blocks
    assert memory.trim() == 9 * PAGE


def test_a_range_grows_by_what_is_missing() -> None:
    memory, driver = growing()
    first = memory.allocate(PAGE + 512)  # two pages, of which nearly one is left
    assert memory.stats().reserved == 2 * PAGE
    second = memory.allocate(2 * PAGE)  # the rest and two pages more, across the edge
    assert second.address == first.address + PAGE + 512
    assert memory.stats().reserved == 4 * PAGE
    assert len(driver.segments) == 2
    del first
    assert memory.trim() == 0, "a live block lies behind"
    del second
    assert memory.trim() == 4 * PAGE
    assert memory.allocate(1).address == BASE


def test_a_range_gives_back_its_end_and_keeps_what_is_before() -> None:
    memory, _ = growing()
    first, second, third = (memory.allocate(2 * PAGE) for _ in range(3))
    del third
    assert memory.trim() == 2 * PAGE
    del first
    assert memory.trim() == 0
    assert memory.stats().reserved == 4 * PAGE
    del second


def test_arenas_of_one_total_share_its_limit_and_give_way_to_each_other() -> None:
    total = Meter()
    driver = FakeDriver(16 * PAGE)
    arenas: list[Arena] = []
    for other in (1, 0):
        spare = lambda other=other: arenas[other].trim()  # noqa: E731
        arenas.append(Arena(driver.allocate, driver.free, lambda: 0, Growth.EXACT, total=total, spare=spare))
    first, second = arenas
    first.set_limit(4 * PAGE)
    held = first.allocate(3 * PAGE)
    with pytest.raises(OutOfMemoryError, match=r"reserved 6\.0 MiB, limit 8\.0 MiB"):
        second.allocate(2 * PAGE)
    del held
    assert second.allocate(4 * PAGE).nbytes == 4 * PAGE, "what the first arena holds and does not use"
    assert (total.reserved, first.stats().reserved) == (4 * PAGE, 0)
    first.set_limit(2 * PAGE)
    assert (total.reserved, second.stats().reserved) == (0, 0), "a limit takes back what the other one does not use"


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3 * PAGE) | st.none()), max_size=30))
def test_the_peak_of_a_total_counts_no_block_that_has_died(steps: list[tuple[int, int | None]]) -> None:
    total, driver = Meter(), FakeDriver(1000 * PAGE)
    arenas = [Arena(driver.allocate, driver.free, lambda: 0, Growth.EXACT, total=total) for _ in range(2)]
    held: list[list[Block]] = [[], []]
    peak = 0
    for number, nbytes in steps:
        if nbytes is not None:
            held[number].append(arenas[number].allocate(nbytes))
        elif held[number]:
            held[number].pop(0)  # the arena does not hear of it before it is used again
        peak = max(peak, sum(block.nbytes for blocks in held for block in blocks))
    assert total.peak == peak


class RangeMachine(ArenaMachine):
    """Any sequence in a range of addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.driver = growing(TOTAL, SEGMENT, self.kind)

    def holds(self, start: int, block: Block) -> bool:
        return self.end_of(block) > start  # a piece is kept if anything lies in it or behind it

    @invariant()
    def no_page_at_the_end_is_kept_for_nothing(self) -> None:
        self.memory.trim()
        end = max((self.end_of(block) for block in self.blocks), default=BASE)
        last = max(self.driver.segments, default=BASE)
        assert last < end or last == BASE == end

    def end_of(self, block: Block) -> int:
        """End of the memory that cannot be given back as long as the block lives."""
        return block.address + block.nbytes


class RangeOfSlabsMachine(RangeMachine):
    """The same where small blocks are pieces of slabs, each of which is given back as a whole."""

    kind = Arena

    def end_of(self, block: Block) -> int:
        slabs = (slab for found in self.memory._slabs._starts.values() for slab in found.items())
        ends = [start + nbytes for start, nbytes in slabs if start <= block.address < start + nbytes]
        return max([super().end_of(block), *ends])


TestRangeMachine = RangeMachine.TestCase
TestRangeOfSlabsMachine = RangeOfSlabsMachine.TestCase
TestRangeMachine.settings = TestRangeOfSlabsMachine.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None
)


def test_many_isolated_blocks_return_at_once() -> None:
    """One after the other, not one inside the other."""
    driver = FakeDriver(1 << 20)
    memory = Arena(driver.allocate, driver.free, lambda: 0, Growth.ISOLATED)
    blocks = [memory.allocate(100) for _ in range(3000)]
    blocks.clear()
    assert memory.stats().reserved == 0
