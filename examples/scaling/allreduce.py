"""Times of an all-reduce by the algorithms of NCCL, from bandwidths and latencies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

BYTES_PER_MS = 1e6  # of one GB/s
ROUNDED = 9  # digits of milliseconds; what differs behind them is equal


@dataclass(frozen=True)
class Links:
    """Connections of the GPUs; docs/scaling.md says where the defaults come from.

    Attributes:
        gpus_per_machine: each with a network card of its own.
        nvlink_gbs: GB/s of a GPU within a machine, as the bus bandwidth that NCCL's tests report.
        nvlink_us: microseconds of a step from one GPU to another within a machine.
        network_gbs: GB/s of the network card of a GPU.
        network_us: microseconds of a step from one machine to another.
    """

    gpus_per_machine: int = 8
    nvlink_gbs: float = 370.0
    nvlink_us: float = 3.4
    network_gbs: float = 50.0
    network_us: float = 14.0

    def machines(self, gpus: int) -> int:
        return math.ceil(gpus / self.gpus_per_machine)

    def inside(self, gpus: int) -> int:
        """GPUs in each machine, if `gpus` take part."""
        return min(gpus, self.gpus_per_machine)

    def slowest_gbs(self, gpus: int) -> float:
        """GB/s of a ring or a tree through all GPUs: those of NVLink, or those of all cards of a machine."""
        if self.machines(gpus) == 1:
            return self.nvlink_gbs
        if self.inside(gpus) == 1:
            return self.network_gbs
        return min(self.nvlink_gbs, self.inside(gpus) * self.network_gbs)

    def steps_ms(self, inside: int, between: int) -> float:
        """Milliseconds of so many steps within machines and between them."""
        return (inside * self.nvlink_us + between * self.network_us) / 1e3


def transfer_ms(size: float, gbs: float) -> float:
    return size / (gbs * BYTES_PER_MS)


def depth(machines: int) -> int:
    """Steps from the leaves of a binary tree to its root."""
    return math.ceil(math.log2(machines))


def ring_ms(size: float, gpus: int, links: Links) -> float:
    """A ring through all GPUs, around which each part of the bytes goes twice, but for one step."""
    machines = links.machines(gpus)
    steps = links.steps_ms(2 * (gpus - machines), 2 * (machines - 1))
    return transfer_ms(2 * (gpus - 1) / gpus * size, links.slowest_gbs(gpus)) + steps


def tree_ms(size: float, gpus: int, links: Links) -> float:
    """A chain in each machine and two binary trees of the machines: all bytes go up and down once."""
    if gpus == 1:
        return 0.0
    steps = links.steps_ms(2 * (links.inside(gpus) - 1), 2 * depth(links.machines(gpus)))
    return transfer_ms(2 * size, links.slowest_gbs(gpus)) + steps


def two_level_ms(size: float, gpus: int, links: Links) -> float:
    """A reduce-scatter in each machine, a ring or a tree of machines for each part, and an all-gather.

    The bytes go through the three stages in chunks, one behind the other: the slowest stage counts, and all steps.
    """
    machines, inside = links.machines(gpus), links.inside(gpus)
    if machines == 1:
        return ring_ms(size, gpus, links)
    within = transfer_ms(2 * (inside - 1) / inside * size, links.nvlink_gbs)
    part, steps = size / inside, 2 * (inside - 1)
    ring = transfer_ms(2 * (machines - 1) / machines * part, links.network_gbs)
    tree = transfer_ms(2 * part, links.network_gbs)
    return min(
        max(within, ring) + links.steps_ms(steps, 2 * (machines - 1)),
        max(within, tree) + links.steps_ms(steps, 2 * depth(machines)),
    )


Algorithm = Callable[[float, int, Links], float]
ALGORITHMS: dict[str, Algorithm] = {"ring": ring_ms, "tree": tree_ms, "two-level": two_level_ms}


def fastest(size: float, gpus: int, links: Links) -> str:
    """The name of the algorithm that takes the least time for so many bytes; of equal ones the first."""
    return min(ALGORITHMS, key=lambda name: round(ALGORITHMS[name](size, gpus, links), ROUNDED))
