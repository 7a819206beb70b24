"""The tiles of the Hopper kernels: output pixels and input pixels of a tile, stages, and splits of K.

An output tile is `tile_ow` neighbouring pixels of a map row x some images. More pixels share more of the input,
because one input-row tile serves all taps of a filter row; fewer pixels trim more exactly. The cycles of the tensor
cores and the bytes that are read from the L2 cache decide which is cheaper.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from alpha.ops.conv2d.problem import MathMode
from alpha.ops.conv2d.shape import ConvShape, split_segments, trimmed_taps

if TYPE_CHECKING:
    from alpha.ops.conv2d.configuration import Configuration

SHARED_BYTES = 232448 - 1024 - 256  # of a block, without the alignment of its tiles and its barriers
L2_BYTES_PER_CYCLE = 32  # of one SM, while all of them read
SHARED_BYTES_PER_CYCLE = 128  # that the tensor cores read
STEP_BYTES = 128  # of K, in a row of a tile
INSTRUCTIONS = 4  # of wgmma per step and term
MAX_STAGES = 8
BLOCK_CYCLES = 4000  # for the beginning and the end of a block
MAX_SPLITS = 4  # of the K of one tile
FIX_UP_CYCLES = 2000  # for partial sums on their way to memory and back
WRITTEN_BYTES_PER_CYCLE = 12  # of one SM, while all of them write
MAX_WAVES = 6  # tiles per SM; with more than these K is not split


class Tile(NamedTuple):
    """A block's tile and how operands reach the tensor cores (cuda/conv2d/sm90/mainloop.cuh, sk_dilated/sm90.cu)."""

    BM: int
    BN: int
    math: MathMode
    prepared: bool = False  # Sk-dilated: X comes as fp16 terms, which another kernel has prepared
    blocks: int = 1  # per SM

    @classmethod
    def of(cls, v: Configuration) -> Tile:
        return cls(v.tile["BM"], v.tile["BN"], v.math, bool(v.tile.get("PREPARED")), v.tile["BLOCKS"])

    @property
    def converts(self) -> bool:
        """Sk-dilated: True if the kernel itself converts X to fp16 terms."""
        return self.math.in_fp16 and not self.prepared

    @property
    def BK(self) -> int:
        """Elements of K per step."""
        return 32 if self.math is MathMode.TF32 else 64

    @property
    def a_boxes(self) -> int:
        """Boxes of TMA, with rows of 128 bytes, that hold BK elements of the activations."""
        return 2 if self.math.in_fp16 else 1

    @property
    def a_channels(self) -> int:
        """Channels of the activations in 128 bytes."""
        return 64 if self.math is MathMode.BF16 else 32

    @property
    def consumer_warps(self) -> int:
        """The warps of ConvV2's and KS-deconv's blocks that multiply."""
        return 4 if self.BM == 64 else 8

    @property
    def threads(self) -> int:
        """Threads of a block of ConvV2 or KS-deconv: its consumers, and a producer warp or warpgroup."""
        return 32 * self.consumer_warps + (128 if self.blocks == 1 and self.consumer_warps == 8 else 32)

    @property
    def b_bytes(self) -> int:
        return self.math.terms * self.BN * 128

    @property
    def cycles(self) -> float:
        """Cycles of the tensor cores for one step: of the products, or of reading A, and B for each 64 rows of A."""
        products = 3 if self.math.terms == 2 else 1
        computed = self.BM * self.BN * self.BK * products / (1024 if self.math is MathMode.TF32 else 2048)
        return max(computed, self.BM * (1 + self.BN / 64) * STEP_BYTES / SHARED_BYTES_PER_CYCLE)

    def instructions(self, K: int) -> int:
        """The instructions per term that K elements need: 4 for each whole BK."""
        return -(-K * INSTRUCTIONS // self.BK)

    def last_instructions(self, K: int) -> int:
        """The instructions that the last BK of K needs."""
        return (self.instructions(K) - 1) % INSTRUCTIONS + 1


def _shared_bytes(blocks: int) -> int:
    """Bytes of shared memory for the stages of a block, with `blocks` of them per SM."""
    return SHARED_BYTES if blocks == 1 else (SHARED_BYTES + 1024) // blocks - 2048


# -- ConvV2 and KS-deconv ---------------------------------------------------------------------------


@dataclass(eq=False, frozen=True)
class OutputTiles:
    """The output tiles of a map, of tile_ow output pixels of one row each.

    Attributes:
        rows: the number of filter rows that each map row needs.
        starts, widths: the first column of each tile of a row, and how many taps of a filter row it needs.
        tile_iw: input pixels of an input-row tile: tile_ow, or more with the halo that taps share.
        counts: taps of a filter row that share an input-row tile, by residue.
        step: input-row tiles of a filter row, if taps share them.
    """

    tile: Tile
    tile_ow: int
    tile_iw: int
    rows: tuple[int, ...]
    starts: tuple[int, ...]
    widths: tuple[int, ...]
    columns: int  # of the map
    counts: tuple[int, ...]
    step: int = 1

    @property
    def images(self) -> int:
        return self.tile.BM // self.tile_ow

    @property
    def a_bytes(self) -> int:
        return self.tile.a_boxes * self.tile_iw * self.images * 128

    def box(self, residue: int) -> tuple[int, int, int, int]:
        """The box that TMA loads for the input-row tile of a residue: channels, images, pixels, rows."""
        pixels = self.tile_ow + self.counts[residue] - 1 if self.tile_iw > self.tile_ow else self.tile_ow
        return self.tile.a_channels, self.images, max(1, pixels), 1

    def input_tiles(self, width: int) -> int:
        """The number of input-row tiles for a filter row, of which `width` taps are needed."""
        return min(width, self.step) if self.tile_iw > self.tile_ow else width

    def cycles(self, taps: int, input_tiles: int, K: int) -> float:
        """Cycles of a tile: of the slower of tensor cores and L2 cache, and a part of the other's."""
        products = taps * self.tile.cycles * self.tile.instructions(K) / INSTRUCTIONS
        steps = -(-K // self.tile.BK)
        drawn = steps * (input_tiles * self.a_bytes + taps * self.tile.b_bytes) / L2_BYTES_PER_CYCLE
        return max(products, drawn) + min(products, drawn) / 4

    def stages(self, blocks: int, reserved: int = 0) -> tuple[int, int]:
        """Stages of input-row tiles and of filter tiles that fit the shared memory of a block; (0, 0) if too few do.

        An input-row tile is released after the products with the next one have begun, so there are at least two
        stages. A tap that shares no input-row tile needs one of its own. `reserved`: bytes for other purposes.
        """
        room = _shared_bytes(blocks) - reserved
        if self.tile_iw == self.tile_ow:
            both = min(MAX_STAGES, room // (self.a_bytes + self.tile.b_bytes))
            return (both, both) if both >= 2 else (0, 0)
        for a, enough in ((3, 4), (2, 2)):
            b = min(MAX_STAGES, (room - a * self.a_bytes) // self.tile.b_bytes)
            if b >= enough:
                return a, b
        return 0, 0

    def cost(self, images: int) -> float:
        """Cycles of one filter row of a map, for BK of K, added up over all blocks."""
        cycles = self.cycles(sum(self.widths), sum(map(self.input_tiles, self.widths)), self.tile.BK)
        return cycles * -(-images * self.tile_ow // self.tile.BM)


def _cheapest(images: int, candidates: list[OutputTiles]) -> OutputTiles:
    fitting = [g for g in candidates if g.stages(g.tile.blocks)[0]]
    return min(fitting, key=lambda g: g.cost(images))


class WorkTile(NamedTuple):
    """What a block computes for some images and output channels: an output tile, or one split of its K."""

    output_pixel: int  # the first of the tile
    split: int
    num_splits: int
    workspace_slot: int  # that of the tile's first split, among the splits of all tiles with split-K


def tile_schedule(output: OutputTiles, K: int, copies: int, num_sms: int) -> tuple[WorkTile, ...]:
    """The output tiles and the splits of their K, longest first, so that the last blocks are short.

    Args:
        copies: how often each tile of the map is computed: for how many tiles of images and output channels.
    """
    across = -(-K // output.tile.BK)
    found = []  # (cycles, steps, first output pixel) of each tile
    for y, rows in enumerate(output.rows):
        for x, width in zip(output.starts, output.widths, strict=True):
            input_tiles = rows * output.input_tiles(width)
            cycles = output.cycles(rows * width, input_tiles, K)
            found.append((cycles, input_tiles * across, y * output.columns + x))
    found.sort(key=lambda tile: -tile[0])
    result, slot = [], 0
    counts = _choose_splits([tile[:2] for tile in found], output.tile, copies, num_sms)
    for (cycles, _, pixel), num_splits in zip(found, counts, strict=True):
        for split in range(num_splits):
            result.append((cycles / num_splits, WorkTile(pixel, split, num_splits, slot)))
        slot += num_splits if num_splits > 1 else 0
    result.sort(key=lambda work: -work[0])
    return tuple(work for _, work in result)


def _choose_splits(tiles: list[tuple[float, int]], tile: Tile, copies: int, num_sms: int) -> list[int]:
    """The number of splits of the K of each tile, given as (cycles, steps), so that all SMs have work.

    Tiles that fill the GPU several times over are not split.
    """
    whole = [1] * len(tiles)
    longest = max(cycles for cycles, _ in tiles)
    if longest == 0 or copies * len(tiles) > MAX_WAVES * num_sms:  # 0: every tap meets padding
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


def _tile_widths(tile: Tile) -> list[int]:
    """The candidates for tile_ow. The images of a tile are a multiple of 8 and at most a box of TMA."""
    return [1 << i for i in range(6) if tile.BM >> i >= 8]


@functools.lru_cache(maxsize=1024)
def conv_v2_tiles(s: ConvShape, tile: Tile) -> OutputTiles:
    """The tiles of Y: tile_ow neighbours of a row, with the union of their trimmed filters."""
    rows = tuple(b - a for a, b in (trimmed_taps(o, s.IH, s.FH, s.sh, s.ph) for o in range(s.OH)))
    columns = [trimmed_taps(o, s.IW, s.FW, s.sw, s.pw) for o in range(s.OW)]
    counts = tuple(-(-(s.FW - r) // s.sw) for r in range(min(s.sw, s.FW)))
    candidates = []
    for tile_ow in _tile_widths(tile):
        starts = tuple(range(0, s.OW, tile_ow))
        widths = tuple(max(0, columns[o][1] - columns[min(o + tile_ow, s.OW) - 1][0]) for o in starts)
        for tile_iw in {tile_ow, tile_ow + counts[0] - 1}:
            candidates.append(OutputTiles(tile, tile_ow, tile_iw, rows, starts, widths, s.OW, counts, s.sw))
    return _cheapest(s.N, candidates)


@functools.lru_cache(maxsize=1024)
def ks_deconv_tiles(s: ConvShape, tile: Tile) -> OutputTiles:
    """The tiles of dX: tile_ow pixels of one residue, sw apart, with the union of their trimmed split filters."""
    rows = tuple(b - a for a, b in _split_taps(s.OH, s.IH, s.FH, s.sh, s.ph))
    columns = _split_taps(s.OW, s.IW, s.FW, s.sw, s.pw)
    counts = tuple(max(0, -(-(s.FW - r) // s.sw)) for r in range(s.sw))
    candidates = []
    for tile_ow in _tile_widths(tile):
        starts = tuple(first for residue in range(min(s.sw, s.IW)) for first in range(residue, s.IW, tile_ow * s.sw))
        members = [columns[i : i + tile_ow * s.sw : s.sw] for i in starts]
        widths = tuple(max(0, m[0][1] - m[-1][0]) for m in members)
        for tile_iw in {tile_ow, tile_ow + counts[0] - 1}:
            candidates.append(OutputTiles(tile, tile_ow, tile_iw, rows, starts, widths, s.IW, counts))
    return _cheapest(s.N, candidates)


def _split_taps(O: int, size: int, F: int, s: int, p: int) -> list[tuple[int, int]]:
    """The taps [c_s, c_e) of the trimmed split filter of each input pixel of an axis."""
    taps = [(0, 0)] * size
    for g in split_segments(O, size, F, s, p):
        for i in range(g.length):
            taps[g.start + i * s] = g.c_s, g.c_e
    return taps
