"""The order of the output tiles of ConvV2 and KS-deconv on Hopper, and the splits of their K."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from operator import itemgetter
from typing import NamedTuple

from alpha.ops.conv2d.sm90_tiles import BLOCK_CYCLES, L2_BYTES_PER_CYCLE, OutputTiles, Tile

MAX_SPLITS = 4  # of the K of one tile
FIX_UP_CYCLES = 2000  # for partial sums on their way to memory and back
WRITTEN_BYTES_PER_CYCLE = 12  # of one SM, while all of them write
MAX_WAVES = 6  # tiles per SM; with more than these K is not split


class WorkTile(NamedTuple):
    """What a block computes for some images and output channels: an output tile, or one split of its K."""

    output_pixel: int  # the first of the tile
    split: int
    num_splits: int
    workspace_slot: int  # that of the tile's first split, among the splits of all tiles with split-K


def tile_schedule(output: OutputTiles, K: int, copies: int, num_sms: int) -> tuple[WorkTile, ...]:
    """The output tiles and the splits of their K, longest first, so that the last blocks are short.

    Tiles that fill the GPU several times over are not split.

    Args:
        copies: how often each tile of the map is computed: for how many tiles of images and output channels.
    """
    across = -(-K // output.tile.BK)
    work = {}  # (cycles, steps) of a tile with so many filter rows and taps of each: a large map has few kinds
    for rows in set(output.rows):
        for width in set(output.widths):
            input_tiles = rows * output.input_tiles(width)
            work[rows, width] = output.cycles(rows * width, input_tiles, K), input_tiles * across
    found = [  # (cycles, steps, first output pixel) of each tile
        (*work[rows, width], y * output.columns + x)
        for y, rows in enumerate(output.rows)
        for x, width in zip(output.starts, output.widths, strict=True)
    ]
    found.sort(key=itemgetter(0), reverse=True)
    if copies * len(found) > MAX_WAVES * num_sms:
        return tuple([WorkTile(pixel, 0, 1, 0) for _, _, pixel in found])
    result, slot = [], 0
    counts = _choose_splits([tile[:2] for tile in found], output.tile, copies, num_sms)
    for (cycles, _, pixel), num_splits in zip(found, counts, strict=True):
        for split in range(num_splits):
            result.append((cycles / num_splits, WorkTile(pixel, split, num_splits, slot)))
        slot += num_splits if num_splits > 1 else 0
    result.sort(key=itemgetter(0), reverse=True)
    return tuple(work for _, work in result)


def _choose_splits(tiles: list[tuple[float, int]], tile: Tile, copies: int, num_sms: int) -> list[int]:
    """The number of splits of the K of each tile, given as (cycles, steps), so that all SMs have work."""
    whole = [1] * len(tiles)
    longest = max(cycles for cycles, _ in tiles)
    if longest == 0:  # every tap meets padding
        return whole
    sums = tile.BM * tile.BN * 4
    leave = FIX_UP_CYCLES + sums / WRITTEN_BYTES_PER_CYCLE

    def end(counts: list[int]) -> float:
        """The cycle at which the last SM is done, if each SM takes the longest work that is left."""
        pieces = []
        for (cycles, _), n in zip(tiles, counts, strict=True):
            add = FIX_UP_CYCLES + (n - 1) * sums / L2_BYTES_PER_CYCLE if n > 1 else 0
            each = cycles / n + BLOCK_CYCLES
            pieces += [each + leave] * ((n - 1) * copies) + [each + add] * copies
        pieces.sort(reverse=True)
        ends = [0.0] * num_sms
        for cycles in pieces:
            heapq.heapreplace(ends, ends[0] + cycles)
        return max(ends)

    def split(into: Iterable[int]) -> list[int]:
        return [max(1, min(n, t[1] // 2, MAX_SPLITS)) for n, t in zip(into, tiles, strict=True)]

    candidates = [whole]
    for eighths in range(1, 8 * MAX_SPLITS):  # no split is longer than a limit
        limit = longest * 8 / (8 + eighths) * (1 + 1e-9)
        counts = split(math.ceil(cycles / limit) for cycles, _ in tiles)
        if counts != candidates[-1]:
            candidates.append(counts)
    whole_waves = len(tiles) * copies // num_sms * num_sms // copies
    for n in range(2, MAX_SPLITS + 1):  # only tiles of the last wave, which does not fill all SMs
        candidates.append(split([1] * whole_waves + [n] * (len(tiles) - whole_waves)))
    return min(candidates, key=end)
