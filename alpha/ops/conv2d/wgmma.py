"""Plans of the Hopper kernels: wgmma fed by TMA, bands of pixels shared by the taps of a filter row.

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
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.numerics import FLOAT32
from alpha.ops.conv2d import bands
from alpha.ops.conv2d.bands import Tile
from alpha.ops.conv2d.cuda import as_struct, kernel_split, with_partial_sums
from alpha.ops.conv2d.problem import ConvProblem, Epilogue, Target
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.plan import Buffer, KernelLaunch, Named, Plan, Table, TensorMaps
from alpha.primitive import Array
from alpha.runtime.cuda.device import TensorMap

if TYPE_CHECKING:
    from alpha.ops.conv2d.variant import Variant

HALF = np.dtype(np.uint16)  # of a plane

# -- tensor maps ------------------------------------------------------------------------------------

Box = tuple[int, ...]


def _element(A: Array) -> str:
    return "float32" if A.dtype == np.float32 else "uint16"


def _images(name: str, step: int, phases: Box, boxes: tuple[Box, ...]) -> TensorMaps:
    """Tensor maps of A ([planes,] N, H, W, C) as (C, N, W / step, H[, planes]), one for each phase of the columns.

    Phase p has the columns p, p + step, ...
    """

    def encode(A: Array) -> Iterator[TensorMap]:
        N, H, W, C = A.shape[-4:]
        item = A.dtype.itemsize
        strides: Box = (H * W * C * item, step * C * item, W * C * item)
        planes: Box = A.shape[:-4]
        if planes:
            strides = (*strides, N * H * W * C * item)
        for phase, box in zip(phases, boxes, strict=True):
            dims = (C, N, -(-(W - phase) // step), H, *planes)
            yield _element(A), A.address + phase * C * item, dims, strides, box

    return TensorMaps(name, ("images", step, phases, boxes), encode)


def _filters(name: str, box: Box) -> TensorMaps:
    """The tensor map of filters P ([planes,] taps, GN, K) as (K, taps, GN, planes)."""

    def encode(P: Array) -> Iterator[TensorMap]:
        planes, taps, GN, K = P.shape if P.ndim == 4 else (1, *P.shape)
        item = P.dtype.itemsize
        strides = (GN * K * item, K * item, taps * GN * K * item)
        yield _element(P), P.address, (K, taps, GN, planes), strides, box

    return TensorMaps(name, ("filters", box), encode)


def _raw_filters(box: Box) -> TensorMaps:
    """The tensor map of W (OC, FH, FW, IC) as (IC, taps, OC, 1)."""

    def encode(W: Array) -> Iterator[TensorMap]:
        OC, FH, FW, IC = W.shape
        item = W.dtype.itemsize
        strides = (IC * item, FH * FW * IC * item, OC * FH * FW * IC * item)
        yield _element(W), W.address, (IC, FH * FW, OC, 1), strides, box

    return TensorMaps("W", ("raw filters", box), encode)


# -- ConvV2 and KS-deconv ---------------------------------------------------------------------------


MOMENT_WARPS, MOMENT_PADDING = 8, 16
ABSMAX = Named("absmax_a", optional=True), Named("absmax_b", optional=True)  # only for HALVES and FLOATS


def moment_bytes(tile: Tile) -> int:
    """Of shared memory, for the moments of a tile's columns (BlockMoments of cuda/conv2d/band_moments.cuh)."""
    return 4 * (tile.BN + 2 * MOMENT_WARPS * (tile.BN + MOMENT_PADDING))


@functools.lru_cache(maxsize=8)
def _arrived(num_sms: int) -> Table:
    """Zeros, and each kernel leaves them zero: two counts for every tile that is cut."""
    tiles = bands.MAX_WAVES * num_sms
    return Table(lambda: np.zeros(2 * tiles * bands.MAX_SEGMENTS, np.uint32))


def conv_v2(p: ConvProblem, v: Variant, target: Target) -> Plan:
    """Algorithm 1, PW positions a tile; bias, activation and moments of Y in the same kernel   X, W -> Y"""
    s, tile = p.shape, Tile.of(v)
    groups = bands.conv_v2_groups(s, tile)
    prepare: tuple[KernelLaunch, ...] = ()
    workspaces = {}
    if tile.operands == "HALVES":
        planes, workspaces["P"] = _planes("filter_planes", s, tile, s.OC, s.IC)
        prepare = (planes,)
        B = _filters("P", (64, 1, tile.BN, tile.planes))
    else:
        B = _raw_filters((tile.BK, 1, tile.BN, 1))
    residues = range(min(s.sw, s.FW))
    phases = tuple((r - s.pw) % s.sw for r in residues)
    A = _images("X", s.sw, phases, tuple(groups.box(r) for r in residues))
    product = _BandProduct("conv_v2_wgmma", tile, groups, s, A, B, target, p.epilogue)
    return product.plan(v, {"Y": p.result}, prepare, workspaces)


