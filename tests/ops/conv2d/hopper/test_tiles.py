"""The tiles of the Hopper kernels: formulas for all pixels at once against those for one, long rows and few images."""

from __future__ import annotations

import conv2d_geometry
import numpy as np
import pytest
from conv2d_cases import OPERATORS, arrays_of, hopper, make, operands, relative_error
from helpers import python_calls, smallest_of
from hypothesis import given, settings
from hypothesis import strategies as st

from alpha.core.numerics import FLOAT32
from alpha.core.primitive import REGISTRY
from alpha.ops.conv2d.channel_statistics import ChannelStatistics
from alpha.ops.conv2d.hopper import output_tiles, tile_schedule
from alpha.ops.conv2d.hopper.output_tiles import Tile
from alpha.ops.conv2d.hopper.tile_schedule import WorkTile
from alpha.ops.conv2d.launch import plan
from alpha.ops.conv2d.plan import compute, plan_configuration
from alpha.ops.conv2d.problem import OPERANDS, WEIGHT, Configuration, ConvProblem, MathMode, Target
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.shape import Axis, ConvShape, conv_shape, pairs_met, split_segments, trimmed_taps

HOPPER = Target("cuda", (9, 0), 132, 227 << 10, name="NVIDIA H200")


@st.composite
def axes(draw: st.DrawFn) -> Axis:
    """Axes with a stride or a dilation, filters and paddings larger than the axis among them."""
    number = st.integers
    I, F, p = draw(number(1, 12)), draw(number(1, 7)), draw(number(0, 9))
    s, d = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (5, 1), (1, 2), (1, 4)]))
    return Axis(I, F, s, p, d, max(1, (I + 2 * p - d * (F - 1) - 1) // s + 1))


@given(axis=axes())
@settings(max_examples=300, deadline=None)
def test_taps_of_an_axis_are_those_of_its_pixels(axis: Axis) -> None:
    I, F, s, p, d, O = axis
    outputs = [trimmed_taps(o, I, F, s, p, d) for o in range(O)]
    inputs = [(0, 0)] * I
    for g in split_segments(O, I, F, s, p, d):
        for i in range(g.length):
            inputs[g.start + i * s] = g.c_s, g.c_e
    for split, expected in ((False, outputs), (True, inputs)):
        found = output_tiles._taps(axis, split)
        lengths = [max(0, b - a) for a, b in zip(found.first.tolist(), found.end.tolist(), strict=True)]
        assert lengths == [b - a for a, b in expected]
        assert all(
            mine == taps for mine, taps in zip(zip(*found, strict=True), expected, strict=True) if taps[0] < taps[1]
        )
    assert pairs_met(*axis) == sum(0 <= o * s - p + f * d < I for o in range(O) for f in range(F))


@given(axis=axes(), tile_ow=st.sampled_from([1, 2, 8]))
@settings(max_examples=200, deadline=None)
def test_the_tiles_of_a_row_cover_it_with_the_union_of_their_taps(axis: Axis, tile_ow: int) -> None:
    for split in (False, True):
        taps, residues = output_tiles._taps(axis, split), axis.s if split else 1
        starts, widths = (x.tolist() for x in output_tiles._tiles_of_a_row(axis, split, tile_ow))
        tiles = [range(start, len(taps.first), residues)[:tile_ow] for start in starts]
        assert sorted(pixel for tile in tiles for pixel in tile) == list(range(len(taps.first)))
        for tile, width in zip(tiles, widths, strict=True):
            needed = {tap for i in tile for tap in range(taps.first[i], taps.end[i])}
            assert width >= len(needed)
            assert width == max(0, taps.end[tile[0]] - taps.first[tile[-1]])


def test_the_longest_tiles_come_first_and_equal_ones_in_their_order() -> None:
    s = conv_shape("test", (8, 40, 40, 64), (64, 5, 5, 64), (1, 1), (2, 2))
    output = output_tiles.conv_v2_tiles(s, Tile(128, 64, MathMode.BF16))
    schedule = tile_schedule.tile_schedule(output, 64, 100, 132)
    assert not schedule.workspace_slots
    rows, widths = output.rows.tolist(), dict(zip(output.starts.tolist(), output.widths.tolist(), strict=True))
    work = [rows[tile.output_pixel // 40] * widths[tile.output_pixel % 40] for tile in schedule]
    assert work == sorted(work, reverse=True)
    first = [tile.output_pixel for tile, w in zip(schedule, work, strict=True) if w == work[0]]
    assert first == sorted(first)
    assert len(schedule) == len(rows) * len(widths)
    assert all(tile == WorkTile(tile.output_pixel, 0, 1, 0) for tile in schedule)


def test_a_row_of_half_a_million_pixels_is_planned_at_once() -> None:
    """Sound and genomes; it took two seconds when each pixel was a step of Python."""
    s = conv_shape("test", (1, 1, 524_288, 32), (32, 1, 7, 32), (1, 1), (0, 3))

    def plans() -> None:
        for operator in OPERANDS:
            plan(ConvProblem(operator, s, "tf32", dtype=FLOAT32), HOPPER)

    assert sum(python_calls(plans).values()) < 200_000
    assert np.count_nonzero(output_tiles._taps(s.width, False).end == 7) == 524_288 - 3


# -- few images -------------------------------------------------------------------------------------

FEW = {  # shapes for which a tile of 8 images would be mostly empty
    "one image": make(1, (9, 40), (64, 40), (3, 3), p=(1, 1)),
    "three images": make(3, (5, 150), (64, 72), (3, 3), p=(1, 1)),
    "a stride": make(2, (7, 33), (40, 64), (2, 4), (2, 2), (1, 1)),
    "a sequence": make(1, (1, 300), (32, 64), (1, 7), p=(0, 3)),
}
ROWS = [v for v in CONFIGURATIONS if "sm90" in v.name]


def tile_widths(v: Configuration, s: ConvShape) -> set[int]:
    made = plan_configuration(ConvProblem(v.operator, s, v.precision, dtype=arrays_of(v)), v, HOPPER)
    return {x.defines["TILE_OW"] for x in made.launches if "TILE_OW" in x.defines}


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("v", smallest_of(ROWS))
def test_few_images_fill_a_tile_with_their_pixels(v: Configuration, name: str) -> None:
    s, device = FEW[name], hopper()
    arrays = [a.astype(arrays_of(v)) for a in operands(v.operator, s, "float32")]
    exact = OPERATORS[v.operator][0](*(a.astype(np.float64) for a in arrays), s)
    given = [device.upload(a) for a in arrays]
    statistics = ChannelStatistics() if v.supports_statistics else None
    found = device.download(compute(v, *given, s, None, 1.0, statistics))
    assert relative_error(found.astype(np.float64), exact) < {"float32": 1e-6, "tf32": 1e-3, "bf16": 5e-3}[v.precision]
    if statistics is not None and statistics.part is not None:
        rows = device.upload(found.reshape(-1, s.OC))
        mean = device.download(REGISTRY["channel_statistics"](rows, None, None, 0.1, statistics)[0])
        np.testing.assert_allclose(mean, exact.reshape(-1, s.OC).mean(0), atol=0.02 * exact.std())


@pytest.mark.parametrize("v", smallest_of(ROWS))
def test_tiles_of_few_images_are_wide(v: Configuration) -> None:
    """Fewer than 8 images, each with more pixels. With 8 images they share the pixels of a row with their taps."""
    one, eight = (make(N, (64, 256), (64, 64), (3, 3), p=(1, 1)) for N in (1, 8))
    height = 64 if v.operator == WEIGHT else Tile.of(v).BM
    (wide,), (usual,) = tile_widths(v, one), tile_widths(v, eight)
    assert height // wide < 8 <= height // usual


def test_a_tile_is_what_its_row_says() -> None:
    for row in CONFIGURATIONS:
        if conv2d_geometry.is_hopper(row):
            tile = Tile.of(row)
            named = {"BM": tile.BM, "BN": tile.BN, "BLOCKS": tile.blocks}
            assert named.items() <= row.tile.items()
            assert tile.math is row.math
            assert tile.prepared == row.tile["PREPARED"]


def test_cycles_of_the_tensor_cores() -> None:
    """1024 multiplications of tf32 per cycle, 2048 of 16 bits; float32 is three products of fp16 terms."""
    assert Tile(128, 128, MathMode.TF32).cycles == 128 * 128 * 32 / 1024
    assert Tile(128, 128, MathMode.BF16).cycles == 128 * 128 * 64 / 2048
    assert Tile(128, 128, MathMode.FP16X3).cycles == 3 * 128 * 128 * 64 / 2048
