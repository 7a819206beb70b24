"""ALPHA_EMULATED_SEED shuffles blocks and threads, ALPHA_EMULATED_BLOCKS says the order of the blocks alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from kernel_emulator import Emulator

THREADS = 64
ASCENDING = list(range(THREADS))


def orders(emulator: Emulator, count: int = 10) -> tuple[list[int], list[list[int]]]:
    """Order in which each block began, and in which each thread of each block did."""
    blocks, threads = np.zeros(count, np.uint32), np.zeros((count, THREADS), np.uint32)
    emulator("order.cu", "order", count, THREADS, blocks, threads, np.zeros(1 + count, np.uint32))
    assert sorted(blocks) == list(range(count))
    assert all(sorted(row) == ASCENDING for row in threads)
    return blocks.tolist(), threads.tolist()


def test_both_ascend_by_default(emulator_for: Callable[..., Emulator]) -> None:
    blocks, threads = orders(emulator_for())
    assert blocks == list(range(10))
    assert threads == [ASCENDING] * 10


@pytest.mark.parametrize(("name", "expected"), [("ascending", range(10)), ("descending", range(9, -1, -1))])
@pytest.mark.parametrize("seed", [0, 5])
def test_blocks_in_a_named_order(emulator_for: Callable[..., Emulator], name: str, expected: range, seed: int) -> None:
    """The order of blocks does not change the order of threads, which is still that of the seed."""
    blocks, threads = orders(emulator_for(ALPHA_EMULATED_BLOCKS=name, ALPHA_EMULATED_SEED=seed))
    assert blocks == list(expected)
    _, of_the_seed = orders(emulator_for(ALPHA_EMULATED_BLOCKS="ascending", ALPHA_EMULATED_SEED=seed))
    assert (threads == [ASCENDING] * 10) == (seed == 0)
    by_begin = [threads[block] for block in np.argsort(blocks)]
    assert by_begin == of_the_seed


def test_shuffled_blocks(emulator_for: Callable[..., Emulator]) -> None:
    """Another order for each launch and each seed, the same in every run, and threads as without."""
    emulator = emulator_for(ALPHA_EMULATED_BLOCKS="shuffled")
    (first, threads), (second, _) = orders(emulator), orders(emulator)
    assert threads == [ASCENDING] * 10
    assert first != second
    again = emulator_for(ALPHA_EMULATED_BLOCKS="shuffled")
    assert [orders(again)[0], orders(again)[0]] == [first, second]
    assert orders(emulator_for(ALPHA_EMULATED_BLOCKS="shuffled", ALPHA_EMULATED_SEED=7))[0] != first
    assert first not in (list(range(10)), list(range(9, -1, -1)))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 97])
def test_every_block_runs_once(emulator_for: Callable[..., Emulator], count: int) -> None:
    found = set()
    for seed in range(1, 9):
        blocks, _ = orders(emulator_for(ALPHA_EMULATED_SEED=seed), count)
        found.add(tuple(blocks))
    assert len(found) > (count > 1)  # more than one order, if there is more than one block
