"""The tiles of the Hopper kernel of Sk-dilated: output pixels and taps of a block, and input-row tiles."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from alpha.ops.conv2d.hopper.output_tiles import MAX_STAGES, SHARED_BYTES, Tile
from alpha.ops.conv2d.problem import MathMode
from alpha.ops.conv2d.shape import ConvShape, valid_outputs

PARTIAL_BYTES_PER_CYCLE = 2000  # of partial sums, that the whole GPU writes or reads
# Fitted to 2,942 times of 20 layers on an H200: the tile that they choose for a configuration takes 1.2 % longer than
# the fastest one, in the mean.
READ_BYTES_PER_CYCLE = {2: 56.0, 4: 38.0}  # of one SM from the L2 cache, by the bytes of an element
OVERLAP = 0.14  # the part of a step's other work that adds to the slowest
BLOCK_CYCLES = 2800  # for the beginning and the end of a block
SPLIT_CYCLES = 6000  # for the launch that adds partial sums
TRANSFORM_CYCLES = {1: 12.0, 2: 24.0}  # by the number of terms: a transform warp converts a row of 64 channels
ACCUMULATORS = 192  # registers per thread for sums
FEW_ACCUMULATORS = 128  # of a thread that shares the registers with seven transform warps


@dataclass(eq=False, frozen=True)
class WeightTile:
    """The tile of a block of Sk-dilated: a step of tile_ow output pixels x images, 64 of K, for some taps."""

    tile: Tile
    tile_ow: int
    taps: int
    tile_iw: int
    num_input_tiles: int

    @property
    def images(self) -> int:
        return 64 // self.tile_ow

    @functools.cached_property
    def stage_bytes(self) -> int:
        width = 2 if self.tile.converts else self.tile.math.terms  # rows of 128 bytes per pixel of X and 64 channels
        X = self.num_input_tiles * self.tile_iw * self.images * -(-self.tile.BN // 64) * width
        return (64 * self.tile.BM // self.tile.a_channels + X) * 128

    def stages(self) -> int:
        return min(MAX_STAGES, SHARED_BYTES // self.stage_bytes)

    @property
    def converted_cycles(self) -> float:
        """Cycles in which the transform warps convert X of a step to fp16 terms; 0 if it comes as it is needed."""
        if not self.tile.converts:
            return 0.0
        rows = -(-self.tile.BN // 64) * self.num_input_tiles * self.tile_iw * self.images
        return rows * TRANSFORM_CYCLES[self.tile.math.terms] / self.transform_warps

    @property
    def transform_warps(self) -> int:
        """Seven if the block waits for them and the sums leave them registers, or else three."""
        promotes = self.tile.math is MathMode.FP16X3  # it sums each step apart
        waits = self.tile.converts and (self.tile.BN >= self.tile.BM or promotes)
        fits = self.tile.BN <= 128 and (self.taps + promotes) * self.tile.BN // 2 <= FEW_ACCUMULATORS
        return 7 if waits and fits else 3

    @property
    def threads(self) -> int:
        """Threads of a block: two consumer warpgroups, the producer and the transform warps."""
        return 256 + 32 * (1 + self.transform_warps)

    @functools.cached_property
    def cycles(self) -> float:
        """Cycles of a step: of the slowest of tensor cores, L2 cache and transform warps, or the pipeline's latency."""
        products, read = self.taps * self.tile.cycles, self.stage_bytes / READ_BYTES_PER_CYCLE[self.tile.a_item]
        slowest, total = max(products, read, self.converted_cycles), products + read + self.converted_cycles
        return max(slowest, total / self.stages()) + OVERLAP * (total - slowest)


@functools.lru_cache(maxsize=1024)
def weight_tile(s: ConvShape, tile: Tile) -> WeightTile:
    """The cheapest tile. Its taps share dY, and X within a residue; the registers limit how many there are."""
    # Two terms of dY, and the sums of a step, need registers of their own; adding up two warpgroups needs a few more.
    spare = (tile.math.terms == 2) + (tile.math.terms == 2 and tile.BM == 64)
    most = max(1, ACCUMULATORS // (tile.BN // 2) - spare)
    candidates = []
    evenly = -(-s.FW // -(-s.FW // most))
    few_images = s.N < 8
    for taps in {1, evenly, *([min(s.sw, evenly)] if few_images else [])}:
        halo = s.dw * (-(-taps // s.sw) - 1)
        # with a halo a tap begins at a whole group of 8 rows: a pixel of as many images
        for tile_ow in (1, 2, 4, 8, *((16, 32, 64) if few_images and not halo else ())):
            num_input_tiles = min(s.sw, taps)
            candidate = WeightTile(tile, tile_ow, taps, tile_ow + halo, num_input_tiles)
            if candidate.stages() >= 2:
                candidates.append(candidate)
    return min(candidates, key=lambda p: _cost(s, p))


def valid_columns(s: ConvShape, first: int, taps: int) -> int:
    """Number of columns of outputs that meet the input with any of `taps` taps of a filter row from `first` on."""
    last = min(first + taps, s.FW) - 1
    begin = valid_outputs(last * s.dw, s.OW, s.IW, s.sw, s.pw)[0]
    end = valid_outputs(first * s.dw, s.OW, s.IW, s.sw, s.pw)[1]
    return max(0, end - begin)


def _cost(s: ConvShape, p: WeightTile) -> float:
    """Cycles of one filter row, added up over its blocks."""
    total = 0.0
    for first in range(0, s.FW, p.taps):
        total += -(-valid_columns(s, first, p.taps) // p.tile_ow) * -(-s.N * p.tile_ow // 64) * p.cycles
    return total
