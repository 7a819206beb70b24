"""The plan of the Hopper kernel of Sk-dilated (wgmma, TMA)."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from alpha.core.numerics import FLOAT32
from alpha.ops.conv2d.partial_sums import with_partial_sums
from alpha.ops.conv2d.prepare import activation_terms
from alpha.ops.conv2d.problem import ConvProblem, Target
from alpha.ops.conv2d.shape import as_axes_struct, ndim
from alpha.ops.conv2d.sm90 import ABSMAX
from alpha.ops.conv2d.sm90_tiles import Tile
from alpha.ops.conv2d.sm90_weight_schedule import WeightSchedule, weight_schedule
from alpha.ops.conv2d.sm90_weight_tiles import weight_tile
from alpha.ops.conv2d.tensor_maps import Box, map_images
from alpha.ops.kernel.dtypes import CUDA_TYPES
from alpha.ops.kernel.plan import Buffer, KernelLaunch, Named, Plan, Table

if TYPE_CHECKING:
    from alpha.ops.conv2d.configuration import Configuration

SUM_THREADS, SUMMED, MOST_LANES = 256, 4, 32  # of sum_splits.cu: threads per block, channels and threads per pack
BUSY_THREADS = 1024  # of an SM, which keep its loads busy


def sk_dilated(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Algorithm 3B; a block has some taps of one filter row and one split of its K   X, dY -> dW"""
    s, tile = p.shape, Tile.of(v)
    block = weight_tile(s, tile)
    prepare: tuple[KernelLaunch, ...] = ()
    workspaces = {}
    source, x_channels = "X", tile.a_channels
    terms: tuple[int, ...] = ()
    x_box: Box = (x_channels, block.images, block.tile_iw, 1)
    if tile.prepared:
        source = "P"
        x_box = (64, block.images, block.tile_iw, 1, 1)
        terms = (tile.math.terms,)
        converted, workspaces["P"] = activation_terms(s, tile.math.terms)
        prepare = (converted,)
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
            Named("part"),
            map_images(source, s.X, s.sw, tuple(range(s.sw)), (x_box,) * s.sw, terms),
            map_images("dY", s.Y, 1, (0,), ((tile.a_channels, block.images, block.tile_ow, 1),)),
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
            "PREPARED": int(tile.prepared),
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
    added = _sum(p, schedule, target.num_sms)
    return Plan(v.name, (*prepare, launch, added), {"dW": p.result}, workspaces, facts=facts)


def _sum(p: ConvProblem, schedule: WeightSchedule, num_sms: int) -> KernelLaunch:
    """The sum of partial dW, of which the taps have unequal numbers; it is rounded once."""
    s = p.shape
    packs, lanes = prod(s.W) // SUMMED, 1
    while lanes < MOST_LANES and 4 * lanes < schedule.parts and packs * lanes < BUSY_THREADS * num_sms:
        lanes *= 2
    return KernelLaunch(
        "conv2d/sk_dilated/sum_splits.cu",
        "sum_splits",
        -(-packs * lanes // SUM_THREADS),
        SUM_THREADS,
        (Named("dW"), Named("part"), Table(lambda: schedule.splits), packs, s.taps, s.IC),
        {"OUTPUT": CUDA_TYPES[p.result.dtype], "LANES": lanes},
    )
