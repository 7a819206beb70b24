"""The predicted time of a configuration, in cycles of the GPU, by which configurations are compared.

    cycles = launches + max(SM, memory) + passes

SM is the time of the busiest SM: the slowest of its products, its reads from the L2 cache and its conversions of
operands, a part of the others, and the beginnings and ends of its blocks. It is at least what the steps of its
longest block take, which wait for one another. Memory is what must come from and go to the GPU's memory at least.
Passes are what prepares operands and adds partial sums. The constants are fitted to measurements by
`examples/fit_conv_model.py`, which keeps them by the GPU's name in `fitted/`. A GPU that nobody has measured uses those
of REFERENCE, with its own number of SMs.

Terms: docs/glossary.md.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from alpha.errors import ConfigError
from alpha.ops.conv2d import conv_v2, direct, ks_deconv, mma_sync, sk_dilated
from alpha.ops.conv2d.hopper import output_launch, output_tiles, tile_schedule, weight_schedule, weight_tiles
from alpha.ops.conv2d.hopper.output_tiles import Tile
from alpha.ops.conv2d.partial_sums import most_parts, tiles_of
from alpha.ops.conv2d.prepare import resized, shape_for
from alpha.ops.conv2d.problem import FORWARD, INPUT, UNKNOWN, WEIGHT, Configuration, Given, Known, MathMode, Target
from alpha.ops.conv2d.select import product_table
from alpha.ops.conv2d.select.product_table import PRODUCTS
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.gemm import tiles as matmul_tiles
from alpha.ops.gemm.tiles import Product

FFMA_PER_CYCLE = 128  # multiply-adds of an SM
MMA_PER_CYCLE = {MathMode.BF16: 1024, MathMode.TF32: 512, MathMode.TF32X3: 512 / 3, MathMode.FP16: 1024}
MMA_PER_CYCLE[MathMode.FP16X3] = MMA_PER_CYCLE[MathMode.BF16X3] = MMA_PER_CYCLE[MathMode.FP16] / 3
FAST_TENSOR_CORES = (8, 0), (9, 0), (10, 0)  # compute capabilities; others have a quarter of the rate
TRANSPOSE_CYCLES = 800.0  # for TRANSPOSED floats of a filter that stays, by a warp: 8 loads of 4 per lane
TRANSPOSED = 32 * 8 * 4


class Work(NamedTuple):
    """The work of the busiest SM.

    Attributes:
        products: cycles of its arithmetic units.
        read: bytes that it reads from the L2 cache.
        blocks: blocks, or tiles of a persistent block, that follow one another on it.
        partial: bytes of partial sums that all SMs together write, and read again.
        converted: cycles of its warps that convert operands for the arithmetic units.
        active: the share of the SMs that have work.
        steps: the steps of K that follow one another in its longest block, if the kernel's steps wait for one another.
    """

    products: float
    read: float
    blocks: float
    partial: float = 0.0
    converted: float = 0.0
    active: float = 1.0
    steps: float = 0.0


def is_counted(v: Configuration) -> bool:
    """True if the work of a configuration is known; a new algorithm runs without it, and has no predicted time."""
    return (v.base or v).make in _FAMILIES


@functools.lru_cache(maxsize=1 << 14)
def work_of(v: Configuration, s: ConvShape, target: Target) -> Work:
    """The work of a configuration on cuda for a shape that it supports.

    One with a `base` computes a gradient as that configuration computes the convolution `direct.swapped`.
    """
    if v.base is not None:
        return work_of(v.base, direct.swapped(s), target)
    return _FAMILIES[v.make](v, s, target)


def products_per_cycle(math: MathMode, target: Target) -> float:
    """The most multiply-adds per cycle of an SM: by wgmma on Hopper, by mma.sync on others, by FFMA without them."""
    if math is MathMode.FP32:
        return float(FFMA_PER_CYCLE)
    if target.compute_capability == (9, 0):
        return output_tiles.wgmma_per_cycle(math) / (3 if math.terms == 2 else 1)
    return _mma_per_cycle(math, target)


def trims(v: Configuration) -> bool:
    """True if a configuration leaves out the products that meet padded zeros."""
    return _FAMILIES.get((v.base or v).make) in (_sm90, _sm90_weight, _sm80, _sm80_weight)


def _busiest(tiles: int, longest: float, num_sms: int) -> float:
    """The work of the busiest SM in tiles of mean length, if the longest tiles begin first.

    Args:
        longest: the longest tile over the mean.

    If all tiles are equal, work comes in whole waves, and the last wave is as long as the others. If tiles differ, SMs
    end at different times: about half a tile after the mean of all. Anything between is a mix of both.
    """
    uneven = 1 - 1 / longest
    equal = -(-tiles // num_sms)
    return max(longest, uneven * (tiles / num_sms + 0.5) + (1 - uneven) * equal)


def _active(blocks: int, target: Target) -> float:
    return min(1.0, blocks / target.num_sms)


def _mma_per_cycle(math: MathMode, target: Target) -> float:
    """Multiply-adds of an SM per cycle by mma.sync."""
    return MMA_PER_CYCLE[math] * (1.0 if target.compute_capability in FAST_TENSOR_CORES else 0.25)


# -- wgmma ------------------------------------------------------------------------------------------


def _sm90(v: Configuration, s: ConvShape, target: Target) -> Work:
    forward = v.operator == FORWARD
    tile = output_tiles.position_tile(v, s)
    output = output_tiles.conv_v2_tiles(s, tile) if forward else output_tiles.ks_deconv_tiles(s, tile)
    K, GN = (s.IC, s.OC) if forward else (s.OC, s.IC)
    rows, widths = output.taps
    places = len(output.rows) * len(output.widths)
    copies = tiles_of((s.N * output.tile_ow, tile.BM), (GN, tile.BN))
    tiles, steps = places * copies, -(-K // tile.BK)
    if not rows * widths:
        return Work(0, 0, -(-tiles // target.num_sms), active=_active(tiles, target))
    taps = rows * widths / places  # of a mean tile
    input_tiles = rows * output.row_input_tiles / places
    longest = max(1.0, int(output.rows.max()) * int(output.widths.max()) / taps)
    products = taps * tile.cycles * tile.instructions(K) / output_tiles.INSTRUCTIONS
    read_a, read_b = steps * input_tiles * output.a_bytes, steps * taps * tile.b_bytes
    keeps = output_launch.keeps_filter(s, tile, output, forward, target.num_sms)
    transposes = keeps and not forward and tile.math is MathMode.TF32 and s.taps == 1
    transposed = TRANSPOSE_CYCLES * -(-K * tile.BN // (TRANSPOSED * tile.consumer_warps)) if transposes else 0.0
    # the splits of K that `tile_schedule` takes: the same estimate as there, from means instead of single tiles
    few = tiles <= tile_schedule.MAX_WAVES * target.num_sms and not keeps
    most = min(tile_schedule.MAX_SPLITS, int(input_tiles * steps) // 2) if few else 1
    sums = tile.BM * tile.BN * 4
    found = []
    for splits in range(1, max(1, most) + 1):
        busy = _busiest(tiles * splits, longest, target.num_sms) / splits
        partial = 0 if splits == 1 else tiles * splits * sums
        read = read_a * busy + read_b * (1 if keeps else busy)
        in_turn = max(longest / splits, busy / (1 if keeps else tile.blocks))  # tiles of a block, one after the other
        active = _active(tiles * splits, target)
        work = Work(products * busy, read, busy * splits, partial, transposed, active, taps * steps * in_turn)
        begun = work.blocks * output_tiles.BLOCK_CYCLES + partial / weight_tiles.PARTIAL_BYTES_PER_CYCLE
        found.append((max(work.products, work.read / output_tiles.L2_BYTES_PER_CYCLE) + begun, work))
    return min(found)[1]


def _sm90_weight(v: Configuration, s: ConvShape, target: Target) -> Work:
    tile = Tile.of(v)
    block = weight_tiles.weight_tile(s, tile)
    tiles = tiles_of((s.IC, tile.BN), (s.OC, tile.BM))
    schedule = weight_schedule.weight_schedule(s, block, tiles, target.num_sms)
    steps = schedule.busiest_steps
    return Work(
        steps * block.taps * tile.cycles,
        steps * block.stage_bytes,
        schedule.busiest_blocks,
        schedule.partial_bytes,
        steps * block.converted_cycles,
        _active(tiles * len(schedule.blocks), target),
    )


# -- mma.sync ---------------------------------------------------------------------------------------


def _sm80(v: Configuration, s: ConvShape, target: Target) -> Work:
    BM, BN = v.tile["BM"], v.tile["BN"]
    BK = mma_sync.ROW_BYTES // v.dtype.itemsize
    if v.operator == FORWARD:
        (K, GN), pixels = (s.IC, s.OC), s.OH * s.OW
    else:
        (K, GN), pixels = (s.OC, s.IC), s.IH * s.IW
    steps = s.useful * s.FH * s.FW * s.OH * s.OW / pixels * -(-K // BK)
    tiles = pixels * tiles_of((s.N, BM), (GN, BN))
    busy = _busiest(tiles, 1.5 if s.useful < 1 or s.sh * s.sw > 1 else 1.0, target.num_sms)
    products, read = BM * BN * BK / _mma_per_cycle(v.math, target), (BM + BN) * mma_sync.ROW_BYTES
    return Work(busy * steps * products, busy * steps * read, busy, active=_active(tiles, target))


def _sm80_weight(v: Configuration, s: ConvShape, target: Target) -> Work:
    BM, BN = v.tile["BM"], v.tile["BN"]
    BK = mma_sync.ROW_BYTES // v.dtype.itemsize
    blocks = tiles_of((s.IC, BN), (s.OC, BM)) * s.FH * s.FW
    steps = s.useful * s.OH * s.OW * -(-s.N // BK)
    return _in_splits(
        blocks,
        steps,
        (BM * BN * BK / _mma_per_cycle(v.math, target), (BM + BN) * mma_sync.ROW_BYTES),
        sk_dilated.splits_sm80(v, s, target),
        s,
        target,
    )


def _in_splits(blocks: int, steps: float, per_step: tuple[float, float], GZ: int, s: ConvShape, target: Target) -> Work:
    """Blocks of `steps` steps of K, in GZ splits of K (the third size of the grid); a step has (cycles, bytes)."""
    waves = -(-blocks * GZ // target.num_sms)
    each, (cycles, read) = waves * steps / GZ, per_step
    partial = 4 * GZ * s.OC * s.FH * s.FW * s.IC if GZ > 1 else 0
    return Work(each * cycles, each * read, waves, partial, active=_active(blocks * GZ, target))


def _product(v: Configuration, s: ConvShape, target: Target) -> Work:
    p = product_table.product_of(s)
    BM, BN, BK, _ = matmul_tiles.mma_tile(p, product_table.vector_of(s), target.num_sms)
    tiles = tiles_of((p.M, BM), (p.N, BN))
    splits, depth = matmul_tiles.splits_of(p.K, BK, tiles, target.num_sms)
    waves, steps = -(-tiles * splits // target.num_sms), -(-depth // BK)
    return Work(
        waves * steps * BM * BN * BK / _mma_per_cycle(v.math, target),
        waves * steps * 4 * (BM + BN) * BK,
        waves,
        4 * splits * p.M * p.N if splits > 1 else 0,
        active=_active(tiles * splits, target),
    )


# -- FFMA -------------------------------------------------------------------------------------------


def _ffma(v: Configuration, s: ConvShape, target: Target) -> Work:
    BM, BN = v.tile["BM"], v.tile["BN"]
    if v.operator == FORWARD:
        tiles, K = tiles_of((s.N * s.OH * s.OW, BM), (s.OC, BN)), float(s.FH * s.FW * s.IC)
    else:
        pixels = s.N * -(-s.IH // s.sh) * -(-s.IW // s.sw)
        tiles, K = tiles_of((pixels, BM), (s.IC, BN)) * s.sh * s.sw, s.FH * s.FW * s.OC / (s.sh * s.sw)
    busy = _busiest(tiles, 1.0, target.num_sms)
    products, read = BM * BN / FFMA_PER_CYCLE, (BM + BN) * 4
    return Work(busy * K * products, busy * K * read, busy, active=_active(tiles, target))


def _ffma_weight(v: Configuration, s: ConvShape, target: Target) -> Work:
    BM, BN, BK = v.tile["BM"], v.tile["BN"], v.tile["BK"]
    blocks = tiles_of((s.FH * s.FW * s.IC, BN), (s.OC, BM))
    step = BM * BN * BK / FFMA_PER_CYCLE, (BM + BN) * BK * 4.0
    steps = -(-s.N * s.OH * s.OW // BK)
    return _in_splits(blocks, steps, step, sk_dilated.splits_ffma(v, s, target), s, target)


# -- direct -----------------------------------------------------------------------------------------


def _direct(v: Configuration, s: ConvShape, target: Target) -> Work:
    """Forward: all pixels by 64 output channels; K is padded to whole instructions on tensor cores."""
    K, rate, rows = float(s.FH * s.FW * s.IC), float(FFMA_PER_CYCLE), direct.ffma_rows(s)[0]
    if not v.is_ffma:
        K, rate, rows = (
            32.0 * direct.depth_blocks(s),
            _mma_per_cycle(v.math, target),
            direct.forward_rows(s, v.math.terms)[0],
        )
    groups = -(-s.OC // direct.CHANNELS)
    blocks, busy = _direct_blocks(s, rows, groups, target)
    read = 4 * groups * s.N * s.IH * s.IW * s.IC / busy
    products = s.N * s.OH * s.OW / busy * groups * direct.CHANNELS * K / rate
    return Work(products, read, 1, active=_active(blocks, target))


def _direct_blocks(s: ConvShape, rows: int, groups: int, target: Target) -> tuple[int, int]:
    """The pieces of work of a direct kernel, whole rows of the map, and how many SMs have one."""
    blocks = s.N * -(-s.OH // rows) * groups
    return blocks, min(blocks, target.num_sms)


def _direct_weight(v: Configuration, s: ConvShape, target: Target) -> Work:
    item, K, rate = v.dtype.itemsize, float(s.FH * s.FW * s.IC), float(FFMA_PER_CYCLE)
    rows = direct.ffma_rows(s)[0]
    if not v.is_ffma:
        warps, fragments = direct.weight_fragments(s)
        K, rate, rows = 8.0 * warps * fragments, _mma_per_cycle(v.math, target), direct.weight_rows(s, item)[0]
    groups = -(-s.OC // direct.CHANNELS)
    blocks, busy = _direct_blocks(s, rows, groups, target)
    read = s.N * (item * s.OH * s.OW * s.OC + 4 * groups * s.IH * s.IW * s.IC) / busy
    parts = min(2 * target.num_sms, blocks, most_parts(s)) if v.is_ffma else direct.weight_blocks(s, v, target)
    products = s.N * s.OH * s.OW / busy * groups * direct.CHANNELS * K / rate
    return Work(products, read, 1, 4 * parts * s.OC * s.FH * s.FW * s.IC, active=_active(blocks, target))


_FAMILIES: dict[Callable[..., object], Callable[[Configuration, ConvShape, Target], Work]] = {
    conv_v2.plan_sm90: _sm90,
    ks_deconv.plan_sm90: _sm90,
    sk_dilated.plan_sm90: _sm90_weight,
    conv_v2.plan_sm80: _sm80,
    ks_deconv.plan_sm80: _sm80,
    sk_dilated.plan_sm80: _sm80_weight,
    product_table.product: _product,
    conv_v2.plan_ffma: _ffma,
    ks_deconv.plan_ffma: _ffma,
    sk_dilated.plan_ffma: _ffma_weight,
    direct.direct_forward_sm80: _direct,
    direct.direct_forward_ffma: _direct,
    direct.direct_weight_sm80: _direct_weight,
    direct.direct_weight_ffma: _direct_weight,
}


FITTED = Path(__file__).parent / "fitted"
REFERENCE = "NVIDIA H200"
COPIED = 3  # a byte of a copy with padded channels takes about 3 times as long as another; an H200: 2 to 4


@dataclass(frozen=True, eq=False)
class Constants:
    """Constants of a GPU, from which the model predicts times.

    Attributes:
        clock_mhz: cycles per microsecond, for times; it changes no choice.
        launch: cycles of a launch.
        memory: bytes per cycle of the GPU's memory.
        partial: bytes per cycle of partial sums, which mostly stay in the L2 cache.
        not_hidden: the part of an SM's other work that does not hide behind the slowest, and adds to it.
        memory_not_hidden: the part of the faster one of SM and memory that adds to the slower one.
        least_active: the share of active SMs below which an SM does not read faster.
        read: by kernel (`kernel_of`): bytes per cycle that an SM reads from the L2 cache while all of them read.
        block: by kernel: cycles for the beginning and the end of a block.
        split: by kernel: cycles that split-K takes besides its partial sums.
        converted: by kernel: cycles for a predicted cycle of conversion.
        step: by kernel: cycles from one step of K of a block to the next, if an SM does nothing else.
        slowdown: by configuration: its products' cycles over those of the arithmetic units.
        end: by configuration: cycles before the first and after the last products of an SM, which nothing hides.
    """

    clock_mhz: float = 1755.0
    launch: float = 4000.0
    memory: float = 2200.0
    partial: float = weight_tiles.PARTIAL_BYTES_PER_CYCLE
    not_hidden: float = 0.25
    memory_not_hidden: float = 0.05
    least_active: float = 0.5
    read: Mapping[str, float] = field(default_factory=dict)
    block: Mapping[str, float] = field(default_factory=dict)
    split: Mapping[str, float] = field(default_factory=dict)
    converted: Mapping[str, float] = field(default_factory=dict)
    step: Mapping[str, float] = field(default_factory=dict)
    slowdown: Mapping[str, float] = field(default_factory=dict)
    end: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Constants:
        """Constants of a file; ConfigError if it is another version's, whose constants have other names."""
        found = json.loads(path.read_text())
        if others := found.keys() - cls.__dataclass_fields__.keys():
            raise ConfigError(
                f"{path}: has constants of another version ({', '.join(sorted(others))}); fit them anew with "
                "examples/fit_conv_model.py, or remove the file"
            )
        return cls(**found)

    def rates(self, v: Configuration) -> Rates:
        """Rates of a configuration."""
        return self.rates_of(kernel_of(v), (v.base or v).name)

    def rates_of(self, kernel: str, configuration: str) -> Rates:
        """Rates by the names of a kernel and of a configuration of it."""
        names = {kind: configuration if kind in OF_CONFIGURATIONS else kernel for kind in USUAL}
        return Rates(**{kind: getattr(self, kind).get(names[kind], usual) for kind, usual in USUAL.items()})


