"""Launches of the Hopper kernels: wgmma fed by the copy engine, operands as scaled half-precision planes.

float32 is two planes and three products (22 bits), tf32 one plane and one product (11 bits). The largest
magnitude of each operand is found first, for the scale that keeps halves in range (cuda/common/half_pair.cuh).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.ops.conv2d.cuda import as_struct, segments, with_partial_sums
from alpha.ops.conv2d.shape import ConvShape, split_segments, trimmed_taps
from alpha.primitive import Array
from alpha.runtime import Device
from alpha.runtime.cuda.device import TensorMap

if TYPE_CHECKING:
    from alpha.ops.conv2d.variants import Variant

THREADS = 384  # two consumer warpgroups and a producer
BM, BK = 128, 64
BOX = 128 * BM  # bytes of 32 floats a row


def absmax(a: Array, b: Array) -> Array:
    """Bits of the largest magnitude of each array   a (...), b (...) -> (2,) uint32"""
    device = a.device
    out = device.zeros((2,), np.uint32)
    fit = 8 * device.properties.multiprocessors
    blocks = [max(1, min(fit, -(-x.size // 4096))) for x in (a, b)]
    device.launch(
        "reduce/absmax.cu", "absmax", sum(blocks), 256,
        (out, a, b, np.int64(a.size), np.int64(b.size), blocks[0]),
    )  # fmt: skip
    return out


def neighbours(images: int, positions: int, rows: int) -> int:
    """PW: how many positions of a map row share a tile of `rows` rows, so that a small batch fills it."""
    PW = 1
    while PW < 32 and images * PW < rows and positions > PW:
        PW *= 2
    return PW


def _padded(K: int) -> int:
    return -(-K // BK) * BK


def _images(A: Array, step: int, box: tuple[int, ...], planes: int = 0) -> Any:
    """Tensor maps of A (N, H, W, C) as (C, W / step, H, N), one for each phase of the columns.

    With `planes`, of A (planes, N, H, W, C), the planes last.
    """

    def maps() -> Iterator[TensorMap]:
        N, H, W, C = A.shape[-4:]
        item = A.dtype.itemsize
        strides: tuple[int, ...] = (step * C * item, W * C * item, H * W * C * item)
        last: tuple[int, ...] = (N,)
        if planes:
            strides, last = (*strides, N * H * W * C * item), (N, planes)
        for phase in range(step):
            dims = (C, -(-(W - phase) // step), H, *last)
            yield A.dtype.name, A.address + phase * C * item, dims, strides, box

    return A.device.tensor_maps((A.address, A.shape, step, box, planes), maps)


def _filters(P: Array, BN: int) -> Any:
    """The tensor map of filter planes P (planes, taps, GN, Kp) of halves."""

    def maps() -> Iterator[TensorMap]:
        planes, taps, GN, Kp = P.shape
        strides = (Kp * 2, GN * Kp * 2, taps * GN * Kp * 2)
        yield "uint16", P.address, (Kp, GN, taps, planes), strides, (BK, BN, 1, planes)

    return P.device.tensor_maps((P.address, P.shape, BN), maps)


# -- groups of positions, most taps first -----------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def conv_v2_groups(device: Device, s: ConvShape, PW: int) -> Array:
    """First positions of the groups of Y by falling number of taps   (groups,) int32"""
    rows = [trimmed_taps(o, s.IH, s.FH, s.sh, s.ph) for o in range(s.OH)]
    columns = [trimmed_taps(o, s.IW, s.FW, s.sw, s.pw) for o in range(s.OW)]
    starts = range(0, s.OW, PW)
    widths = [max(0, columns[o][1] - columns[min(o + PW, s.OW) - 1][0]) for o in starts]
    return _order(device, [b - a for a, b in rows], list(starts), widths, s.OW)


@functools.lru_cache(maxsize=1024)
def ks_deconv_groups(device: Device, s: ConvShape, PW: int) -> Array:
    """First positions of the groups of dX by falling number of taps   (groups,) int32"""
    rows = _split_taps(s.OH, s.IH, s.FH, s.sh, s.ph)
    columns = _split_taps(s.OW, s.IW, s.FW, s.sw, s.pw)
    starts = [
        first
        for residue in range(min(s.sw, s.IW))
        for first in range(residue, s.IW, PW * s.sw)
    ]  # fmt: skip
    widths = [max(columns[i : i + PW * s.sw : s.sw]) for i in starts]
    return _order(device, rows, starts, widths, s.IW)


def _split_taps(O: int, size: int, F: int, s: int, p: int) -> list[int]:  # noqa: E741
    """Taps of each input position's trimmed split kernel."""
    counts = [0] * size
    for g in split_segments(O, size, F, s, p):
        for i in range(g.length):
            counts[g.start + i * s] = g.c_e - g.c_s
    return counts


