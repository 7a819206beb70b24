"""KS-deconv, the paper's algorithm 2: the plans of its kernels on Hopper, on mma.sync and on FFMA   dY, W -> dX"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpha.ops.conv2d.hopper.output_launch import OutputTilesLaunch, reads_weight
from alpha.ops.conv2d.hopper.output_tiles import position_tile
from alpha.ops.conv2d.hopper.ping_pong import tiles_in_turns
from alpha.ops.conv2d.mma_sync import Order, longest_first, pixel_launch
from alpha.ops.conv2d.partial_sums import tiles_of
from alpha.ops.conv2d.prepare import (
    IN_FP16,
    filter_terms,
    fp16_terms,
    map_filters,
    map_images,
    map_weight,
    split_filter,
)
from alpha.ops.conv2d.problem import ConvProblem, MathMode, Target
from alpha.ops.conv2d.shape import ConvShape, as_struct
from alpha.ops.kernel.plan import ArrayArg, KernelLaunch, Plan, Table, TensorMaps

if TYPE_CHECKING:
    from alpha.ops.conv2d.problem import Configuration


def plan_sm90(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Algorithm 2B, output tiles of one residue each; bias and activation in the same kernel   dY, W -> dX

    The kernel is cuda/conv2d/ks_deconv/sm90.cu, or sm90_first_step.cu; its main loop is
    cuda/conv2d/sm90/mainloop.cuh.
    """
    s = p.shape
    output = tiles_in_turns(s, position_tile(v, s), p.epilogue, target.num_sms, forward=False)
    tile = output.tile
    prepare: tuple[KernelLaunch, ...] = ()
    workspaces = {}
    B: TensorMaps | None
    if tile.math.in_fp16:
        terms, workspaces["P"] = filter_terms("split_filter_terms", s, (s.IC, s.OC), tile.math.terms, not tile.prepared)
        prepare = (terms,)
        B = map_filters("P", (64, 1, tile.BN, tile.math.terms))
        if tile.prepared:
            made, copies = fp16_terms(p, 0, tile.math.terms)
            prepare, workspaces = (*prepare, *made), {**workspaces, **copies}
    elif not reads_weight(s, tile, target.num_sms):
        split, workspaces["C"] = split_filter(p)
        prepare = (split,)
        B = map_filters("C", (tile.BK, 1, tile.BN, 1))
    else:  # input channels contiguous
        B = None if tile.math is MathMode.TF32 else map_weight(s.W, (64, 1, 64, 1))
    residues = range(s.sw)
    boxes = tuple(output.box(r) for r in residues)
    A = map_images(IN_FP16["dY"] if tile.prepared else "dY", s.Y, 1, (0,) * s.sw, boxes)
    product = OutputTilesLaunch("ks_deconv_sm90", tile, output, s, A, B, target, p.epilogue)
    return product.plan(v, {"dX": p.result}, prepare, workspaces)


def pixel_order(s: ConvShape) -> Order:
    """The pixels of dX, those with the most taps first   (IH IW,) int32"""
    rows, columns = [0] * s.IH, [0] * s.IW
    for counts, splits, step in ((rows, s.row_splits, s.sh), (columns, s.column_splits, s.sw)):
        for g in splits:
            for i in range(g.length):
                counts[g.start + i * step] = g.c_e - g.c_s
    return longest_first(rows, columns)


def plan_sm80(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Algorithm 2B; a block has one pixel of dX, some images and input channels   dY, W -> dX"""
    s = p.shape
    split, C = split_filter(p)
    grid = s.IH * s.IW * tiles_of((s.N, v.tile["BM"]), (s.IC, v.tile["BN"]))
    arguments = (ArrayArg("dX"), ArrayArg("dY"), ArrayArg("C"), Table(lambda: pixel_order(s)), as_struct(s))
    launch = pixel_launch("conv2d/ks_deconv/sm80.cu", "ks_deconv_sm80", grid, v, arguments)
    return Plan(v.name, (split, launch), {"dX": p.result}, {"C": C})


def plan_ffma(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Algorithm 2 for any shape, one residue per layer of the grid   dY, W -> dX"""
    s = p.shape
    split, C = split_filter(p)
    positions = s.N * -(-s.IH // s.sh) * -(-s.IW // s.sw)
    grid = (tiles_of((positions, v.tile["BM"])), tiles_of((s.IC, v.tile["BN"])), s.sh * s.sw)
    arguments = (ArrayArg("dX"), ArrayArg("dY"), ArrayArg("C"), as_struct(s))
    launch = KernelLaunch("conv2d/ks_deconv/ffma.cu", "ks_deconv_ffma", grid, 256, arguments, v.tile)
    return Plan(v.name, (split, launch), {"dX": p.result}, {"C": C})
