"""Plans of the CUDA convolution kernels for any GPU: grids, shared memory, partial sums. One function per algorithm."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.numerics import FLOAT32
from alpha.ops.conv2d.problem import ConvProblem, Target
from alpha.ops.conv2d.shape import ConvShape, trimmed_taps
from alpha.ops.dtypes import storage_type
from alpha.ops.plan import Buffer, KernelLaunch, Named, Plan, Table
from alpha.ops.reduce import plan_reduce_splits

if TYPE_CHECKING:
    from alpha.ops.conv2d.variant import Variant

Order = np.ndarray[Any, Any]

_FIELDS = ("N", "IH", "IW", "IC", "OC", "FH", "FW", "sh", "sw", "ph", "pw", "OH", "OW")
_STRUCT = np.dtype([(name, np.int32) for name in _FIELDS], align=True)
ROW_BYTES = 128  # of K, a step of the tensor-core tiles


@functools.lru_cache(maxsize=4096)
def as_struct(s: ConvShape) -> np.void:
    """`ConvShape` of cuda/conv2d/shape.cuh, passed to a kernel by value."""
    values: np.void = np.array([tuple(getattr(s, name) for name in _FIELDS)], _STRUCT)[0]
    return values


def _tiles(*lengths: tuple[int, int]) -> int:
    count = 1
    for length, tile in lengths:
        count *= -(-length // tile)
    return count


def _threads(tile: Mapping[str, Any]) -> int:
    return int(32 * (tile["BM"] // tile["WM"]) * (tile["BN"] // tile["WN"]))


def tile_bytes(tile: Mapping[str, Any]) -> int:
    """Shared memory of a tensor-core tile, its stages together."""
    return int(tile["STAGES"] * (tile["BM"] + tile["BN"]) * ROW_BYTES)


# -- the order of positions: most taps first, so that the last blocks of a grid are short ones ------


def conv_v2_order(s: ConvShape) -> Order:
    """Positions of Y by falling number of taps   (OH OW,) int32"""
    rows = [_length(trimmed_taps(o, s.IH, s.FH, s.sh, s.ph)) for o in range(s.OH)]
    columns = [_length(trimmed_taps(o, s.IW, s.FW, s.sw, s.pw)) for o in range(s.OW)]
    return _order(rows, columns)


def ks_deconv_order(s: ConvShape) -> Order:
    """Positions of dX by falling number of taps   (IH IW,) int32"""
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


# -- ConvV2 and the other forward kernels -----------------------------------------------------------


def conv_v2(p: ConvProblem, v: Variant, target: Target) -> Plan:
    """Algorithm 1, a tile of images and output channels a position   X, W -> Y"""
    s = p.shape
    grid = s.OH * s.OW * _tiles((s.N, v.tile["BM"]), (s.OC, v.tile["BN"]))
    arguments = (Named("Y"), Named("X"), Named("W"), Table(lambda: conv_v2_order(s)), as_struct(s))
    launch = _position_launch("conv2d/conv_v2.cu", "conv_v2", grid, v, arguments)
    return Plan(v.name, (launch,), {"Y": p.result})


def _position_launch(source: str, entry: str, grid: int, v: Variant, arguments: tuple[Any, ...]) -> KernelLaunch:
    return KernelLaunch(source, entry, grid, _threads(v.tile), arguments, v.tile, tile_bytes(v.tile))


def implicit_gemm(p: ConvProblem, v: Variant, target: Target) -> Plan:
    """Any shape: output pixels times patches   X, W -> Y"""
    s = p.shape
    grid = (_tiles((s.N * s.OH * s.OW, v.tile["BM"])), _tiles((s.OC, v.tile["BN"])))
    arguments = (Named("Y"), Named("X"), Named("W"), as_struct(s))
    launch = KernelLaunch("conv2d/implicit_gemm.cu", "implicit_gemm", grid, 256, arguments, v.tile)
    return Plan(v.name, (launch,), {"Y": p.result})


# -- KS-deconv --------------------------------------------------------------------------------------


def kernel_split(p: ConvProblem) -> tuple[KernelLaunch, Buffer]:
    """Stage 1: split by residue, rotated, OC contiguous   W -> C (FH FW, IC, OC) of its dtype"""
    s = p.shape
    grid = (_tiles((s.IC, 32)), _tiles((s.OC, 32)), s.FH * s.FW)
    launch = KernelLaunch(
        "conv2d/kernel_split.cu",
        "kernel_split",
        grid,
        (32, 8),
        (Named("C"), Named("W"), as_struct(s)),
        {"TYPE": storage_type(p.dtype)},
    )
    return launch, Buffer((s.FH * s.FW, s.IC, s.OC), p.dtype)


def ks_deconv(p: ConvProblem, v: Variant, target: Target) -> Plan:
    """Algorithm 2B, a tile of images and input channels a position   dY, W -> dX"""
    s = p.shape
    split, C = kernel_split(p)
    grid = s.IH * s.IW * _tiles((s.N, v.tile["BM"]), (s.IC, v.tile["BN"]))
    arguments = (Named("dX"), Named("dY"), Named("C"), Table(lambda: ks_deconv_order(s)), as_struct(s))
    launch = _position_launch("conv2d/ks_deconv.cu", "ks_deconv", grid, v, arguments)
    return Plan(v.name, (split, launch), {"dX": p.result}, {"C": C})


def ks_deconv_ffma(p: ConvProblem, v: Variant, target: Target) -> Plan:
    """Algorithm 2 for any shape, a grid layer a residue   dY, W -> dX"""
    s = p.shape
    split, C = kernel_split(p)
    positions = s.N * -(-s.IH // s.sh) * -(-s.IW // s.sw)
    grid = (_tiles((positions, v.tile["BM"])), _tiles((s.IC, v.tile["BN"])), s.sh * s.sw)
    arguments = (Named("dX"), Named("dY"), Named("C"), as_struct(s))
    launch = KernelLaunch("conv2d/ks_deconv_ffma.cu", "ks_deconv_ffma", grid, 256, arguments, v.tile)
    return Plan(v.name, (split, launch), {"dX": p.result}, {"C": C})


# -- Sk-dilated -------------------------------------------------------------------------------------


def segments(blocks: int, steps: int, s: ConvShape, num_sms: int) -> int:
    """GZ, into how many segments GK is split (paper, section IV.C).

    Enough that the blocks fill the GPU twice; at least 8 steps each; partial sums of at most 64 MiB.
    """
    wanted = -(-2 * num_sms // blocks)
    partial = s.OC * s.FH * s.FW * s.IC * 4
    return max(1, min(wanted, steps // 8, (64 << 20) // partial))


def with_partial_sums(
    p: ConvProblem,
    v: Variant,
    target: Target,
    launches: tuple[KernelLaunch, ...],
    GZ: int,
    workspaces: Mapping[str, Buffer] | None = None,
    **facts: Any,
) -> Plan:
    """The plan of a gradient of the weight whose kernel writes "part" (GZ, ..): their sums are dW."""
    s, held = p.shape, dict(workspaces or {})
    result = Buffer(s.W, FLOAT32)
    if GZ == 1:  # the part is the result
        renamed = tuple(launch.renamed({"part": "dW"}) for launch in launches)
        return Plan(v.name, renamed, {"dW": result}, held, facts=facts)
    held["part"] = Buffer((GZ, *s.W), FLOAT32)
    sums = plan_reduce_splits("part", "dW", GZ, s.OC * s.FH * s.FW * s.IC, target.num_sms)
    return Plan(v.name, (*launches, *sums.launches), {"dW": result}, {**held, **sums.workspaces}, facts=facts)


def sk_dilated(p: ConvProblem, v: Variant, target: Target) -> Plan:
    """Algorithm 3B, a tap and a segment a block   X, dY -> dW float32"""
    s = p.shape
    tiles = (_tiles((s.IC, v.tile["BN"])), _tiles((s.OC, v.tile["BM"])))
    taps = s.FH * s.FW
    steps = s.OH * s.OW * -(-s.N // (ROW_BYTES // p.dtype.itemsize))
    GZ = segments(tiles[0] * tiles[1] * taps, steps, s, target.num_sms)
    launch = KernelLaunch(
        "conv2d/sk_dilated.cu",
        "sk_dilated",
        (*tiles, taps * GZ),
        _threads(v.tile),
        (Named("part"), Named("X"), Named("dY"), as_struct(s), GZ),
        v.tile,
        tile_bytes(v.tile),
    )
    return with_partial_sums(p, v, target, (launch,), GZ)


def sk_dilated_ffma(p: ConvProblem, v: Variant, target: Target) -> Plan:
    """Algorithm 3 for any shape   X, dY -> dW"""
    s = p.shape
    tiles = (_tiles((s.FH * s.FW * s.IC, v.tile["BN"])), _tiles((s.OC, v.tile["BM"])))
    steps = -(-s.N * s.OH * s.OW // v.tile["BK"])
    GZ = segments(tiles[0] * tiles[1], steps, s, 2 * target.num_sms)
    arguments = (Named("part"), Named("X"), Named("dY"), as_struct(s))
    launch = KernelLaunch("conv2d/sk_dilated_ffma.cu", "sk_dilated_ffma", (*tiles, GZ), 256, arguments, v.tile)
    return with_partial_sums(p, v, target, (launch,), GZ)
