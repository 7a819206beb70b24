"""The tiles of the Hopper kernel of Sk-dilated: output pixels and taps of a block, input-row tiles, splits of K."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from alpha.ops.conv2d.partial_sums import MAX_PARTIAL_BYTES, MIN_STEPS
from alpha.ops.conv2d.shape import ConvShape, valid_outputs
from alpha.ops.conv2d.sm90_tiles import BLOCK_CYCLES, L2_BYTES_PER_CYCLE, MAX_STAGES, SHARED_BYTES, Tile

PARTIAL_BYTES_PER_CYCLE = 2000  # of partial sums, that the whole GPU writes or reads
TRANSFORM_CYCLES = {1: 6.0, 2: 9.0}  # by the number of terms: all transform warps convert a row of 64 channels
ACCUMULATORS = 192  # registers per thread for sums


@dataclass(eq=False, frozen=True)
class WeightTile:
    """The tile of a block of Sk-dilated: a step of tile_ow output pixels x images, 64 of K, for some taps."""

    tile: Tile
    tile_ow: int
    taps: int
    tile_iw: int
    num_input_tiles: int
    steps: int  # for the whole K of a tap

    @property
    def images(self) -> int:
        return 64 // self.tile_ow

    @property
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
        return rows * TRANSFORM_CYCLES[self.tile.math.terms]

    @property
    def cycles(self) -> float:
        """Cycles of a step: of the slowest of tensor cores, L2 cache and transform warps, or the pipeline's latency."""
        products, read = self.taps * self.tile.cycles, self.stage_bytes / L2_BYTES_PER_CYCLE
        converted = self.converted_cycles
        return max(products, read, converted, (products + read + converted) / self.stages())


@functools.lru_cache(maxsize=4096)
def num_splits(block: WeightTile, blocks: int, partial_bytes: int, num_sms: int) -> int:
    """The number of splits of G_K, the paper's G_Z (section IV.C): full waves of blocks, few partial sums."""
    step = block.cycles

    def cycles(GZ: int) -> float:
        waves = -(-blocks * GZ // num_sms)
        partial = 2 * GZ * partial_bytes / PARTIAL_BYTES_PER_CYCLE if GZ > 1 else 0
        return waves * (-(-block.steps // GZ) * step + BLOCK_CYCLES) + partial

    most = min(block.steps // MIN_STEPS, 4 * num_sms // blocks, MAX_PARTIAL_BYTES // partial_bytes)
    return min(range(1, max(1, most) + 1), key=cycles)


@functools.lru_cache(maxsize=1024)
def weight_tile(s: ConvShape, tile: Tile) -> WeightTile:
    """The cheapest tile. Its taps share dY, and X within a residue; the registers limit how many there are."""
    # With two terms the sums of a step need registers of their own; adding the sums of two warpgroups needs a few more.
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
            candidate = WeightTile(tile, tile_ow, taps, tile_ow + halo, num_input_tiles, _steps(s, taps, tile_ow))
            if candidate.stages() >= 2:
                candidates.append(candidate)
    return min(candidates, key=lambda p: _cost(s, p))


def _steps(s: ConvShape, taps: int, tile_ow: int) -> int:
    begin = valid_outputs((min(taps, s.FW) - 1) * s.dw, s.OW, s.IW, s.sw, s.pw)[0]
    end = valid_outputs(0, s.OW, s.IW, s.sw, s.pw)[1]
    return s.OD * s.OH * -(-max(0, end - begin) // tile_ow) * -(-s.N * tile_ow // 64)


def _cost(s: ConvShape, p: WeightTile) -> float:
    """Cycles of one filter row, added up over its blocks."""
    total = 0.0
    for first in range(0, s.FW, p.taps):
        last = min(first + p.taps, s.FW) - 1
        begin = valid_outputs(last * s.dw, s.OW, s.IW, s.sw, s.pw)[0]
        end = valid_outputs(first * s.dw, s.OW, s.IW, s.sw, s.pw)[1]
        total += -(-max(0, end - begin) // p.tile_ow) * -(-s.N * p.tile_ow // 64) * p.cycles
    return total