Number: TypeAlias = Any  # float, or a numpy array of float64 with an entry per measurement


class Rates(NamedTuple):
    """The constants that depend on a configuration; see `Constants`."""

    slowdown: Number
    read: Number
    block: Number
    split: Number
    converted: Number
    step: Number
    end: Number


USUAL = Rates(1.25, output_tiles.L2_BYTES_PER_CYCLE, 2000.0, 500.0, 1.0, 0.0, 0.0)._asdict()
OF_CONFIGURATIONS = ("slowdown", "end")  # the others are a kernel's


class Quantities(NamedTuple):
    """Quantities that the model multiplies by constants.

    Attributes:
        least: bytes that come from and go to the GPU's memory at least.
        launches: kernels that are launched.
        moved: bytes that the other kernels move in the GPU's memory.
    """

    work: Work
    least: Number
    launches: Number
    moved: Number


def total(q: Quantities, r: Rates, c: Constants) -> Number:
    """The predicted cycles."""
    done = q.work
    products, converted = done.products * r.slowdown, done.converted * r.converted
    read = done.read / r.read * np.maximum(done.active, c.least_active)
    slowest = np.maximum(np.maximum(products, read), converted)
    together = slowest + c.not_hidden * (products + read + converted - slowest)
    busiest = np.maximum(together, done.steps * r.step) + done.blocks * r.block + r.end
    memory = q.least / c.memory
    product = np.maximum(busiest, memory) + c.memory_not_hidden * np.minimum(busiest, memory)
    splits = (done.partial > 0) * r.split + 2 * done.partial / c.partial
    return q.launches * c.launch + product + q.moved / c.memory + splits


