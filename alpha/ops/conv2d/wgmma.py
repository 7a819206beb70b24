"""Launches of the Hopper kernels: wgmma fed by the copy engine, bands of pixels shared by the taps of a filter row.

How the operands reach the tensor cores is the row's OPERANDS:

    HALVES  scaled half-precision planes (cuda/common/half_pair.cuh): two are "float32", one has 11 bits. The largest
            magnitude of each operand is found first, for the scale that keeps halves in range. Sk-dilated has X
            made into planes first, or with FLOATS in the kernel itself.
    TF32    floats, of which the tensor cores read 11 bits
    BF16    bfloat16 arrays
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from alpha.ops.conv2d import bands
from alpha.ops.conv2d.bands import Tile
from alpha.ops.conv2d.cuda import as_struct, kernel_split
from alpha.ops.conv2d.magnitudes import absmax
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.reduce import sum_parts
from alpha.primitive import Array
from alpha.runtime.cuda.device import CudaDevice, TensorMap

if TYPE_CHECKING:
    from alpha.ops.conv2d.variant import ChannelMoments, Variant


Largest = tuple[Array | None, Array | None]  # bits of the largest magnitudes of A and of B's source, for HALVES


# -- tensor maps ------------------------------------------------------------------------------------

Box = tuple[int, ...]


def _element(A: Array) -> str:
    return "float32" if A.dtype == np.float32 else "uint16"


def _images(A: Array, step: int, phases: Box, boxes: tuple[Box, ...]) -> Any:
    """Tensor maps of A ([planes,] N, H, W, C) as (C, N, W / step, H[, planes]), one for each phase of the columns.

    Phase p has the columns p, p + step, ...
    """

    def maps() -> Iterator[TensorMap]:
        N, H, W, C = A.shape[-4:]
        item = A.dtype.itemsize
        strides: Box = (H * W * C * item, step * C * item, W * C * item)
        planes: Box = A.shape[:-4]
        if planes:
            strides = (*strides, N * H * W * C * item)
        for phase, box in zip(phases, boxes, strict=True):
            dims = (C, N, -(-(W - phase) // step), H, *planes)
            yield _element(A), A.address + phase * C * item, dims, strides, box

    return A.device.tensor_maps(A, ("images", step, phases, boxes), maps)


def _filters(P: Array, box: Box) -> Any:
    """The tensor map of filters P (planes, taps, GN, K) as (K, taps, GN, planes)."""

    def maps() -> Iterator[TensorMap]:
        planes, taps, GN, K = P.shape
        item = P.dtype.itemsize
        strides = (GN * K * item, K * item, taps * GN * K * item)
        yield _element(P), P.address, (K, taps, GN, planes), strides, box

    return P.device.tensor_maps(P, ("filters", box), maps)


def _raw_filters(W: Array, box: Box) -> Any:
    """The tensor map of W (OC, FH, FW, IC) as (IC, taps, OC, 1)."""

    def maps() -> Iterator[TensorMap]:
        OC, FH, FW, IC = W.shape
        item = W.dtype.itemsize
        strides = (IC * item, FH * FW * IC * item, OC * FH * FW * IC * item)
        yield _element(W), W.address, (IC, FH * FW, OC, 1), strides, box

    return W.device.tensor_maps(W, ("raw filters", box), maps)


# -- ConvV2 and KS-deconv ---------------------------------------------------------------------------


MOMENT_WARPS, MOMENT_PADDING = 8, 16


def moment_bytes(tile: Tile) -> int:
    """Of shared memory, for the moments of a tile's columns (BlockMoments of cuda/conv2d/band_moments.cuh)."""
    return 4 * (tile.BN + 2 * MOMENT_WARPS * (tile.BN + MOMENT_PADDING))


class Works(NamedTuple):
    """What the blocks of a launch take up, in device memory."""

    array: Array
    total: int
    slots: int  # of the sums of those that are cut


@functools.lru_cache(maxsize=1024)
def _works(device: CudaDevice, groups: bands.Groups, K: int, tiles: int) -> Works:
    """`tiles` of images and output channels a group."""
    works = bands.works(groups, K, tiles, device.properties.multiprocessors)
    array = device.constant(np.array(works, np.int32))
    return Works(array, len(works), sum(work.segments > 1 for work in works))


@functools.lru_cache(maxsize=8)
def _arrived(device: CudaDevice) -> Array:
    """Zeros, and each kernel leaves them zero: two counts for every tile that is cut."""
    tiles = bands.MAX_WAVES * device.properties.multiprocessors
    return device.constant(np.zeros(2 * tiles * bands.MAX_SEGMENTS, np.uint32))