def ks_deconv(p: ConvProblem, v: Variant, target: Target) -> Plan:
    """Algorithm 2B, PW positions of a residue a tile; bias and activation with it   dY, W -> dX"""
    s, tile = p.shape, Tile.of(v)
    groups = bands.ks_deconv_groups(s, tile)
    prepare: tuple[KernelLaunch, ...] = ()
    workspaces = {}
    if tile.operands == "HALVES":
        planes, workspaces["P"] = _planes("kernel_split_planes", s, tile, s.IC, s.OC)
        prepare = (planes,)
        B = _filters("P", (64, 1, tile.BN, tile.planes))
    elif tile.operands == "TF32":
        split, workspaces["C"] = kernel_split(p)
        prepare = (split,)
        B = _filters("C", (tile.BK, 1, tile.BN, 1))
    else:  # the tensor cores read W as it is, input channels contiguous
        B = _raw_filters((64, 1, 64, 1))
    residues = range(s.sw)
    A = _images("dY", 1, (0,) * s.sw, tuple(groups.box(r) for r in residues))
    product = _BandProduct("ks_deconv_wgmma", tile, groups, s, A, B, target, p.epilogue)
    return product.plan(v, {"dX": p.result}, prepare, workspaces)


def _planes(entry: str, s: ConvShape, tile: Tile, GN: int, K: int) -> tuple[KernelLaunch, Buffer]:
    """Filters as halves   W -> P (planes, FH FW, GN, K padded to 64)"""
    Kp = -(-K // 64) * 64
    launch = KernelLaunch(
        "conv2d/filter_planes.cu",
        entry,
        (Kp // 64, -(-GN // 32), s.FH * s.FW),
        (32, 8),
        (Named("P"), Named("W"), Named("absmax_b"), as_struct(s), Kp),
        {"PLANES": tile.planes},
    )
    return launch, Buffer((tile.planes, s.FH * s.FW, GN, Kp), HALF)


class _BandProduct:
    """The launch of conv_v2_wgmma or ks_deconv_wgmma, and what it needs."""

    def __init__(
        self,
        entry: str,
        tile: Tile,
        groups: bands.Groups,
        s: ConvShape,
        A: TensorMaps,
        B: TensorMaps,
        target: Target,
        epilogue: Epilogue,
    ) -> None:
        self.entry, self.groups, self.s, self.A, self.B = entry, groups, s, A, B
        self.epilogue = epilogue
        self.forward = entry == "conv_v2_wgmma"
        self.GN, K = (s.OC, s.IC) if self.forward else (s.IC, s.OC)
        self.processors = target.num_sms
        self.across = -(-self.GN // tile.BN)  # tiles of output channels
        self.tiles_of_work = -(-s.N * groups.PW // tile.BM) * self.across
        self.works = bands.works(groups, K, self.tiles_of_work, self.processors)
        self.slots = sum(work.segments > 1 for work in self.works)  # of the sums of those that are cut
        self.tiles = len(self.works) * self.tiles_of_work
        # with no room, or, as a block keeps to its channels, with too many blocks idle, moments are not found
        room = groups.stages(1, moment_bytes(tile))[0] and self.processors % self.across <= self.processors // 8
        self.moments = bool(epilogue.moments and room)
        self.reserved = moment_bytes(tile) if self.moments else 0
        # a block may have all registers and shared memory where it is the only one, or needs them
        if self.slots or self.tiles <= self.processors or not groups.stages(tile.blocks, self.reserved)[0]:
            tile = tile._replace(blocks=1)
        self.tile = tile
        self.a_stages, self.b_stages = groups.stages(tile.blocks, self.reserved)
        # two blocks per SM hide each other's beginning and end, and are better balanced one tile each
        self.grid, self.threads = (min(self.tiles, self.processors), 384) if tile.blocks == 1 else (self.tiles, 288)
        self.moment_parts = 0
        if self.forward:
            if self.slots:  # a part a tile
                parts = len(groups.rows) * len(groups.starts) * self.tiles_of_work // self.across
            else:  # a part a block
                self.grid -= self.grid % self.across if self.reserved else 0
                parts = self.grid // self.across
            self.moment_parts = parts if self.moments else 0

    def plan(
        self, v: Variant, outputs: dict[str, Buffer], prepare: tuple[KernelLaunch, ...], workspaces: dict[str, Buffer]
    ) -> Plan:
        if self.slots:
            sums = (self.slots * self.tiles_of_work, self.tile.BM, self.tile.BN)
            workspaces = {**workspaces, "parts": Buffer(sums, FLOAT32)}
        if self.moments:
            outputs = {
                **outputs,
                "moments": Buffer((2, self.moment_parts, self.s.OC), FLOAT32),
                "moment_counts": Buffer((self.moment_parts,), FLOAT32),
            }
        return Plan(
            v.name,
            (*prepare, self.launch(next(iter(outputs)))),
            outputs,
            workspaces,
            facts={"scales": self.tile.operands == "HALVES"},
        )

    def launch(self, result: str) -> KernelLaunch:
        tile, works = self.tile, self.works
        arguments: list[Any] = [
            Named(result),
            self.A,
            self.B,
            *ABSMAX,
            Named("bias", optional=True),
            Named("slope"),
            Table(lambda: np.array(works, np.int32)),
            len(works),
            int(self.works_first()),
            Named("parts", optional=True),
            _arrived(self.processors) if self.slots else None,
        ]
        if self.forward:
            found = (Named(name, optional=True) for name in ("moments", "moment_counts"))
            arguments += [*found, self.moment_parts]
        return KernelLaunch(
            f"conv2d/{self.entry}.cu",
            self.entry,
            self.grid,
            self.threads,
            (*arguments, as_struct(self.s)),
            {
                "BM": tile.BM,
                "BN": tile.BN,
                "PLANES": tile.planes,
                "OPERANDS": tile.operands,
                "BLOCKS": tile.blocks,
                "PW": self.groups.PW,
                "BAND": self.groups.band,
                "A_STAGES": self.a_stages,
                "B_STAGES": self.b_stages,
                "B_MN": int(tile.operands == "BF16" and not self.forward),
                "FUSED": int(self.epilogue.changes_results),
                "CUT": int(self.slots > 0),
                "MOMENTS": int(self.moments),
            },
            1024 + self.a_stages * self.groups.a_bytes + self.b_stages * tile.b_bytes,
        )

    def works_first(self) -> bool:
        """True if few products per element make it pay to finish some images before the next, so that L2 holds them."""
        if self.tile.BN > 64 and self.s.sh * self.s.sw == 1:
            return False
        waves = self.tiles / self.processors
        if self.forward:
            return waves > 2 and not self.slots
        # blocks that take tiles in a fixed order need alike ones, and the split kernels of a stride are not
        return waves > bands.MAX_WAVES and self.tile.blocks == 2


# -- Sk-dilated -------------------------------------------------------------------------------------


def sk_dilated(p: ConvProblem, v: Variant, target: Target) -> Plan:
    """Algorithm 3B, taps of one filter row and a segment a block   X, dY -> dW"""
    s, tile = p.shape, Tile.of(v)
    plan = bands.sk_dilated_plan(s, tile)
    prepare: tuple[KernelLaunch, ...] = ()
    workspaces = {}
    source, x_channels = "X", tile.a_channels
    x_box: Box = (x_channels, plan.images, plan.band, 1)
    if tile.operands == "HALVES":
        source = "P"
        workspaces["P"] = Buffer((tile.planes, *s.X), HALF)
        x_box = (64, plan.images, plan.band, 1, 1)
        size = s.N * s.IH * s.IW * s.IC
        prepare = (
            KernelLaunch(
                "conv2d/pixel_planes.cu",
                "pixel_planes",
                -(-size // 1024),
                256,
                (Named("P"), Named("X"), Named("absmax_a"), np.int64(size // 4)),
                {"PLANES": tile.planes},
            ),
        )
    grid = (-(-s.IC // tile.BN), -(-s.OC // tile.BM), s.FH * -(-s.FW // plan.taps))
    blocks, weights = grid[0] * grid[1] * grid[2], s.OC * s.FH * s.FW * s.IC
    GZ = bands.segments(plan, blocks, 4 * weights, target.num_sms)
    stages = plan.stages()
    launch = KernelLaunch(
        "conv2d/sk_dilated_wgmma.cu",
        "sk_dilated_wgmma",
        (*grid[:2], grid[2] * GZ),
        384,
        (
            Named("part"),
            _images(source, s.sw, tuple(range(s.sw)), (x_box,) * s.sw),
            _images("dY", 1, (0,), ((tile.a_channels, plan.images, plan.PW, 1),)),
            *ABSMAX,
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
    return with_partial_sums(p, v, target, (*prepare, launch), GZ, workspaces, scales=tile.operands != "BF16")