def predicted_ms(v: Configuration, s: ConvShape, target: Target) -> float:
    """The predicted milliseconds of a configuration on the target's GPU."""
    c = constants_of(target.name)
    return cycles(v, s, target, c) / c.clock_mhz / 1e3


@functools.cache
def constants_of(gpu: str) -> Constants:
    """Constants of a GPU by its name, or else those of REFERENCE."""
    paths = [FITTED / file_name(name) for name in (gpu, REFERENCE)]
    return Constants.load(next(path for path in paths if path.is_file()))


def file_name(gpu: str) -> str:
    """The file of a GPU's constants in `fitted/`."""
    return "".join(c if c.isalnum() else "-" for c in gpu) + ".json"


def kernel_of(v: Configuration) -> str:
    """The kernel and math mode of a configuration, without its tile: "conv_v2_sm90_bf16"."""
    v = v.base or v
    if v.reads_half:  # which reads 16 bits as a kernel for bfloat16 does
        return v.name[: v.name.index(v.math.name.lower())] + "bf16"
    return v.name[: v.name.index(v.math.name.lower()) + len(v.math.name)] if not v.is_ffma else v.name


def key_of(kind: str, v: Configuration) -> str:
    """Name under which `Constants` has the rate of a configuration."""
    if v.reads_half and kind in OF_CONFIGURATIONS:
        return f"{kernel_of(v)}_{v.tile['BM']}x{v.tile['BN']}"
    return (v.base or v).name if kind in OF_CONFIGURATIONS else kernel_of(v)


