"""All that Alpha launches on a GPU of one architecture: its operators run, and their launches are recorded.

There is no list of kernels to keep. The launch code itself chooses kernel, tile, macros and shared memory for the
architecture; a new kernel or configuration is there as soon as a test of its operator is, and `test_gate.py` says where
that is missing.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import alpha
from alpha import models, nn
from alpha.core.numerics import BFLOAT16
from alpha.core.primitive import REGISTRY
from alpha.core.rng import Stream
from alpha.ops.conv2d import cuda_target
from alpha.ops.conv2d.channel_statistics import ChannelStatistics
from alpha.ops.conv2d.magnitudes import finds_magnitude
from alpha.ops.conv2d.plan import compute
from alpha.ops.conv2d.problem import OPERANDS, Configuration, Given, MathMode, Target
from alpha.ops.conv2d.select.grouped_table import GROUPED
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.shape import ConvShape, conv_shape
from alpha.ops.image.resampling import Resampling
from alpha.ops.noise.group_dropout import Outcome
from alpha.ops.pooling.pool_shape import PoolShape
from alpha.runtime.cuda.compile import ARCHITECTURES
from alpha.runtime.cuda.planning.driver_dry import DryDevice
from alpha.runtime.recording import StepValue

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / folder) for folder in (".", "support", "support/conv2d", "ops/all/numbers")]
import axes_geometry  # noqa: E402
import conv2d_cases  # noqa: E402
import conv2d_steps  # noqa: E402
import grouped_geometry  # noqa: E402
import half_cases  # noqa: E402
import ping_pong_cases  # noqa: E402
import primitive_calls  # noqa: E402
import test_bfloat16  # noqa: E402

GPUS = tuple(arch for arch in ARCHITECTURES if arch != "sm_90")  # compiled for as sm_90a
EXPRESSION = "-DALPHA_EXPRESSION="  # of a kernel that computes any elementwise expression
# ALPHA_GATE=all compiles every launch for every architecture. Otherwise these compile one of so many of the kernels
# that they share, by the same code, with sm_80, and one of RARE_TURNS elementwise expressions for rare arrays.
ALL = os.environ.get("ALPHA_GATE") == "all"
TURNS = {"sm_75": 4, "sm_86": 8, "sm_89": 8, "sm_100": 8, "sm_120": 8}
RARE_TURNS = 3
HOPPER = Target("cuda", (9, 0), 132, 227 << 10)
AXES_TURN = 2 * len(axes_geometry.SHAPES)  # every second of Hopper's rows compiles one shape with a depth or dilation
TURN = 24  # of the small shapes, each of Hopper's rows compiles one of so many
REGISTERS = 128  # at most per thread, unless a kernel configuration says otherwise


Unit = tuple[str, tuple[str, ...]]  # a source and the options with which it is compiled


@dataclass(frozen=True, order=True)
class Launch:
    """A kernel and what decides, besides its code, whether it fits a GPU."""

    source: str  # "conv2d/conv_v2.cu"
    entry: str
    options: tuple[str, ...]  # of the compiler
    threads: int  # of a block
    shared_bytes: int  # dynamic

    @property
    def unit(self) -> Unit:
        """Source and options that are compiled."""
        return self.source, self.options


def device(arch: str, misaligned_by: int = 0) -> DryDevice:
    return DryDevice.of(arch, misaligned_by)


def recorded(on: DryDevice) -> set[Launch]:
    return {Launch(x.source, x.entry, x.options, x.threads, x.shared_bytes) for x in on.driver.launches}


@functools.cache
def record(arch: str) -> dict[Launch, int]:
    """Each launch, and the most registers that a thread of it may have."""
    on = device(arch)
    run_runtime(on)
    run_padded(on)
    for name, arguments in primitive_cases():
        primitive_calls.run(REGISTRY[name], on, arguments)
    for half_case in half_cases.CASES:
        half_case.run(on)
        if not half_case.forward:
            half_case.run(on, wanted=Given.HALF_ALONE)
    for network in networks():
        for precision in alpha.core.numerics.PRECISIONS:
            with alpha.precision(precision):
                train(network, on)
    return {launch: budget(launch, arch) for launch in recorded(on).union(*record_rows(arch).values())}


def in_turn(arch: str) -> dict[Launch, int]:
    """Launches that are compiled for an architecture.

    Those of TURNS compile a part of what they share with sm_80. The others share the kernels of elementwise
    expressions, which have no code of any architecture's own: each is compiled for one of those that launch it.
    """
    found = record(arch)
    if ALL:
        return found
    units = {launch.unit for launch in found}
    if arch in TURNS:
        shared = units & {launch.unit for launch in record("sm_80")}
        number = list(TURNS).index(arch) % TURNS[arch]
        left = {unit for unit in shared if _digest(unit) % TURNS[arch] != number}
    else:
        others = {other: _expressions(other) for other in GPUS if other not in TURNS}
        left = set()
        for unit in others[arch]:
            launching = [other for other, expressions in others.items() if unit in expressions]
            if launching[_digest(unit) % len(launching)] != arch:
                left.add(unit)
    return {launch: registers for launch, registers in found.items() if launch.unit not in left}


def _digest(unit: Unit) -> int:
    return zlib.crc32(repr(unit).encode())


@functools.cache
def _expressions(arch: str) -> frozenset[Unit]:
    """The kernels of elementwise expressions that are launched on an architecture."""
    return frozenset(filter(_computes_expression, {launch.unit for launch in record(arch)}))


def _computes_expression(unit: Unit) -> bool:
    return any(option.startswith(EXPRESSION) for option in unit[1])


def budget(launch: Launch, arch: str) -> int:
    """The strictest row whose kernel and tile this is; more than REGISTERS only by a row that says so."""
    kernel, options = (launch.source, launch.entry), set(launch.options)
    launched = record_rows(arch)
    allowed = [
        row.registers
        for row in (*CONFIGURATIONS, *GROUPED)
        if _tile(row) <= options and kernel in {(x.source, x.entry) for x in launched.get(row.name, ())}
    ]
    return min(allowed, default=REGISTERS)


def _tile(row: Configuration) -> set[str]:
    """Compiler options of a row: the math mode of tensor cores, and the tile.

    The blocks per SM are left out, because a launch may lower them.
    """
    macros = row.tile if row.is_ffma or row in GROUPED else row.macros
    return {f"-DALPHA_{key}={value}" for key, value in macros.items() if key != "BLOCKS"}


def shapes_of(row: Configuration) -> list[ConvShape]:
    """The shapes for which a row is compiled. Many of Hopper's rows share a kernel, so each takes only some shapes."""
    if row in GROUPED:
        return list(grouped_geometry.COMPILED)
    if row.base is not None:
        return list(conv2d_cases.FEW_OUTPUTS)
    shapes = conv2d_cases.cuda_shapes()
    if "BLOCKS" not in row.tile:
        return shapes
    rows = [v for v in CONFIGURATIONS if v.operator == row.operator and "BLOCKS" in v.tile]
    turn = [s for s in shapes if row.supports(s, HOPPER)][rows.index(row) % TURN :: TURN]
    if row.tile["BLOCKS"] == 2:  # if the tiles are few, each has an SM of its own
        turn.append(conv2d_cases.MANY)
    axes = axes_geometry.SHAPES[rows.index(row) % AXES_TURN :: AXES_TURN]
    return list(dict.fromkeys((*turn, *axes, conv2d_cases.LONG)))


