"""The predicted time of a configuration, in cycles of the GPU, by which configurations are compared.

    cycles = launches + max(SM, memory) + passes

SM is the time of the busiest SM: the slowest of its products, its reads from the L2 cache and its conversions of
operands, a part of the others, and the beginnings and ends of its blocks (work.py). It is at least what the steps of
its longest block take, which wait for one another. Memory is what must come from and go to the GPU's memory at least.
Passes are what prepares operands and adds partial sums. The constants are fitted to measurements by
`examples/fit_conv_model.py`, which keeps them by the GPU's name in `fitted/`. A GPU that nobody has measured uses those
of REFERENCE, with its own number of SMs.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from alpha.ops.conv2d import sm90, sm90_tiles, sm90_weight_tiles, work
from alpha.ops.conv2d.configuration import Configuration
from alpha.ops.conv2d.padded import resized, shape_for
from alpha.ops.conv2d.problem import INPUT, UNKNOWN, WEIGHT, Known, Target
from alpha.ops.conv2d.products import PRODUCTS
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.conv2d.work import Work

FITTED = Path(__file__).parent / "fitted"
REFERENCE = "NVIDIA H200"
COPIED = 3  # times as long as another byte takes one of a copy with padded channels; measured on an H200: 2 to 4


@dataclass(frozen=True, eq=False)
class Constants:
    """What the model knows of a GPU.

    Attributes:
        clock_mhz: cycles per microsecond, for times; it changes no choice.
        launch: cycles of a launch.
        memory: bytes per cycle of the GPU's memory.
        partial: bytes per cycle of partial sums, which mostly stay in the L2 cache.
        overlap: the part of an SM's other work that adds to the slowest.
        memory_overlap: the part of the faster one of SM and memory that adds to the slower one.
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
    partial: float = sm90_weight_tiles.PARTIAL_BYTES_PER_CYCLE
    overlap: float = 0.25
    memory_overlap: float = 0.05
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
        return cls(**json.loads(path.read_text()))

    def rates(self, v: Configuration) -> Rates:
        """Those of a configuration."""
        found = {kind: getattr(self, kind).get(key_of(kind, v), usual) for kind, usual in USUAL.items()}
        return Rates(**found)


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


USUAL = Rates(1.25, sm90_tiles.L2_BYTES_PER_CYCLE, 2000.0, 500.0, 1.0, 0.0, 0.0)._asdict()
OF_CONFIGURATIONS = ("slowdown", "end")  # the others are a kernel's


class Quantities(NamedTuple):
    """What the model multiplies by constants.

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
    together = slowest + c.overlap * (products + read + converted - slowest)
    busiest = np.maximum(together, done.steps * r.step) + done.blocks * r.block + r.end
    memory = q.least / c.memory
    product = np.maximum(busiest, memory) + c.memory_overlap * np.minimum(busiest, memory)
    splits = (done.partial > 0) * r.split + 2 * done.partial / c.partial
    return q.launches * c.launch + product + q.moved / c.memory + splits


def predicted_ms(v: Configuration, s: ConvShape, target: Target) -> float:
    """The predicted milliseconds of a configuration on the target's GPU."""
    c = constants_of(target.name)
    return cycles(v, s, target, c) / c.clock_mhz / 1e3


@functools.cache
def constants_of(gpu: str) -> Constants:
    """Those of a GPU by its name, or else those of REFERENCE."""
    paths = [FITTED / file_name(name) for name in (gpu, REFERENCE)]
    return Constants.load(next(path for path in paths if path.is_file()))


def file_name(gpu: str) -> str:
    """The file of a GPU's constants in `fitted/`."""
    return "".join(c if c.isalnum() else "-" for c in gpu) + ".json"


def kernel_of(v: Configuration) -> str:
    """The kernel and math mode of a configuration, without its tile: "conv_v2_sm90_bf16"."""
    v = v.base or v
    return v.name[: v.name.index(v.math.name.lower()) + len(v.math.name)] if not v.is_ffma else v.name


def key_of(kind: str, v: Configuration) -> str:
    """Under which name `Constants` has the rate of a configuration."""
    return (v.base or v).name if kind in OF_CONFIGURATIONS else kernel_of(v)


class Passes(NamedTuple):
    """What else a plan launches, and the bytes that it moves in the GPU's memory."""

    launches: int
    bytes: int


def passes(v: Configuration, s: ConvShape, target: Target, known: Known = UNKNOWN) -> Passes:
    """The launches that prepare the operands of a configuration (prepare.py, magnitudes.py)."""
    item, weights = v.dtype.itemsize, _size(s.W)
    launches, moved = 0, 0
    first = _size(s.Y if v.operator == INPUT else s.X)
    on_wgmma = "BLOCKS" in v.tile
    if v.math.in_fp16 and on_wgmma:
        second = _size(s.Y) if v.operator == WEIGHT else weights
        sizes = [size for size, is_known in zip((first, second), known, strict=True) if not is_known]
        launches, moved = int(bool(sizes)), 4 * sum(sizes)
        if v.operator != WEIGHT or v.tile.get("PREPARED"):
            converted = weights if v.operator != WEIGHT else first
            launches, moved = launches + 1, moved + converted * (4 + 2 * v.math.terms)
    elif (
        v.operator == INPUT
        and v not in PRODUCTS
        and not (on_wgmma and sm90.reads_weight(s, sm90_tiles.position_tile(v, s), target.num_sms))
    ):
        launches, moved = 1, 2 * item * weights
    elif v.base is not None:  # dW is rotated
        launches, moved = 1, 2 * 4 * weights
    return Passes(launches, moved)


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def quantities(v: Configuration, s: ConvShape, target: Target, known: Known = UNKNOWN) -> Quantities:
    """Those of a configuration on cuda for a shape that it computes."""
    used = shape_for(v, s, target) or s
    done, (launches, moved) = work.of(v, used, target), passes(v, used, target, known)
    item, weights = v.dtype.itemsize, 4 if v.operator == WEIGHT else v.dtype.itemsize
    for name, sizes in resized(v.operator, s, used).items() if used is not s else ():
        launches += 1
        moved += int(COPIED * (weights if name == "dW" else item) * sum(map(_size, sizes)))
    least = item * (_size(s.X) + _size(s.Y)) + weights * _size(s.W)
    added = done.partial > 0 and (v.operator == WEIGHT or v in PRODUCTS)  # by a launch of its own
    return Quantities(done, least, launches + 1 + added, moved)


@functools.lru_cache(maxsize=1 << 14)
def cycles(v: Configuration, s: ConvShape, target: Target, c: Constants, known: Known = UNKNOWN) -> float:
    """The predicted cycles of a configuration on cuda for a shape that it computes."""
    return float(total(quantities(v, s, target, known), c.rates(v), c))