class Passes(NamedTuple):
    """Number of other launches of a plan, and the bytes that they move in the GPU's memory."""

    launches: int
    bytes: int


def passes(v: Configuration, s: ConvShape, target: Target, known: Known = UNKNOWN) -> Passes:
    """The launches that prepare the operands of a configuration (prepare.py, magnitudes.py) or finish its result."""
    item, weights = v.dtype.itemsize, _size(s.W)
    launches, moved = 0, 0
    first = _size(s.Y if v.operator == INPUT else s.X)
    on_wgmma = "BLOCKS" in v.tile
    if v.math.in_fp16 and on_wgmma:
        second = _size(s.Y) if v.operator == WEIGHT else weights
        sizes = [size for size, given in zip((first, second), known, strict=True) if given == Given.NOTHING]
        launches, moved = int(bool(sizes)), 4 * sum(sizes)
        prepared = (first, second)[: v.tile.get("PREPARED", 0)]
        one_term = v.math.terms == 1
        converted = [size for size, given in zip(prepared, known, strict=False) if given < Given.HALF or not one_term]
        converted += [weights] * (v.operator != WEIGHT)
        launches, moved = launches + len(converted), moved + sum(converted) * (4 + 2 * v.math.terms)
    elif (
        v.operator == INPUT
        and v not in PRODUCTS
        and not (on_wgmma and output_launch.reads_weight(s, output_tiles.position_tile(v, s), target.num_sms))
    ):
        launches, moved = 1, 2 * item * weights
    elif v.base is not None:  # the result of the swapped convolution is rotated into dW
        launches, moved = 1, 2 * 4 * weights
    return Passes(launches, moved)


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def quantities(v: Configuration, s: ConvShape, target: Target, known: Known = UNKNOWN) -> Quantities:
    """Quantities of a configuration on cuda for a shape that it computes."""
    used = shape_for(v, s, target) or s
    if used is not s:  # copies are of the given shape
        known = min(known[0], Given.MAGNITUDE), min(known[1], Given.MAGNITUDE)
    done, (launches, moved) = work_of(v, used, target), passes(v, used, target, known)
    item, weights = v.dtype.itemsize, 4 if v.operator == WEIGHT else v.dtype.itemsize
    for name, sizes in resized(v.operator, s, used).items() if used is not s else ():
        launches += 1
        moved += int(COPIED * (weights if name == "dW" else item) * sum(map(_size, sizes)))
    least = item * (_size(s.X) + _size(s.Y)) + weights * _size(s.W)
    if v.reads_half:
        read = {FORWARD: (s.X,), INPUT: (s.Y,), WEIGHT: (s.X, s.Y)}[v.operator]
        least -= (item - 2 * v.math.terms) * sum(map(_size, read))
    added = done.partial > 0 and (v.operator == WEIGHT or v in PRODUCTS)  # by a launch of its own
    return Quantities(done, least, launches + 1 + added, moved)


