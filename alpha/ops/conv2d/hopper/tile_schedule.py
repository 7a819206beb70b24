"""The order of the output tiles of ConvV2 and KS-deconv on Hopper, the splits of their K, and which filters stay."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from alpha.ops.conv2d.hopper.output_tiles import BLOCK_CYCLES, L2_BYTES_PER_CYCLE, OutputTiles, Tile


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


MAX_SPLITS = 4  # of the K of one tile
FIX_UP_CYCLES = 4000  # for partial sums on their way to memory and back, and for the wait between them
WRITTEN_BYTES_PER_CYCLE = 12  # of one SM, while all of them write
LEAST_SIDES = 192  # rows and columns of a tile whose filter may stay
MAX_WAVES = 6  # tiles per SM; with more than these K is not split


class WorkTile(NamedTuple):
    """Work of a block for some images and output channels: an output tile, or one split of its K."""

    output_pixel: int  # the first of the tile
    split: int
    num_splits: int
    workspace_slot: int  # that of the tile's first split, among the splits of all tiles with split-K


class Schedule:
    """The output tiles of a map and the splits of their K, in the order in which blocks take them.

    Attributes:
        order: the fields of each `WorkTile` (tiles, 4).
        workspace_slots: how many of them are splits, whose partial sums need memory.
    """

    def __init__(self, order: npt.ArrayLike) -> None:
        self.order = np.asarray(order, np.int32).reshape(-1, len(WorkTile._fields))
        self.workspace_slots = int((self.order[:, WorkTile._fields.index("num_splits")] > 1).sum())

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[WorkTile]:
        return map(WorkTile._make, self.order.tolist())


def tile_schedule(output: OutputTiles, K: int, copies: int, num_sms: int, whole: bool = False) -> Schedule:
    """The output tiles and the splits of their K, longest first, so that the last blocks are short.

    Tiles that fill the GPU several times over are not split.

    Args:
        copies: how often each tile of the map is computed: for how many tiles of images and output channels.
        whole: no tile is split.
    """
    across = -(-K // output.tile.BK)
    kinds = [np.unique(lengths, return_inverse=True) for lengths in (output.rows, output.widths)]
    (rows, kind_of_row), (widths, kind_of_column) = kinds  # a large map has few kinds of tiles
    cycles = np.array(
        [[output.cycles(r * w, r * int(output.input_tiles(w)), K) for w in widths.tolist()] for r in rows.tolist()]
    )
    of_tile = cycles[kind_of_row[:, None], kind_of_column].ravel()
    first = np.add.outer(np.arange(len(output.rows)) * output.columns, output.starts).ravel()
    longest_first = np.argsort(-of_tile, kind="stable")
    of_tile, pixels = of_tile[longest_first], first[longest_first]
    if whole or copies * len(pixels) > MAX_WAVES * num_sms:
        order = np.array([[0, 0, 1, 0]]).repeat(len(pixels), axis=0)
        order[:, 0] = pixels
        return Schedule(order)
    steps = np.multiply.outer(output.rows, output.input_tiles(output.widths)).ravel()[longest_first] * across
    result, slot = [], 0
    tiles = list(zip(of_tile.tolist(), steps.tolist(), strict=True))
    counts = _choose_splits(tiles, output.tile, copies, num_sms)
    for (length, _), pixel, num_splits in zip(tiles, pixels.tolist(), counts, strict=True):
        for split in range(num_splits):
            result.append((length / num_splits, WorkTile(pixel, split, num_splits, slot)))
        slot += num_splits if num_splits > 1 else 0
    result.sort(key=itemgetter(0), reverse=True)
    return Schedule([work for _, work in result])


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
        pieces: Counter[float] = Counter()
        for (cycles, _), n in zip(tiles, counts, strict=True):
            add = FIX_UP_CYCLES + (n - 1) * sums / L2_BYTES_PER_CYCLE if n > 1 else 0
            each = cycles / n + BLOCK_CYCLES
            pieces[each + leave] += (n - 1) * copies
            pieces[each + add] += copies
        return busiest((Blocks(*piece) for piece in sorted(pieces.items(), reverse=True)), num_sms).cycles

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


def keeps_filter(
    output: OutputTiles, sizes: tuple[int, int, int], num_sms: int, reserved: int = 0, least_rounds: int = 2
) -> bool:
    """True if the filter of a block's channels stays in shared memory: it is small, and several tiles use it.

    Such a block has an SM for itself and keeps to its channels, which must not cost a round of tiles. Small tiles gain
    less than other blocks on the SM are worth.

    Args:
        sizes: of N, K and the output channels.
        reserved: bytes of shared memory for other purposes.
        least_rounds: tiles of a block.
    """
    (N, K, GN), tile = sizes, output.tile
    if output.taps != (1, 1) or len(output.starts) > 1 or tile.BM + tile.BN < LEAST_SIDES:
        return False
    across, down = -(-GN // tile.BN), -(-N * output.tile_ow // tile.BM)
    rounds = -(-across * down // num_sms)
    as_fast = rounds >= least_rounds and across <= num_sms and -(-down // (num_sms // across)) <= rounds
    return as_fast and output.stages_beside_filter(K, reserved)[0] > 0
