"""The predicted time of a configuration, in cycles of the GPU, by which configurations are compared.

    cycles = launches + max(SM, memory) + passes

SM is the time of the busiest SM: the slower of its products and its reads from the L2 cache, a part of the other, and
the beginnings and ends of its blocks (work.py). Memory is what must come from and go to the GPU's memory at least.
Passes are what prepares operands and adds partial sums. The constants are fitted to measurements by
`examples/fit_conv_model.py`, which keeps them by the GPU's name in `fitted/`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from alpha.ops.conv2d import sm90, sm90_tiles, sm90_weight_tiles, work
from alpha.ops.conv2d.configuration import Configuration
from alpha.ops.conv2d.problem import INPUT, WEIGHT, Target
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.conv2d.sm90_tiles import Tile

FITTED = Path(__file__).parent / "fitted"


@dataclass(frozen=True, eq=False)
class Constants:
    """What the model knows of a GPU.

    Attributes:
        clock_mhz: cycles per microsecond, for times; it changes no choice.
        launch: cycles of a launch.
        memory: bytes per cycle of the GPU's memory.
        partial: bytes per cycle of partial sums, which mostly stay in the L2 cache.
        read: by kernel (`kernel_of`): bytes per cycle that an SM reads from the L2 cache while all of them read.
        block: by kernel: cycles for the beginning and the end of a block.
        slowdown: by configuration: its products' cycles over those of the arithmetic units.
    """

    clock_mhz: float = 1755.0
    launch: float = 4000.0
    memory: float = 2200.0
    partial: float = sm90_weight_tiles.PARTIAL_BYTES_PER_CYCLE
    read: Mapping[str, float] = field(default_factory=dict)
    block: Mapping[str, float] = field(default_factory=dict)
    slowdown: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Constants:
        return cls(**json.loads(path.read_text()))


def predicted_ms(v: Configuration, s: ConvShape, target: Target) -> float:
    """The predicted milliseconds of a configuration on the target's GPU."""
    c = constants_of(target.name)
    return cycles(v, s, target, c) / c.clock_mhz / 1e3


@functools.cache
def constants_of(gpu: str) -> Constants:
    """Those of a GPU by its name; those of no GPU in particular if nobody has fitted them."""
    path = FITTED / file_name(gpu)
    return Constants.load(path) if path.is_file() else Constants()


def file_name(gpu: str) -> str:
    """The file of a GPU's constants in `fitted/`."""
    return "".join(c if c.isalnum() else "-" for c in gpu) + ".json"


def kernel_of(v: Configuration) -> str:
    """The kernel and math mode of a configuration, without its tile: "conv_v2_sm90_bf16"."""
    return v.name[: v.name.index(v.math.name.lower()) + len(v.math.name)] if not v.is_ffma else v.name


class Passes(NamedTuple):
    """What else a plan launches, and the bytes that it moves in the GPU's memory."""

    launches: int
    bytes: int


def passes(v: Configuration, s: ConvShape) -> Passes:
    """The launches that prepare the operands of a configuration (prepare.py, magnitudes.py)."""
    item, weights = v.dtype.itemsize, s.OC * s.FH * s.FW * s.IC
    launches, moved = 0, 0
    first = _size(s.Y if v.operator == INPUT else s.X)
    on_wgmma = "BLOCKS" in v.tile
    if v.math.in_fp16 and on_wgmma:
        second = _size(s.Y) if v.operator == WEIGHT else weights
        launches, moved = 2, 4 * (first + second)
        if v.operator != WEIGHT or v.tile.get("PREPARED"):
            converted = weights if v.operator != WEIGHT else first
            launches, moved = launches + 1, moved + converted * (4 + 2 * v.math.terms)
    elif v.operator == INPUT and not (on_wgmma and sm90.reads_weight(s, Tile.of(v))):
        launches, moved = 1, 2 * item * weights
    return Passes(launches, moved)


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


@functools.lru_cache(maxsize=1 << 14)
def cycles(v: Configuration, s: ConvShape, target: Target, c: Constants) -> float:
    """The predicted cycles of a configuration on cuda for a shape that it supports."""
    done = work.of(v, s, target)
    kernel = kernel_of(v)
    products = done.products * c.slowdown.get(v.name, 1.25)
    read = done.read / c.read.get(kernel, sm90_tiles.L2_BYTES_PER_CYCLE)
    busiest = max(products, read) + min(products, read) / 4 + done.blocks * c.block.get(kernel, 2000.0)
    launches, moved = passes(v, s)
    launches += 1 + (done.partial > 0 and v.operator == WEIGHT)
    item, weights = v.dtype.itemsize, 4 if v.operator == WEIGHT else v.dtype.itemsize
    least = item * (_size(s.X) + _size(s.Y)) + weights * _size(s.W)
    return launches * c.launch + max(busiest, least / c.memory) + moved / c.memory + 2 * done.partial / c.partial
