"""Plans of the convolution kernels on mma.sync, for sm_80 and newer: one output pixel of some images per block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.ops.conv2d.partial_sums import num_splits, tiles_of, with_partial_sums
from alpha.ops.conv2d.prepare import split_filter
from alpha.ops.conv2d.problem import ConvProblem, Target
from alpha.ops.conv2d.shape import ConvShape, as_struct, trimmed_taps
from alpha.ops.kernel.plan import KernelLaunch, Named, Plan, Table

if TYPE_CHECKING:
    from alpha.ops.conv2d.problem import Configuration

Order = np.ndarray[Any, Any]

RESERVED_BYTES = 1024  # of shared memory, for each block that an SM holds
ROW_BYTES = 128  # bytes of K in a row of a tile, which are one step


def _threads(tile: Mapping[str, Any]) -> int:
    return int(32 * (tile["BM"] // tile["WM"]) * (tile["BN"] // tile["WN"]))


def tile_bytes(tile: Mapping[str, Any]) -> int:
    """Bytes of shared memory of all stages of a tile."""
    return int(tile["STAGES"] * (tile["BM"] + tile["BN"]) * ROW_BYTES)


# -- the order of output pixels: most taps first, so that the last blocks of a grid are short ones ------


def conv_v2_order(s: ConvShape) -> Order:
    """The pixels of Y, those with the most taps first   (OH OW,) int32"""
    rows = [_length(trimmed_taps(o, s.IH, s.FH, s.sh, s.ph)) for o in range(s.OH)]
    columns = [_length(trimmed_taps(o, s.IW, s.FW, s.sw, s.pw)) for o in range(s.OW)]
    return _order(rows, columns)


def ks_deconv_order(s: ConvShape) -> Order:
    """The pixels of dX, those with the most taps first   (IH IW,) int32"""
    rows, columns = [0] * s.IH, [0] * s.IW
    for counts, splits, step in ((rows, s.row_splits, s.sh), (columns, s.column_splits, s.sw)):
        for g in splits:
            for i in range(g.length):
                counts[g.start + i * step] = g.c_e - g.c_s
    return _order(rows, columns)


def _length(taps: tuple[int, int]) -> int:
    return taps[1] - taps[0]


def _order(rows: list[int], columns: list[int]) -> Order:
    taps = np.multiply.outer(rows, columns).reshape(-1)
    return np.argsort(-taps, kind="stable").astype(np.int32)


# -- ConvV2 -----------------------------------------------------------------------------------------


def conv_v2(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Algorithm 1; a block has one output pixel, some images and output channels   X, W -> Y"""
    s = p.shape
    grid = s.OH * s.OW * tiles_of((s.N, v.tile["BM"]), (s.OC, v.tile["BN"]))
    arguments = (Named("Y"), Named("X"), Named("W"), Table(lambda: conv_v2_order(s)), as_struct(s))
    launch = _pixel_launch("conv2d/conv_v2/sm80.cu", "conv_v2_sm80", grid, v, arguments)
    return Plan(v.name, (launch,), {"Y": p.result})


def _pixel_launch(source: str, entry: str, grid: int, v: Configuration, arguments: tuple[Any, ...]) -> KernelLaunch:
    return KernelLaunch(source, entry, grid, _threads(v.tile), arguments, v.macros, tile_bytes(v.tile))


# -- KS-deconv --------------------------------------------------------------------------------------


def ks_deconv(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Algorithm 2B; a block has one pixel of dX, some images and input channels   dY, W -> dX"""
    s = p.shape
    split, C = split_filter(p)
    grid = s.IH * s.IW * tiles_of((s.N, v.tile["BM"]), (s.IC, v.tile["BN"]))
    arguments = (Named("dX"), Named("dY"), Named("C"), Table(lambda: ks_deconv_order(s)), as_struct(s))
    launch = _pixel_launch("conv2d/ks_deconv/sm80.cu", "ks_deconv_sm80", grid, v, arguments)
    return Plan(v.name, (split, launch), {"dX": p.result}, {"C": C})


# -- Sk-dilated -------------------------------------------------------------------------------------


def resident_blocks(tile: Mapping[str, Any], target: Target) -> int:
    """The blocks of a tile of Sk-dilated for which an SM has registers and shared memory."""
    return max(1, min(int(tile["RESIDENT"]), target.shared_bytes // (tile_bytes(tile) + RESERVED_BYTES)))


def splits_of_sk_dilated(v: Configuration, s: ConvShape, target: Target) -> int:
    """The number of splits of G_K."""
    blocks = tiles_of((s.IC, v.tile["BN"]), (s.OC, v.tile["BM"])) * s.FH * s.FW
    steps = s.OH * s.OW * -(-s.N // (ROW_BYTES // v.dtype.itemsize))
    return num_splits(blocks, steps, s, resident_blocks(v.tile, target) * target.num_sms)


def sk_dilated(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Algorithm 3B; a block has one tap and one split of G_K   X, dY -> dW"""
    s = p.shape
    tiles = (tiles_of((s.IC, v.tile["BN"])), tiles_of((s.OC, v.tile["BM"])))
    taps = s.FH * s.FW
    GZ = splits_of_sk_dilated(v, s, target)
    launch = KernelLaunch(
        "conv2d/sk_dilated/sm80.cu",
        "sk_dilated_sm80",
        (*tiles, taps * GZ),
        _threads(v.tile),
        (Named("part"), Named("X"), Named("dY"), as_struct(s), GZ),
        v.macros,
        tile_bytes(v.tile),
    )
    return with_partial_sums(p, v, target, (launch,), GZ)
