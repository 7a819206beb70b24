"""How the Hopper kernels cut a convolution into tiles: positions a tile, pixels a band, stages in shared memory.

A tile is PW neighbouring positions of a map row x some images. More positions share more pixels (a *band* serves
all taps of a filter row), fewer trim more exactly. Which is cheaper is reckoned from the cycles of the tensor cores and
the bytes that a tile draws from the L2 cache.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from alpha.ops.conv2d.shape import ConvShape, split_segments, trimmed_taps, valid_outputs

if TYPE_CHECKING:
    from alpha.ops.conv2d.variant import Variant

SHARED_BYTES = 232448 - 1024 - 256  # of a block: without the alignment of the tiles, and barriers
L2_BYTES_PER_CYCLE = 32  # of one SM, when all draw from it
MAX_STAGES = 8
BLOCK_CYCLES = 4000  # of a block's beginning and end
MAX_SEGMENTS = 4  # of the products of a tile
JOIN_CYCLES = 2000  # of the way to memory and back when segments meet
WRITTEN_BYTES_PER_CYCLE = 12  # of one SM, when all write
MAX_WAVES = 6  # tiles per SM, above which none are cut
PARTIAL_BYTES_PER_CYCLE = 2000  # that the whole GPU writes or reads
MAX_PARTIAL_BYTES = 64 << 20
MAKER_CYCLES = {1: 6.0, 2: 9.0}  # of a row of 64 channels in so many planes, over the maker warps


class Tile(NamedTuple):
    """A block's tile and how operands reach the tensor cores (cuda/conv2d/band_gemm.cuh, sk_dilated_wgmma.cu)."""

    BM: int
    BN: int
    operands: str  # HALVES, TF32 or BF16; Sk-dilated: FLOATS, HALVES or BF16
    planes: int = 1
    blocks: int = 1  # per SM

    @classmethod
    def of(cls, v: Variant) -> Tile:
        return cls(v.tile["BM"], v.tile["BN"], v.tile["OPERANDS"], v.tile["PLANES"], v.tile["BLOCKS"])

    @property
    def BK(self) -> int:
        """Elements of K a step."""
        return 32 if self.operands == "TF32" else 64

    @property
    def a_boxes(self) -> int:
        """Boxes of 128 bytes a row of the activations' tile, for BK elements."""
        return 2 if self.operands == "HALVES" else 1

    @property
    def a_channels(self) -> int:
        """Channels in 128 bytes of an activation."""
        return 64 if self.operands == "BF16" else 32

    @property
    def b_bytes(self) -> int:
        return self.planes * self.BN * 128

    @property
    def cycles(self) -> float:
        """Of the tensor cores for one step."""
        products = 3 if self.planes == 2 else 1
        return self.BM * self.BN * self.BK * products / (1024 if self.operands == "TF32" else 2048)


def _shared_bytes(blocks: int) -> int:
    """That each of so many blocks per SM may have for its stages."""
    return SHARED_BYTES if blocks == 1 else (SHARED_BYTES + 1024) // blocks - 2048


# -- ConvV2 and KS-deconv ---------------------------------------------------------------------------


