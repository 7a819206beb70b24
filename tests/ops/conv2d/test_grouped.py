"""Depthwise and grouped convolutions: their kernels against the formula, and how an axis is cut into strips."""

from __future__ import annotations

import itertools
import random

import grouped_geometry
import numpy as np
import pytest
from conv2d_cases import OPERATORS, arrays_of, operands, relative_error
from grouped_geometry import HOPPER, Pair, grouped, make

import alpha
from alpha.core.numerics import BFLOAT16
from alpha.errors import ShapeError
from alpha.nn import functional as F
from alpha.ops.conv2d import cpu, cuda_target
from alpha.ops.conv2d.groups import depthwise, grouped_cpu, small_groups, small_groups_sm80, small_groups_weight_sm80
from alpha.ops.conv2d.launch import plan
from alpha.ops.conv2d.plan import compute
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, Configuration, ConvProblem, Target
from alpha.ops.conv2d.select.choose import applicable, choose
from alpha.ops.conv2d.select.grouped_table import GROUPED
from alpha.ops.conv2d.shape import TRIVIAL, Axis, ConvShape, conv_shape, pairs_met
from alpha.ops.convolution import pieces
from alpha.ops.convolution.conv_arguments import ConvAxes
from alpha.runtime.cuda.planning.driver_dry import DryDevice


def drawn(seed: int, channels: int = 1) -> ConvShape | None:
    """Shape that is drawn, with at most so many input channels per group."""
    rng = random.Random(seed)

    def pair(least: int, most: int) -> Pair:
        return rng.randint(least, most), rng.randint(least, most)

    groups, IC, OC = rng.randint(2, 5), rng.randint(1, channels), rng.choice((1, 1, 1, 2, 3))
    X, W = (rng.randint(1, 3), *pair(1, 30), groups * IC), (groups * OC, *pair(1, 7), IC)
    dilation = rng.choice(((1, 1), (1, 1), pair(1, 4)))
    try:
        return conv_shape("test", X, W, pair(1, 3), pair(0, 5), groups=groups, dilation=dilation)
    except ShapeError:
        return None


DRAWN = [s for s in map(drawn, range(300)) if s is not None]


TURING = Target("cuda", (7, 5), 68, 64 << 10)
FORMS = {FORWARD: "forward", INPUT: "backward_input", WEIGHT: "backward_weight"}


@pytest.mark.parametrize("operator", OPERATORS)
def test_cpu_equals_the_formula(operator: str) -> None:
    several = [s for s in (drawn(seed, 4) for seed in range(60)) if s is not None]
    for module, shapes in ((cpu, DRAWN[:60]), (grouped_cpu, several)):
        for s in shapes:
            first, second = operands(operator, s, "float64")
            exact = OPERATORS[operator][0](first, second, s)
            np.testing.assert_allclose(getattr(module, FORMS[operator])(first, second, s), exact, atol=1e-10)


# -- strips -----------------------------------------------------------------------------------------


def products(operator: str, s: ConvShape, strips: depthwise.Strips) -> int:
    """The pairs of a column of results and a tap that the kernels multiply (cuda/conv2d/strips.cuh)."""
    found, backward = 0, operator == INPUT
    first = (s.pw - s.FW + s.sw) // s.sw
    for number in range(strips.number):
        begin = strips.left if number == 0 else 0
        last = number == strips.number - 1
        end, width = (strips.last_sources, strips.last_columns) if last else (strips.sources, strips.columns)
        for t in range(width):
            for fw in range(s.FW):
                column, rest = divmod(t + s.pw - fw, s.sw) if backward else (t * s.sw + fw, 0)
                found += rest == 0 and begin <= (column - first if backward else column) < end
    return found


@pytest.mark.parametrize("operator", OPERATORS)
def test_strips_multiply_no_padded_zero_and_miss_nothing(operator: str) -> None:
    supported = [s for s in DRAWN if depthwise.supports(operator, s)]
    assert len(supported) > 60
    for s in supported:
        for vector in (1, 2):
            strips = depthwise.strips_of(operator, s, depthwise.Pack(vector, vector > 1))
            if strips is not None:
                assert products(operator, s, strips) == pairs_met(s.IW, s.FW, s.sw, s.pw, 1, s.OW), (s, strips)


