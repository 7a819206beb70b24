"""Split-K of the gradient of the weight: the number of splits, and the sum of their partial results."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.core.numerics import FLOAT32
from alpha.ops.conv2d.problem import ConvProblem, Target
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.kernel.plan import Buffer, KernelLaunch, Plan
from alpha.ops.kernel.sums import plan_reduce_splits

if TYPE_CHECKING:
    from alpha.ops.conv2d.problem import Configuration


MIN_STEPS = 6  # of a split
MAX_PARTIAL_BYTES = 64 << 20  # of all partial sums


def tiles_of(*lengths: tuple[int, int]) -> int:
    """The number of tiles that cover all axes, each (length, tile)."""
    count = 1
    for length, tile in lengths:
        count *= -(-length // tile)
    return count


def num_splits(blocks: int, steps: int, s: ConvShape, room: int) -> int:
    """The number of splits of G_K, the paper's G_Z (section IV.C).

    Args:
        blocks: of each split.
        steps: of a block if K is not split.
        room: how many blocks run on the GPU at a time. All splits together have no more blocks.
    """
    return max(1, min(room // blocks, steps // MIN_STEPS, most_parts(s)))


def most_parts(s: ConvShape) -> int:
    """The most partial sums of dW that memory is spent on; 1 at least."""
    return max(1, MAX_PARTIAL_BYTES // (4 * prod(s.W)))


def with_partial_sums(
    p: ConvProblem,
    v: Configuration,
    target: Target,
    launches: tuple[KernelLaunch, ...],
    GZ: int,
    workspaces: Mapping[str, Buffer] | None = None,
    only: np.dtype[Any] = FLOAT32,
    **facts: Any,
) -> Plan:
    """The plan of a gradient of the weight whose kernel writes "part" (GZ, ..), which is then summed to dW.

    only: the dtype of the part if there is only one, which then is the result. Several parts are float32.
    """
    s, held = p.shape, dict(workspaces or {})
    if GZ == 1:
        renamed = tuple(launch.renamed({"part": "dW"}) for launch in launches)
        return Plan(v.name, renamed, {"dW": Buffer(s.W, only)}, held, facts=facts)
    held["part"] = Buffer((GZ, *s.W), FLOAT32)
    sums = plan_reduce_splits("part", "dW", GZ, p.result, target.num_sms)
    return Plan(v.name, (*launches, *sums.launches), {"dW": p.result}, {**held, **sums.workspaces}, facts=facts)
