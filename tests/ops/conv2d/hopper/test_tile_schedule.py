"""The schedule of tiles on Hopper: blocks that go on to a next tile, and blocks that share a tile of many products."""

from __future__ import annotations

import pytest
from conv2d_cases import LONG, MANY, OPERATORS, SIMPLE, arrays_of, hopper, make, operands, relative_error, reordered
from helpers import first_of

import alpha
from alpha.ops.conv2d.hopper import output_tiles, tile_schedule
from alpha.ops.conv2d.hopper.output_tiles import Tile
from alpha.ops.conv2d.plan import compute
from alpha.ops.conv2d.problem import FORWARD, MathMode, Target
from alpha.ops.conv2d.select.table import CONFIGURATIONS

AMPERE = Target("cuda", (8, 0), 108)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    first_of(
        "conv_v2_sm90_bf16_256x128",
        "conv_v2_sm90_fp16_256x128",
        "ks_deconv_sm90_tf32_256x128",
        "ks_deconv_sm90_fp16x3_128x128",
    ),
)
def test_more_tiles_than_sms(name: str) -> None:
    """Blocks that have an SM each go on to the next tile."""
    row = next(v for v in CONFIGURATIONS if v.name == name)
    device = alpha.get_device("cuda") if row.supports(SIMPLE, AMPERE) else hopper()
    s = MANY
    first, second = (a.astype(arrays_of(row)) for a in operands(row.operator, s, "float32"))
    exact = OPERATORS[row.operator][0](first.astype("float64"), second.astype("float64"), s)
    value = device.download(compute(row, device.upload(first), device.upload(second), s))
    limit = {"float32": 1e-6, "tf32": 1e-3, "bf16": 5e-3}[row.precision]
    assert relative_error(value.astype("float64"), exact) < limit


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *first_of("conv_v2_sm90_fp16x3_128x64", "conv_v2_sm90_bf16_128x64", "conv_v2_sm90_tf32_256x128"),
        *first_of("ks_deconv_sm90_fp16x3_128x64", "ks_deconv_sm90_bf16_128x256", "ks_deconv_sm90_fp16_128x128"),
    ],
)
def test_split_k(name: str) -> None:
    """Few tiles, a long K: several blocks share a tile, and add their sums in the same order whoever is last."""
    row = next(v for v in CONFIGURATIONS if v.name == name)
    tiles_of = output_tiles.conv_v2_tiles if row.operator == FORWARD else output_tiles.ks_deconv_tiles
    s, tile = LONG, Tile.of(row)
    schedule = tile_schedule.tile_schedule(tiles_of(s, tile), 384, -(-384 // tile.BN), 132)
    assert max(work.num_splits for work in schedule) > 1
    arrays = [a.astype(arrays_of(row)) for a in operands(row.operator, s, "float32")]
    exact = OPERATORS[row.operator][0](*(a.astype("float64") for a in arrays), s)
    device = hopper()
    first, second = (device.upload(a) for a in arrays)
    value = device.download(compute(row, first, second, s))
    limit = {"float32": 1e-6, "tf32": 1e-3, "bf16": 5e-3}[row.precision]
    assert relative_error(value.astype("float64"), exact) < limit
    other = reordered("sm_90a")
    again = other.download(compute(row, *(other.upload(a) for a in arrays), s))
    assert again.tobytes() == value.tobytes()


def test_splits_of_a_tile() -> None:
    """Every step of every tile is in one split; a tile of more products has more splits."""
    s = make(512, (4, 4), (512, 512), (3, 3), (2, 2), (1, 1))
    output = output_tiles.conv_v2_tiles(s, Tile(128, 128, MathMode.FP16))
    schedule = tile_schedule.tile_schedule(output, 512, 16, 132)
    by_pixel = {w.output_pixel: w.num_splits for w in schedule}
    assert by_pixel == {0: 1, 1: 2, 2: 2, 3: 3}  # of 4, 6, 6 and 9 taps
    assert sorted(w.split for w in schedule if w.output_pixel == 3) == [0, 1, 2]
    slots = {w.workspace_slot + w.split for w in schedule if w.num_splits > 1}
    assert slots == set(range(7))
    large = make(512, (32, 32), (64, 64), (3, 3), (1, 1), (1, 1))
    whole = tile_schedule.tile_schedule(output_tiles.conv_v2_tiles(large, Tile(256, 64, MathMode.FP16)), 64, 16, 132)
    assert {w.num_splits for w in whole} == {1}