@dataclass(eq=False, frozen=True)
class Groups:
    """The groups of PW positions of a map that make tiles.

    Attributes:
        rows: taps of each map row.
        starts, widths: first column of each group of a row, and taps of the filter rows it needs.
        band: pixels of a band: PW, or more where taps share it.
        counts: taps of a filter row that share a band, by residue.
        step: bands of a filter row, where taps share them.
    """

    tile: Tile
    PW: int
    band: int
    rows: tuple[int, ...]
    starts: tuple[int, ...]
    widths: tuple[int, ...]
    columns: int  # of the map
    counts: tuple[int, ...]
    step: int = 1

    @property
    def images(self) -> int:
        return self.tile.BM // self.PW

    @property
    def a_bytes(self) -> int:
        return self.tile.a_boxes * self.band * self.images * 128

    def box(self, residue: int) -> tuple[int, int, int, int]:
        """What TMA loads for the band of a residue: channels, images, pixels, rows."""
        pixels = self.PW + self.counts[residue] - 1 if self.band > self.PW else self.PW
        return self.tile.a_channels, self.images, max(1, pixels), 1

    def bands(self, width: int) -> int:
        """Of a filter row of which `width` taps are needed."""
        return min(width, self.step) if self.band > self.PW else width

    def cycles(self, taps: int, bands: int) -> float:
        """Of one BK of K of a tile: the slower of tensor cores and L2 cache, and some of the other."""
        products = taps * self.tile.cycles
        drawn = (bands * self.a_bytes + taps * self.tile.b_bytes) / L2_BYTES_PER_CYCLE
        return max(products, drawn) + min(products, drawn) / 4

    def stages(self, blocks: int, reserved: int = 0) -> tuple[int, int]:
        """Stages of bands and of filter tiles that fit the shared memory of a block; (0, 0) where too few do.

        A band is given back when the products with the next have begun, so there are two at the least. A tap
        that shares no band needs a band of its own. `reserved`: bytes for other things.
        """
        room = _shared_bytes(blocks) - reserved
        if self.band == self.PW:
            both = min(MAX_STAGES, room // (self.a_bytes + self.tile.b_bytes))
            return (both, both) if both >= 2 else (0, 0)
        for a, enough in ((3, 4), (2, 2)):
            b = min(MAX_STAGES, (room - a * self.a_bytes) // self.tile.b_bytes)
            if b >= enough:
                return a, b
        return 0, 0

    def cost(self, images: int) -> float:
        """Cycles of one filter row of a map over all blocks, for one BK of K."""
        cycles = self.cycles(sum(self.widths), sum(map(self.bands, self.widths)))
        return cycles * -(-images * self.PW // self.tile.BM)


def _cheapest(images: int, candidates: list[Groups]) -> Groups:
    fitting = [g for g in candidates if g.stages(g.tile.blocks)[0]]
    return min(fitting, key=lambda g: g.cost(images))


class Work(NamedTuple):
    """What a block takes up for some images and output channels (cuda/conv2d/band_tile.cuh)."""

    position: int  # the first of the group
    segment: int
    segments: int
    slot: int  # of the group's first segment, among those of all groups that are cut


def works(groups: Groups, K: int, tiles: int, num_sms: int) -> tuple[Work, ...]:
    """The groups and their segments, those with the most products first, so that the last blocks are short.

    Args:
        tiles: of images and output channels a group.
    """
    across = -(-K // groups.tile.BK)
    found = []  # cycles, steps, first position of each group
    for y, rows in enumerate(groups.rows):
        for x, width in zip(groups.starts, groups.widths, strict=True):
            bands = rows * groups.bands(width)
            cycles = groups.cycles(rows * width, bands) * across
            found.append((cycles, bands * across, y * groups.columns + x))
    found.sort(key=lambda group: -group[0])
    result, slot = [], 0
    counts = _segments([g[:2] for g in found], groups.tile, tiles, num_sms)
    for (cycles, _, position), segments in zip(found, counts, strict=True):
        for i in range(segments):
            result.append((cycles / segments, Work(position, i, segments, slot)))
        slot += segments if segments > 1 else 0
    result.sort(key=lambda work: -work[0])
    return tuple(work for _, work in result)


def _segments(groups: list[tuple[float, int]], tile: Tile, tiles: int, num_sms: int) -> list[int]:
    """Into how many segments the products of each group (cycles, steps) are cut, so that all SMs have work.

    Tiles that fill the GPU several times over are not cut.
    """
    whole = [1] * len(groups)
    longest = max(cycles for cycles, _ in groups)
    if longest == 0 or tiles * len(groups) > MAX_WAVES * num_sms:  # 0: every tap meets padding
        return whole
    sums = tile.BM * tile.BN * 4
    leave = JOIN_CYCLES + sums / WRITTEN_BYTES_PER_CYCLE

    def end(counts: list[int]) -> float:
        """When the last SM is done, each taking the longest work that is left."""
        pieces = []
        for (cycles, _), n in zip(groups, counts, strict=True):
            add = JOIN_CYCLES + (n - 1) * sums / L2_BYTES_PER_CYCLE if n > 1 else 0
            each = cycles / n + BLOCK_CYCLES
            pieces += [each + leave] * ((n - 1) * tiles) + [each + add] * tiles
        pieces.sort(reverse=True)
        ends = [0.0] * num_sms
        for cycles in pieces:
            heapq.heapreplace(ends, ends[0] + cycles)
        return max(ends)

    def cut(into: Iterable[int]) -> list[int]:
        return [max(1, min(n, g[1] // 2, MAX_SEGMENTS)) for n, g in zip(into, groups, strict=True)]

    candidates = [whole]
    for eighths in range(1, 8 * MAX_SEGMENTS):  # none longer than a limit
        limit = longest * 8 / (8 + eighths) * (1 + 1e-9)
        counts = cut(math.ceil(cycles / limit) for cycles, _ in groups)
        if counts != candidates[-1]:
            candidates.append(counts)
    uncut = len(groups) * tiles // num_sms * num_sms // tiles
    for n in range(2, MAX_SEGMENTS + 1):  # those that do not fill all SMs
        candidates.append(cut([1] * uncut + [n] * (len(groups) - uncut)))
    return min(candidates, key=end)


def _positions(tile: Tile) -> list[int]:
    """PW: images a tile are a multiple of 8 and at most a box."""
    return [1 << i for i in range(6) if tile.BM >> i >= 8]


@functools.lru_cache(maxsize=1024)
def conv_v2_groups(s: ConvShape, tile: Tile) -> Groups:
    """Positions (oh, ow) of Y: PW neighbours of a row and the union of their trimmed filters."""
    rows = tuple(b - a for a, b in (trimmed_taps(o, s.IH, s.FH, s.sh, s.ph) for o in range(s.OH)))
    columns = [trimmed_taps(o, s.IW, s.FW, s.sw, s.pw) for o in range(s.OW)]
    counts = tuple(-(-(s.FW - r) // s.sw) for r in range(min(s.sw, s.FW)))
    candidates = []
    for PW in _positions(tile):
        starts = tuple(range(0, s.OW, PW))
        widths = tuple(max(0, columns[o][1] - columns[min(o + PW, s.OW) - 1][0]) for o in starts)
        for band in {PW, PW + counts[0] - 1}:
            candidates.append(Groups(tile, PW, band, rows, starts, widths, s.OW, counts, s.sw))
    return _cheapest(s.N, candidates)


@functools.lru_cache(maxsize=1024)
def ks_deconv_groups(s: ConvShape, tile: Tile) -> Groups:
    """Positions (ih, iw) of dX: PW of one residue, sw apart, and the union of their trimmed split kernels."""
    rows = tuple(b - a for a, b in _split_taps(s.OH, s.IH, s.FH, s.sh, s.ph))
    columns = _split_taps(s.OW, s.IW, s.FW, s.sw, s.pw)
    counts = tuple(max(0, -(-(s.FW - r) // s.sw)) for r in range(s.sw))
    candidates = []
    for PW in _positions(tile):
        starts = tuple(first for residue in range(min(s.sw, s.IW)) for first in range(residue, s.IW, PW * s.sw))
        members = [columns[i : i + PW * s.sw : s.sw] for i in starts]
        widths = tuple(max(0, m[0][1] - m[-1][0]) for m in members)
        for band in {PW, PW + counts[0] - 1}:
            candidates.append(Groups(tile, PW, band, rows, starts, widths, s.IW, counts))
    return _cheapest(s.N, candidates)


def _split_taps(O: int, size: int, F: int, s: int, p: int) -> list[tuple[int, int]]:
    """Taps [c_s, c_e) of each input position's trimmed split kernel."""
    taps = [(0, 0)] * size
    for g in split_segments(O, size, F, s, p):
        for i in range(g.length):
            taps[g.start + i * s] = g.c_s, g.c_e
    return taps


# -- Sk-dilated -------------------------------------------------------------------------------------

ACCUMULATORS = 192  # registers of a thread for sums


@dataclass(eq=False, frozen=True)
class TapPlan:
    """The steps of Sk-dilated: PW positions x images = 64 of K, the taps of a block, its bands."""

    tile: Tile
    PW: int
    taps: int
    band: int
    bands: int
    steps: int  # of the whole K of a tap

    @property
    def images(self) -> int:
        return 64 // self.PW

    @property
    def stage_bytes(self) -> int:
        planes = 2 if self.tile.operands == "FLOATS" else self.tile.planes
        X = self.bands * self.band * self.images * self.tile.BN // 64 * planes
        return (64 * self.tile.BM // self.tile.a_channels + X) * 128

    def stages(self) -> int:
        return min(MAX_STAGES, SHARED_BYTES // self.stage_bytes)

    @property
    def cycles(self) -> float:
        """Of a step: the slowest of tensor cores, L2 cache and makers, or its way through the stages."""
        products, drawn = self.taps * self.tile.cycles, self.stage_bytes / L2_BYTES_PER_CYCLE
        made = 0.0
        if self.tile.operands == "FLOATS":
            rows = self.tile.BN // 64 * self.bands * self.band * self.images
            made = rows * MAKER_CYCLES[self.tile.planes]
        return max(products, drawn, made, (products + drawn + made) / self.stages())


@functools.lru_cache(maxsize=4096)
def segments(plan: TapPlan, blocks: int, partial_bytes: int, num_sms: int) -> int:
    """GZ, into how many segments GK is split (paper, section IV.C): full waves of blocks, few partial sums."""
    step = plan.cycles

    def cycles(GZ: int) -> float:
        waves = -(-blocks * GZ // num_sms)
        partial = 2 * GZ * partial_bytes / PARTIAL_BYTES_PER_CYCLE if GZ > 1 else 0
        return waves * (-(-plan.steps // GZ) * step + BLOCK_CYCLES) + partial

    most = min(plan.steps // 8, 4 * num_sms // blocks, MAX_PARTIAL_BYTES // partial_bytes)
    return min(range(1, max(1, most) + 1), key=cycles)


@functools.lru_cache(maxsize=1024)
def sk_dilated_plan(s: ConvShape, tile: Tile) -> TapPlan:
    """Taps of one filter row share dY, and those of one residue X; as many as the registers hold."""
    # a block of two planes is summed apart before it is added; the two sums of 64 rows take a few registers to join
    spare = (tile.planes == 2) + (tile.planes == 2 and tile.BM == 64)
    most = max(1, ACCUMULATORS // (tile.BN // 2) - spare)
    plans = []
    for taps in {1, -(-s.FW // -(-s.FW // most))}:
        for PW in (1, 2, 4, 8):
            bands = min(s.sw, taps)
            plan = TapPlan(tile, PW, taps, PW + -(-taps // s.sw) - 1, bands, _steps(s, taps, PW))
            if plan.stages() >= 2:
                plans.append(plan)
    return min(plans, key=lambda p: _cost(s, p))


def _steps(s: ConvShape, taps: int, PW: int) -> int:
    begin = valid_outputs(min(taps, s.FW) - 1, s.OW, s.IW, s.sw, s.pw)[0]
    end = valid_outputs(0, s.OW, s.IW, s.sw, s.pw)[1]
    return s.OH * -(-max(0, end - begin) // PW) * -(-s.N * PW // 64)


def _cost(s: ConvShape, p: TapPlan) -> float:
    """Cycles of a filter row over its blocks."""
    total = 0.0
    for first in range(0, s.FW, p.taps):
        last = min(first + p.taps, s.FW) - 1
        begin = valid_outputs(last, s.OW, s.IW, s.sw, s.pw)[0]
        end = valid_outputs(first, s.OW, s.IW, s.sw, s.pw)[1]
        total += -(-max(0, end - begin) // p.PW) * -(-s.N * p.PW // 64) * p.cycles
    return total
