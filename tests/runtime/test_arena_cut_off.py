"""Changes of an arena that an exception cuts off lose nothing, whatever the instruction; none begins within another."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import pytest
from arenas import SEGMENT, RangeDriver, arena
from cut_off import Cutter, instructions
from fake_driver import FakeDriver

from alpha.errors import DeviceError, OutOfMemoryError
from alpha.runtime.arena.arena import GRAIN, Arena, Block, Growth
from alpha.runtime.arena.free_blocks import SMALL_BYTES
from alpha.runtime.arena.meter import Meter


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
