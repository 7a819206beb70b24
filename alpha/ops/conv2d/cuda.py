"""Launches of the CUDA convolution kernels: grids, shared memory, partial sums. One function an algorithm."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.ops.conv2d.shape import ConvShape, trimmed_taps
from alpha.ops.dtypes import moved_type
from alpha.ops.reduce import sum_parts
from alpha.primitive import Array

if TYPE_CHECKING:
    from alpha.ops.conv2d.variant import Variant
    from alpha.runtime.cuda.device import CudaDevice

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


@functools.lru_cache(maxsize=1024)
def conv_v2_order(device: CudaDevice, s: ConvShape) -> Array:
    """Positions of Y by falling number of taps, on the device   (OH OW,) int32"""
    rows = [_length(trimmed_taps(o, s.IH, s.FH, s.sh, s.ph)) for o in range(s.OH)]
    columns = [_length(trimmed_taps(o, s.IW, s.FW, s.sw, s.pw)) for o in range(s.OW)]
    return _order(device, rows, columns)


@functools.lru_cache(maxsize=1024)
def ks_deconv_order(device: CudaDevice, s: ConvShape) -> Array:
    """Positions of dX by falling number of taps, on the device   (IH IW,) int32"""
    rows, columns = [0] * s.IH, [0] * s.IW
    for counts, splits, step in ((rows, s.row_splits, s.sh), (columns, s.column_splits, s.sw)):
        for g in splits:
            for i in range(g.length):
                counts[g.start + i * step] = g.c_e - g.c_s
    return _order(device, rows, columns)


def _length(taps: tuple[int, int]) -> int:
    return taps[1] - taps[0]


def _order(device: CudaDevice, rows: list[int], columns: list[int]) -> Array:
    taps = np.multiply.outer(rows, columns).reshape(-1)
    return device.constant(np.argsort(-taps, kind="stable").astype(np.int32))


# -- ConvV2 and the other forward kernels -----------------------------------------------------------


def conv_v2(X: Array, W: Array, s: ConvShape, v: Variant) -> Array:
    """Algorithm 1, a tile of images and output channels a position   X, W -> Y"""
    Y = X.device.empty(s.Y, X.dtype)
    grid = s.OH * s.OW * _tiles((s.N, v.tile["BM"]), (s.OC, v.tile["BN"]))
    _position_launch("conv2d/conv_v2.cu", "conv_v2", grid, v, (Y, X, W, conv_v2_order(X.device, s), as_struct(s)))
    return Y


def _position_launch(source: str, entry: str, grid: int, v: Variant, args: tuple[Any, ...]) -> None:
    args[0].device.launch(source, entry, grid, _threads(v.tile), args, v.tile, tile_bytes(v.tile))


def implicit_gemm(X: Array, W: Array, s: ConvShape, v: Variant) -> Array:
    """Any shape: output pixels times patches   X, W -> Y"""
    Y = X.device.empty(s.Y, X.dtype)
    grid = (_tiles((s.N * s.OH * s.OW, v.tile["BM"])), _tiles((s.OC, v.tile["BN"])))
    X.device.launch("conv2d/implicit_gemm.cu", "implicit_gemm", grid, 256, (Y, X, W, as_struct(s)), v.tile)
    return Y


# -- KS-deconv --------------------------------------------------------------------------------------


def kernel_split(W: Array, s: ConvShape) -> Array:
    """Stage 1: split by residue, rotated, OC contiguous   W -> C (FH FW, IC, OC) of its dtype; freed after the use"""
    C = W.device.empty((s.FH * s.FW, s.IC, s.OC), W.dtype)
    grid = (_tiles((s.IC, 32)), _tiles((s.OC, 32)), s.FH * s.FW)
    W.device.launch(
        "conv2d/kernel_split.cu", "kernel_split", grid, (32, 8), (C, W, as_struct(s)), {"TYPE": moved_type(W.dtype)}
    )
    return C


def ks_deconv(dY: Array, W: Array, s: ConvShape, v: Variant) -> Array:
    """Algorithm 2B, a tile of images and input channels a position   dY, W -> dX"""
    C = kernel_split(W, s)
    dX = dY.device.empty(s.X, dY.dtype)
    grid = s.IH * s.IW * _tiles((s.N, v.tile["BM"]), (s.IC, v.tile["BN"]))
    _position_launch(
        "conv2d/ks_deconv.cu", "ks_deconv", grid, v, (dX, dY, C, ks_deconv_order(dY.device, s), as_struct(s))
    )
    return dX


def ks_deconv_ffma(dY: Array, W: Array, s: ConvShape, v: Variant) -> Array:
    """Algorithm 2 for any shape, a grid layer a residue   dY, W -> dX"""
    C = kernel_split(W, s)
    dX = dY.device.empty(s.X, dY.dtype)
    positions = s.N * -(-s.IH // s.sh) * -(-s.IW // s.sw)
    grid = (_tiles((positions, v.tile["BM"])), _tiles((s.IC, v.tile["BN"])), s.sh * s.sw)
    dY.device.launch("conv2d/ks_deconv_ffma.cu", "ks_deconv_ffma", grid, 256, (dX, dY, C, as_struct(s)), v.tile)
    return dX


# -- Sk-dilated -------------------------------------------------------------------------------------


def segments(blocks: int, steps: int, s: ConvShape, multiprocessors: int) -> int:
    """GZ, into how many segments GK is split (paper, section IV.C).

    Enough that the blocks fill the GPU twice; at least 8 steps each; partial sums of at most 64 MiB.
    """
    wanted = -(-2 * multiprocessors // blocks)
    partial = s.OC * s.FH * s.FW * s.IC * 4
    return max(1, min(wanted, steps // 8, (64 << 20) // partial))


def with_partial_sums(X: Array, s: ConvShape, GZ: int, launch: Any) -> Array:
    part = X.device.empty((GZ, *s.W), np.float32)
    launch(part)
    return part.reshape(s.W) if GZ == 1 else sum_parts(part)


def sk_dilated(X: Array, dY: Array, s: ConvShape, v: Variant) -> Array:
    """Algorithm 3B, a tap and a segment a block   X, dY -> dW float32"""
    tiles = (_tiles((s.IC, v.tile["BN"])), _tiles((s.OC, v.tile["BM"])))
    taps = s.FH * s.FW
    steps = s.OH * s.OW * -(-s.N // (ROW_BYTES // X.dtype.itemsize))
    GZ = segments(tiles[0] * tiles[1] * taps, steps, s, X.device.properties.multiprocessors)

    def launch(part: Array) -> None:
        X.device.launch(
            "conv2d/sk_dilated.cu",
            "sk_dilated",
            (*tiles, taps * GZ),
            _threads(v.tile),
            (part, X, dY, as_struct(s), GZ),
            v.tile,
            tile_bytes(v.tile),
        )

    return with_partial_sums(X, s, GZ, launch)


def sk_dilated_ffma(X: Array, dY: Array, s: ConvShape, v: Variant) -> Array:
    """Algorithm 3 for any shape   X, dY -> dW"""
    tiles = (_tiles((s.FH * s.FW * s.IC, v.tile["BN"])), _tiles((s.OC, v.tile["BM"])))
    steps = -(-s.N * s.OH * s.OW // v.tile["BK"])
    GZ = segments(tiles[0] * tiles[1], steps, s, 2 * X.device.properties.multiprocessors)

    def launch(part: Array) -> None:
        X.device.launch(
            "conv2d/sk_dilated_ffma.cu", "sk_dilated_ffma", (*tiles, GZ), 256, (part, X, dY, as_struct(s)), v.tile
        )

    return with_partial_sums(X, s, GZ, launch)
