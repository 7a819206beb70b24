"""Sk-dilated, the paper's algorithm 3: the plans of its kernels on Hopper, on mma.sync and on FFMA   X, dY -> dW"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from alpha.core.numerics import FLOAT32
from alpha.ops.conv2d.hopper.output_launch import ABSMAX
from alpha.ops.conv2d.hopper.output_tiles import Tile
from alpha.ops.conv2d.hopper.weight_schedule import sum_of_splits, weight_schedule
from alpha.ops.conv2d.hopper.weight_tiles import weight_tile
from alpha.ops.conv2d.mma_sync import RESERVED_BYTES, ROW_BYTES, threads_of, tile_bytes
from alpha.ops.conv2d.partial_sums import num_splits, tiles_of, with_partial_sums
from alpha.ops.conv2d.prepare import IN_FP16, Box, fp16_terms, map_images
from alpha.ops.conv2d.problem import ConvProblem, Target
from alpha.ops.conv2d.shape import ConvShape, as_axes_struct, as_struct, ndim
from alpha.ops.kernel.casts import CUDA_TYPES
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan, Table

if TYPE_CHECKING:
    from alpha.ops.conv2d.problem import Configuration


def plan_sm90(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Algorithm 3B; a block has some taps of one filter row and one split of its K   X, dY -> dW

    The kernel is cuda/conv2d/sk_dilated/sm90.cu; its main loop is in that file.
    """
    s, tile = p.shape, Tile.of(v)
    block = weight_tile(s, tile)
    prepare: tuple[KernelLaunch, ...] = ()
    workspaces: dict[str, Buffer] = {}
    sources = ["X", "dY"]
    terms: tuple[int, ...] = ()
    x_box: Box = (tile.a_channels, block.images, block.tile_iw, 1)
    dY_box: Box = (tile.a_channels, block.images, block.tile_ow, 1)
    if tile.prepared:
        x_box = (64, block.images, block.tile_iw, 1, 1)
        terms = (tile.math.terms,)
    for number in range(tile.prepared):
        made, copies = fp16_terms(p, number, tile.math.terms)
        prepare, workspaces = (*prepare, *made), {**workspaces, **copies}
        sources[number] = IN_FP16[sources[number]]
    tiles = -(-s.IC // tile.BN), -(-s.OC // tile.BM)
    schedule = weight_schedule(s, block, prod(tiles), target.num_sms)
    only = p.gradient if schedule.parts == 1 else FLOAT32
    stages = block.stages()
    launch = KernelLaunch(
        "conv2d/sk_dilated/sm90.cu",
        "sk_dilated_sm90",
        (*tiles, len(schedule.blocks)),
        block.threads,
        (
            ArrayArg("part"),
            map_images(sources[0], s.X, s.sw, tuple(range(s.sw)), (x_box,) * s.sw, terms),
            map_images(sources[1], s.Y, 1, (0,), (dY_box,)),
            *ABSMAX,
            as_axes_struct(s),
            Table(lambda: schedule.blocks),
        ),
        {
            "NDIM": ndim(s),
            "DW": s.dw,
            "BM": tile.BM,
            "BN": tile.BN,
            "MATH": tile.math.name,
            "PREPARED": tile.prepared,
            "TAPS": block.taps,
            "TILE_OW": block.tile_ow,
            "TILE_IW": block.tile_iw,
            "NUM_INPUT_TILES": block.num_input_tiles,
            "STAGES": stages,
            "TRANSFORM_WARPS": block.transform_warps,
            "OUTPUT": CUDA_TYPES[only],
        },
        1024 + stages * block.stage_bytes,
    )
    facts = {"scales": tile.math.in_fp16}
    if (schedule.splits == schedule.parts).all():
        return with_partial_sums(p, v, target, (*prepare, launch), schedule.parts, workspaces, only, **facts)
    workspaces["part"] = Buffer((schedule.parts, *s.W), FLOAT32)
    added = sum_of_splits(p, schedule, target.num_sms)
    return Plan(v.name, (*prepare, launch, added), {"dW": p.result}, workspaces, facts=facts)


def resident_blocks(tile: Mapping[str, Any], target: Target) -> int:
    """The blocks of a tile of Sk-dilated for which an SM has registers and shared memory."""
    return max(1, min(int(tile["RESIDENT"]), target.shared_bytes // (tile_bytes(tile) + RESERVED_BYTES)))


def splits_sm80(v: Configuration, s: ConvShape, target: Target) -> int:
    """The number of splits of G_K."""
    blocks = tiles_of((s.IC, v.tile["BN"]), (s.OC, v.tile["BM"])) * s.FH * s.FW
    steps = s.OH * s.OW * -(-s.N // (ROW_BYTES // v.dtype.itemsize))
    return num_splits(blocks, steps, s, resident_blocks(v.tile, target) * target.num_sms)


def plan_sm80(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Algorithm 3B; a block has one tap and one split of G_K   X, dY -> dW"""
    s = p.shape
    tiles = (tiles_of((s.IC, v.tile["BN"])), tiles_of((s.OC, v.tile["BM"])))
    taps = s.FH * s.FW
    GZ = splits_sm80(v, s, target)
    launch = KernelLaunch(
        "conv2d/sk_dilated/sm80.cu",
        "sk_dilated_sm80",
        (*tiles, taps * GZ),
        threads_of(v.tile),
        (ArrayArg("part"), ArrayArg("X"), ArrayArg("dY"), as_struct(s), GZ),
        v.macros,
        tile_bytes(v.tile),
    )
    return with_partial_sums(p, v, target, (launch,), GZ)


def splits_ffma(v: Configuration, s: ConvShape, target: Target) -> int:
    """The number of splits of G_K."""
    blocks = tiles_of((s.FH * s.FW * s.IC, v.tile["BN"]), (s.OC, v.tile["BM"]))
    return num_splits(blocks, -(-s.N * s.OH * s.OW // v.tile["BK"]), s, 4 * target.num_sms)


def plan_ffma(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Algorithm 3 for any shape   X, dY -> dW"""
    s = p.shape
    tiles = (tiles_of((s.FH * s.FW * s.IC, v.tile["BN"])), tiles_of((s.OC, v.tile["BM"])))
    GZ = splits_ffma(v, s, target)
    arguments = (ArrayArg("part"), ArrayArg("X"), ArrayArg("dY"), as_struct(s))
    launch = KernelLaunch("conv2d/sk_dilated/ffma.cu", "sk_dilated_ffma", (*tiles, GZ), 256, arguments, v.tile)
    return with_partial_sums(p, v, target, (launch,), GZ)