@functools.cache
def record_rows(arch: str) -> dict[str, set[Launch]]:
    """Launches of each kernel configuration that supports anything on this architecture, by name."""
    found = {}
    for row in (*CONFIGURATIONS, *GROUPED):
        on = device(arch)
        for s in shapes_of(row) if row.device == "cuda" else ():
            if row.supports(s, cuda_target(on)):
                run_row(row, s, on)
        if row in ping_pong_cases.ROWS.values() and row.supports(ping_pong_cases.SHAPES[0], cuda_target(on)):
            run_turns(row, on)
        if recorded(on):
            found[row.name] = recorded(on)
    return found


def run_row(row: Configuration, s: ConvShape, on: DryDevice) -> None:
    """Run a row with all that it can do beside the product, which takes most registers.

    Small shapes run without these additions, too.
    """
    names = conv2d_cases.OPERATORS[row.operator][1]
    first, second = (on.zeros(getattr(s, name), conv2d_cases.arrays_of(row)) for name in names)
    large = s in (conv2d_cases.LONG, conv2d_cases.MANY)
    if not large or not row.supports_epilogue:
        compute(row, first, second, s)
    if row.supports_epilogue and (s.FH, s.FW) == (3, 3):
        bias = on.zeros((s.OC if row.operator == conv2d_cases.FORWARD else s.IC,), np.float32)
        if not large or not row.supports_statistics:
            compute(row, first, second, s, bias, 0.5)
        if row.supports_statistics:
            compute(row, first, second, s, *((bias, 0.5) if large else (None, 1.0)), ChannelStatistics())
        if finds_magnitude(first, 0.5) and row.operator == conv2d_cases.FORWARD and s == conv2d_cases.MANY:
            compute(row, first, second, s, bias, 0.5)
    if row.supports_step and s == conv2d_cases.LONG:
        for shape in (s, conv2d_steps.TRANSPOSED) if row.math is MathMode.TF32 else (s,):
            run_steps(row, shape, on)


