"""The choice of a row, for GPUs that need not be there: what is chosen can run, within the limits of its kernels.

`choose` is a pure function, and a dry driver takes what the rows launch without a compiler. So each drawn shape
runs on many GPUs within milliseconds.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conv2d_cases import hopper, make
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from alpha import config
from alpha.core.numerics import BFLOAT16, FLOAT32, PRECISIONS
from alpha.core.primitive import REGISTRY
from alpha.errors import ShapeError
from alpha.ops.conv2d import cuda_target, direct
from alpha.ops.conv2d.channel_statistics import ChannelStatistics
from alpha.ops.conv2d.launch import plan
from alpha.ops.conv2d.plan import compute, plan_configuration
from alpha.ops.conv2d.prepare import shape_for
from alpha.ops.conv2d.problem import (
    FORWARD,
    INPUT,
    UNKNOWN,
    WEIGHT,
    Configuration,
    ConvProblem,
    Epilogue,
    Given,
    Known,
    MathMode,
    Target,
    seen_by_kernels,
)
from alpha.ops.conv2d.select import choose as choose_module
from alpha.ops.conv2d.select import time_model
from alpha.ops.conv2d.select.choose import applicable, choose, reads_half_again, reads_half_of_gradient
from alpha.ops.conv2d.select.product_table import PRODUCTS
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.shape import ConvShape, conv_shape
from alpha.ops.conv2d.step_form import StepForm
from alpha.ops.kernel.rectifier import FROM_X
from alpha.runtime.cuda.cache import source_root
from alpha.runtime.cuda.emulated.emulated_compiler import entries
from alpha.runtime.cuda.planning.driver_dry import DryDevice, Launch

GPUS = {  # compute capability, KiB of shared memory that a block may have
    "sm_75": ((7, 5), 64),
    "sm_80": ((8, 0), 163),
    "sm_86": ((8, 6), 99),
    "sm_90": ((9, 0), 227),
    "sm_100": ((10, 0), 227),
    "sm_120": ((12, 0), 99),
}
OPERANDS = {FORWARD: ("X", "W"), INPUT: ("Y", "W"), WEIGHT: ("X", "Y")}
STATIC_BYTES = {"direct_forward_ffma": 4 * 32 * 68}  # of shared memory, beside the dynamic part
DIRECT = ("direct_forward_ffma", "direct_forward_sm80", "direct_weight_ffma", "direct_weight_sm80")
SM80 = ("conv_v2_sm80", "ks_deconv_sm80", "sk_dilated_sm80")
SM90 = ("conv_v2_sm90", "ks_deconv_sm90", "sk_dilated_sm90")


@functools.cache
def gpu(arch: str) -> DryDevice:
    return DryDevice.of(arch)


@functools.cache
def most_threads(entry: str) -> int:
    """Largest number of threads of a block, by the kernel's __launch_bounds__ if they are a number."""
    for path in source_root().glob("conv2d/**/*.cu"):
        for name, bound in entries(path.read_text()):
            if name == entry and bound.isdigit():
                return int(bound)
    return 1024


CHANNELS = st.sampled_from([1, 2, 3, 4, 5, 8, 12, 16, 24, 32, 40, 64, 72, 96, 128, 130, 256, 320, 512])


@st.composite
def shapes(draw: st.DrawFn, first_layer: bool = False) -> ConvShape:
    """Any: strides above the width, filters above the image, first layers of many weights, rows of many pixels."""
    number = st.integers

    def lengths(least: int, most: int) -> tuple[int, int]:
        return draw(number(least, most)), draw(number(least, most))

    sizes = (draw(st.sampled_from([1, 2, 4, 7, 8, 14, 28, 32, 56, 112, 224, 1024])) for _ in range(2))
    I = lengths(1, 9) if draw(st.booleans()) else tuple(sizes)
    N = draw(st.sampled_from([1, 2, 16, 48, 64, 100, 128, 512, 600]))
    IC = draw(number(1, 4)) if first_layer else draw(CHANNELS)
    try:
        F = draw(number(1, 11)), draw(number(1, 11))
        return conv_shape("test", (N, *I, IC), (draw(CHANNELS), *F, IC), lengths(1, 5), lengths(0, 6))
    except ShapeError:
        assume(False)
        raise


