"""The tiles of the Hopper kernels: output pixels and input pixels of a tile, and stages.

An output tile is `tile_ow` neighbouring pixels of a map row x some images. More pixels share more of the input,
because one input-row tile serves all taps of a filter row; fewer pixels trim more exactly. The cycles of the tensor
cores and the bytes that are read from the L2 cache decide which is cheaper.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from alpha.ops.conv2d.problem import MathMode
from alpha.ops.conv2d.shape import Axis, ConvShape

if TYPE_CHECKING:
    from alpha.ops.conv2d.problem import Configuration

SHARED_BYTES = 232448 - 1024 - 256  # of a block, without the alignment of its tiles and its barriers
L2_BYTES_PER_CYCLE = 32  # of one SM, while all of them read
SHARED_BYTES_PER_CYCLE = 128  # that the tensor cores read
STEP_BYTES = 128  # of K, in a row of a tile
INSTRUCTIONS = 4  # of wgmma per step and term
MAX_STAGES = 8
LARGE_TILE = 128 * 96  # results
TASK_BYTES = 512  # of shared memory, for the tasks of a block that has an SM for itself
MOST_KEPT_STEPS = 4  # of K, for a filter that stays in shared memory
FEWEST_STAGES_BESIDE = 4  # of input-row tiles beside it
BLOCK_CYCLES = 4000  # for the beginning and the end of a block

Lengths: TypeAlias = npt.NDArray[np.int64]


def wgmma_per_cycle(math: MathMode) -> int:
    """Multiply-adds of terms of an SM per cycle."""
    return 1024 if math in (MathMode.TF32, MathMode.TF32X3) else 2048


class Tile(NamedTuple):
    """A block's tile and how operands reach the tensor cores (cuda/conv2d/sm90/mainloop.cuh, sk_dilated/sm90.cu)."""

    BM: int
    BN: int
    math: MathMode
    prepared: int = 0  # operands that come as fp16 terms, which another kernel has prepared: the first, or both
    blocks: int = 1  # per SM
    ping_pong: bool = False  # each of two warpgroups computes tiles of its own (cuda/conv2d/sm90/ping_pong.cuh)

    @classmethod
    def of(cls, v: Configuration) -> Tile:
        return cls(v.tile["BM"], v.tile["BN"], v.math, v.tile.get("PREPARED", 0), v.tile["BLOCKS"])

    @property
    def converts(self) -> bool:
        """Sk-dilated: True if the kernel itself converts X to terms of 16 bits."""
        return self.math.in_terms and not self.prepared

    @property
    def BK(self) -> int:
        """Elements of K per step."""
        return 32 if self.math is MathMode.TF32 else 64

    @property
    def a_boxes(self) -> int:
        """Boxes of TMA, with rows of 128 bytes, that hold BK elements of the activations."""
        return 2 if self.math.in_fp16 and not self.prepared else 1

    @property
    def a_channels(self) -> int:
        """Channels in 128 bytes of what Sk-dilated reads: of dY, and of X unless that comes as fp16 terms alone."""
        return 64 if self.math is MathMode.BF16 or self.prepared == 2 else 32

    @property
    def a_item(self) -> int:
        """Bytes of an element of that."""
        return 128 // self.a_channels

    @property
    def consumer_warps(self) -> int:
        """The warps of ConvV2's and KS-deconv's blocks that multiply."""
        return {64: 4, 192: 12}.get(self.BM, 8)

    @property
    def threads(self) -> int:
        """Threads of a block of ConvV2 or KS-deconv: its consumers, and the warps of producer and planner."""
        others = (4 if self.consumer_warps > 4 else 2) if self.blocks == 1 else 1
        return 32 * (self.consumer_warps + others)

    @property
    def b_bytes(self) -> int:
        return self.math.terms * self.BN * 128

    @property
    def cycles(self) -> float:
        """Cycles of the tensor cores for one step: of the products, or of reading A, and B for each 64 rows of A."""
        products = 3 if self.math.terms == 2 else 1
        computed = self.BM * self.BN * self.BK * products / wgmma_per_cycle(self.math)
        return max(computed, self.BM * (1 + self.BN / 64) * STEP_BYTES / SHARED_BYTES_PER_CYCLE)

    def instructions(self, K: int) -> int:
        """The instructions per term that K elements need: 4 for each whole BK."""
        return -(-K * INSTRUCTIONS // self.BK)

    def last_instructions(self, K: int) -> int:
        """The instructions that the last BK of K needs."""
        return (self.instructions(K) - 1) % INSTRUCTIONS + 1


def shared_bytes(blocks: int) -> int:
    """Bytes of shared memory for the stages of a block, with `blocks` of them per SM."""
    return SHARED_BYTES - TASK_BYTES if blocks == 1 else (SHARED_BYTES + 1024) // blocks - 2048


def position_tile(v: Configuration, s: ConvShape) -> Tile:
    """The tile of a configuration of ConvV2 or KS-deconv.

    Large tiles of dX with a stride share an SM: they have few taps each, and finish some images before the next,
    so that dY stays in the L2 cache. Without a stride a large tile has an SM for itself.
    """
    tile = Tile.of(v)
    if s.sd * s.sh * s.sw == 1 and tile.BM * tile.BN >= LARGE_TILE:
        return tile._replace(blocks=1)
    return tile


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
        tap_step: pixels from one tap to the next of the same input-row tile.
    """

    tile: Tile
    tile_ow: int
    tile_iw: int
    rows: Lengths
    starts: Lengths
    widths: Lengths
    columns: int  # of the map
    counts: tuple[int, ...]
    step: int = 1
    tap_step: int = 1

    @property
    def images(self) -> int:
        return self.tile.BM // self.tile_ow

    @property
    def a_bytes(self) -> int:
        return self.tile.a_boxes * self.tile_iw * self.images * 128

    def box(self, residue: int) -> tuple[int, int, int, int]:
        """The box that TMA loads for the input-row tile of a residue: channels, images, pixels, rows."""
        halo = self.tap_step * (self.counts[residue] - 1) if self.tile_iw > self.tile_ow else 0
        return self.tile.BK // self.tile.a_boxes, self.images, max(1, self.tile_ow + halo), 1

    @functools.cached_property
    def taps(self) -> tuple[int, int]:
        """Added up over the map: of all rows the filter rows, and of all tiles of a row the taps of a filter row."""
        return int(self.rows.sum()), int(self.widths.sum())

    @functools.cached_property
    def row_input_tiles(self) -> int:
        """The number of input-row tiles for a filter row, added up over the tiles of a row."""
        return int(self.input_tiles(self.widths).sum())

    def input_tiles(self, width: Any) -> Any:
        """The number of input-row tiles for a filter row, of which `width` taps are needed: a number, or an array."""
        return np.minimum(width, self.step) if self.tile_iw > self.tile_ow else width

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
        room = shared_bytes(blocks) - reserved
        if self.tile_iw == self.tile_ow:
            both = min(MAX_STAGES, room // (self.a_bytes + self.tile.b_bytes))
            return (both, both) if both >= 2 else (0, 0)
        for a, enough in ((3, 4), (2, 2)):
            b = min(MAX_STAGES, (room - a * self.a_bytes) // self.tile.b_bytes)
            if b >= enough:
                return a, b
        return 0, 0

    def stages_beside_filter(self, K: int, reserved: int = 0) -> tuple[int, int]:
        """Stages of input-row tiles, and of the filter of one tap if all K of it stays; (0, 0) if too few fit."""
        b = -(-K // self.tile.BK)
        a = min(MAX_STAGES, (shared_bytes(1) - reserved - b * self.tile.b_bytes) // self.a_bytes)
        return (a, b) if a >= FEWEST_STAGES_BESIDE and b <= MOST_KEPT_STEPS else (0, 0)

    def cost(self, images: int) -> float:
        """Cycles of one filter row of a map, for BK of K, added up over all blocks."""
        cycles = self.cycles(self.taps[1], self.row_input_tiles, self.tile.BK)
        return cycles * -(-images * self.tile_ow // self.tile.BM)


def _cheapest(images: int, candidates: list[OutputTiles]) -> OutputTiles:
    fitting = [g for g in candidates if g.stages(g.tile.blocks)[0]]
    return min(fitting, key=lambda g: g.cost(images))


def _tile_sizes(tile: Tile, halo: int, N: int) -> Iterator[tuple[int, int]]:
    """The candidates for (tile_ow, tile_iw), without a halo and with one of so many pixels.

    With a halo the images of a tile are a multiple of 8, as a tap then begins at a whole group of 8 rows. For fewer
    images there are tiles of 4, 2 and 1 without a halo. A box of TMA has at most 256 pixels.
    """
    for tile_ow in [n for n in range(1, 33) if tile.BM % (8 * n) == 0]:
        yield from dict.fromkeys(((tile_ow, tile_ow), (tile_ow, tile_ow + halo)))
    if N < 8:
        yield from [(tile.BM // images, tile.BM // images) for images in (4, 2, 1)]


@functools.lru_cache(maxsize=1024)
def conv_v2_tiles(s: ConvShape, tile: Tile) -> OutputTiles:
    """The tiles of Y: tile_ow neighbours of a row, with the union of their trimmed filters."""
    rows = _filter_rows(s.depth, s.height, False)
    counts = tuple(-(-(s.FW - r) // s.sw) for r in range(min(s.sw, s.FW)))
    candidates = []
    for tile_ow, tile_iw in _tile_sizes(tile, s.dw * (counts[0] - 1), s.N):
        starts, widths = _tiles_of_a_row(s.width, False, tile_ow)
        candidates.append(OutputTiles(tile, tile_ow, tile_iw, rows, starts, widths, s.OW, counts, s.sw, s.dw))
    return _cheapest(s.N, candidates)


@functools.lru_cache(maxsize=1024)
def ks_deconv_tiles(s: ConvShape, tile: Tile) -> OutputTiles:
    """The tiles of dX: tile_ow pixels of one residue, sw apart, with the union of their trimmed split filters."""
    rows = _filter_rows(s.depth, s.height, True)
    counts = tuple(max(0, -(-(s.FW - r) // s.sw)) for r in range(s.sw))
    candidates = []
    for tile_ow, tile_iw in _tile_sizes(tile, s.dw * (counts[0] - 1), s.N):
        starts, widths = _tiles_of_a_row(s.width, True, tile_ow)
        candidates.append(OutputTiles(tile, tile_ow, tile_iw, rows, starts, widths, s.IW, counts, 1, s.dw))
    return _cheapest(s.N, candidates)


class Taps(NamedTuple):
    """[first, end) of the taps that each pixel of an axis needs."""

    first: Lengths
    end: Lengths


@functools.lru_cache(maxsize=1024)  # here and below: the tiles of all configurations share them
def _taps(axis: Axis, split: bool) -> Taps:
    """Taps of the trimmed filter of each output pixel; if `split`, of the trimmed split filter of each input pixel.

    These are the formulas of `trimmed_taps` and `split_segments` for all pixels at once: an axis may have millions.
    """
    I, F, s, p, d, O = axis
    if split:
        pixel, residue = np.divmod(np.arange(I) + p, s)
        F = np.maximum(0, -((residue - F) // s))
        start, I = pixel - (F - 1) * d, O
    else:
        start = np.arange(O) * s - p
    first = np.maximum(-(start // d), 0)
    return Taps(first, np.maximum(first, np.minimum(-((start - I) // d), F)))


@functools.lru_cache(maxsize=1024)
def _filter_rows(depth: Axis, height: Axis, split: bool) -> Lengths:
    """The number of filter rows that each map row needs, from the taps of its plane and of its height."""
    planes, rows = (taps.end - taps.first for taps in (_taps(depth, split), _taps(height, split)))
    result: Lengths = np.multiply.outer(planes, rows).ravel()
    return result


@functools.lru_cache(maxsize=1024)
def _tiles_of_a_row(axis: Axis, split: bool, tile_ow: int) -> tuple[Lengths, Lengths]:
    """The first column of each tile of tile_ow pixels of one residue, and how many taps the tile needs."""
    taps, residues = _taps(axis, split), axis.s if split else 1
    length, tile = len(taps.first), tile_ow * residues
    starts = np.concatenate([np.arange(r, length, tile) for r in range(min(residues, length))])
    last = np.minimum(starts + tile - residues, length - 1 - (length - 1 - starts) % residues)
    return starts, np.maximum(0, taps.end[starts] - taps.first[last])
