"""Blocks of the Hopper kernels that compute several tiles: the tasks that they work out ahead, and filters that stay.

The emulated GPU has few SMs, so that few rows are many tiles for each of them.
"""

from __future__ import annotations

import pytest
from conv2d_cases import OPERATORS, arrays_of, hopper, make, operands, relative_error
from helpers import half_of, sample_of
from launch_log import observed_launches

from alpha.ops.conv2d.plan import compute, plan_configuration
from alpha.ops.conv2d.problem import FORWARD, INPUT, Configuration, ConvProblem, Target
from alpha.ops.conv2d.select import time_model
from alpha.ops.conv2d.select.hopper_table import FORWARD_ROWS, INPUT_ROWS
from alpha.ops.kernel.plan import KernelLaunch

ROWS = FORWARD_ROWS + INPUT_ROWS
FEW = 4  # SMs
H200 = Target("cuda", (9, 0), 132, 227 << 10, name="NVIDIA H200")
LIMITS = {"float32": 1e-6, "tf32": 1e-3, "bf16": 5e-3}


def kernel_of(name: str, N: int, K: int, GN: int) -> KernelLaunch:
    """The launch of a configuration of ConvV2 for a product of (N, K) and (K, GN) on an H200."""
    row = next(v for v in FORWARD_ROWS if v.name == f"conv_v2_sm90_{name}")
    problem = ConvProblem(FORWARD, make(N, (1, 1), (K, GN), (1, 1)), row.precision, dtype=row.dtype)
    return plan_configuration(problem, row, H200).launches[-1]


