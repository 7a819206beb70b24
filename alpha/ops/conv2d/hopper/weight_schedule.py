"""The plan of the Hopper kernel of Sk-dilated (wgmma, TMA)."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from alpha.ops.conv2d.hopper.tile_schedule import Blocks, busiest
from alpha.ops.conv2d.hopper.weight_tiles import (
    BLOCK_CYCLES,
    PARTIAL_BYTES_PER_CYCLE,
    SPLIT_CYCLES,
    WeightTile,
    valid_columns,
)
from alpha.ops.conv2d.partial_sums import MAX_PARTIAL_BYTES, MIN_STEPS
from alpha.ops.conv2d.problem import ConvProblem
from alpha.ops.conv2d.shape import ConvShape, valid_outputs
from alpha.ops.kernel.casts import CUDA_TYPES
from alpha.ops.kernel.plan import ArrayArg, KernelLaunch, Table

if TYPE_CHECKING:
    pass


MOST_WAVES = 4  # of blocks whose K is split
L2_BYTES = 40 << 20  # of X and dY that stay in the L2 cache, so that blocks may read them at different times

Lengths = npt.NDArray[np.int64]


class WeightBlock(NamedTuple):
    """Work of the blocks of one z of the grid (WeightBlock of cuda/conv2d/sk_dilated/sm90.cu)."""

    filter_row: int  # fd FH + fh
    first_tap: int  # fw, of the taps of a block
    split: int
    num_splits: int


@dataclass(eq=False, frozen=True)
class WeightSchedule:
    """The blocks of dW.

    Attributes:
        blocks: the fields of each `WeightBlock`, longest first.
        splits: of each tap (FD FH FW,).
        partial_bytes: of all partial sums; 0 if no K is split.
        busiest_steps, busiest_blocks: of the SM that is done last.
    """

    blocks: npt.NDArray[np.int32]
    splits: npt.NDArray[np.int32]
    partial_bytes: int
    busiest_steps: float
    busiest_blocks: int

    @property
    def parts(self) -> int:
        """The most splits of a tap: so many arrays like dW hold the partial sums."""
        return int(self.splits.max())


@functools.lru_cache(maxsize=4096)
def weight_schedule(s: ConvShape, tile: WeightTile, tiles: int, num_sms: int) -> WeightSchedule:
    """The schedule with the fewest cycles.

    Args:
        tiles: of input and output channels, each of which has all blocks.
    """
    steps = steps_of_rows(s, tile)
    lengths, kinds = np.unique(steps, return_inverse=True)
    counts = np.bincount(kinds.ravel())
    bytes_of_a_split = 4 * prod(s.W) / steps.size  # of a filter row's taps

    def cost(splits: Lengths) -> tuple[float, int]:
        done = busiest(_blocks(lengths, counts * tiles, splits, tile.cycles), num_sms)
        several = splits.max() > 1
        partial = float((counts * splits).sum()) * bytes_of_a_split if several else 0.0
        added = SPLIT_CYCLES + 2 * partial / PARTIAL_BYTES_PER_CYCLE if several else 0.0
        return done.cycles + added, int(splits.max())

    most = np.minimum(np.maximum(lengths // MIN_STEPS, 1), max(1, MAX_PARTIAL_BYTES // (4 * prod(s.W))))
    fill = _fill if _operand_bytes(s, tile) <= L2_BYTES else _fill_evenly
    candidates = [np.ones_like(lengths)]
    for waves in range(1, MOST_WAVES + 1):
        candidates.append(fill(lengths, counts, most, waves * num_sms // tiles))
    splits = min(candidates, key=cost)
    done = busiest(_blocks(lengths, counts * tiles, splits, tile.cycles), num_sms)
    each = splits[kinds].reshape(steps.shape)
    of_taps = each.repeat(tile.taps, axis=1)[:, : s.FW]  # the last block of a filter row may have fewer taps
    return WeightSchedule(
        _in_order(steps, each, tile.taps),
        np.ascontiguousarray(of_taps, np.int32).ravel(),
        int((counts * splits).sum() * bytes_of_a_split) if splits.max() > 1 else 0,
        (done.cycles - done.blocks * BLOCK_CYCLES) / tile.cycles,
        done.blocks,
    )


def steps_of_rows(s: ConvShape, tile: WeightTile) -> Lengths:
    """The steps of the blocks of each filter row and group of taps (FD FH, groups), as the kernel counts them."""

    def outputs(axis: tuple[int, ...], F: int) -> Lengths:
        O, size, stride, padding, dilation = axis
        ranges = (valid_outputs(f * dilation, O, size, stride, padding) for f in range(F))
        return np.array([end - begin for begin, end in ranges], np.int64)

    planes = outputs((s.OD, s.ID, s.sd, s.pd, s.dd), s.FD)
    rows = outputs((s.OH, s.IH, s.sh, s.ph, s.dh), s.FH)
    columns = np.array([-(-valid_columns(s, fw, tile.taps) // tile.tile_ow) for fw in range(0, s.FW, tile.taps)])
    result: Lengths = np.multiply.outer(np.multiply.outer(planes, rows).ravel(), columns) * -(-s.N // tile.images)
    return result


def _fill(lengths: Lengths, counts: Lengths, most: Lengths, room: int) -> Lengths:
    """The splits of the shortest blocks of which there are at most `room`; no row has more than `most` splits."""

    def splits(limit: int) -> Lengths:
        return np.minimum(np.maximum(-(-lengths // limit), 1), most)

    short, long = 0, max(1, int(lengths.max()))  # `long` is long enough, or nothing is
    while long - short > 1:
        middle = (short + long) // 2
        if (counts * splits(middle)).sum() <= room:
            long = middle
        else:
            short = middle
    return splits(long)


def _fill_evenly(lengths: Lengths, counts: Lengths, most: Lengths, room: int) -> Lengths:
    """The same number of splits for all rows, so that blocks of all filter rows are at the same images at a time."""
    return np.minimum(max(1, room // int(counts.sum())), most)


def _operand_bytes(s: ConvShape, tile: WeightTile) -> int:
    return tile.tile.a_item * (prod(s.X) + prod(s.Y))


def _blocks(lengths: Lengths, counts: Lengths, splits: Lengths, step_cycles: float) -> list[Blocks]:
    """The blocks, longest first; splits of a row differ by one step at most."""
    found = []
    for length, count, n in zip(lengths.tolist(), counts.tolist(), splits.tolist(), strict=True):
        each, left = divmod(length, n)
        for steps, alike in ((each + 1, left), (each, n - left)):
            if alike:
                found.append(Blocks(steps * step_cycles + BLOCK_CYCLES, alike * count))
    return sorted(found, reverse=True)


def _in_order(steps: Lengths, splits: Lengths, taps: int) -> npt.NDArray[np.int32]:
    """The fields of each block: longest first, then by split, so that those which run together read the same rows."""
    found = []
    for (row, group), n in np.ndenumerate(splits):
        each, left = divmod(int(steps[row, group]), int(n))
        found += [(-(each + (split < left)), split, row, group, int(n)) for split in range(n)]
    blocks = [WeightBlock(row, group * taps, split, n) for _, split, row, group, n in sorted(found)]
    return np.array(blocks, np.int32)


SUM_THREADS, SUMMED, MOST_LANES = 256, 4, 32  # of sum_splits.cu: threads per block, channels and threads per pack
BUSY_THREADS = 1024  # of an SM, which keep its loads busy


def sum_of_splits(p: ConvProblem, schedule: WeightSchedule, num_sms: int) -> KernelLaunch:
    """The sum of partial dW, of which the taps have unequal numbers; it is rounded once."""
    s = p.shape
    packs, lanes = prod(s.W) // SUMMED, 1
    while lanes < MOST_LANES and 4 * lanes < schedule.parts and packs * lanes < BUSY_THREADS * num_sms:
        lanes *= 2
    return KernelLaunch(
        "conv2d/sk_dilated/sum_splits.cu",
        "sum_splits",
        -(-packs * lanes // SUM_THREADS),
        SUM_THREADS,
        (ArrayArg("dW"), ArrayArg("part"), Table(lambda: schedule.splits), packs, s.taps, s.IC),
        {"OUTPUT": CUDA_TYPES[p.result.dtype], "LANES": lanes},
    )
