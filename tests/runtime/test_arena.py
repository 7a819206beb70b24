"""The arena: best fit, coalescing, limits, the shortage ladder, invariants under any sequence."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest
from cut_off import Cutter, instructions
from fake_driver import BASE, FakeDriver
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from alpha.errors import DeviceError, OutOfMemoryError
from alpha.runtime.arena.arena import GRAIN, PAGE, Arena, Block, Growth
from alpha.runtime.arena.free_blocks import SMALL_BYTES
from alpha.runtime.arena.meter import Meter

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


def test_blocks_are_rounded_aligned_and_come_back() -> None:
    memory, _ = arena()
    blocks = [memory.allocate(n) for n in (0, 1, 512, 513, 5000)]
    assert [b.nbytes for b in blocks] == [512, 512, 512, 1024, 5120]
    assert all(b.address % GRAIN == 0 for b in blocks)
    assert memory.stats().live == sum(b.nbytes for b in blocks)
    assert memory.stats().allocations == 5
    del blocks
    stats = memory.stats()
    assert (stats.live, stats.allocations, stats.peak) == (0, 0, 7680)
    assert memory.trim() == SEGMENT


def test_the_peak_is_the_most_that_was_in_use_at_once() -> None:
    memory, _ = arena()
    first = memory.allocate(4 * GRAIN)
    del first
    second = memory.allocate(3 * GRAIN)
    assert memory.stats().peak == 4 * GRAIN
    third = memory.allocate(2 * GRAIN)
    assert memory.stats().peak == 5 * GRAIN
    del second
    memory.reset_peak()
    stats = memory.stats()
    assert (stats.live, stats.peak) == (third.nbytes, third.nbytes)
    fourth = memory.allocate(GRAIN)
    assert memory.stats().peak == 3 * GRAIN
    del third, fourth
    assert memory.stats().peak == 3 * GRAIN
    memory.reset_peak()
    assert memory.stats().peak == 0


def test_a_driver_that_refuses_to_free_leaves_the_arena_as_it_was() -> None:
    """The cuda drivers refuse to free on a thread that is not theirs."""
    driver = FakeDriver(16 * SEGMENT)
    refused = [True]

    def free(address: int) -> None:
        if refused[0]:
            raise DeviceError("planned")
        driver.free(address)

    memory = Arena(driver.allocate, free, lambda: 0, min_segment=SEGMENT)
    held = [memory.allocate(SEGMENT) for _ in range(3)]
    held.clear()
    before = memory.stats()
    with pytest.raises(DeviceError, match="planned"):
        memory.trim()
    assert memory.stats() == before
    refused[0] = False
    assert memory.trim() == before.reserved
    assert driver.segments == {}


def test_best_fit_takes_the_smallest_hole_that_holds() -> None:
    memory, _ = arena()
    blocks = [memory.allocate(n * GRAIN) for n in (8, 1, 3, 1, 5, 1)]
    hole = blocks[2].address
    blocks[0] = blocks[2] = blocks[4] = None  # type: ignore[call-overload]
    assert memory.allocate(2 * GRAIN).address == hole


def test_a_freed_block_joins_both_neighbours() -> None:
    memory, driver = arena()
    a, b, c = (memory.allocate(20 * GRAIN) for _ in range(3))
    start = a.address
    del a, c
    del b
    assert memory.allocate(SEGMENT).address == start
    assert len(driver.segments) == 1


def test_segments_double() -> None:
    memory, driver = arena()
    held = [memory.allocate(SEGMENT) for _ in range(5)]
    sizes = [s.nbytes // SEGMENT for s in driver.segments.values()]
    assert sizes == [1, 1, 2, 4]
    assert memory.stats().reserved == 8 * SEGMENT
    assert len(held) == 5


def test_segments_that_touch_stay_apart() -> None:
    """The driver refuses a copy that crosses from one allocation into the next, so no block may."""
    memory, driver = arena(gap=0)
    held = [memory.allocate(SEGMENT // 2) for _ in range(8)]  # segments of 1, 1 and 2
    starts = sorted(driver.segments)
    assert len(starts) == 3
    ends = [start + driver.segments[start].nbytes for start in starts]
    assert ends[:-1] == starts[1:], "the segments do not touch"
    held.clear()
    block = memory.allocate(2 * SEGMENT)  # only the last segment holds it, the first two together are as large
    assert block.address == starts[2]
    other = memory.allocate(SEGMENT)
    assert other.address in starts[:2]
    del block, other
    assert memory.trim() == 4 * SEGMENT
    assert driver.segments == {}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_neighbours_across_an_edge_do_not_join(order: tuple[int, int]) -> None:
    """Whichever of them comes back first."""
    memory, driver = arena(gap=0)
    blocks: list[Block | None] = [memory.allocate(SEGMENT) for _ in range(2)]
    first, second = (block.address for block in blocks if block is not None)
    assert second == first + SEGMENT
    for i in order:
        blocks[i] = None
        memory._coalesce()  # as an allocation does that finds no exact fit
    assert memory._free.sizes == {first: SEGMENT, second: SEGMENT}
    large = memory.allocate(2 * SEGMENT)
    assert driver.at(large.address, 2 * SEGMENT).nbytes == 2 * SEGMENT


def test_growth_halves_until_the_device_has_room() -> None:
    memory, _ = arena(total=6 * SEGMENT)
    held = [memory.allocate(4 * SEGMENT), memory.allocate(SEGMENT)]
    assert memory.stats().reserved <= 6 * SEGMENT
    assert len(held) == 2


def test_unused_segments_are_given_back_for_a_larger_one() -> None:
    memory, driver = arena(total=6 * SEGMENT)
    small = [memory.allocate(SEGMENT) for _ in range(4)]
    del small
    assert memory.allocate(6 * SEGMENT).nbytes == 6 * SEGMENT
    assert len(driver.segments) == 1


def test_limit() -> None:
    memory, _ = arena()
    memory.set_limit(3 * SEGMENT)
    held = [memory.allocate(SEGMENT) for _ in range(3)]
    with pytest.raises(OutOfMemoryError, match="limit"):
        memory.allocate(1)
    with pytest.raises(OutOfMemoryError, match="below what is in use"):
        memory.set_limit(2 * SEGMENT)
    assert memory.stats().limit == 3 * SEGMENT
    held.pop()
    memory.set_limit(2 * SEGMENT)
    assert memory.stats().reserved == 2 * SEGMENT
    memory.set_limit(None)
    held.append(memory.allocate(SEGMENT))


def test_shortage_collects_cycles_before_it_gives_up() -> None:
    memory, _ = arena(total=2 * SEGMENT)
    gc.collect()
    gc.disable()
    try:
        cycle: list[object] = [memory.allocate(2 * SEGMENT)]
        cycle.append(cycle)
        del cycle
        assert memory.allocate(2 * SEGMENT).nbytes == 2 * SEGMENT
    finally:
        gc.enable()


def test_out_of_memory_says_everything() -> None:
    memory, _ = arena(total=2 * SEGMENT)
    memory.label = "layer1.conv"
    block = memory.allocate(SEGMENT)
    with pytest.raises(OutOfMemoryError) as info:
        memory.allocate(4 * SEGMENT)
    message = str(info.value)
    for part in ("asked 0.1 MiB", "in use 0.0", "reserved", "limit none", "free on the device"):
        assert part in message
    assert message.endswith("layer1.conv")
    assert memory.largest_live() == [(block.nbytes, "layer1.conv")]


def test_a_block_may_die_inside_the_arena_and_after_it() -> None:
    memory, driver = arena()
    block = memory.allocate(1)
    with memory._lock:  # as when the collector runs inside the critical section
        del block
    assert memory.stats().live == 0
    late = memory.allocate(1)
    memory.close()
    del late
    assert driver.segments == {}
    with pytest.raises(OutOfMemoryError, match="closed"):
        memory.allocate(1)


@pytest.mark.parametrize("kind", [Arena, WithoutSlabs])
def test_threads_that_free_while_another_allocates(kind: type[Arena]) -> None:
    memory, _ = arena(kind=kind)
    handed: list[Block] = []

    def drop() -> None:
        while not done.is_set() or handed:
            if handed:
                handed.pop()

    done = threading.Event()
    threads = [threading.Thread(target=drop) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(2000):
        handed.append(memory.allocate(1 + i % 3000))
        while len(handed) > 50:
            pass
    done.set()
    for thread in threads:
        thread.join()
    assert memory.stats().live == 0
    memory.trim()
    assert memory.stats().reserved == 0


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


class TouchingArenaMachine(ArenaMachine):
    """The same where the addresses of segments touch."""

    gap = 0


class SlabMachine(ArenaMachine):
    """The same where small blocks are pieces of slabs; each segment holds half a slab, so some are smaller."""

    kind = Arena


TestArenaMachine = ArenaMachine.TestCase
TestTouchingArenaMachine = TouchingArenaMachine.TestCase
TestSlabMachine = SlabMachine.TestCase
TestArenaMachine.settings = TestTouchingArenaMachine.settings = TestSlabMachine.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None
)


# -- segments of the size of what is asked, and a range of addresses that grows ---------------------------


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


class RangeMachine(ArenaMachine):
    """Any sequence in a range of addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.driver = growing(TOTAL, SEGMENT, self.kind)

    def holds(self, start: int, block: Block) -> bool:
        return block.address + block.nbytes > start  # a piece is kept if anything lies in it or behind it

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


