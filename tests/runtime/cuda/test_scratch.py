"""The scratch arena: what a captured step has used stays until its graph is there, or nobody needs it."""

from __future__ import annotations

import numpy as np
import pytest

from alpha.errors import OutOfMemoryError
from alpha.runtime.arena.arena import Growth
from alpha.runtime.cuda.scratch import MemoryPlan, Scratch, Trace
from alpha.runtime.device import MIB


def made(growth: Growth, limit: int | None = None) -> Scratch:
    """A scratch arena of addresses that follow each other."""
    end = 1 << 30

    def allocate(nbytes: int) -> int:
        nonlocal end
        end += nbytes
        return end - nbytes

    def free(address: int) -> None:
        nonlocal end
        end = min(end, address) if growth is Growth.RANGE else end

    scratch = Scratch(allocate, free, lambda: 1 << 40, growth)
    scratch.set_limit(limit)
    return scratch


@pytest.mark.parametrize("growth", [Growth.RANGE, Growth.EXACT])
def test_memory_of_blocks_that_died_stays_while_a_step_is_recorded(growth: Growth) -> None:
    scratch = made(growth)
    scratch.begin(None)
    block = scratch.allocate(4 * MIB)
    begin = block.address
    del block
    assert scratch.trim() == 0
    trace = scratch.finish()
    assert (trace.begin, trace.end) == (begin, begin + 4 * MIB)
    scratch.keep([(trace.begin, trace.end)])
    assert scratch.trim() == 0
    scratch.keep([])
    assert scratch.trim() == 4 * MIB


def test_a_larger_block_does_not_take_its_memory_in_exchange() -> None:
    """A larger block takes the memory in exchange only when no step is recorded."""
    scratch = made(Growth.EXACT, limit=8 * MIB)
    scratch.begin(None)
    block = scratch.allocate(4 * MIB)
    del block
    with pytest.raises(OutOfMemoryError):
        scratch.allocate(6 * MIB)
    assert scratch.stats().reserved == 4 * MIB
    scratch.finish()
    block = scratch.allocate(6 * MIB)
    assert block.nbytes == 6 * MIB
    assert scratch.stats().reserved == 6 * MIB


def step(scratch: Scratch, plan: MemoryPlan | None) -> tuple[list[tuple[int, int]], Trace]:
    """The addresses and sizes of the blocks of a step, in which blocks are made and dropped by chance; its trace."""
    rng = np.random.default_rng(0)
    scratch.begin(plan)
    held, made = [], []
    for _ in range(60):
        held.append(scratch.allocate(int(rng.integers(1, 9)) * MIB))
        made.append((held[-1].address, held[-1].nbytes))
        while rng.random() < 0.5 and held:
            del held[rng.integers(len(held))]
    held.clear()
    return made, scratch.finish()


@pytest.mark.parametrize("growth", [Growth.RANGE, Growth.EXACT])
def test_every_block_of_a_step_that_repeats_lies_where_the_plan_says(growth: Growth) -> None:
    """Blocks that lie on memory of several others that have died just before are among them."""
    scratch = made(growth)
    _, trace = step(scratch, None)
    plan = MemoryPlan(trace.lives)
    blocks, again = step(scratch, plan)
    base = min(address for address, _ in blocks)
    assert [address - base for address, _ in blocks] == [plan.offset(i, size) for i, (_, size) in enumerate(blocks)]
    assert (again.begin, again.end) == (base, base + plan.nbytes)
    assert again.lives == trace.lives
