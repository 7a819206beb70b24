"""The arena: best fit, coalescing, limits, the shortage ladder, invariants under any sequence."""

from __future__ import annotations

import gc
import threading
from itertools import pairwise

import pytest
from arenas import SEGMENT, ArenaMachine, WithoutSlabs, arena, growing
from fake_driver import FakeDriver
from hypothesis import settings

from alpha.errors import DeviceError, OutOfMemoryError
from alpha.runtime.arena.arena import GRAIN, PAGE, Arena, Block, Growth
from alpha.runtime.arena.free_blocks import SMALL_BYTES


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


def test_out_of_memory_repeats_what_the_device_said() -> None:
    """A device may refuse although bytes are free; where a limit of ours is the reason, it was not asked."""
    memory, driver = arena(total=2 * SEGMENT)
    with pytest.raises(OutOfMemoryError, match=r"free on the device \S+ MiB \(fake device is full\); largest"):
        memory.allocate(4 * SEGMENT)
    driver.total = 8 * SEGMENT
    block = memory.allocate(SEGMENT)
    memory.set_limit(2 * SEGMENT)
    with pytest.raises(OutOfMemoryError, match=r"free on the device \S+ MiB; largest"):
        memory.allocate(4 * SEGMENT)
    del block


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


@pytest.mark.slow
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