def _order(
    device: Device, rows: list[int], starts: list[int], widths: list[int], width: int
) -> Array:
    positions = np.add.outer(np.arange(len(rows)) * width, starts).reshape(-1)
    taps = np.multiply.outer(rows, widths).reshape(-1)
    return device.upload(positions[np.argsort(-taps, kind="stable")].astype(np.int32))


# -- the three operators ----------------------------------------------------------------------------


def conv_v2(X: Array, W: Array, s: ConvShape, v: Variant) -> Array:
    """Algorithm 1, PW positions a tile   X, W -> Y"""
    PW = neighbours(s.N, s.OW, BM)
    Y = X.device.empty(s.Y, X.dtype)
    largest = absmax(X, W)
    P = _planes("filter_planes", W, largest, s, v, s.OC, s.IC)
    _position_launch(
        "conv_v2_wgmma", v, PW, conv_v2_groups(X.device, s, PW), s.N, s.OC, s,
        (Y, _images(X, s.sw, (32, PW, 1, BM // PW)), _filters(P, v.tile["BN"]), largest),
    )  # fmt: skip
    return Y


def ks_deconv(dY: Array, W: Array, s: ConvShape, v: Variant) -> Array:
    """Algorithm 2B, PW positions of a residue a tile   dY, W -> dX"""
    PW = neighbours(s.N, -(-s.IW // s.sw), BM)
    dX = dY.device.empty(s.X, dY.dtype)
    largest = absmax(dY, W)
    C = _planes("kernel_split_planes", W, largest, s, v, s.IC, s.OC)
    _position_launch(
        "ks_deconv_wgmma", v, PW, ks_deconv_groups(dY.device, s, PW), s.N, s.IC, s,
        (dX, _images(dY, 1, (32, PW, 1, BM // PW)), _filters(C, v.tile["BN"]), largest),
    )  # fmt: skip
    return dX


def _planes(
    entry: str, W: Array, largest: Array, s: ConvShape, v: Variant, GN: int, K: int
) -> Array:
    """Filters as halves   W -> (planes, FH FW, GN, K padded to 64); freed after the use"""
    Kp, planes = _padded(K), v.tile["PLANES"]
    P = W.device.empty((planes, s.FH * s.FW, GN, Kp), np.uint16)
    W.device.launch(
        "conv2d/filter_planes.cu", entry, (Kp // 64, -(-GN // 32), s.FH * s.FW), (32, 8),
        (P, W, largest, as_struct(s), Kp), {"PLANES": planes},
    )  # fmt: skip
    return P


def _position_launch(
    entry: str, v: Variant, PW: int, order: Array, N: int, GN: int, s: ConvShape,
    args: tuple[Any, ...],
) -> None:  # fmt: skip
    BN, planes, stages = v.tile["BN"], v.tile["PLANES"], v.tile["STAGES"]
    grid = order.size * -(-N * PW // BM) * -(-GN // BN)
    shared = 1024 + stages * (2 * BOX + planes * BN * 128)
    macros = {"BN": BN, "PLANES": planes, "STAGES": stages, "PW": PW}
    args[0].device.launch(
        f"conv2d/{entry}.cu", entry, grid, THREADS, (*args, order, as_struct(s)), macros, shared
    )


def sk_dilated(X: Array, dY: Array, s: ConvShape, v: Variant) -> Array:
    """Algorithm 3B, a tap and a segment a block   X, dY -> dW"""
    device, BN, planes, stages = X.device, v.tile["BN"], v.tile["PLANES"], v.tile["STAGES"]
    PW = neighbours(s.N, s.OW, BK)
    largest = absmax(X, dY)
    P = device.empty((planes, *s.X), np.uint16)
    device.launch(
        "conv2d/pixel_planes.cu", "pixel_planes", -(-X.size // 1024), 256,
        (P, X, largest, 0, np.int64(X.size // 4)), {"PLANES": planes},
    )  # fmt: skip
    tiles = (-(-s.IC // BN), -(-s.OC // BM))
    steps = s.OH * -(-s.OW // PW) * -(-s.N * PW // BK)
    GZ = segments(tiles[0] * tiles[1] * s.FH * s.FW, steps, s, device.properties.multiprocessors)
    shared = 1024 + stages * (4 * BK * 128 + BN // 64 * planes * BK * 128)

    def launch(part: Array) -> None:
        device.launch(
            "conv2d/sk_dilated_wgmma.cu", "sk_dilated_wgmma", (*tiles, s.FH * s.FW * GZ), THREADS,
            (part, _images(P, s.sw, (64, PW, 1, BK // PW, planes), planes),
             _images(dY, 1, (32, PW, 1, BK // PW)), largest, as_struct(s), GZ),
            {"BN": BN, "PLANES": planes, "STAGES": stages, "PW": PW}, shared,
        )  # fmt: skip

    return with_partial_sums(X, s, GZ, launch)