@pytest.mark.parametrize(
    ("name", "sizes", "kept"),
    [
        ("bf16_128x192", (100_352, 24, 144), 1),
        ("bf16_128x64", (100_352, 24, 144), 1),  # which otherwise has two blocks per SM
        ("bf16_64x64", (100_352, 24, 144), 0),  # gains less than three blocks per SM
        ("bf16_128x192", (132 * 128, 24, 144), 0),  # one tile per SM
        ("bf16_128x192", (132 * 128 + 1, 24, 144), 1),
        ("bf16_128x128", (100_352, 256, 128), 1),
        ("bf16_128x128", (100_352, 264, 128), 0),  # five steps of K
        ("tf32_128x128", (100_352, 128, 128), 1),
        ("tf32_128x128", (100_352, 136, 128), 0),
        ("fp16_256x128", (100_352, 64, 128), 0),  # leaves shared memory for three stages of A only
        ("bf16_128x128", (6272, 256, 1024), 0),  # 16 blocks for 49 tiles: four rounds instead of three
    ],
)
def test_which_filters_stay(name: str, sizes: tuple[int, int, int], kept: int) -> None:
    launch = kernel_of(name, *sizes)
    assert launch.defines["KEEP_B"] == kept
    if kept:
        assert launch.defines["BLOCKS"] == 1
        assert launch.defines["A_STAGES"] >= 4
        assert launch.defines["B_STAGES"] == -(-sizes[1] // (32 if name.startswith("tf32") else 64))


def test_a_block_that_keeps_its_filter_keeps_to_its_channels() -> None:
    """Five tiles of channels: two of 132 SMs are left idle, so that every 130th tile has the same channels."""
    launch = kernel_of("bf16_128x64", 2 * 26 * 128, 24, 5 * 64)
    assert (launch.defines["KEEP_B"], launch.grid) == (1, 130)


def test_several_taps_do_not_stay() -> None:
    row = next(v for v in FORWARD_ROWS if v.name == "conv_v2_sm90_bf16_128x64")
    for F, p in (((3, 3), (1, 1)), ((1, 1), (1, 1)), ((1, 2), (0, 0))):
        problem = ConvProblem(FORWARD, make(32, (56, 56), (24, 64), F, p=p), "bf16", dtype=row.dtype)
        assert plan_configuration(problem, row, H200).launches[-1].defines["KEEP_B"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(("K", "GN"), [(40, 68), pytest.param(128, 98, marks=pytest.mark.gate), (8, 63)])
def test_a_filter_of_floats_that_stays_is_transposed_on_its_way(K: int, GN: int) -> None:
    """dX of a filter of one tap is one launch, whatever the channels of W."""
    row = next(v for v in INPUT_ROWS if v.name == "ks_deconv_sm90_tf32_128x64")
    device = hopper(FEW)
    s = make(device.properties.num_sms * 128 * 5 // 4 + 3, (1, 1), (GN, K), (1, 1))
    dY, W = operands(INPUT, s, "float32")
    with observed_launches(device) as launched:
        dX = device.download(compute(row, device.upload(dY), device.upload(W), s))
    assert relative_error(dX, OPERATORS[INPUT][0](dY.astype("float64"), W.astype("float64"), s)) < LIMITS["tf32"]
    assert [launch.defines["TRANSPOSE_B"] for launch in launched] == [1]


def test_a_filter_that_stays_for_blocks_that_begin_with_a_tile_of_zeros() -> None:
    """Compute Y of five rows, of which only one meets the map, with blocks that begin with one of the others."""
    row = next(v for v in FORWARD_ROWS if v.name == "conv_v2_sm90_bf16_128x64")
    device = hopper(2)
    s = make(1280, (1, 1), (64, 64), (1, 1), p=(2, 0))
    X, W = (a.astype(arrays_of(row)) for a in operands(FORWARD, s, "float32"))
    Y = device.download(compute(row, device.upload(X), device.upload(W), s)).astype("float64")
    exact = OPERATORS[FORWARD][0](X.astype("float64"), W.astype("float64"), s)
    assert relative_error(Y, exact) < LIMITS["bf16"]


def test_the_model_counts_the_transposition() -> None:
    """Cycles grow with the numbers of the filter; a filter that TMA loads costs its warps nothing."""
    row = next(v for v in INPUT_ROWS if v.name == "ks_deconv_sm90_tf32_128x128")
    other = next(v for v in FORWARD_ROWS if v.name == "conv_v2_sm90_tf32_128x128")
    few, many = (time_model.work_of(row, make(128 * 400, (1, 1), (128, K), (1, 1)), H200).converted for K in (64, 128))
    assert many == 2 * few > 0
    assert time_model.work_of(row, make(128 * 400, (1, 1), (128, 136), (1, 1)), H200).converted == 0
    assert time_model.work_of(other, make(128 * 400, (1, 1), (64, 128), (1, 1)), H200).converted == 0


def test_a_filter_of_two_taps_of_which_one_meets_the_map() -> None:
    """The filter stays in shared memory; the tap is not the first one, so it is not W as it lies in memory."""
    row = next(v for v in INPUT_ROWS if v.name == "ks_deconv_sm90_tf32_128x64")
    device = hopper(FEW)
    s = make(128 * 3 * device.properties.num_sms, (2, 1), (40, 72), (2, 1), (3, 1), (1, 0))
    dY, W = operands(INPUT, s, "float32")
    with observed_launches(device) as launched:
        dX = device.download(compute(row, device.upload(dY), device.upload(W), s))
    assert relative_error(dX, OPERATORS[INPUT][0](dY.astype("float64"), W.astype("float64"), s)) < LIMITS["tf32"]
    assert launched[-1].defines["TRANSPOSE_B"] == 0


def test_a_filter_that_is_transposed_may_have_one_tile() -> None:
    """The transposed filter of one tile saves a launch. Other filters stay only if several tiles use them."""
    s, rows = make(100, (1, 1), (64, 40), (1, 1)), (FORWARD_ROWS, INPUT_ROWS)
    found = []
    for row in (next(v for v in group if v.name.endswith("_sm90_tf32_128x64")) for group in rows):
        launches = plan_configuration(ConvProblem(row.operator, s, "tf32", dtype=row.dtype), row, H200).launches
        found.append([launch.defines["KEEP_B"] for launch in launches])
    assert found == [[0], [1]]


def test_other_filters_of_floats_are_transposed_before() -> None:
    row = next(v for v in INPUT_ROWS if v.name == "ks_deconv_sm90_tf32_128x64")
    for N, K, F in ((128 * 200, 136, 1), (128 * 200, 40, 3)):  # five steps of K; several taps
        problem = ConvProblem(INPUT, make(N, (F, F), (64, K), (F, F), p=(F // 2, F // 2)), "tf32", dtype=row.dtype)
        launches = plan_configuration(problem, row, H200).launches
        assert [launch.defines.get("TRANSPOSE_B") for launch in launches] == [None, 0]


@pytest.mark.parametrize("name", ["bf16_256x64", "bf16_128x128", "bf16_128x96", "tf32_256x64"])
def test_large_tiles_of_dX_share_an_sm_only_with_a_stride(name: str) -> None:
    row = next(v for v in INPUT_ROWS if v.name == f"ks_deconv_sm90_{name}")
    for s, blocks in (((1, 1), 1), ((2, 1), 2), ((1, 2), 2)):
        problem = ConvProblem(INPUT, make(64, (64, 64), (128, 128), (3, 3), s, (1, 1)), row.precision, dtype=row.dtype)
        assert plan_configuration(problem, row, H200).launches[-1].defines["BLOCKS"] == blocks


def test_a_filter_that_stays_is_read_once() -> None:
    """The model counts one read of the filter."""
    row = next(v for v in FORWARD_ROWS if v.name == "conv_v2_sm90_bf16_128x192")
    one, two = (
        time_model.work_of(row, make(rounds * 132 * 128, (1, 1), (24, 144), (1, 1)), H200).read for rounds in (2, 4)
    )
    assert one == 2 * 128 * 128 + 192 * 128
    assert two == 4 * 128 * 128 + 192 * 128


@pytest.mark.slow
@pytest.mark.parametrize("row", half_of(sample_of(ROWS)))
def test_a_block_computes_many_tiles(row: Configuration) -> None:
    """Tiles have filters of one tap, with two steps of K, and of nine taps; last tiles and last steps are not full."""
    device = hopper(FEW)
    GN, sms = row.tile["BN"] + 8, device.properties.num_sms
    channels = (72, GN) if row.operator == FORWARD else (GN, 72)
    stride = (1, 1) if row.operator == FORWARD else (2, 1)
    one_tap = make(int(1.4 * row.tile["BM"] * sms), (1, 1), channels, (1, 1))
    nine_taps = make(9, (6, 7), channels, (3, 3), stride, (1, 1))
    for s in (one_tap, nine_taps):
        first, second = (a.astype(arrays_of(row)) for a in operands(row.operator, s, "float32"))
        with observed_launches(device) as launched:
            value = device.download(compute(row, device.upload(first), device.upload(second), s))
        exact = OPERATORS[row.operator][0](first.astype("float64"), second.astype("float64"), s)
        assert relative_error(value.astype("float64"), exact) < LIMITS[row.precision], s
        kept = [launch for launch in launched if launch.defines.get("KEEP_B")]
        in_floats = row.math.in_fp16 and not row.tile["PREPARED"]  # which leave shared memory for three stages of A
        small = row.tile["BM"] + row.tile["BN"] < 192 or (in_floats and row.tile["BM"] == 256)
        assert bool(kept) == (s is one_tap and not small)