def run_turns(row: Configuration, on: DryDevice) -> None:
    """Run what two warpgroups in turns can do; of tiles of all widths, what needs most registers."""
    forward, num_sms = row.operator == conv2d_cases.FORWARD, on.properties.num_sms

    def large(small: ConvShape) -> ConvShape:
        return ping_pong_cases.for_operator(row.operator, ping_pong_cases.with_tiles(small, num_sms))

    names = conv2d_cases.OPERATORS[row.operator][1]
    for s in map(large, [*ping_pong_cases.SHAPES, *([ping_pong_cases.STRIDED] if forward else [])]):
        first, second = (on.empty(getattr(s, name), conv2d_cases.arrays_of(row)) for name in names)
        bias = on.zeros((s.OC if forward else s.IC,), np.float32)
        for change in ((None, 1.0), (bias, 0.5)):
            compute(row, first, second, s, *change)
            if forward:
                compute(row, first, second, s, *change, ChannelStatistics())
    for s in map(large, ping_pong_cases.WIDTHS):
        first, second = (on.empty(getattr(s, name), conv2d_cases.arrays_of(row)) for name in names)
        compute(row, first, second, s, on.zeros((64,), np.float32), 0.5)
        if forward:
            compute(row, first, second, s, on.zeros((64,), np.float32), 0.5, ChannelStatistics())
    for s in map(large, () if forward else ping_pong_cases.STEP_SHAPES):
        for form in ping_pong_cases.STEPS:
            assert conv2d_steps.launch_on_zeros(row, s, form, on)


def run_steps(row: Configuration, s: ConvShape, on: DryDevice) -> None:
    """Launch the forms of a first step, but none that needs less than one that is launched."""
    taken: set[conv2d_steps.Form] = set()
    for form in conv2d_steps.FORMS:
        if not conv2d_steps.is_asked_for(form, row) or conv2d_steps.NEEDS_LESS.get(form) in taken:
            continue
        if conv2d_steps.launch_on_zeros(row, s, form, on):
            taken.add(form)


@functools.cache
def record_rare(arch: str) -> set[Launch]:
    """Launches for float64 arrays, arrays off every vector, arrays of 2^31 numbers and large windows.

    Without ALL they are a part of those that compute elementwise expressions, whose kernels are one template.
    """
    aligned, misaligned = device(arch), device(arch, misaligned_by=4)
    for name, arguments in primitive_cases():
        if not name.startswith("conv2d"):  # its rows state what alignment they need
            primitive_calls.run(REGISTRY[name], misaligned, arguments)
        with contextlib.suppress(TypeError):  # computed in float32 only
            primitive_calls.run(REGISTRY[name], aligned, as_double(arguments))
    run_large(aligned)
    found = recorded(aligned) | recorded(misaligned)
    return {x for x in found if ALL or not _computes_expression(x.unit) or _digest(x.unit) % RARE_TURNS == 0}


