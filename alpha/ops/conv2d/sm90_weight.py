"""The plan of the Hopper kernel of Sk-dilated (wgmma, TMA)."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from alpha.numerics import FLOAT32
from alpha.ops.conv2d.partial_sums import with_partial_sums
from alpha.ops.conv2d.prepare import activation_terms
from alpha.ops.conv2d.problem import ConvProblem, Target
from alpha.ops.conv2d.shape import as_axes_struct, ndim
from alpha.ops.conv2d.sm90 import ABSMAX
from alpha.ops.conv2d.sm90_tiles import Tile
from alpha.ops.conv2d.sm90_weight_tiles import num_splits, weight_tile
from alpha.ops.conv2d.tensor_maps import Box, map_images
from alpha.ops.dtypes import CUDA_TYPES
from alpha.ops.plan import KernelLaunch, Named, Plan

if TYPE_CHECKING:
    from alpha.ops.conv2d.configuration import Configuration


def sk_dilated(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Algorithm 3B; a block has some taps of one filter row and one split of G_K   X, dY -> dW"""
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
    grid = (-(-s.IC // tile.BN), -(-s.OC // tile.BM), s.FD * s.FH * -(-s.FW // block.taps))
    blocks, weights = grid[0] * grid[1] * grid[2], prod(s.W)
    GZ = num_splits(block, blocks, 4 * weights, target.num_sms)
    only = p.gradient if GZ == 1 else FLOAT32
    stages = block.stages()
    launch = KernelLaunch(
        "conv2d/sk_dilated/sm90.cu",
        "sk_dilated_sm90",
        (*grid[:2], grid[2] * GZ),
        block.threads,
        (
            Named("part"),
            map_images(source, s.X, s.sw, tuple(range(s.sw)), (x_box,) * s.sw, terms),
            map_images("dY", s.Y, 1, (0,), ((tile.a_channels, block.images, block.tile_ow, 1),)),
            *ABSMAX,
            as_axes_struct(s),
            GZ,
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
    scales = tile.math.in_fp16
    return with_partial_sums(p, v, target, (*prepare, launch), GZ, workspaces, only, scales=scales)
