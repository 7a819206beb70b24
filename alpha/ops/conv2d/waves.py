"""How long blocks take that the GPU starts one after another, each on the SM that is free first."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple


class Blocks(NamedTuple):
    """Equal blocks: the cycles of each, and how many there are."""

    cycles: float
    number: int


class Busiest(NamedTuple):
    """The SM that is done last: its cycles, and how many blocks it computes, one after another."""

    cycles: float
    blocks: int


def busiest(groups: Iterable[Blocks], num_sms: int) -> Busiest:
    """The busiest of `num_sms` SMs, of which each computes one block at a time; the blocks begin in their order.

    SMs with equal work are counted together, so thousands of blocks of few lengths cost little.
    """
    sms: list[tuple[float, int, int]] = [(0.0, 0, num_sms)]  # cycles, blocks, and how many SMs have these
    for cycles, number in groups:
        left = number
        while left > 0:
            done, blocks, alike = heapq.heappop(sms)
            taken = min(alike, left)
            if taken < alike:
                heapq.heappush(sms, (done, blocks, alike - taken))
            heapq.heappush(sms, (done + cycles, blocks + 1, taken))
            left -= taken
    cycles, blocks, _ = max(sms)
    return Busiest(cycles, blocks)
