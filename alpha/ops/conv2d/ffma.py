"""Plans of the convolution kernels on FFMA, which compute any shape on any GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpha.ops.conv2d.partial_sums import num_splits, tiles_of, with_partial_sums
from alpha.ops.conv2d.prepare import split_filter
from alpha.ops.conv2d.problem import ConvProblem, Target
from alpha.ops.conv2d.shape import ConvShape, as_struct
from alpha.ops.kernel.plan import KernelLaunch, Named, Plan

if TYPE_CHECKING:
    from alpha.ops.conv2d.problem import Configuration


def implicit_gemm_ffma(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """An implicit GEMM for any shape: patches of X times filters   X, W -> Y"""
    s = p.shape
    grid = (tiles_of((s.N * s.OH * s.OW, v.tile["BM"])), tiles_of((s.OC, v.tile["BN"])))
    arguments = (Named("Y"), Named("X"), Named("W"), as_struct(s))
    launch = KernelLaunch("conv2d/implicit_gemm/ffma.cu", "implicit_gemm_ffma", grid, 256, arguments, v.tile)
    return Plan(v.name, (launch,), {"Y": p.result})


def ks_deconv_ffma(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Algorithm 2 for any shape, one residue per layer of the grid   dY, W -> dX"""
    s = p.shape
    split, C = split_filter(p)
    positions = s.N * -(-s.IH // s.sh) * -(-s.IW // s.sw)
    grid = (tiles_of((positions, v.tile["BM"])), tiles_of((s.IC, v.tile["BN"])), s.sh * s.sw)
    arguments = (Named("dX"), Named("dY"), Named("C"), as_struct(s))
    launch = KernelLaunch("conv2d/ks_deconv/ffma.cu", "ks_deconv_ffma", grid, 256, arguments, v.tile)
    return Plan(v.name, (split, launch), {"dX": p.result}, {"C": C})


def splits_of_sk_dilated(v: Configuration, s: ConvShape, target: Target) -> int:
    """The number of splits of G_K."""
    blocks = tiles_of((s.FH * s.FW * s.IC, v.tile["BN"]), (s.OC, v.tile["BM"]))
    return num_splits(blocks, -(-s.N * s.OH * s.OW // v.tile["BK"]), s, 4 * target.num_sms)


def sk_dilated_ffma(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Algorithm 3 for any shape   X, dY -> dW"""
    s = p.shape
    tiles = (tiles_of((s.FH * s.FW * s.IC, v.tile["BN"])), tiles_of((s.OC, v.tile["BM"])))
    GZ = splits_of_sk_dilated(v, s, target)
    arguments = (Named("part"), Named("X"), Named("dY"), as_struct(s))
    launch = KernelLaunch("conv2d/sk_dilated/ffma.cu", "sk_dilated_ffma", (*tiles, GZ), 256, arguments, v.tile)
    return with_partial_sums(p, v, target, (launch,), GZ)