def conv_v2(
    X: Array,
    W: Array,
    s: ConvShape,
    v: Variant,
    bias: Array | None = None,
    slope: float = 1.0,
    moments: ChannelMoments | None = None,
) -> Array:
    """Algorithm 1, PW positions a tile; bias, activation and moments of Y in the same kernel   X, W -> Y"""
    tile = Tile.of(v)
    groups = bands.conv_v2_groups(s, tile)
    Y = X.device.empty(s.Y, X.dtype)
    largest: Largest = (None, None)
    if tile.operands == "HALVES":
        largest = absmax(X, W)
        P = _planes("filter_planes", W, largest[1], s, tile, s.OC, s.IC)
        B = _filters(P, (64, 1, tile.BN, tile.planes))
    else:
        B = _raw_filters(W, (tile.BK, 1, tile.BN, 1))
    residues = range(min(s.sw, s.FW))
    phases = tuple((r - s.pw) % s.sw for r in residues)
    A = _images(X, s.sw, phases, tuple(groups.box(r) for r in residues))
    _launch("conv_v2_wgmma", tile, groups, s, Y, A, B, largest, s.OC, bias, slope, moments)
    return Y


def ks_deconv(dY: Array, W: Array, s: ConvShape, v: Variant, bias: Array | None = None, slope: float = 1.0) -> Array:
    """Algorithm 2B, PW positions of a residue a tile; bias and activation with it   dY, W -> dX"""
    tile = Tile.of(v)
    groups = bands.ks_deconv_groups(s, tile)
    dX = dY.device.empty(s.X, dY.dtype)
    largest: Largest = (None, None)
    if tile.operands == "HALVES":
        largest = absmax(dY, W)
        P = _planes("kernel_split_planes", W, largest[1], s, tile, s.IC, s.OC)
        B = _filters(P, (64, 1, tile.BN, tile.planes))
    elif tile.operands == "TF32":
        P = kernel_split(W, s)
        B = _filters(P.reshape(1, *P.shape), (tile.BK, 1, tile.BN, 1))
    else:  # the tensor cores read W as it is, input channels contiguous
        B = _raw_filters(W, (64, 1, 64, 1))
    residues = range(s.sw)
    A = _images(dY, 1, (0,) * s.sw, tuple(groups.box(r) for r in residues))
    _launch("ks_deconv_wgmma", tile, groups, s, dX, A, B, largest, s.IC, bias, slope)
    return dX


