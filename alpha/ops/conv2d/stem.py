"""Plans of a network's first layer: few input channels, so that a band of the image fits shared memory.

On tensor cores (mma.sync) from sm_80 on, for every precision; on FFMA for older GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpha.ops.conv2d.cuda import as_struct, with_partial_sums
from alpha.ops.conv2d.problem import ConvProblem, Target
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.plan import KernelLaunch, Named, Plan

if TYPE_CHECKING:
    from alpha.ops.conv2d.variant import Variant

CHANNELS = 64  # output channels of a block
FFMA_SHARED = 54 << 10  # bytes; with the static part below what every GPU has
WARPS = 4  # of a block of direct_stem_mma
TENSOR_SHARED = 96 << 10  # below what every GPU from sm_80 on has


def _ceil(length: int, step: int) -> int:
    return -(-length // step)


def band_numbers(s: ConvShape, rows: int, columns: int) -> int:
    """Numbers of the padded band of X that `rows` output rows of `columns` read."""
    return ((rows - 1) * s.sh + s.FH) * ((columns - 1) * s.sw + s.FW) * s.IC


# -- FFMA -------------------------------------------------------------------------------------------


def ffma_filters(s: ConvShape) -> int:
    """Bytes of 64 filters in shared memory, each place of them padded to 68 channels."""
    return 4 * s.FH * s.FW * s.IC * (CHANNELS + 4)


def ffma_band(s: ConvShape) -> tuple[int, int]:
    """(output rows a block takes, bytes of the band of X that they read)"""

    def band(rows: int) -> int:
        return 4 * band_numbers(s, rows, s.OW)

    rows = min(s.OH, max(1, 256 // s.OW))
    while rows > 1 and ffma_filters(s) + band(rows) > FFMA_SHARED:
        rows = _ceil(rows, 2)
    return rows, band(rows)


def direct_stem(p: ConvProblem, v: Variant, target: Target) -> Plan:
    """Filters and a band of X in shared memory   X, W -> Y"""
    s = p.shape
    rows, band = ffma_band(s)
    grid = (s.N * _ceil(s.OH, rows), _ceil(s.OC, CHANNELS))
    arguments = (Named("Y"), Named("X"), Named("W"), as_struct(s), rows)
    shared = ffma_filters(s) + band
    launch = KernelLaunch("conv2d/direct_stem.cu", "direct_stem", grid, 128, arguments, shared_bytes=shared)
    return Plan(v.name, (launch,), {"Y": p.result})


def direct_stem_weight(p: ConvProblem, v: Variant, target: Target) -> Plan:
    """Bands of X in shared memory, partial sums by block and pixel group   X, dY -> dW"""
    s = p.shape
    K = s.FH * s.FW * s.IC
    KT = 7 if K <= 28 else 10
    k_groups = _ceil(K, KT)
    P = max(1, 16 // k_groups)
    rows, band = ffma_band(s)
    blocks = min(s.N * _ceil(s.OH, rows), 4 * target.num_sms)
    launch = KernelLaunch(
        "conv2d/direct_stem_weight.cu",
        "direct_stem_weight",
        (blocks, _ceil(s.OC, CHANNELS)),
        _ceil(16 * k_groups * P, 32) * 32,
        (Named("part"), Named("X"), Named("dY"), as_struct(s), rows),
        {"KT": KT, "P": P},
        band,
    )
    return with_partial_sums(p, v, target, (launch,), blocks * P)


# -- tensor cores -----------------------------------------------------------------------------------


def depth_blocks(s: ConvShape) -> int:
    """Blocks of 32 of K, filter rows padded to an even length."""
    return _ceil(s.FH * (s.FW * s.IC + s.FW * s.IC % 2), 32)


def forward_band(s: ConvShape, planes: int) -> tuple[int, int]:
    """(output rows a block takes at a time, bytes of filters and band)

    128 pixels, 256 where so many are left that the blocks still share them evenly.
    """
    filters = depth_blocks(s) * (4096 * planes + 64)

    def shared(rows: int) -> int:
        return filters + 4 * planes * band_numbers(s, rows, s.OW)

    rows = min(s.OH, _ceil(128, s.OW))
    if s.N * _ceil(s.OH, 2 * rows) >= 4096:
        rows *= 2
    while rows > 1 and shared(rows) > TENSOR_SHARED:
        rows = _ceil(rows, 2)
    # where a few rows less let a warp have its part of a band, 31 pairs a load, in registers at once (AT_ONCE)
    loads_a_row = _ceil(((s.OW - 1) * s.sw + s.FW) * s.IC, 31)
    most = WARPS * (16 if depth_blocks(s) == 1 else 24) // loads_a_row
    fitting = (most - s.FH) // s.sh + 1
    if 4 * fitting >= 3 * rows:
        rows = min(rows, fitting)
    rows = _ceil(s.OH, _ceil(s.OH, rows))
    return rows, shared(rows)


def direct_stem_mma(p: ConvProblem, v: Variant, target: Target) -> Plan:
    """Filters as fragments, pairs of neighbours of X in shared memory   X, W -> Y"""
    s = p.shape
    rows, shared = forward_band(s, v.tile["PLANES"])
    depth = depth_blocks(s)
    resident = (3 if depth == 1 else 2) * target.num_sms
    grid = (min(s.N * _ceil(s.OH, rows), resident), _ceil(s.OC, CHANNELS))
    launch = KernelLaunch(
        "conv2d/direct_stem_mma.cu",
        "direct_stem_mma",
        grid,
        128,
        (Named("Y"), Named("X"), Named("W"), as_struct(s), rows),
        {**v.tile, "BLOCKS": depth},
        shared,
    )
    return Plan(v.name, (launch,), {"Y": p.result})


def weight_fragments(s: ConvShape) -> tuple[int, int]:
    """(groups of warps, fragments of 8 a warp) that cover FH FW IC; more than 5 a warp do not fit."""
    fragments = _ceil(s.FH * s.FW * s.IC, 8)
    groups = next((n for n in (1, 2, 4) if fragments <= 5 * n), 4)
    return groups, _ceil(fragments, groups)


def weight_band(s: ConvShape, item: int) -> tuple[int, int]:
    """(output rows a block takes at a time, bytes of the ring of dY, octets and two bands), dY of `item` bytes

    256 pixels, fewer where there are few bands.
    """
    octets, chunk = _ceil(s.OW, 8), 16 if item == 2 and weight_fragments(s)[0] == 1 else 8

    def shared(rows: int) -> int:
        places = _ceil(rows * octets, chunk) * chunk
        band = band_numbers(s, rows, 8 * octets)
        return 3 * chunk * 8 * (CHANNELS + 8) * item + 8 * places + 2 * 4 * band

    rows = min(s.OH, _ceil(32, octets))
    while rows > 1 and (s.N * _ceil(s.OH, rows) < 512 or shared(rows) > TENSOR_SHARED):
        rows = _ceil(rows, 2)
    return rows, shared(rows)


def direct_stem_weight_mma(p: ConvProblem, v: Variant, target: Target) -> Plan:
    """dY through a ring, bands of X beside it, partial sums by block   X, dY -> dW float32"""
    s, item = p.shape, p.dtype.itemsize
    rows, shared = weight_band(s, item)
    WN, NF = weight_fragments(s)
    resident = 1 if WN > 1 and item == 4 else 2
    blocks = min(s.N * _ceil(s.OH, rows), resident * target.num_sms)
    launch = KernelLaunch(
        "conv2d/direct_stem_weight_mma.cu",
        "direct_stem_weight_mma",
        (blocks, _ceil(s.OC, CHANNELS)),
        256,
        (Named("part"), Named("X"), Named("dY"), as_struct(s), rows),
        {**v.tile, "WN": WN, "NF": NF},
        shared,
    )
    return with_partial_sums(p, v, target, (launch,), blocks)
