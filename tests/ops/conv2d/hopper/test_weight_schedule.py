"""The blocks of dW on Hopper: each filter row has a number of splits of its own, and the longest blocks begin first."""

from __future__ import annotations

import heapq
from dataclasses import replace

import conv2d_reference as reference
import numpy as np
import pytest
from conv2d_cases import OPERATORS, arrays_of, hopper, make, operands, relative_error

from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.ops.conv2d import cuda_target
from alpha.ops.conv2d.hopper.output_tiles import Tile
from alpha.ops.conv2d.hopper.tile_schedule import Blocks, busiest
from alpha.ops.conv2d.hopper.weight_schedule import WeightBlock, WeightSchedule, steps_of_rows, weight_schedule
from alpha.ops.conv2d.hopper.weight_tiles import WeightTile, weight_tile
from alpha.ops.conv2d.plan import compute, plan_configuration
from alpha.ops.conv2d.problem import WEIGHT, Configuration, ConvProblem
from alpha.ops.conv2d.select import hopper_table, time_model
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.kernel.plan import TensorMaps

BY_NAME = {v.name: v for v in CONFIGURATIONS}
SMALL = make(2048, (4, 4), (64, 64), (3, 3), p=(1, 1))
# planes and rows at the edge of a 3-D filter meet fewer of the map
VOLUME = ConvShape(
    N=16, IH=4, IW=4, IC=32, OC=64, FH=3, FW=3, sh=1, sw=1, ph=1, pw=1, OH=4, OW=4, ID=2, FD=3, sd=1, pd=1, OD=2
)
SHAPES = {
    "small map": SMALL,
    "stride": make(64, (9, 9), (64, 96), (3, 3), (2, 2), (1, 1)),
    "wide filter": make(32, (8, 8), (32, 64), (1, 7), p=(0, 3)),
    "one tap": make(512, (8, 8), (64, 64), (1, 1)),
    "volume": VOLUME,
}