def primitive_cases() -> Iterator[tuple[str, tuple[Any, ...]]]:
    for name, cases in primitive_calls.CASES.items():
        for case in cases:
            arguments = case[:-1] if name in primitive_calls.WITH_LENGTH else case
            yield name, arguments
            if name in test_bfloat16.OF_POOLS:
                yield name, tuple(map(test_bfloat16.lower, arguments))
    for name, arguments, _ in test_bfloat16.ALL:
        yield name, arguments
    for case in test_bfloat16.CASTS:
        yield "cast", case


def as_double(value: Any) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a NamedTuple: a view, not operands
        return value
    if isinstance(value, (list, tuple)):
        return type(value)(map(as_double, value))
    is_float = isinstance(value, np.ndarray) and value.dtype == np.float32
    return value.astype(np.float64) if is_float else value


def run_runtime(on: DryDevice) -> None:
    """The kernels that no operator launches."""
    from alpha.utils import doctor

    for dtype in (np.float16, np.float32, np.float64):
        on.fill(on.empty((1000,), dtype), 0.1)
    with contextlib.suppress(alpha.errors.DeviceError):  # nothing was computed
        doctor._test_cuda(on)


def run_padded(on: DryDevice) -> None:
    """Convolutions of channels that are no whole packs, and whose arrays have more than 2^31 elements."""
    for N, dtype in ((64, np.float32), (64, BFLOAT16), (1 << 20, BFLOAT16)):
        s = conv_shape("padded", (N, 14, 14, 19), (21, 3, 3, 19), (1, 1), (1, 1))
        for operator, names in OPERANDS.items():
            operands = (on.empty(getattr(s, name.removeprefix("d")), dtype) for name in names)
            REGISTRY[operator](*operands, s, "tf32")


def run_large(on: DryDevice) -> None:
    """Operators whose kernels count elements, on more than 2^31 of them, and windows of many taps."""
    X = on.empty((2**26, 6, 6, 1), np.float32)
    REGISTRY["add"](X, X)
    REGISTRY["cast"](X, np.dtype(np.float64), 1.0, 0.0)
    REGISTRY["broadcast_to"](on.empty((2**26, 1), np.float32), (2**26, 36))
    s = PoolShape(2**26, 6, 6, 1, 1, 1, 1, 1, 0, 0, 6, 6)
    _, index = REGISTRY["max_pool2d_forward"](X, s)
    REGISTRY["max_pool2d_backward"](X, index, s)
    REGISTRY["avg_pool2d_forward"](X, s)
    REGISTRY["avg_pool2d_backward"](X, s)
    everything = PoolShape(2, 64, 64, 4, 1, 1, 1, 1, 0, 0, 1, 1, adaptive=True)  # more taps than a byte counts
    Y, index = REGISTRY["max_pool2d_forward"](on.empty((2, 64, 64, 4), np.float32), everything)
    REGISTRY["max_pool2d_backward"](Y, index, everything)
    REGISTRY["max_pool2d_indices"](index, everything)
    rows = X.reshape((2**26, 6, 6))
    REGISTRY["resample_axis1"](rows, Resampling("linear", 6, 6, 0.5))
    REGISTRY["drop_groups"](rows, StepValue.fixed(Stream(1, 2)), 0.5, Outcome(2.0))


@functools.cache
def networks() -> tuple[nn.Module, ...]:
    statistics = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1),
        nn.Conv2d(64, 64, 3, 2, 1, bias=False),
        nn.BatchNorm2d(64),
        nn.Flatten(),
        nn.Linear(64 * 16 * 16, 10),
    )
    return models.resnet18(), models.vgg16(), statistics


def train(network: nn.Module, on: DryDevice) -> None:
    """One step on a batch of CIFAR-10's size."""
    network.to(on)
    images = alpha.tensor(np.zeros((512, 32, 32, 3), np.float32), device=on)
    labels = alpha.tensor(np.zeros(512, np.int32), device=on)
    nn.functional.cross_entropy(network(images), labels).backward()
    alpha.optim.Adam(network.parameters()).step()
