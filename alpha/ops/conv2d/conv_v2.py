"""ConvV2, the paper's algorithm 1: the plans of its kernels on Hopper, on mma.sync and on FFMA   X, W -> Y"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpha.ops.conv2d.hopper.output_launch import OutputTilesLaunch
from alpha.ops.conv2d.hopper.output_tiles import position_tile
from alpha.ops.conv2d.hopper.ping_pong import tiles_in_turns
from alpha.ops.conv2d.mma_sync import Order, longest_first, pixel_launch, tap_count
from alpha.ops.conv2d.partial_sums import tiles_of
from alpha.ops.conv2d.prepare import IN_FP16, filter_terms, fp16_terms, map_filters, map_images, map_weight
from alpha.ops.conv2d.problem import ConvProblem, Target
from alpha.ops.conv2d.shape import ConvShape, as_struct, trimmed_taps
from alpha.ops.kernel.plan import ArrayArg, KernelLaunch, Plan, Table

if TYPE_CHECKING:
    from alpha.ops.conv2d.problem import Configuration


def plan_sm90(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Algorithm 1; bias, activation and channel statistics of Y are computed in the same kernel   X, W -> Y

    The kernel is cuda/conv2d/conv_v2/sm90.cu; its main loop is cuda/conv2d/sm90/mainloop.cuh.
    """
    s = p.shape
    output = tiles_in_turns(s, position_tile(v, s), p.epilogue, target.num_sms, forward=True)
    tile = output.tile
    prepare: tuple[KernelLaunch, ...] = ()
    workspaces = {}
    if tile.math.in_fp16:
        terms, workspaces["P"] = filter_terms("filter_terms", s, (s.OC, s.IC), tile.math.terms, not tile.prepared)
        prepare = (terms,)
        B = map_filters("P", (64, 1, tile.BN, tile.math.terms))
        if tile.prepared:
            made, copies = fp16_terms(p, 0, tile.math.terms)
            prepare, workspaces = (*prepare, *made), {**workspaces, **copies}
    else:
        B = map_weight(s.W, (tile.BK, 1, tile.BN, 1))
    residues = range(min(s.sw, s.FW))
    phases = tuple((r - s.pw) % s.sw for r in residues)
    boxes = tuple(output.box(r) for r in residues)
    A = map_images(IN_FP16["X"] if tile.prepared else "X", s.X, s.sw, phases, boxes)
    product = OutputTilesLaunch("conv_v2_sm90", tile, output, s, A, B, target, p.epilogue)
    return product.plan(v, {"Y": p.result}, prepare, workspaces)


def pixel_order(s: ConvShape) -> Order:
    """The pixels of Y, those with the most taps first   (OH OW,) int32"""
    rows = [tap_count(trimmed_taps(o, s.IH, s.FH, s.sh, s.ph)) for o in range(s.OH)]
    columns = [tap_count(trimmed_taps(o, s.IW, s.FW, s.sw, s.pw)) for o in range(s.OW)]
    return longest_first(rows, columns)


def plan_sm80(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Algorithm 1; a block has one output pixel, some images and output channels   X, W -> Y"""
    s = p.shape
    grid = s.OH * s.OW * tiles_of((s.N, v.tile["BM"]), (s.OC, v.tile["BN"]))
    arguments = (ArrayArg("Y"), ArrayArg("X"), ArrayArg("W"), Table(lambda: pixel_order(s)), as_struct(s))
    launch = pixel_launch("conv2d/conv_v2/sm80.cu", "conv_v2_sm80", grid, v, arguments)
    return Plan(v.name, (launch,), {"Y": p.result})


def plan_ffma(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """An implicit GEMM for any shape: patches of X times filters   X, W -> Y"""
    s = p.shape
    grid = (tiles_of((s.N * s.OH * s.OW, v.tile["BM"])), tiles_of((s.OC, v.tile["BN"])))
    arguments = (ArrayArg("Y"), ArrayArg("X"), ArrayArg("W"), as_struct(s))
    launch = KernelLaunch("conv2d/implicit_gemm/ffma.cu", "implicit_gemm_ffma", grid, 256, arguments, v.tile)
    return Plan(v.name, (launch,), {"Y": p.result})
