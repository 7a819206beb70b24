"""Steps that repeat an earlier one: the same addresses, and nothing is searched."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fake_driver import FakeDriver

from alpha.runtime.arena import repeats
from alpha.runtime.arena.arena import GRAIN, Arena, Block
from alpha.runtime.arena.segments import Growth

MIB = 2**20


def arena(growth: Growth = Growth.DOUBLE) -> Arena:
    driver = FakeDriver(64 * MIB)
    return Arena(driver.allocate, driver.free, lambda: driver.memory_info()[0], growth, MIB)


class Program:
    """A step of five blocks, the last of which lives until the next step has made its own.

    Attributes:
        searches: how often the arena looked for free memory.
    """

    sizes = (10_000, 6_000, 70_000, 9_000, 20_000)

    def __init__(self, memory: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
        self.memory = memory
        self.result: Block | None = None
        self.searches = 0
        choose = memory._search

        def counted(size: int) -> int | None:
            self.searches += 1
            return choose(size)

        monkeypatch.setattr(memory, "_search", counted)

    def step(self, sizes: tuple[int, ...] = sizes, within: Callable[[], object] = int) -> list[int]:
        """The addresses of a step; `within` is called after its second block."""
        first, second = self.memory.allocate(sizes[0]), self.memory.allocate(sizes[1])
        addresses = [first.address, second.address]
        del first
        within()
        third = self.memory.allocate(sizes[2])
        fourth = self.memory.allocate(sizes[3])
        addresses += [third.address, fourth.address]
        del second, third
        self.result = self.memory.allocate(sizes[4])
        del fourth
        addresses.append(self.result.address)
        self.memory.mark_step()
        return addresses

    def settle(self) -> list[int]:
        """Run until steps are followed; the addresses of the last one."""
        for _ in range(8):
            addresses = self.step()
        self.searches = 0
        return addresses


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(arena(), monkeypatch)


def test_a_step_that_repeats_has_its_addresses_and_searches_nothing(program: Program) -> None:
    before = program.settle()
    other = program.step()  # two steps take turns, because the result of the one before still lives
    assert [program.step(), program.step()] == [before, other]
    assert program.searches == 0


def test_the_counts_stay_true_while_a_step_is_followed(program: Program) -> None:
    program.settle()
    seen: list[tuple[int, int]] = []

    def look() -> None:
        stats = program.memory.stats()
        seen.append((stats.live, stats.allocations))

    program.step(within=look)
    assert seen == [(6_144 + 20_480, 2)]  # the second block, and the result of the step before
    program.step()
    assert program.searches == 0, "to look changes nothing"
    program.memory.reset_peak()
    program.step()
    assert program.memory.stats().peak == sum(-(-n // GRAIN) * GRAIN for n in (6_000, 70_000, 9_000, 20_000))


@pytest.mark.parametrize("place", range(5))
def test_a_step_that_asks_for_another_size_is_left_there(program: Program, place: int) -> None:
    program.settle()
    sizes = list(program.sizes)
    sizes[place] += 2 * GRAIN
    program.step(tuple(sizes))
    assert program.searches == 5 - place
    for _ in range(3):
        program.step()
    program.searches = 0
    program.step()
    assert program.searches == 0, "the noted steps are followed again"


def test_a_step_that_drops_something_else_is_left(program: Program) -> None:
    held = [program.memory.allocate(5_000)]
    program.settle()
    program.step(within=held.clear)
    assert program.searches == 3, "from the block that follows"


def test_a_step_that_keeps_something_is_left(program: Program) -> None:
    """The next block would lie at the place of the one that is kept."""
    program.settle()
    kept: list[Block] = []
    addresses = program.step(within=lambda: kept.append(program.memory.allocate(20_000)))
    assert kept[0].address not in addresses
    assert program.searches > 0


def test_memory_that_went_back_is_not_used_again(program: Program) -> None:
    program.settle()
    program.result = None
    assert program.memory.trim() > 0
    program.step()
    assert program.searches == 5


def test_isolated_blocks_and_what_has_no_marks_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    isolated = Program(arena(Growth.ISOLATED), monkeypatch)
    isolated.settle()
    isolated.step()
    assert isolated.searches == 5
    unmarked = arena()
    for _ in range(50):
        unmarked.allocate(GRAIN)
    assert unmarked._repeats._blocks == []


def test_a_step_without_end_is_not_noted(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "MAX_BLOCKS", 4)
    program.settle()
    program.step()
    assert program.searches == 5
    assert program.memory._repeats._blocks == []


def test_steps_that_never_come_back_are_tried_less_often(program: Program) -> None:
    """Each differs, and what was noted of them stays little."""
    kept: list[Block] = []
    noted = 0
    for number in range(2 * repeats.PERIOD):
        kept.append(program.memory.allocate(5_000))
        program.step((10_000 + number * GRAIN, *program.sizes[1:]))
        noted += program.memory._repeats._start is not None
        assert len(program.memory._repeats._steps) <= repeats.MAX_STARTS
    assert noted <= 2 * repeats.TRIED + 1


def test_a_block_that_is_live_at_the_end_of_a_step_for_once_is_not_overwritten() -> None:
    memory = arena()
    for _ in range(8):
        block = memory.allocate(10_000)
        del block
        memory.mark_step()
    kept = memory.allocate(10_000)
    memory.mark_step()
    assert memory.allocate(10_000).address != kept.address


def test_a_step_that_ends_before_its_last_block_is_left() -> None:
    memory = arena()
    result: list[Block] = []
    for _ in range(8):
        block = memory.allocate(10_000)
        del block
        result.clear()
        result.append(memory.allocate(9_000))
        memory.mark_step()
    kept = memory.allocate(10_000)
    memory.mark_step()
    assert memory.allocate(10_000).address not in (kept.address, result[0].address)


def test_a_program_that_is_disturbed_now_and_then_is_followed_again_and_again(program: Program) -> None:
    for _ in range(repeats.PERIOD):
        program.memory.trim()
        program.settle()
        program.step()
        assert program.searches == 0


def test_small_blocks_may_live_on(program: Program) -> None:
    """Losses of all steps are such blocks: only a new slab changes where other blocks may lie."""
    losses: list[Block] = []
    program.settle()
    searches = []
    for _ in range(100):
        program.searches = 0
        program.step(within=lambda: losses.append(program.memory.allocate(4)))
        searches.append(program.searches)
    assert sum(searches) <= 5 * 8
    assert len({block.address for block in losses}) == 100


def test_a_program_may_do_several_things_in_turns(program: Program) -> None:
    """Each begins with the same blocks, and goes on like none, one or all of the others for a while."""
    sizes = program.sizes
    kinds = [sizes, (*sizes[:2], 50_000, *sizes[3:]), (*sizes[:3], 30_000, sizes[4]), (30_000, *sizes[1:])]
    for number in range(40):
        program.step(kinds[number % 4])
    program.searches = 0
    addresses = [program.step(kind) for kind in [*kinds, *kinds]]
    assert program.searches == 0
    assert addresses[:4] == addresses[4:]


def test_what_follows_a_step_that_was_left_is_noted_with_it(program: Program) -> None:
    program.settle()
    program.step((*program.sizes[:3], 30_000, program.sizes[4]))
    assert program.searches == 2
    noted = [step for steps in program.memory._repeats._steps.values() for step in steps]
    assert [size for step in noted for size, _, _ in step.blocks if step.blocks[3][0] == 30_208] == [
        *(10_240, 6_144, 70_144, 30_208, 20_480)
    ]


def test_few_steps_are_noted_with_one_start(program: Program) -> None:
    for number in range(40):
        program.result = None
        program.step((*program.sizes[:3], 9_000 + number // 2 * GRAIN, program.sizes[4]))
        assert all(len(steps) <= repeats.MAX_STEPS for steps in program.memory._repeats._steps.values())


def test_a_step_with_another_end_is_one_of_its_own() -> None:
    """The same blocks, of which one is dropped before or behind the mark."""
    memory = arena()
    searched: list[int] = []
    search = memory._search
    memory._search = lambda size: searched.append(size) or search(size)  # type: ignore[method-assign, func-returns-value]
    for number in range(30):
        if number == 20:
            searched.clear()
        block = memory.allocate(10_000)
        if number % 2:
            del block
        memory.mark_step()
        block = memory.allocate(9_000)
        del block
    assert searched == []