def _planes(entry: str, W: Array, largest: Array, s: ConvShape, tile: Tile, GN: int, K: int) -> Array:
    """Filters as halves   W -> (planes, FH FW, GN, K padded to 64); freed after the use"""
    Kp = -(-K // 64) * 64
    P = W.device.empty((tile.planes, s.FH * s.FW, GN, Kp), np.uint16)
    W.device.launch(
        "conv2d/filter_planes.cu",
        entry,
        (Kp // 64, -(-GN // 32), s.FH * s.FW),
        (32, 8),
        (P, W, largest, as_struct(s), Kp),
        {"PLANES": tile.planes},
    )
    return P


def _works_first(entry: str, tile: Tile, s: ConvShape, waves: float, cut: bool) -> bool:
    """Whether few products an element that is read make it pay that all works of some images come before the next."""
    if tile.BN > 64 and s.sh * s.sw == 1:
        return False
    if entry == "conv_v2_wgmma":
        return waves > 2 and not cut
    # blocks that take tiles in a fixed order need alike ones, and the split kernels of a stride are not
    return waves > bands.MAX_WAVES and tile.blocks == 2


def _moment_parts(moments: ChannelMoments | None, count: int, s: ConvShape, device: CudaDevice) -> tuple[Any, Any, int]:
    """(moments, their counts, how many parts), as conv_v2_wgmma takes them."""
    if moments is None:
        return None, None, 0
    moments.part = device.empty((2, count, s.OC), np.float32)
    moments.counts = device.empty((count,), np.float32)
    return moments.part, moments.counts, count


def _launch(
    entry: str,
    tile: Tile,
    groups: bands.Groups,
    s: ConvShape,
    C: Array,
    A: Any,
    B: Any,
    largest: Largest,
    GN: int,
    bias: Array | None,
    slope: float,
    moments: ChannelMoments | None = None,
) -> None:
    device = C.device
    processors = device.properties.multiprocessors
    across = -(-GN // tile.BN)  # tiles of output channels
    tiles_of_work = -(-s.N * groups.PW // tile.BM) * across
    K = s.IC if entry == "conv_v2_wgmma" else s.OC
    works = _works(device, groups, K, tiles_of_work)
    tiles = works.total * tiles_of_work
    parts = arrived = None
    if works.slots:
        parts = device.empty((works.slots * tiles_of_work, tile.BM, tile.BN), np.float32)
        arrived = _arrived(device)
    if not groups.stages(1, moment_bytes(tile))[0] or processors % across > processors // 8:
        moments = None  # no room, or, as a block keeps to its channels, too many of them idle
    reserved = 0 if moments is None else moment_bytes(tile)
    # a block may have all registers and shared memory where it is the only one, or needs them
    if works.slots or tiles <= processors or not groups.stages(tile.blocks, reserved)[0]:
        tile = tile._replace(blocks=1)
    a_stages, b_stages = groups.stages(tile.blocks, reserved)
    macros = {
        "BM": tile.BM,
        "BN": tile.BN,
        "PLANES": tile.planes,
        "OPERANDS": tile.operands,
        "BLOCKS": tile.blocks,
        "PW": groups.PW,
        "BAND": groups.band,
        "A_STAGES": a_stages,
        "B_STAGES": b_stages,
        "B_MN": int(tile.operands == "BF16" and entry == "ks_deconv_wgmma"),
        "FUSED": int(bias is not None or slope != 1.0),
        "CUT": int(works.slots > 0),
        "MOMENTS": int(reserved > 0),
    }
    works_first = _works_first(entry, tile, s, tiles / processors, works.slots > 0)
    # two blocks a multiprocessor hide each other's beginning and end, and are better balanced one tile each
    grid, threads = (min(tiles, processors), 384) if tile.blocks == 1 else (tiles, 288)
    of_moments: tuple[Any, ...] = ()
    if entry == "conv_v2_wgmma":
        if works.slots:  # a part a tile
            count = len(groups.rows) * len(groups.starts) * tiles_of_work // across
        else:  # a part a block
            grid -= grid % across if reserved else 0
            count = grid // across
        of_moments = _moment_parts(moments, count, s, device)
    device.launch(
        f"conv2d/{entry}.cu",
        entry,
        grid,
        threads,
        (
            C,
            A,
            B,
            *largest,
            bias,
            float(slope),
            works.array,
            works.total,
            int(works_first),
            parts,
            arrived,
            *of_moments,
            as_struct(s),
        ),
        macros,
        1024 + a_stages * groups.a_bytes + b_stages * tile.b_bytes,
    )


# -- Sk-dilated -------------------------------------------------------------------------------------


def sk_dilated(X: Array, dY: Array, s: ConvShape, v: Variant) -> Array:
    """Algorithm 3B, taps of one filter row and a segment a block   X, dY -> dW"""
    device, tile = X.device, Tile.of(v)
    plan = bands.sk_dilated_plan(s, tile)
    largest: Largest = (None, None) if tile.operands == "BF16" else absmax(X, dY)
    source, x_channels = X, tile.a_channels
    if tile.operands == "HALVES":
        source, x_channels = device.empty((tile.planes, *s.X), np.uint16), 64
        device.launch(
            "conv2d/pixel_planes.cu",
            "pixel_planes",
            -(-X.size // 1024),
            256,
            (source, X, largest[0], np.int64(X.size // 4)),
            {"PLANES": tile.planes},
        )
    grid = (-(-s.IC // tile.BN), -(-s.OC // tile.BM), s.FH * -(-s.FW // plan.taps))
    blocks, weights = grid[0] * grid[1] * grid[2], s.OC * s.FH * s.FW * s.IC
    GZ = bands.segments(plan, blocks, 4 * weights, device.properties.multiprocessors)
    stages = plan.stages()
    part = device.empty((GZ, *s.W), np.float32)
    x_box = (x_channels, plan.images, plan.band, 1, 1)[: source.ndim]
    phases = tuple(range(s.sw))
    device.launch(
        "conv2d/sk_dilated_wgmma.cu",
        "sk_dilated_wgmma",
        (*grid[:2], grid[2] * GZ),
        384,
        (
            part,
            _images(source, s.sw, phases, (x_box,) * s.sw),
            _images(dY, 1, (0,), ((tile.a_channels, plan.images, plan.PW, 1),)),
            *largest,
            as_struct(s),
            GZ,
        ),
        {
            "BM": tile.BM,
            "BN": tile.BN,
            "PLANES": tile.planes,
            "OPERANDS": tile.operands,
            "TAPS": plan.taps,
            "PW": plan.PW,
            "BAND": plan.band,
            "BANDS": plan.bands,
            "STAGES": stages,
        },
        1024 + stages * plan.stage_bytes,
    )
    return part.reshape(s.W) if GZ == 1 else sum_parts(part)