# -- slabs -------------------------------------------------------------------------------------------------


def test_small_blocks_of_one_size_lie_together_and_large_ones_elsewhere() -> None:
    memory, _ = growing(kind=Arena)
    small, large = [], []
    for _ in range(10):
        small += [memory.allocate(100), memory.allocate(SMALL_BYTES)]
        large.append(memory.allocate(SMALL_BYTES + 1))
    for blocks in (small[::2], small[1::2]):
        assert blocks[-1].address - blocks[0].address == 9 * blocks[0].nbytes
    assert all(b.address - a.address == a.nbytes for a, b in pairwise(large))


def test_the_same_requests_get_the_same_addresses_whatever_the_order_of_return() -> None:
    memory, _ = growing(kind=Arena)
    held = memory.allocate(1)
    before: list[int] = []
    for order in (1, -1):
        blocks = [memory.allocate(1) for _ in range(300)]
        before = before or [block.address for block in blocks]
        assert [block.address for block in blocks] == before
        for index in range(300)[::order]:
            blocks[index] = held
        blocks.clear()


def test_pieces_of_slabs_are_counted_as_blocks() -> None:
    memory, _ = growing(kind=Arena)
    blocks = [memory.allocate(1 + i % SMALL_BYTES) for i in range(0, 20000, 100)]
    stats = memory.stats()
    assert (stats.live, stats.allocations) == (sum(block.nbytes for block in blocks), len(blocks))
    blocks.clear()
    stats = memory.stats()
    assert (stats.live, stats.allocations, stats.reserved) == (0, 0, PAGE)