def schedule_of(s: ConvShape, name: str = "bf16_64x64", num_sms: int = 132) -> tuple[WeightTile, WeightSchedule]:
    tile = Tile.of(BY_NAME[f"sk_dilated_sm90_{name}"])
    block = weight_tile(s, tile)
    return block, weight_schedule(s, block, -(-s.OC // tile.BM) * -(-s.IC // tile.BN), num_sms)


@pytest.mark.parametrize("name", SHAPES)
def test_each_split_of_each_row_has_one_block(name: str) -> None:
    s = SHAPES[name]
    block, found = schedule_of(s)
    blocks = [WeightBlock(*map(int, fields)) for fields in found.blocks]
    expected = {
        (row, first, split)
        for row in range(s.FD * s.FH)
        for first in range(0, s.FW, block.taps)
        for split in range(found.splits[row * s.FW + first])
    }
    assert {(b.filter_row, b.first_tap, b.split) for b in blocks} == expected
    assert len(blocks) == len(expected)
    for b in blocks:
        taps = found.splits[b.filter_row * s.FW + b.first_tap :][: min(block.taps, s.FW - b.first_tap)]
        assert (taps == b.num_splits).all()
    steps = steps_of_rows(s, block)
    lengths = [int(steps[b.filter_row, b.first_tap // block.taps]) for b in blocks]
    each = [n // b.num_splits + (b.split < n % b.num_splits) for n, b in zip(lengths, blocks, strict=True)]
    assert each == sorted(each, reverse=True)


def test_a_row_that_meets_less_of_the_map_has_fewer_splits() -> None:
    """The edge rows of the filter meet three of four rows of the map, and blocks of all rows are as long."""
    _, found = schedule_of(SMALL)
    edge, middle, other = found.splits.reshape(3, 3)
    assert set(edge) == set(other)
    assert edge[0] / middle[0] == pytest.approx(3 / 4, abs=0.05)
    volume = schedule_of(replace(VOLUME, N=2048))[1].splits.reshape(3, 3, 3)[:, :, 0]
    assert volume[0, 1] / volume[1, 1] == pytest.approx(1 / 2, abs=0.07)


def test_blocks_fill_the_gpu_once() -> None:
    for num_sms in (20, 80, 132):
        _, found = schedule_of(SMALL, num_sms=num_sms)
        assert 0.9 * num_sms <= len(found.blocks) <= num_sms
        assert found.busiest_blocks == 1


def test_rows_of_large_arrays_have_equal_splits() -> None:
    """Blocks of all filter rows then read the same rows of X at the same time, and X comes from memory once."""
    small, large = (schedule_of(make(N, (16, 16), (64, 64), (3, 3), p=(1, 1)))[1] for N in (128, 1024))
    assert len(set(small.splits)) == 2
    assert len(set(large.splits)) == 1
    assert large.parts > 1


def test_partial_sums_are_those_of_the_splits() -> None:
    _, found = schedule_of(SMALL)
    assert found.partial_bytes == 4 * SMALL.OC * SMALL.IC * int(found.splits.sum())
    row = BY_NAME["sk_dilated_sm90_bf16_64x64"]
    done = time_model.work_of(row, SMALL, cuda_target(hopper()))
    assert (done.partial, done.blocks) == (found.partial_bytes, found.busiest_blocks)
    alone = schedule_of(make(8, (2, 2), (64, 64), (3, 3), p=(1, 1)))[1]
    assert (alone.parts, alone.partial_bytes) == (1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("gradient", [FLOAT32, BFLOAT16], ids=str)
@pytest.mark.parametrize("name", ["bf16_64x64", "fp16x3_64x64", pytest.param("bf16_128x96", marks=pytest.mark.gate)])
def test_unequal_splits_give_the_gradient(name: str, gradient: np.dtype) -> None:  # type: ignore[type-arg]
    """Some rows have three splits, others two; the channels do not fill the tiles."""
    row, device = BY_NAME[f"sk_dilated_sm90_{name}"], hopper(30)
    s = make(96, (4, 4), (72, 40), (3, 3), p=(1, 1))
    X, dY = (a.astype(row.dtype) for a in operands(WEIGHT, s, "float32"))
    plan = plan_configuration(
        ConvProblem(WEIGHT, s, row.precision, dtype=row.dtype, gradient=gradient), row, cuda_target(device)
    )
    assert plan.launches[-1].entry == "sum_splits"
    assert plan.outputs["dW"].dtype == gradient
    splits = schedule_of(s, name, 30)[1].splits
    assert len(set(splits)) > 1
    found = device.download(compute(row, device.upload(X), device.upload(dY), s))
    exact = OPERATORS[WEIGHT][0](X.astype("float64"), dY.astype("float64"), s)
    assert relative_error(found, exact) < 1e-6


def test_several_threads_add_up_the_partial_sums_of_few_channels() -> None:
    row, device = BY_NAME["sk_dilated_sm90_bf16_64x32"], hopper(132)
    s = make(1024, (4, 4), (8, 8), (3, 3), p=(1, 1))
    X, dY = (a.astype(row.dtype) for a in operands(WEIGHT, s, "float32"))
    last = plan_configuration(ConvProblem(WEIGHT, s, "bf16", dtype=row.dtype), row, cuda_target(device)).launches[-1]
    assert (last.entry, last.defines["LANES"]) == ("sum_splits", 16)
    assert 16 < schedule_of(s, "bf16_64x32")[1].parts < 64
    found = device.download(compute(row, device.upload(X), device.upload(dY), s))
    exact = OPERATORS[WEIGHT][0](X.astype("float64"), dY.astype("float64"), s)
    assert relative_error(found, exact) < 1e-6


def test_equal_splits_are_added_as_those_of_other_kernels() -> None:
    row, s = BY_NAME["sk_dilated_sm90_bf16_64x64"], SHAPES["one tap"]
    launches = plan_configuration(ConvProblem(WEIGHT, s, "bf16", dtype=row.dtype), row, cuda_target(hopper())).launches
    assert [launch.source for launch in launches] == ["conv2d/sk_dilated/sm90.cu", "reduce/sum.cu"]


def test_the_busiest_sm() -> None:
    """Each block is given, as it were, to the SM that is free first."""
    groups = [Blocks(9.0, 5), Blocks(7.5, 11), Blocks(7.0, 1), Blocks(2.0, 40)]
    for num_sms in (1, 3, 7, 60):
        ends = [(0.0, 0)] * num_sms
        for cycles, number in groups:
            for _ in range(number):
                end, blocks = heapq.heappop(ends)
                heapq.heappush(ends, (end + cycles, blocks + 1))
        assert tuple(busiest(groups, num_sms)) == max(ends)
    assert busiest([], 4) == (0.0, 0)


@pytest.mark.parametrize("row", hopper_table.WEIGHT_ROWS, ids=lambda row: row.name)
def test_a_tensor_map_takes_one_row_of_one_kind_of_terms_at_once(row: Configuration) -> None:
    problem = ConvProblem(WEIGHT, SMALL, row.precision, dtype=row.dtype)
    (launch,) = (x for x in row.make(problem, row, cuda_target(hopper())).launches if x.entry == "sk_dilated_sm90")
    boxes = [box for a in launch.arguments if isinstance(a, TensorMaps) for box in a.layout[4]]
    assert boxes
    assert {length for box in boxes for length in box[3:]} == {1}


def test_ping_pong_warpgroups_at_two_stages() -> None:
    """The warpgroups would both wait if each held a step until its next has come."""
    s = make(320, (5, 6), (40, 32), (1, 6), (1, 5))
    row = next(v for v in CONFIGURATIONS if v.name == "sk_dilated_sm90_bf16_64x64")
    first, second = (a.astype(arrays_of(row)) for a in operands(WEIGHT, s, "float32"))
    exact = reference.backward_weight(first.astype("float64"), second.astype("float64"), s)
    device = hopper()
    value = device.download(compute(row, device.upload(first), device.upload(second), s))
    assert relative_error(value.astype("float64"), exact) < 1e-6