@pytest.mark.parametrize("operator", OPERATORS)
def test_layers_of_networks_have_whole_strips(operator: str) -> None:
    for size, K, stride in (
        (112, 3, 1),
        (112, 3, 2),
        (56, 3, 1),
        (14, 5, 1),
        (7, 3, 1),
        (56, 7, 1),
        (14, 7, 1),
        (7, 7, 1),
    ):
        s = make((size, size), (K, K), (stride, stride), (K // 2, K // 2), C=96, N=64)
        assert choose(operator, s, HOPPER).name.startswith("depthwise"), s
        strips = depthwise.strips_of(operator, s, depthwise.Pack())
        assert strips is not None
        assert strips.last_columns == strips.columns
        assert 7 <= strips.columns <= 8


# -- kernels ----------------------------------------------------------------------------------------

CASES = [
    pytest.param(row, s, id=f"{row.name}-{number}", marks=pytest.mark.gate if number else ())
    for row in GROUPED
    if row.device == "cuda"
    for number, s in enumerate(grouped_geometry.of(row))
]


@pytest.mark.parametrize(("row", "s"), CASES)
def test_every_cuda_row_equals_the_formula(row: Configuration, s: ConvShape) -> None:
    """Rows compute with bias and activation if they have them."""
    device = alpha.get_device("cuda")
    first, second = (a.astype(arrays_of(row)) for a in operands(row.operator, s, "float32"))
    exact = OPERATORS[row.operator][0](first.astype("float64"), second.astype("float64"), s)
    more = ()
    if row.supports_epilogue:
        b = np.linspace(-2, 2, exact.shape[-1], dtype=np.float32)
        exact = np.where(exact + b > 0, exact + b, 0.25 * (exact + b))
        more = device.upload(b), 0.25
    value = device.download(compute(row, device.upload(first), device.upload(second), s, *more))
    assert value.shape == exact.shape
    assert relative_error(value.astype("float64"), exact) < limit_of(row)


def limit_of(row: Configuration) -> float:
    """Limit of the relative error. dW is float32 in every precision; tensor cores truncate as they accumulate."""
    if row.precision == "float32" or row.operator == WEIGHT:
        return 1e-5 if "_sm80_" in row.name else 2e-6
    return {"tf32": 1e-3, "bf16": 5e-3}[row.precision]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("row", [row for row in GROUPED if "_sm80_" in row.name], ids=lambda row: row.name)
def test_what_is_not_finite_stays_near_its_group(row: Configuration) -> None:
    """Values may reach the other group of eight channels, and what their tap or channel meets of the padding."""
    device, s = alpha.get_device("cuda"), grouped((6, 11), (3, 3), (1, 1), (1, 1), 6, (4, 4))
    for which, place in ((0, (1, 2, 4, 13)), (1, (13, 1, 2, 2) if row.operator != WEIGHT else (1, 2, 4, 13))):
        arrays = [a.astype(arrays_of(row)) for a in operands(row.operator, s, "float32")]
        ones = [np.ones(a.shape) for a in arrays]
        ones[which], arrays[which][place] = np.zeros(arrays[which].shape), np.inf
        ones[which][place] = 1
        formula = OPERATORS[row.operator][0]
        touched = formula(*ones, s) > 0
        may = np.zeros(touched.shape, bool)
        if row.operator == WEIGHT and which == 0:
            may[12:16, ..., 1] = True
        elif row.operator == WEIGHT:
            may[13] = True
        elif which == 0:
            may[..., 8:16] = touched.any(axis=-1, keepdims=True)
        else:
            may[..., 13 if row.operator == FORWARD else 14] = True
        found = device.download(compute(row, *map(device.upload, arrays), s)).astype("float64")
        assert not np.isfinite(found[touched]).any()
        assert np.isfinite(found[~may]).all()
        arrays[which][place] = 0
        exact = formula(*(a.astype("float64") for a in arrays), s)
        finite = np.isfinite(found)
        assert relative_error(found[finite], exact[finite]) < limit_of(row)


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_last_row_takes_any_shape(operator: str) -> None:
    for s in DRAWN:
        rows = applicable(operator, s, HOPPER, "float32")
        assert rows[-1].name.startswith("grouped")
        assert rows[-1].preferred(s, HOPPER)
        assert all(row.name.startswith(("depthwise", "small_groups")) for row in rows[:-1])


def test_what_runs_is_planned() -> None:
    s = make((14, 14), (3, 3), padding=(1, 1), C=96)
    target = cuda_target(DryDevice.of("sm_90a"))
    for operator, entry in ((FORWARD, "forward"), (INPUT, "input"), (WEIGHT, "weight")):
        text = plan(ConvProblem(operator, s), target).describe()
        assert f"depthwise_{entry}_ffma: one input channel per group" in text
        assert "COLUMNS=7" in text
    dilated = conv_shape("test", s.X, s.W, (1, 1), (2, 2), groups=96, dilation=(2, 2))
    assert plan(ConvProblem(FORWARD, dilated), target).name == "grouped_forward_ffma"
    assert choose(INPUT, make((9, 9), (3, 3), C=4, multiplier=2), HOPPER).name == "grouped_input_ffma"


def test_layers_of_resnext_run_as_they_are() -> None:
    """Layers run as they are on cuda; on cpu their groups are packed."""
    for C, size, stride in ((128, 56, 1), (256, 56, 2), (512, 14, 1), (1024, 14, 2), (1024, 7, 1)):
        s = grouped((size, size), (3, 3), (stride, stride), (1, 1), 32, (C // 32, C // 32), N=32)
        assert small_groups.supports_all(s)
        axes = tuple(Axis(i, f, t, 1, 1, o) for i, f, t, o in ((s.IH, 3, s.sh, s.OH), (s.IW, 3, s.sw, s.OW)))
        c = ConvAxes(s.N, s.IC, s.OC, 32, (TRIVIAL, *axes))
        assert pieces.as_2d(c, "cuda") == s
        assert pieces.as_2d(c, "cpu") is None
        for operator in OPERATORS:
            name = f"small_groups_{operator.rpartition('_')[2]}_ffma"
            assert choose(operator, s, HOPPER).name == name
            assert choose(operator, s, TURING, "bf16").name == f"{name}_bf16"
        for operator, precision in itertools.product(OPERATORS, ("tf32", "bf16")):
            row = choose(operator, s, HOPPER, precision)
            on_ffma = operator == WEIGHT and precision == "tf32"
            assert row.name.endswith("_ffma" if on_ffma else f"_sm80_{precision}")


@pytest.mark.parametrize("item", [2, 4])
def test_tiles_of_tensor_cores_cover_the_layer(item: int) -> None:
    for s in grouped_geometry.TENSOR_GROUPS:
        for operator in (FORWARD, INPUT):
            if not small_groups_sm80.supports(operator, s, item):
                continue
            m, tile = small_groups_sm80.sides(operator, s), small_groups_sm80.tile_of(operator, s, item)
            assert tile.STRIPS * tile.GROUPS <= 2 * tile.WM * tile.MT, (s, tile)
            assert tile.NT * s.FH * s.FW * tile.K_VECTORS <= small_groups_sm80.MAX_FILTER
            for channel in range(0, m.channels, 8):
                first = m.first_vector(channel // tile.channels * tile.channels, 16 // item)
                end = m.first_vector(channel, 16 // item) + m.vectors(channel, 16 // item)
                assert end - first <= tile.VECTORS, (s, tile)


@pytest.mark.parametrize("padding", [0, 3], ids=["more inputs", "more outputs"])
def test_offsets_reach_all_images_of_a_block(padding: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The images of a block, and one more, have fewer bytes than the largest offset."""
    s = conv_shape("test", (2, 9, 8, 64), (64, 3, 3, 8), (1, 1), (padding, padding), groups=8)
    pixels = max(9 * 8, s.OH * s.OW)
    assert (s.OH * s.OW > 9 * 8) is (padding > 0)
    tiles = [(small_groups_sm80, operator, small_groups_sm80.tile_of(operator, s, 2)) for operator in (FORWARD, INPUT)]
    for module, operator, tile in (*tiles, (small_groups_weight_sm80, WEIGHT, small_groups_weight_sm80.tile_of(s))):
        images = (tile.STRIPS + 1) * pixels * 64 * 2
        for limit in (images, images + 1):
            monkeypatch.setattr(module, "MAX_OFFSET", limit)
            found = module.supports(s) if operator == WEIGHT else module.supports(operator, s, 2)
            assert found is (limit > images)


# -- layers -----------------------------------------------------------------------------------------


def test_a_captured_step_repeats_a_depthwise_layer() -> None:
    device = alpha.get_device("cuda")
    values = np.random.default_rng(0).standard_normal((5, 2, 14, 23, 6)).astype(np.float32)
    w = alpha.tensor(values[0, 0, :3, :12].reshape(6, 3, 2, -1)[..., :1], device=device, requires_grad=True)

    def step(x: alpha.Tensor) -> alpha.Tensor:
        w.grad = None
        y = F.conv2d(x, w, stride=(1, 2), padding=(2, 1), groups=6)
        (y * y).sum().backward()
        return y

    captured = alpha.capture(step)
    for value in values:
        x = alpha.tensor(value, device=device)
        expected, gradient = step(x).numpy(), w.grad.numpy()
        np.testing.assert_array_equal(captured(x).numpy(), expected)
        np.testing.assert_array_equal(w.grad.numpy(), gradient)


def test_rows_are_loaded_ahead_as_registers_allow() -> None:
    """Two rows of pairs of bfloat16; one of floats and of long filters."""
    target = Target("cuda", (9, 0), 132, 227 << 10)
    for F_, dtype, ahead in ((3, BFLOAT16, 2), (3, np.dtype(np.float32), 1), (7, BFLOAT16, 1)):
        s = conv_shape("test", (64, 28, 28, 192), (192, F_, F_, 1), (1, 1), (F_ // 2, F_ // 2), groups=192)
        problem = ConvProblem(FORWARD, s, "bf16" if dtype == BFLOAT16 else "float32", dtype=dtype)
        kernel = depthwise.kernel_of(problem, target)
        assert kernel.ahead == ahead
        launch = depthwise.depthwise_map(problem, GROUPED[0], target).launches[0]
        assert launch.defines["AHEAD"] == ahead


@pytest.mark.parametrize(
    ("operator", "layer", "rows"),
    [
        (FORWARD, (28, 192, 3, 1), 14),  # one wave, and hardly less work than a second one of shorter segments
        (FORWARD, (112, 32, 3, 1), 13),  # nearly two waves
        (FORWARD, (28, 192, 7, 1), 28),  # 1.3 waves: the last one is short, because fewer blocks keep an SM busy
        (WEIGHT, (28, 192, 7, 1), 14),
        (INPUT, (14, 576, 3, 1), 14),
        (FORWARD, (1, 4, 1, 1), 1),
        (WEIGHT, (3, 8, 7, 2), 2),  # of the two rows of results, fewer than half a filter
    ],
)
def test_segments_are_as_long_as_whole_waves_of_blocks_need(
    operator: str, layer: tuple[int, int, int, int], rows: int
) -> None:
    """Measured on an H200: a last wave of few blocks takes as long as a full one, except with large filters."""
    H, C, F_, stride = layer
    s = conv_shape("test", (64, H, H, C), (C, F_, F_, 1), (stride, stride), (F_ // 2, F_ // 2), groups=C)
    problem = ConvProblem(operator, s, "bf16", dtype=BFLOAT16)
    kernel = depthwise.kernel_of(problem, Target("cuda", (9, 0), 132, 227 << 10))
    height = s.IH if operator == INPUT else s.OH
    assert kernel.segment_rows == rows
    assert kernel.groups * kernel.block[1] >= 64 * -(-height // rows) * kernel.strips.number