def test_unused_slabs_are_free_memory_again_before_the_arena_grows() -> None:
    memory, driver = growing(total=PAGE, kind=Arena)
    small = [memory.allocate(GRAIN) for _ in range(PAGE // GRAIN)]
    with pytest.raises(OutOfMemoryError, match=r"reserved 2\.0 MiB"):
        memory.allocate(GRAIN)
    small.clear()
    assert memory.allocate(PAGE).nbytes == PAGE
    assert memory.trim() == PAGE
    assert driver.segments == {}


def test_the_last_bytes_below_a_limit_are_found_without_room_for_a_slab() -> None:
    memory, _ = arena(growth=Growth.EXACT, total=4 * PAGE, kind=Arena)
    memory.set_limit(PAGE)
    large = memory.allocate(PAGE - 3 * GRAIN)
    small = [memory.allocate(size * GRAIN) for size in (1, 2)]
    with pytest.raises(OutOfMemoryError, match="limit"):
        memory.allocate(1)
    assert memory.stats().live == PAGE == large.nbytes + sum(block.nbytes for block in small)


def test_a_closed_arena_forgets_its_slabs() -> None:
    memory, driver = growing(kind=Arena)
    late = memory.allocate(1)
    memory.close()
    del late
    assert driver.segments == {}
    with pytest.raises(OutOfMemoryError, match="closed"):
        memory.allocate(1)


# -- changes that are cut off ------------------------------------------------------------------------------


def busy(memory: Arena, other: Arena, held: list[Block]) -> None:
    """All that an arena does: steps that repeat, slabs, exchange, want of memory, trim."""
    held.append(memory.allocate(9 * GRAIN))
    for _ in range(3):
        memory.mark_step()
        for number in range(3):
            held.append(memory.allocate(3000 * (number + 1)))
            if number % 2:
                del held[-2:]
        held.append(memory.allocate(SMALL_BYTES - 1))
        del held[1:]
    memory.trim()
    held += [memory.allocate(2 * SEGMENT), other.allocate(GRAIN), memory.allocate(GRAIN)]
    held[-1].exchange(held[-2])
    del held[0], held[-1]
    with suppress(OutOfMemoryError):
        memory.allocate(100 * SEGMENT)
    memory.set_limit(50 * SEGMENT)
    memory.set_limit(None)
    memory.stats()
    memory.largest_live()
    memory.trim()


def pair(growth: Growth) -> tuple[list[Arena], list[FakeDriver]]:
    """Two arenas that share a total, each with a driver that says what it holds."""
    total, kind = Meter(), RangeDriver if growth is Growth.RANGE else FakeDriver
    drivers = [kind(40 * SEGMENT), kind(40 * SEGMENT)]
    drivers[1]._next += 1 << 40
    arenas = [Arena(d.allocate, d.free, lambda: 0, growth, SEGMENT, SEGMENT, total) for d in drivers]
    for memory, driver in zip(arenas, drivers, strict=True):
        memory.segments.held = driver.segments.keys
    return arenas, drivers


def check_counts(arenas: list[Arena], drivers: list[FakeDriver], held: list[Block], place: str) -> None:
    """Check that what is live is what is held, nothing overlaps, and each byte of a segment is in use or free."""
    total = arenas[0]._meter.total
    assert total is not None
    counts = [memory.stats() for memory in arenas]
    assert total.in_use == sum(stats.live for stats in counts), place
    assert total.reserved == sum(stats.reserved for stats in counts), place
    for memory, driver in zip(arenas, drivers, strict=True):
        blocks = sorted((block.address, block.nbytes) for block in held if block.arena is memory)
        stats = memory.stats()
        assert stats.live == sum(size for _, size in blocks), place
        assert driver.segments.keys() == memory.segments.starts, place
        assert stats.reserved == sum(segment.nbytes for segment in driver.segments.values()), place
        assert all(start + size <= following for (start, size), (following, _) in pairwise(blocks)), place
        for start, size in blocks:
            assert any(s <= start < s + segment.nbytes for s, segment in driver.segments.items()), (place, size)
        if memory._repeats.followed is None:
            free = sum(memory._free.sizes.values())
            for waiting in (memory._recycled, memory._slabs.free):
                free += sum(size * len(addresses) for size, addresses in waiting.items())
            assert stats.live + free == stats.reserved, place
        if memory.is_isolated:
            assert sorted(memory.segments.starts) == [start for start, _ in blocks], place


@pytest.mark.parametrize("growth", Growth)
def test_an_exception_between_any_two_instructions_loses_nothing(growth: Growth) -> None:
    def program(arenas: list[Arena], held: list[Block]) -> Callable[[], None]:
        return lambda: busy(arenas[0], arenas[1], held)

    for number in instructions(program(pair(growth)[0], []), 40, "runtime"):
        arenas, drivers = pair(growth)
        held: list[Block] = []
        place = Cutter(number, "runtime").run(program(arenas, held))
        assert place
        check_counts(arenas, drivers, held, place)
        held.clear()
        program(arenas, held)()
        check_counts(arenas, drivers, held, place)
        held.clear()
        for memory, driver in zip(arenas, drivers, strict=True):
            memory.trim()
            assert driver.segments == {}, place


def test_what_comes_in_the_middle_of_a_change_is_refused() -> None:
    """A signal handler or a finalizer: the change that it has come into goes on afterwards."""
    memory, driver = arena(kind=Arena)

    def allocate(nbytes: int) -> int:
        with pytest.raises(DeviceError, match="a signal handler or a finalizer"):
            memory.allocate(1)
        return driver.allocate(nbytes)

    memory.segments._raw_allocate = allocate
    held = [memory.allocate(nbytes) for nbytes in (1, SEGMENT)]
    assert memory.stats().live == sum(block.nbytes for block in held)