def run(arch: str, operator: str, s: ConvShape, precision: str, statistics: bool = False) -> list[Launch]:
    """Launches of the operator, with a bias and an activation."""
    on = gpu(arch)
    dtype = BFLOAT16 if precision == "bf16" else FLOAT32
    first, second = (on.empty(getattr(s, name), dtype) for name in OPERANDS[operator])
    more: dict[str, Any] = {}
    if operator != WEIGHT:
        more = {"b": on.empty((s.OC if operator == FORWARD else s.IC,), FLOAT32), "slope": 0.5}
    if statistics:
        more["statistics"] = ChannelStatistics()
    with on.driver.noting() as found:
        REGISTRY[operator](first, second, s, precision, **more)
    return found


def check_all(arch: str, operator: str, s: ConvShape, precision: str, launches: list[Launch]) -> None:
    """The limits of the launches of one operator. If filters are rotated, a direct kernel has the roles exchanged."""
    rotated = any(launch.source.startswith("layout/") and launch.entry != "resize_rows" for launch in launches)
    if any(launch.entry == "resize_rows" for launch in launches):  # the kernel sees padded channels
        s = replace(s, IC=-(-s.IC // 8) * 8, OC=-(-s.OC // 8) * 8)
    for launch in launches:
        exchanged = rotated and launch.entry in DIRECT
        check(arch, operator, direct.swapped(s) if exchanged else s, precision, launch)


def check(arch: str, operator: str, s: ConvShape, precision: str, launch: Launch) -> None:
    """The limits of the GPU, and those that a kernel's comment states."""
    capability, kilobytes = GPUS[arch]
    where = f"{arch} {operator} {precision} {s}: {launch}"
    assert launch.shared_bytes + STATIC_BYTES.get(launch.entry, 0) <= kilobytes << 10, where
    assert 1 <= launch.threads <= most_threads(launch.entry), where
    x, y, z = launch.grid
    assert 1 <= x < 2**31, where
    assert 1 <= y < 2**16, where
    assert 1 <= z < 2**16, where
    weights = s.FH * s.FW * s.IC
    item = 2 if launch.macros.get("MATH") == "BF16" else 4
    if launch.entry in DIRECT:
        assert s.IC <= 4, where
        assert min(s.ph, s.pw) >= 0, where
    if launch.entry == "direct_weight_ffma":
        KT, P = int(launch.macros["KT"]), int(launch.macros["P"])
        assert 16 * -(-weights // KT) * P <= launch.threads, where  # every element of a filter has threads
        assert s.OC % 4 == 0, where
    if launch.entry == "direct_weight_sm80":
        WN, NF = int(launch.macros["WN"]), int(launch.macros["NF"])
        assert weights <= 8 * WN * NF, where  # the fragments cover a filter, and fit the registers
        assert NF <= 5, where
        assert s.OC * item % 16 == 0, where
    if launch.entry in (*SM80, "direct_forward_sm80", "direct_weight_sm80"):
        assert capability >= (8, 0), where
    if launch.entry in SM80:
        assert s.IC * item % 16 == s.OC * item % 16 == 0, where
    if launch.entry in SM90:
        assert capability == (9, 0), where
        read = {FORWARD: [s.IC], INPUT: [s.OC], WEIGHT: [s.IC, s.OC]}[operator]
        assert all(channels % 8 == 0 for channels in read), where
        assert s.sw <= s.IW, where  # each phase of the columns has one
        stages = {name: int(n) for name, n in launch.macros.items() if name in ("STAGES", "A_STAGES", "B_STAGES")}
        if launch.macros.get("KEEP_B") == "1":  # each stage has its part of the filter, and keeps it
            steps = -(-read[0] // (32 if launch.macros["MATH"] == "TF32" else 64))
            assert stages.pop("B_STAGES") == steps, where
        assert min(stages.values()) >= 2, where


@pytest.mark.parametrize("operator", OPERANDS)
@pytest.mark.parametrize("arch", GPUS)
@pytest.mark.parametrize("first_layer", [False, True])
def test_what_is_chosen_fits(arch: str, operator: str, first_layer: bool) -> None:
    properties = gpu(arch).properties
    assert (properties.compute_capability, properties.shared_bytes_per_block >> 10) == GPUS[arch]

    @given(s=shapes(first_layer))
    @settings(max_examples=40, deadline=None)
    def every_shape(s: ConvShape) -> None:
        for precision in PRECISIONS:
            found = run(arch, operator, s, precision)
            if operator == FORWARD:
                found += run(arch, operator, s, precision, statistics=True)
            assert any(x.source.startswith(("conv2d/", "matmul/")) and x.entry not in PREPARING for x in found), (
                "nothing was multiplied"
            )
            check_all(arch, operator, s, precision, found)

    every_shape()


PREPARING = ("activation_terms", "filter_terms", "split_filter", "split_filter_terms")
KERNELS = {*DIRECT, *SM80, *SM90, "implicit_gemm_ffma", "ks_deconv_ffma", "sk_dilated_ffma"}

# -- shapes at the limits, which a draw may miss --------------------------------------------------------------------


EDGES = {
    "one column, a larger stride": make(128, (8, 1), (64, 64), (3, 3), (1, 2), (1, 1)),
    "two columns, a larger stride": make(128, (8, 2), (64, 64), (3, 3), (2, 4), (1, 3)),
    "160 weights": make(64, (32, 32), (4, 64), (8, 5), p=(2, 2)),
    "161 weights": make(64, (32, 32), (1, 64), (7, 23), p=(3, 11)),
    "164 weights": make(64, (32, 32), (4, 64), (1, 41), p=(0, 20)),
    "243 weights": make(64, (32, 32), (3, 64), (9, 9), p=(4, 4)),
    "a filter that fills the shared memory": make(4, (64, 64), (4, 64), (11, 11), p=(5, 5)),
    "a row that fills the shared memory": make(4, (3, 4096), (4, 64), (3, 3), p=(1, 1)),
    "channels off a vector": make(64, (8, 8), (66, 66), (3, 3), p=(1, 1)),
    "channels of whole 8 bytes": make(64, (8, 8), (68, 68), (3, 3), p=(1, 1)),
    "the images of a tile, no more": make(48, (8, 8), (64, 64), (3, 3), p=(1, 1)),
    "wide tiles": make(512, (32, 32), (512, 512), (3, 3), p=(1, 1)),
    "few outputs": make(8, (64, 64), (64, 3), (3, 3), p=(1, 1)),
    "few outputs, a long row": make(4, (3, 4096), (64, 4), (3, 3), p=(1, 1)),
    "few outputs, 160 weights": make(64, (32, 32), (64, 4), (8, 5), p=(2, 2)),
    "few outputs, 161 weights": make(64, (32, 32), (64, 1), (7, 23), p=(3, 11)),
    "few outputs, padding beyond the filter": make(64, (32, 32), (64, 2), (3, 3), p=(3, 2)),
    "few outputs and inputs": make(64, (32, 32), (3, 4), (3, 3), p=(1, 1)),
    "padding alone": make(64, (1, 1), (32, 32), (1, 1), (2, 1), (1, 0)),
    "a filter of one step that stays, with one tile": make(1, (1, 1), (1, 8), (1, 1), p=(0, 1)),
    "many weights": make(64, (8, 8), (2048, 2048), (3, 3), p=(1, 1)),
}


@pytest.mark.parametrize("arch", GPUS)
@pytest.mark.parametrize("name", EDGES)
def test_shapes_at_the_limits(name: str, arch: str) -> None:
    s = EDGES[name]
    for operator in OPERANDS:
        for precision in PRECISIONS:
            check_all(arch, operator, s, precision, run(arch, operator, s, precision))


@pytest.mark.parametrize("arch", GPUS)
@pytest.mark.parametrize("row", [v for v in CONFIGURATIONS if v.device == "cuda"], ids=lambda v: v.name)
def test_a_row_that_says_it_can_fits(row: Configuration, arch: str) -> None:
    """A row may run for a shape for which it does not pay: forced by name, or timed by the autotuner."""
    on = gpu(arch)
    dtype = BFLOAT16 if row.precision == "bf16" else FLOAT32
    for s in EDGES.values():
        if row.supports(s, cuda_target(on)):
            first, second = (on.empty(getattr(s, name), dtype) for name in OPERANDS[row.operator])
            with on.driver.noting() as found:
                compute(row, first, second, s)
            check_all(arch, row.operator, s, row.precision, found)


# -- the rule of the choice ---------------------------------------------------------------------------------------


def target(arch: str) -> Target:
    capability, kilobytes = GPUS[arch]
    return Target("cuda", capability, gpu(arch).properties.num_sms, kilobytes << 10)


TARGETS = {"cpu": Target("cpu"), **{arch: target(arch) for arch in GPUS}}


@pytest.mark.slow
@given(s=st.one_of(shapes(), shapes(True)))
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("known", [UNKNOWN, (Given.HALF, Given.MAGNITUDE), (Given.MAGNITUDE, Given.HALF)])
def test_the_fastest_by_prediction_is_chosen(known: Known, s: ConvShape) -> None:
    """The choice is supported and preferred; on the cpu, where nothing is predicted, it is the first of such rows.

    A row that reads a copy in fp16 needs it, of the shape as it is.
    """
    for on in TARGETS.values():
        for operator in OPERANDS:
            for precision in PRECISIONS:
                row = choose(operator, s, on, precision, known)
                assert (row.operator, row.device) == (operator, on.device)
                seen = seen_by_kernels(s, on)
                has_half = known[operator == WEIGHT] == Given.HALF
                able = [
                    v
                    for v in (*CONFIGURATIONS, *PRODUCTS)
                    if (v.operator, v.device) == (operator, on.device)
                    and v.precision in ("float32", precision)
                    and shape_for(v, seen, on)
                    and v.preferred(seen, on)
                    and (not v.reads_half or (precision == "tf32" and has_half and v.supports(seen, on)))
                ]
                if on.device == "cpu":
                    assert row is able[0]
                    continue
                if precision == "bf16" and any(v.precision == "bf16" for v in able):
                    able = [v for v in able if v.precision == "bf16"]  # the others need casts
                assert row in able
                assert cycles(row, seen, on, known) == min(cycles(v, seen, on, known) for v in able)


@pytest.mark.slow
@given(s=st.one_of(shapes(), shapes(True)), half_of_dY=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_copy_that_is_left_alone_is_read_as_fast(s: ConvShape, half_of_dY: bool) -> None:
    """The array itself is not read, whatever there is of dY; if it is what was expected, the choice stays."""
    expected = Given.HALF if half_of_dY else Given.NOTHING
    for on in TARGETS.values():
        if on.device == "cpu" or not reads_half_again(s, on, "tf32", half_of_dY):
            continue
        for of_dY in Given:
            known = Given.HALF_ALONE, of_dY
            row = choose(WEIGHT, s, on, "tf32", known)
            assert of_dY != expected or row is choose(WEIGHT, s, on, "tf32", (Given.HALF, of_dY))
            problem = ConvProblem(WEIGHT, s, "tf32", dtype=FLOAT32, known=known)
            for launch in plan_configuration(problem, row, on).launches:
                assert "X" not in [getattr(argument, "name", "") for argument in launch.arguments]


@pytest.mark.slow
@given(s=st.one_of(shapes(), shapes(True)), of_X=st.sampled_from(list(Given)))
@settings(max_examples=60, deadline=None)
def test_a_copy_in_place_of_a_gradient_saves_time(s: ConvShape, of_X: Given) -> None:
    """No kernel reads the floats of dY, which were never made; by the model the others would take longer."""
    for on in TARGETS.values():
        if on.device == "cpu" or (of_X == Given.HALF_ALONE and not reads_half_again(s, on, "tf32", True)):
            continue
        if not reads_half_of_gradient(s, on, "tf32", of_X, (True, True)):
            continue
        total = {Given.HALF_ALONE: 0.0, Given.HALF if s.taps > 1 else Given.MAGNITUDE: 0.0}
        for of_dY in total:
            for operator, known in ((INPUT, (of_dY, Given.NOTHING)), (WEIGHT, (of_X, of_dY))):
                row = choose(operator, s, on, "tf32", known)
                total[of_dY] += cycles(row, seen_by_kernels(s, on), on, known)
                if of_dY != Given.HALF_ALONE:
                    continue
                problem = ConvProblem(operator, s, "tf32", dtype=FLOAT32, known=known)
                for launch in plan_configuration(problem, row, on).launches:
                    assert "dY" not in [getattr(argument, "name", "") for argument in launch.arguments]
        alone, others = total.values()
        saved = 4 if s.taps > 1 else 2  # bytes for each element
        assert alone < others + saved * np.prod(s.Y) / time_model.constants_of(on.name).memory


def test_a_copy_is_left_alone_where_it_is_read() -> None:
    """The reasons to keep the array: another GPU or precision, the gradient of few channels, padded ones."""
    s, on = make(512, (8, 8), (128, 128), (3, 3), p=(1, 1)), TARGETS["sm_90"]
    assert reads_half_again(s, on, "tf32", True)
    assert not reads_half_again(s, on, "float32", True)
    assert not any(reads_half_again(s, TARGETS[arch], "tf32", True) for arch in GPUS if not arch.startswith("sm_90"))
    assert not reads_half_again(make(512, (8, 8), (124, 128), (3, 3), p=(1, 1)), on, "tf32", True)


@pytest.mark.parametrize("variable", [config.TUNE, config.CONV_KERNEL], ids=str)
def test_variables_that_are_set_when_a_copy_is_alone(monkeypatch: pytest.MonkeyPatch, variable: Any) -> None:
    """The backward pass may not choose a configuration that reads the array, nor measure any."""
    s, on = make(512, (8, 8), (128, 128), (3, 3), p=(1, 1)), replace(TARGETS["sm_90"], gpu=hopper())
    monkeypatch.setenv(variable.name, "1" if variable is config.TUNE else "sk_dilated_sm90_fp16_64x32")
    for of_dY in Given:
        assert choose(WEIGHT, s, on, "tf32", (Given.HALF_ALONE, of_dY)).reads_half_of_X
    assert reads_half_of_gradient(s, on, "tf32", Given.HALF, (True, True)) == (variable is config.TUNE)


def cycles(v: Configuration, s: ConvShape, on: Target, known: Known = UNKNOWN) -> float:
    return time_model.cycles(v, s, on, time_model.constants_of(on.name), known)


def test_a_tile_that_takes_the_first_step_may_be_slower() -> None:
    """The fastest tile would leave the step to a kernel of its own, where dY has a copy."""
    s, known = make(512, (8, 8), (128, 128), (3, 3), p=(1, 1)), (Given.HALF, Given.NOTHING)
    fastest = choose(INPUT, s, TARGETS["sm_90"], "tf32", known)
    for other in (False, True):
        step = Epilogue(step=StepForm(FROM_X, True, True, other, True))
        problem = ConvProblem(INPUT, s, "tf32", step, FLOAT32, known=known)
        assert not plan_configuration(problem, fastest, TARGETS["sm_90"]).facts["takes step"]
        taken = plan(problem, TARGETS["sm_90"])
        assert taken.facts["takes step"]
        assert "prepared" in taken.name
    without = plan(ConvProblem(INPUT, s, "tf32", dtype=FLOAT32, known=known), TARGETS["sm_90"])
    assert without.name == fastest.name


@pytest.mark.parametrize("channels", [(64, 64), (60, 52)], ids=["whole packs", "padded"])
@pytest.mark.parametrize("row", [v for v in CONFIGURATIONS if v.tile.get("PREPARED")], ids=lambda v: v.name)
def test_the_model_counts_the_launches_that_prepare_operands(row: Configuration, channels: tuple[int, int]) -> None:
    """An operand is converted unless it came with a copy, which a padded one does not."""
    s, on = make(16, (6, 6), channels, (3, 3), p=(1, 1)), TARGETS["sm_90"]
    for known in itertools.product(Given, repeat=2):
        problem = ConvProblem(row.operator, s, row.precision, dtype=FLOAT32, known=known)
        launched = len(plan_configuration(problem, row, on).launches)
        finds_magnitudes = Given.NOTHING in known  # by a launch that no plan has
        assert time_model.quantities(row, s, on, known).launches == launched + finds_magnitudes


def test_a_new_algorithm_is_taken_if_it_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new algorithm runs before anybody has counted its work. For another shape the choice stays."""
    s, on = EDGES["wide tiles"], TARGETS["sm_90"]
    usual = choose(FORWARD, s, on)
    new = replace(usual, name="new", make=lambda *given: None, preferred=lambda s, t: s.IC == 512)
    monkeypatch.setattr(choose_module, "CONFIGURATIONS", (*CONFIGURATIONS, new))
    choose_module._choose.cache_clear()
    try:
        assert choose(FORWARD, s, on) is new
        assert choose(FORWARD, replace(s, IC=256), on) is not new
    finally:
        choose_module._choose.cache_clear()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("operator", OPERANDS)
def test_the_last_row_of_an_operator_serves_any_shape(operator: str, device: str) -> None:
    last = [v for v in CONFIGURATIONS if (v.operator, v.device) == (operator, device)][-1]
    assert last.precision == "float32"
    worst = conv_shape("test", (1, 1, 1, 1), (1, 9, 9, 1), (4, 4), (4, 4))
    for on in TARGETS.values():
        assert last.supports(worst, on)


def test_a_choice_needs_no_gpu() -> None:
    """The choice for a target is the row that runs on a device of it."""
    for arch, on in TARGETS.items():
        for s in EDGES.values():
            for operator in OPERANDS if arch != "cpu" else ():
                assert choose(operator, s, on) is choose(operator, s, cuda_target(gpu(arch)))


@pytest.mark.slow
def test_drawn_shapes_reach_every_kernel() -> None:
    """The draw above means something only if it reaches every kernel."""
    rng = np.random.default_rng(0)
    seen: set[str] = set()
    for _ in range(200):
        N, IC, OC = (int(rng.choice(n)) for n in ((1, 64, 128), (3, 8, 64, 128), (8, 64, 128)))
        size, F = int(rng.integers(2, 33)), int(rng.integers(1, 5))
        s = make(N, (size, size), (IC, OC), (F, F), p=(F - 1, F - 1))
        for arch in ("sm_75", "sm_86", "sm_90"):
            for operator in OPERANDS:
                seen |= {launch.entry for launch in run(arch, operator, s, "float32")}
    assert seen >= KERNELS


def test_few_output_pixels_have_tiles_of_64_rows() -> None:
    """A larger tile would leave most SMs idle; many pixels have larger tiles."""
    hopper = TARGETS["sm_90"]
    few = conv_shape("test", (1, 32, 32, 640), (640, 3, 3, 640), (1, 1), (1, 1))
    many = conv_shape("test", (32, 32, 32, 640), (640, 3, 3, 640), (1, 1), (1, 1))
    for operator, precision in itertools.product((FORWARD, INPUT), ("tf32", "bf16")):
        rows = [choose(operator, s, hopper, precision).tile["BM"] for s in (few, many)]
        assert rows[0] == 64 < rows[1], (operator, precision)


def test_kernels_on_mma_sync_are_left_to_shapes_that_wgmma_does_not_take() -> None:
    """Forward and dX in tf32 and bf16: they were never faster. A GPU without wgmma takes them."""
    one_tap = conv_shape("test", (32, 7, 7, 832), (48, 1, 1, 832), (1, 1), (0, 0))
    hopper, ampere = TARGETS["sm_90"], TARGETS["sm_80"]
    for operator, precision in itertools.product((FORWARD, INPUT), ("tf32", "bf16")):
        assert "sm80" in choose(operator, one_tap, ampere, precision).name
        rows = [v for v in applicable(operator, one_tap, hopper, precision) if "sm80" in v.name and v not in PRODUCTS]
        assert rows
        assert not any(v.preferred(one_tap, hopper) for v in rows if v.math in (MathMode.TF32, MathMode.BF16))


def test_an_operator_that_is_none_is_refused() -> None:
    shape = conv_shape("conv2d", (1, 8, 8, 8), (8, 3, 3, 8), (1, 1), (1, 1))
    with pytest.raises(ValueError, match="no convolution operator 'forward': use conv2d_forward, "):
        choose("forward", shape, cuda_target(gpu("sm_90")))
