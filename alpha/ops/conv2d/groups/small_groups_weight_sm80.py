"""The plan of the filter gradient for groups of few channels (ResNeXt) on mma.sync, for sm_80 and newer, in bfloat16.

A block adds up strips of dY and of the rows of X that they meet (cuda/conv2d/small_groups/weight_sm80.cu); the sums of
all taps stay in the registers of its warps. Each split of the strips has a partial sum.
"""

from __future__ import annotations

import functools
from math import prod
from typing import TYPE_CHECKING

from alpha.ops.conv2d.groups.depthwise import ceil_div
from alpha.ops.conv2d.groups.small_groups_sm80 import (
    MAX_GROUPS,
    MAX_OFFSET,
    MAX_SHARED,
    MIN_STAGES,
    PIXELS,
    TILE,
    VECTOR_BYTES,
    Tile,
    filter_vectors,
    has_vectors,
    macros,
    segment_rows,
    sides,
    source_bytes,
    window_vectors,
)
from alpha.ops.conv2d.partial_sums import MAX_PARTIAL_BYTES, with_partial_sums
from alpha.ops.conv2d.problem import FORWARD, WEIGHT, ConvProblem, Target
from alpha.ops.conv2d.shape import ConvShape, as_struct
from alpha.ops.kernel.plan import ArrayArg, KernelLaunch, Plan

if TYPE_CHECKING:
    from alpha.ops.conv2d.problem import Configuration

ITEM, CHUNK = 2, 8  # bytes of an element, elements of a vector
PAIRED_SUMS, MAX_SUMS = 72, 112  # registers for sums, at most: of a warp with two tiles of channels, and with one
FEW_WORDS = 84  # registers for sums and dY if a thread may have 128 in all
WARPS = 8  # of a block
BLOCK_CHANNELS = 64  # of a block, or half of them for wide groups, whose filters are large beside X and dY
STAGE_BYTES, MAX_STAGES = 56 << 10, 6  # of all stages, if so many fit
REGISTERS = 255


def _words(s: ConvShape, K: int) -> int:
    """Registers for the sums of eight output channels: the fragments of all filter rows."""
    return 4 * s.FH * (ceil_div(s.FW, 2) if K == 1 else s.FW * K // 2)


@functools.lru_cache(maxsize=1024)
def tile_of(s: ConvShape) -> Tile:
    m = sides(FORWARD, s)
    K, fragments = filter_vectors(m, CHUNK), ceil_div(s.OC, TILE)
    NT = 2 if fragments > 1 and 2 * _words(s, K) <= PAIRED_SUMS else 1
    channels = BLOCK_CHANNELS if K == 1 else BLOCK_CHANNELS // 2
    WN = min(channels // (TILE * NT), ceil_div(fragments, NT))
    WM = WARPS // WN
    groups = ceil_div(s.OW, PIXELS)
    GROUPS = ceil_div(groups, ceil_div(groups, MAX_GROUPS))
    MT = ceil_div(GROUPS, 2 * WM)
    BLOCKS = 2 if K <= 2 and NT * (_words(s, K) + 2 * m.live * MT) <= FEW_WORDS else 1
    if BLOCKS == 1 and GROUPS <= WM * MT:  # more images per block, so that there are fewer partial sums
        MT *= 2
    pieces = ceil_div(groups, GROUPS)
    STRIPS = min(2 * WM * MT // GROUPS, s.N * pieces)
    WM = ceil_div(STRIPS * GROUPS, 2 * MT)
    tile = Tile(K, NT, MT, WN, WM, GROUPS, STRIPS, pieces, window_vectors(m, CHUNK, TILE * NT * WN, K), 1, BLOCKS)
    stages = STAGE_BYTES // _step_bytes(s, tile)
    return tile._replace(STAGES=max(MIN_STAGES, min(MAX_STAGES, stages)))


def _step_bytes(s: ConvShape, tile: Tile) -> int:
    """Shared memory of a step: its rows of X, and a row of dY."""
    row = tile.STRIPS * PIXELS * tile.GROUPS * (tile.NT * tile.WN | 1) * VECTOR_BYTES
    return source_bytes(s, sides(FORWARD, s), tile) + row


def shared_bytes(s: ConvShape, tile: Tile) -> int:
    """Bytes of shared memory for the stages; at the end the sums of the warps take their place."""
    sums = 0 if tile.WM == 1 else tile.WN * tile.NT * _words(s, tile.K_VECTORS) * 32 * 4
    return max(tile.STAGES * _step_bytes(s, tile), sums)


def supports(s: ConvShape) -> bool:
    """True for groups of 4 to 32 channels without dilation, if the sums of all taps fit the registers of a warp."""
    if not has_vectors(s, ITEM) or _words(s, filter_vectors(sides(FORWARD, s), CHUNK)) > MAX_SUMS:
        return False
    tile = tile_of(s)
    images = (tile.STRIPS + 1) * max(s.IH * s.IW * s.IC, s.OH * s.OW * s.OC) * ITEM
    return shared_bytes(s, tile) <= MAX_SHARED and images < MAX_OFFSET


def _most_splits(s: ConvShape, tile: Tile, chunks: int, target: Target) -> int:
    """Number of splits for which all blocks are resident.

    If there are several blocks per SM, the partial sums have at most half the bytes of X and dY.
    """
    size = 4 * prod(s.W)
    fitting = (prod(s.X) + prod(s.Y)) * ITEM // 2 // size
    splits = min(tile.BLOCKS * target.num_sms // chunks, max(fitting, target.num_sms // chunks))
    return max(1, min(splits, MAX_PARTIAL_BYTES // size))


def small_groups_weight(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Each warp has the sums of all taps of 8 or 16 output channels   X, dY -> dW"""
    assert p.operator == WEIGHT
    s, tile = p.shape, tile_of(p.shape)
    chunks, bundles = ceil_div(s.OC, tile.channels), ceil_div(s.N * tile.PIECES, tile.STRIPS)
    most = _most_splits(s, tile, chunks, target)
    rows = segment_rows(sides(FORWARD, s), s, bundles, most)
    tasks = bundles * ceil_div(s.OH, rows)
    splits = ceil_div(tasks, ceil_div(tasks, most))
    launch = KernelLaunch(
        "conv2d/small_groups/weight_sm80.cu",
        "small_groups_weight_sm80",
        (chunks, splits),
        tile.threads,
        (ArrayArg("part"), ArrayArg("X"), ArrayArg("dY"), as_struct(s), rows, tasks),
        {**macros(p, v), **tile._asdict()},
        shared_bytes(s, tile),
    )
    return with_partial_sums(p, v, target, (launch,), splits)
