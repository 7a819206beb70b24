"""The order of blocks changes no bit: of every kernel, on inputs of several blocks and with sums that blocks share.

The emulator runs the blocks of a launch one after the other. Another order makes another block the last one to come to
a shared sum, and shows it if that block adds in the order of arrival. The order of threads stays as it is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import conv2d_steps
import numpy as np
import primitive_calls
import pytest
from primitive_calls import CASES, CUBIC, WITH_LENGTH, Outcome, normal, pool, positive

from alpha.core.numerics import BFLOAT16
from alpha.core.primitive import REGISTRY
from alpha.core.rng import Stream
from alpha.errors import AlphaError
from alpha.ops.conv2d import cuda_target
from alpha.ops.conv2d.channel_statistics import ChannelStatistics
from alpha.ops.conv2d.plan import compute
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, Configuration
from alpha.ops.conv2d.select.grouped_table import GROUPED
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.shape import ConvShape, conv_shape
from alpha.ops.image.sampling import Sampling
from alpha.ops.kernel.rectifier import FROM_X, KeptOutput, Rectified, Rectifier
from alpha.ops.kernel.rows.row_indices import NO_PLACE
from alpha.runtime.cuda.cache import source_root
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver
from alpha.runtime.cuda.emulated.emulated_compiler import entries
from alpha.runtime.cuda.planning.driver_dry import DryDevice, Launch
from alpha.runtime.recording import StepValue

ORDERS = ("ascending", "descending", "shuffled")
ARCHS = ("sm_75", "sm_80", "sm_90a")  # the first that a row runs on runs it
Bits = list[bytes]


@functools.cache
def emulated(arch: str) -> CudaDevice:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALPHA_ARCH", arch)
        return CudaDevice(EmulatedDriver())


@functools.cache
def recording(arch: str) -> DryDevice:
    return DryDevice.of(arch)


def most_blocks(found: list[Launch]) -> dict[str, int]:
    """The blocks of the largest launch of each entry."""
    most: dict[str, int] = {}
    for launch in found:
        most[launch.entry] = max(most.get(launch.entry, 0), math.prod(launch.grid))
    return most


def assert_the_same_in_every_order(arch: str, compute: Callable[[CudaDevice], Bits]) -> None:
    try:
        on = emulated(arch)
    except AlphaError as error:
        pytest.skip(str(error))
    assert isinstance(on.driver, EmulatedDriver)
    results = []
    for order in ORDERS:
        on.driver.block_order = order
        results.append(compute(on))
    for order, result in zip(ORDERS[1:], results[1:], strict=True):
        differing = [i for i, (a, b) in enumerate(zip(results[0], result, strict=True)) if a != b]
        assert not differing, f"{order} blocks change arrays {differing}"


# -- primitives: the cases of primitive_calls, and larger ones where a kernel has one block in all of them -----------

LARGE = pool(3, (40, 30), 8, (3, 3), 2, 1)
WIDE, WIDE_X = pool(6, (40, 30), 64, (3, 3), 2, 1), (6, 40, 30, 64)
BILINEAR = Sampling("linear", "zeros", False)
MORE: dict[str, list[tuple[Any, ...]]] = {
    "add": [(normal(9, 1000), normal(1000))],
    "broadcast_to": [(normal(60, 1, 40), (60, 30, 40))],
    "cast": [(normal(20_000), np.dtype(np.float64), 1.0, 0.0)],
    "dropout_apply": [(normal(20_000), StepValue.fixed(Stream(7, 5)), 0.3)],
    "batch_norm_apply": [(normal(3000, 20), normal(20), positive(20), normal(20), normal(20), 1e-5)],
    "batch_norm_gradients": [
        (dY, normal(9000, 72), normal(72), positive(72), normal(72), 1e-5, True, rectified, 9000)
        for dY, rectified in (
            (normal(9000, 72), None),
            (normal(9000, 72), Rectified(Rectifier(0.2), None, normal(9000, 72))),
            (primitive_calls.in_parts(9000, 72), None),
        )
    ],
    "batch_norm_gradients_from_output": [
        (normal(9000, 72), kept, positive(72), positive(72), normal(72), 1e-5, 9000)
        for kept in (KeptOutput(normal(9000, 72), residual, Rectifier(0.2)) for residual in (None, normal(9000, 72)))
    ],
    "batch_norm_gradients_begun": [
        (normal(9000, 72), normal(2, 600, 72), normal(9000, 72), normal(72), positive(72), normal(72), None, 1e-5)
    ],
    "batch_norm_pool": [(normal(*WIDE_X), primitive_calls.columns(64), 1e-5, WIDE)],
    "batch_norm_pool_gradients": [
        (*primitive_calls.taps(WIDE), normal(*WIDE_X), primitive_calls.columns(64), 1e-5, True, WIDE, None, 7200)
    ],
    "max_pool2d_forward": [(normal(3, 40, 30, 8), LARGE)],
    "max_pool2d_backward": [
        (*primitive_calls.taps(LARGE), LARGE),
        primitive_calls.rectified_pool(LARGE, Rectifier(0.2)),
    ],
    "avg_pool2d_forward": [(normal(3, 40, 30, 8), LARGE)],
    "avg_pool2d_backward": [(normal(3, 20, 15, 8), LARGE)],
    "wide_sum_axis1": [(normal(1, 70_000, 12), True, 70_000)],
    "sum_axis1": [(normal(1, 70_000, 12), 70_000), (normal(900, 200, 1), 200), (normal(2, 100_000, 1), 100_000)],
    "extreme_axis1": [(normal(1, 70_000, 12), True, 70_000), (normal(900, 200, 1), True, 200)],
    "matmul_batch": [(normal(3, 130, 70), normal(3, 70, 100), False, False, "tf32", 70)],
    "running_sum": [(normal(*n), reverse, 0) for n, reverse in (((3, 40, 200), True), ((2, 900, 300), False))],
    "lstm_cell": [tuple(normal(50, k * 20) for k in (4, 4, 1, 4, 1, 1))],
    "lstm_cell_gradient": [tuple(normal(50, k * 20) for k in (1, 1, 4, 1, 1, 4, 1))],
    "gru_cell": [tuple(normal(50, k * 20) for k in (3, 3, 1, 4, 1))],
    "gru_cell_gradient": [tuple(normal(50, k * 20) for k in (1, 4, 1, 3, 3, 1))],
    "running_extreme": [(normal(3, 9, 400), True, 0)],
    "running_log_sum": [(normal(3, 9, 400), 0)],
    "running_log_sum_gradient": [(*(normal(3, 9, 400) for _ in range(3)), 0)],
    "running_product": [(normal(3, 500, 1),), (normal(3, 40, 200),)],
    "running_product_gradient": [(normal(3, 40, 200), normal(3, 40, 200), normal(3, 40, 200))],
    "keep_band": [(normal(40, 50), -3, 5, 0)],
    "places": [(np.arange(600) - 300, 700, 1, None, NO_PLACE)],
    "take_rows": [(normal(2, 90, 66), np.arange(80))],
    "softmax_axis1": [(normal(70, 40, 9), False, 0)],
    "softmax_gradient_axis1": [(normal(70, 40, 9), positive(70, 40, 9), False, 0)],
    "normalize_groups": [(normal(70, 3, 4, 9), normal(36), normal(36), 1e-5, True, 0)],
    "normalize_groups_gradients": [
        (normal(70, 3, 4, 9), normal(70, 3, 4, 9), normal(70, 4), positive(70, 4), normal(36), True, 0)
    ],
    "drop_groups": [(normal(40, 30, 24), StepValue.fixed(Stream(7, 5)), 0.3, Outcome(1.5, 0.25, -1.0))],
    "resample_axis1": [(normal(40, 5, 70), CUBIC)],
    "max_pool2d_indices": [(primitive_calls.taps(LARGE)[1], LARGE)],
    "combine": [(np.arange(20_000) - 9000, np.arange(20_000) % 7 + 1, "//", 1)],
    "put_rows": [(normal(2, 90, 66), np.arange(80), normal(2, 80, 66), True)],
    "sample": [(normal(2, 9, 8, 24), normal(2, 20, 30, 2), BILINEAR, 0)],
    "sample_slopes": [(normal(2, 20, 30, 24), normal(2, 9, 8, 24), normal(2, 20, 30, 2), BILINEAR, 0)],
    "sample_taps": [(normal(2, 20, 30, 24), normal(2, 20, 30, 2), (9, 8), BILINEAR, 0)],
}
# alpha.utils.doctor launches the first, each of whose threads writes a number of its own; the others have one block
ELSEWHERE = {"selftest", "count_batch", "count_up", "total_norm"}


def of_primitive(name: str, on: CudaDevice) -> Bits:
    cases = [case[:-1] if name in WITH_LENGTH else case for case in (*CASES[name], *MORE.get(name, []))]
    return [array.tobytes() for case in cases for array in primitive_calls.run(REGISTRY[name], on, case)]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_primitives_in_every_order(name: str) -> None:
    assert_the_same_in_every_order("sm_80", functools.partial(of_primitive, name))


def filled(on: CudaDevice) -> Bits:
    found = []
    for dtype in (np.float16, np.float32, np.float64):
        array = on.empty((5000,), dtype)
        on.fill(array, 0.1)
        found.append(on.download(array).tobytes())
    return found


def test_fill_in_every_order() -> None:
    assert_the_same_in_every_order("sm_80", filled)


# -- rows of the convolution table --------------------------------------------------------------------------------

SHAPES = {  # a long K, which blocks share; a first layer and a last one
    FORWARD: (
        conv_shape("test", (64, 1, 2, 640), (72, 1, 1, 640), (1, 1), (0, 0)),
        conv_shape("test", (5, 9, 9, 3), (72, 3, 3, 3), (1, 1), (1, 1)),
    ),
    INPUT: (
        conv_shape("test", (64, 1, 2, 72), (640, 1, 1, 72), (1, 1), (0, 0)),
        conv_shape("test", (5, 9, 9, 72), (3, 3, 3, 72), (1, 1), (1, 1)),
    ),
    WEIGHT: (
        conv_shape("test", (128, 3, 3, 72), (72, 3, 3, 72), (1, 1), (1, 1)),
        conv_shape("test", (5, 9, 9, 3), (72, 3, 3, 3), (1, 1), (1, 1)),
        conv_shape("test", (5, 9, 9, 72), (3, 3, 3, 72), (1, 1), (1, 1)),
    ),
}
PADDED = conv_shape("test", (70, 3, 4, 21), (72, 3, 3, 21), (1, 1), (1, 1))  # channels that are no whole packs
GROUPS = conv_shape("test", (2, 9, 20, 72), (72, 3, 3, 4), (1, 1), (1, 1), groups=18)
OPERANDS = {FORWARD: ("X", "W"), INPUT: ("Y", "W"), WEIGHT: ("X", "Y")}


@dataclass(frozen=True)
class Case:
    """A row of the table on the first architecture and shape that it can run on."""

    row: Configuration
    arch: str
    s: ConvShape

    def compute(self, on: CudaDevice) -> Bits:
        rng = np.random.default_rng(0)
        dtype = BFLOAT16 if self.row.precision == "bf16" else np.dtype(np.float32)
        first, second = (
            on.upload(rng.standard_normal(getattr(self.s, name), np.float32).astype(dtype))
            for name in OPERANDS[self.row.operator]
        )
        found = [compute(self.row, first, second, self.s)]
        if self.row.supports_statistics:
            statistics = ChannelStatistics()
            found.append(compute(self.row, first, second, self.s, None, 1.0, statistics))
            if statistics.part is not None:
                found += [statistics.part, statistics.counts]
                rows = found[0].reshape(-1, self.s.OC)
                found += REGISTRY["channel_statistics"](rows, None, None, 0.1, statistics)
        return [on.download(array).tobytes() for array in found]


def cases() -> Iterator[Case]:
    for row in (*CONFIGURATIONS, *GROUPED):
        found = [
            Case(row, arch, s)
            for arch in ARCHS
            for s in ((GROUPS,) if row in GROUPED else SHAPES[row.operator])
            if row.device == "cuda" and row.supports(s, cuda_target(recording(arch)))
        ]
        yield from found[:1]
    yield next(Case(row, "sm_80", PADDED) for row in CONFIGURATIONS if row.name.startswith("conv_v2_sm80_tf32"))


def kernels_of(case: Case) -> frozenset[str]:
    """The kernels that a case launches, but for the addition of parts, which depends on the shape."""
    on = recording(case.arch)
    with on.driver.noting() as found:
        case.compute(on)
    return frozenset(most_blocks(found)) - {"sum_columns", "sum_long_rows"}


def representatives() -> Iterator[Case]:
    """One row of those that launch the same kernels: in float32 if there is one, of the smallest tile."""

    def size(case: Case) -> tuple[bool, int]:
        tile = case.row.tile
        return case.row.precision != "float32", tile.get("BM", 0) * tile.get("BN", 0)

    seen: set[frozenset[str]] = set()
    for case in sorted(cases(), key=size):
        if kernels_of(case) not in seen:
            seen.add(kernels_of(case))
            yield case


CONVOLUTIONS = list(representatives())


@pytest.mark.slow
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda c: c.row.name)
def test_convolutions_in_every_order(case: Case) -> None:
    assert_the_same_in_every_order(case.arch, case.compute)


STEP_SHAPE = conv_shape("test", (9, 9, 11, 64), (72, 3, 3, 64), (2, 2), (1, 1))
OF_STEP = {
    **{name: normal(*STEP_SHAPE.X) for name in ("X", "Y", "residual", "other")},
    **{name: positive(64) for name in ("mean", "var", "weight", "bias")},
    "dY": normal(*STEP_SHAPE.Y),
    "W": normal(*STEP_SHAPE.W),
}


def first_step(on: CudaDevice) -> Bits:
    """The first step of a batch normalisation's gradient, taken by the input gradient of a convolution."""
    row = next(row for row in CONFIGURATIONS if row.name == "ks_deconv_sm90_fp16x3_128x64")
    given = {name: on.upload(a) for name, a in OF_STEP.items()}
    step = conv2d_steps.step_of(conv2d_steps.Form(FROM_X, True, True), Rectifier(0.2), given)
    found = conv2d_steps.launch_step(row, (given["dY"], given["W"]), STEP_SHAPE, step, on)
    assert found is not None
    return [on.download(array).tobytes() for array in found.values()]


@pytest.mark.slow
def test_a_first_step_in_every_order() -> None:
    assert_the_same_in_every_order("sm_90a", first_step)


# -- is all of it here ----------------------------------------------------------------------------------------------


def test_every_kernel_has_several_blocks_here() -> None:
    """Several blocks are needed, so that their order can show."""
    launched: list[Launch] = []
    for arch in ARCHS:
        on = recording(arch)
        with on.driver.noting() as found:
            if arch == "sm_80":
                for name in CASES:
                    of_primitive(name, on)
                filled(on)
            if arch == "sm_90a":
                first_step(on)
            for case in CONVOLUTIONS:
                if case.arch == arch:
                    case.compute(on)
        launched += found
    most = most_blocks(launched)
    kernels = {name for path in source_root().glob("**/*.cu") for name, _ in entries(path.read_text())}
    missing = sorted(name for name in kernels - ELSEWHERE if most.get(name, 0) < 2)
    assert not missing, f"one block, or none, in all of the cases: {', '.join(missing)}"
