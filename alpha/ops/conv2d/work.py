"""What the kernel of a configuration does for a problem, before any constant of a GPU: see predict.py.

Each function counts the work of one family of kernels: cycles of the arithmetic units if nothing makes them wait, bytes
that come from the L2 cache, and blocks. The kernels' headers say what a block does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from alpha.ops.conv2d import (
    direct,
    few_outputs,
    ffma,
    products,
    sm80,
    sm90,
    sm90_schedule,
    sm90_tiles,
    sm90_weight,
    sm90_weight_schedule,
    sm90_weight_tiles,
)
from alpha.ops.conv2d.configuration import Configuration
from alpha.ops.conv2d.partial_sums import most_parts, tiles_of
from alpha.ops.conv2d.problem import FORWARD, MathMode, Target
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.conv2d.sm90_tiles import Tile
from alpha.ops.gemm import tiles as matmul_tiles

FFMA_PER_CYCLE = 128  # multiply-adds of an SM
MMA_PER_CYCLE = {MathMode.BF16: 1024, MathMode.TF32: 512, MathMode.TF32X3: 512 / 3, MathMode.FP16: 1024}
MMA_PER_CYCLE[MathMode.FP16X3] = MMA_PER_CYCLE[MathMode.FP16] / 3
TRANSPOSE_CYCLES = 800.0  # for TRANSPOSED floats of a filter that stays, by a warp: 8 loads of 4 per lane
TRANSPOSED = 32 * 8 * 4


class Work(NamedTuple):
    """The work of the busiest SM.

    Attributes:
        products: cycles of its arithmetic units.
        read: bytes that it reads from the L2 cache.
        blocks: blocks, or tiles of a persistent block, that follow one another on it.
        partial: bytes of partial sums that all SMs together write, and read again.
        converted: cycles of its warps that convert operands for the arithmetic units.
        active: the share of the SMs that have work.
        steps: the steps of K that follow one another in its longest block, if the kernel's steps wait for one another.
    """

    products: float
    read: float
    blocks: float
    partial: float = 0.0
    converted: float = 0.0
    active: float = 1.0
    steps: float = 0.0


def is_counted(v: Configuration) -> bool:
    """Whether the work of a configuration is known; a new algorithm runs without it, and has no predicted time."""
    return (v.base or v).make in _FAMILIES


@functools.lru_cache(maxsize=1 << 14)
def of(v: Configuration, s: ConvShape, target: Target) -> Work:
    """The work of a configuration on cuda for a shape that it supports."""
    if v.base is not None:
        return of(v.base, few_outputs.swapped(s), target)
    return _FAMILIES[v.make](v, s, target)


def _busiest(tiles: int, longest: float, num_sms: int) -> float:
    """The work of the busiest SM in tiles of mean length, if the longest tiles begin first.

    Args:
        longest: the longest tile over the mean. If all tiles are equal, the last wave is as long as the others.
    """
    uneven = 1 - 1 / longest
    equal = -(-tiles // num_sms)
    return max(longest, uneven * (tiles / num_sms + 0.5) + (1 - uneven) * equal)


def _active(blocks: int, target: Target) -> float:
    return min(1.0, blocks / target.num_sms)


# -- wgmma ------------------------------------------------------------------------------------------


def _sm90(v: Configuration, s: ConvShape, target: Target) -> Work:
    forward = v.operator == FORWARD
    tile = sm90_tiles.position_tile(v, s)
    output = sm90_tiles.conv_v2_tiles(s, tile) if forward else sm90_tiles.ks_deconv_tiles(s, tile)
    K, GN = (s.IC, s.OC) if forward else (s.OC, s.IC)
    rows, widths = output.taps
    places = len(output.rows) * len(output.widths)
    copies = tiles_of((s.N * output.tile_ow, tile.BM), (GN, tile.BN))
    tiles, steps = places * copies, -(-K // tile.BK)
    if not rows * widths:
        return Work(0, 0, -(-tiles // target.num_sms), active=_active(tiles, target))
    taps = rows * widths / places  # of a mean tile
    input_tiles = rows * output.row_input_tiles / places
    longest = max(1.0, int(output.rows.max()) * int(output.widths.max()) / taps)
    products = taps * tile.cycles * tile.instructions(K) / sm90_tiles.INSTRUCTIONS
    read_a, read_b = steps * input_tiles * output.a_bytes, steps * taps * tile.b_bytes
    keeps = sm90.keeps_filter(s, tile, output, forward, target.num_sms)
    transposes = keeps and not forward and tile.math is MathMode.TF32 and s.taps == 1
    transposed = TRANSPOSE_CYCLES * -(-K * tile.BN // (TRANSPOSED * tile.consumer_warps)) if transposes else 0.0
    few = tiles <= sm90_schedule.MAX_WAVES * target.num_sms and not keeps
    most = min(sm90_schedule.MAX_SPLITS, int(input_tiles * steps) // 2) if few else 1
    sums = tile.BM * tile.BN * 4
    found = []
    for splits in range(1, max(1, most) + 1):
        busy = _busiest(tiles * splits, longest, target.num_sms) / splits
        partial = 0 if splits == 1 else tiles * splits * sums
        read = read_a * busy + read_b * (1 if keeps else busy)
        in_turn = max(longest / splits, busy / (1 if keeps else tile.blocks))  # tiles of a block, one after the other
        active = _active(tiles * splits, target)
        work = Work(products * busy, read, busy * splits, partial, transposed, active, taps * steps * in_turn)
        begun = work.blocks * sm90_tiles.BLOCK_CYCLES + partial / sm90_weight_tiles.PARTIAL_BYTES_PER_CYCLE
        found.append((max(work.products, work.read / sm90_tiles.L2_BYTES_PER_CYCLE) + begun, work))
    return min(found)[1]


def _sm90_weight(v: Configuration, s: ConvShape, target: Target) -> Work:
    tile = Tile.of(v)
    block = sm90_weight_tiles.weight_tile(s, tile)
    tiles = tiles_of((s.IC, tile.BN), (s.OC, tile.BM))
    schedule = sm90_weight_schedule.weight_schedule(s, block, tiles, target.num_sms)
    steps = schedule.busiest_steps
    return Work(
        steps * block.taps * tile.cycles,
        steps * block.stage_bytes,
        schedule.busiest_blocks,
        schedule.partial_bytes,
        steps * block.converted_cycles,
        _active(tiles * len(schedule.blocks), target),
    )


# -- mma.sync ---------------------------------------------------------------------------------------


def _sm80(v: Configuration, s: ConvShape, target: Target) -> Work:
    BM, BN = v.tile["BM"], v.tile["BN"]
    BK = sm80.ROW_BYTES // v.dtype.itemsize
    if v.operator == FORWARD:
        (K, GN), pixels = (s.IC, s.OC), s.OH * s.OW
    else:
        (K, GN), pixels = (s.OC, s.IC), s.IH * s.IW
    steps = s.useful * s.FH * s.FW * s.OH * s.OW / pixels * -(-K // BK)
    tiles = pixels * tiles_of((s.N, BM), (GN, BN))
    busy = _busiest(tiles, 1.5 if s.useful < 1 or s.sh * s.sw > 1 else 1.0, target.num_sms)
    products, read = BM * BN * BK / MMA_PER_CYCLE[v.math], (BM + BN) * sm80.ROW_BYTES
    return Work(busy * steps * products, busy * steps * read, busy, active=_active(tiles, target))


def _sm80_weight(v: Configuration, s: ConvShape, target: Target) -> Work:
    BM, BN = v.tile["BM"], v.tile["BN"]
    BK = sm80.ROW_BYTES // v.dtype.itemsize
    blocks = tiles_of((s.IC, BN), (s.OC, BM)) * s.FH * s.FW
    steps = s.useful * s.OH * s.OW * -(-s.N // BK)
    return _in_splits(
        blocks,
        steps,
        (BM * BN * BK / MMA_PER_CYCLE[v.math], (BM + BN) * sm80.ROW_BYTES),
        sm80.splits_of_sk_dilated(v, s, target),
        s,
        target,
    )


def _in_splits(
    blocks: int, steps: float, of_a_step: tuple[float, float], GZ: int, s: ConvShape, target: Target
) -> Work:
    """Blocks of `steps` steps, cut into GZ splits of K; a step has (cycles, bytes)."""
    waves = -(-blocks * GZ // target.num_sms)
    each, (cycles, read) = waves * steps / GZ, of_a_step
    partial = 4 * GZ * s.OC * s.FH * s.FW * s.IC if GZ > 1 else 0
    return Work(each * cycles, each * read, waves, partial, active=_active(blocks * GZ, target))


def _product(v: Configuration, s: ConvShape, target: Target) -> Work:
    p = products.product_of(s)
    BM, BN, BK, _ = matmul_tiles.mma_tile(p, products.vector_of(s), target.num_sms)
    tiles = tiles_of((p.M, BM), (p.N, BN))
    splits, depth = matmul_tiles.splits_of(p.K, BK, tiles, target.num_sms)
    waves, steps = -(-tiles * splits // target.num_sms), -(-depth // BK)
    return Work(
        waves * steps * BM * BN * BK / MMA_PER_CYCLE[v.math],
        waves * steps * 4 * (BM + BN) * BK,
        waves,
        4 * splits * p.M * p.N if splits > 1 else 0,
        active=_active(tiles * splits, target),
    )


# -- FFMA -------------------------------------------------------------------------------------------


def _ffma(v: Configuration, s: ConvShape, target: Target) -> Work:
    BM, BN = v.tile["BM"], v.tile["BN"]
    if v.operator == FORWARD:
        tiles, K = tiles_of((s.N * s.OH * s.OW, BM), (s.OC, BN)), float(s.FH * s.FW * s.IC)
    else:
        pixels = s.N * -(-s.IH // s.sh) * -(-s.IW // s.sw)
        tiles, K = tiles_of((pixels, BM), (s.IC, BN)) * s.sh * s.sw, s.FH * s.FW * s.OC / (s.sh * s.sw)
    busy = _busiest(tiles, 1.0, target.num_sms)
    products, read = BM * BN / FFMA_PER_CYCLE, (BM + BN) * 4
    return Work(busy * K * products, busy * K * read, busy, active=_active(tiles, target))


def _ffma_weight(v: Configuration, s: ConvShape, target: Target) -> Work:
    BM, BN, BK = v.tile["BM"], v.tile["BN"], v.tile["BK"]
    blocks = tiles_of((s.FH * s.FW * s.IC, BN), (s.OC, BM))
    step = BM * BN * BK / FFMA_PER_CYCLE, (BM + BN) * BK * 4.0
    steps = -(-s.N * s.OH * s.OW // BK)
    return _in_splits(blocks, steps, step, ffma.splits_of_sk_dilated(v, s, target), s, target)


# -- direct -----------------------------------------------------------------------------------------


def _direct(v: Configuration, s: ConvShape, target: Target) -> Work:
    """Forward: all pixels by 64 output channels; K is padded to whole instructions on tensor cores."""
    K, rate, rows = float(s.FH * s.FW * s.IC), float(FFMA_PER_CYCLE), direct.ffma_rows(s)[0]
    if not v.is_ffma:
        K, rate, rows = 32.0 * direct.depth_blocks(s), MMA_PER_CYCLE[v.math], direct.forward_rows(s, v.math.terms)[0]
    groups = -(-s.OC // direct.CHANNELS)
    blocks, busy = _direct_blocks(s, rows, groups, target)
    read = 4 * groups * s.N * s.IH * s.IW * s.IC / busy
    products = s.N * s.OH * s.OW / busy * groups * direct.CHANNELS * K / rate
    return Work(products, read, 1, active=_active(blocks, target))


def _direct_blocks(s: ConvShape, rows: int, groups: int, target: Target) -> tuple[int, int]:
    """The pieces of work of a direct kernel, whole rows of the map, and how many SMs have one."""
    blocks = s.N * -(-s.OH // rows) * groups
    return blocks, min(blocks, target.num_sms)


def _direct_weight(v: Configuration, s: ConvShape, target: Target) -> Work:
    item, K, rate = v.dtype.itemsize, float(s.FH * s.FW * s.IC), float(FFMA_PER_CYCLE)
    rows = direct.ffma_rows(s)[0]
    if not v.is_ffma:
        warps, fragments = direct.weight_fragments(s)
        K, rate, rows = 8.0 * warps * fragments, MMA_PER_CYCLE[v.math], direct.weight_rows(s, item)[0]
    groups = -(-s.OC // direct.CHANNELS)
    blocks, busy = _direct_blocks(s, rows, groups, target)
    read = s.N * (item * s.OH * s.OW * s.OC + 4 * groups * s.IH * s.IW * s.IC) / busy
    parts = min(2 * target.num_sms, blocks, most_parts(s))
    products = s.N * s.OH * s.OW / busy * groups * direct.CHANNELS * K / rate
    return Work(products, read, 1, 4 * parts * s.OC * s.FH * s.FW * s.IC, active=_active(blocks, target))


_FAMILIES: dict[Callable[..., object], Callable[[Configuration, ConvShape, Target], Work]] = {
    sm90.conv_v2: _sm90,
    sm90.ks_deconv: _sm90,
    sm90_weight.sk_dilated: _sm90_weight,
    sm80.conv_v2: _sm80,
    sm80.ks_deconv: _sm80,
    sm80.sk_dilated: _sm80_weight,
    products.product: _product,
    ffma.implicit_gemm_ffma: _ffma,
    ffma.ks_deconv_ffma: _ffma,
    ffma.sk_dilated_ffma: _ffma_weight,
    direct.direct_forward_sm80: _direct,
    direct.direct_forward_ffma: _direct,
    direct.direct_weight_sm80: _direct_weight,
    direct.direct_weight_ffma: _direct_weight,
}