@functools.lru_cache(maxsize=1 << 14)
def cycles(v: Configuration, s: ConvShape, target: Target, c: Constants, known: Known = UNKNOWN) -> float:
    """The predicted cycles of a configuration on cuda for a shape that it computes."""
    return float(total(quantities(v, s, target, known), c.rates(v), c))


# -- matrix products by cuda/matmul/ffma.cu, which are no convolutions -----------------------------------------------

FFMA_PRODUCT = "matmul_ffma"


def product_configuration(p: Product, target: Target) -> str:
    """Name of the tile that computes a product, as `Constants` has it."""
    BM, BN = matmul_tiles.ffma_tile(p, _vector_of(p), target.num_sms)
    return f"{FFMA_PRODUCT}_{BM}x{BN}"


def _vector_of(p: Product) -> int:
    """Elements of a load, if both operands are aligned."""
    last = p.M if p.transpose_a else p.K, p.K if p.transpose_b else p.N
    return 4 if all(length % 4 == 0 for length in last) else 1


def product_quantities(p: Product, target: Target) -> Quantities:
    """Quantities of a product in float32 on FFMA."""
    BM, BN = matmul_tiles.ffma_tile(p, _vector_of(p), target.num_sms)
    BK = matmul_tiles.DEPTH
    tiles = p.D * tiles_of((p.M, BM), (p.N, BN))
    splits, depth = matmul_tiles.splits_of(p.K, BK, tiles, target.num_sms)
    waves, steps = -(-tiles * splits // target.num_sms), -(-depth // BK)
    work = Work(
        waves * steps * BM * BN * BK / FFMA_PER_CYCLE,
        waves * steps * 4 * (BM + BN) * BK,
        waves,
        4 * splits * p.D * p.M * p.N if splits > 1 else 0,
        active=_active(tiles * splits, target),
    )
    least = 4 * p.D * (p.M * p.K + p.K * p.N + p.M * p.N)
    return Quantities(work, least, 1 + (splits > 1), 0)


@functools.lru_cache(maxsize=1 << 14)
def product_cycles(p: Product, target: Target, c: Constants) -> float:
    """The predicted cycles of a product in float32 on FFMA."""
    rates = c.rates_of(FFMA_PRODUCT, product_configuration(p, target))
    return float(total(product_quantities(p, target), rates, c))
