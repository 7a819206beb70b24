"""The Hopper kernels with a depth and dilation: every configuration against the formula, and when they are taken."""

from __future__ import annotations

import axes_geometry
import conv2d_reference as reference
import numpy as np
import pytest
from axes_geometry import HOPPER, axis, make
from conv2d_cases import OPERATORS, arrays_of, hopper, operands, relative_error
from helpers import first_of, half_of, sample_names, sample_of

import alpha
from alpha.nn import functional as F
from alpha.ops.conv2d.hopper.output_tiles import Tile, conv_v2_tiles
from alpha.ops.conv2d.launch import plan
from alpha.ops.conv2d.plan import compute
from alpha.ops.conv2d.problem import FORWARD, WEIGHT, Configuration, ConvProblem, Target
from alpha.ops.conv2d.select.choose import OF_DEPTH_OR_DILATION, applicable, computes_depth_or_dilation
from alpha.ops.conv2d.shape import TRIVIAL, Axis, ConvShape, as_axes_struct, conv_shape
from alpha.ops.convolution import pieces
from alpha.ops.convolution.conv_arguments import ConvAxes
from alpha.ops.convolution.whole import as_2d, with_axes, without_pointwise
from alpha.runtime.cuda.planning.driver_dry import DryDevice
from alpha.runtime.registry import standing_in

SAMPLE = sample_names(OF_DEPTH_OR_DILATION)
BF16_ROW = next(v for v in OF_DEPTH_OR_DILATION if v.precision == "bf16")
AMPERE = Target("cuda", (8, 0), 108, 163 << 10)
VIDEO = ConvAxes(8, 64, 64, 1, (axis(8, 3, 1, 1), axis(28, 3, 1, 1), axis(28, 3, 1, 1)))


@pytest.mark.slow
@pytest.mark.parametrize("part", first_of("first shapes", "other shapes"))
@pytest.mark.parametrize("row", half_of(sample_of(OF_DEPTH_OR_DILATION)))
def test_every_row_equals_the_formula(row: Configuration, part: str) -> None:
    """Each row computes one of the shapes in turn; a row of the sample computes all of them."""
    device = hopper()
    limit = {"float32": 1e-6, "tf32": 1e-3, "bf16": 5e-3}[row.precision]
    turn, shapes = OF_DEPTH_OR_DILATION.index(row), axes_geometry.of(row)
    first = [shapes[turn % len(shapes)]]
    others = [s for s in shapes if s not in first] if row.name in SAMPLE else []
    for seed, s in enumerate(first if part == "first shapes" else others):
        assert row.supports(s, HOPPER)
        first, second = (a.astype(arrays_of(row)) for a in operands(row.operator, s, "float32", seed))
        exact = OPERATORS[row.operator][0](first.astype("float64"), second.astype("float64"), s)
        value = device.download(compute(row, device.upload(first), device.upload(second), s))
        assert relative_error(value.astype("float64"), exact) < limit, f"{row.name} {s}"


def test_the_formula_is_that_of_two_axes() -> None:
    """Depth and height may change places, with their strides, paddings and dilations."""
    s = conv_shape("test", (2, 5, 6, 8), (16, 3, 2, 8), (2, 1), (1, 0))
    deep = make(2, (8, 16), s.height, TRIVIAL, s.width)
    for operator, (formula, _) in OPERATORS.items():
        first, second = operands(operator, s, "float64")
        assert [a.shape for a in operands(operator, deep, "float64")] == [first.shape, second.shape]
        assert np.array_equal(formula(first, second, deep), formula(first, second, s))
    assert reference.forward(*operands(FORWARD, deep, "float64"), deep).shape == deep.Y


@pytest.mark.parametrize(
    ("shape", "takes"),
    [
        (axes_geometry.SHAPES[0], True),
        (make(2, (8, 8), axis(4, 3, 1, 1), axis(4, 3, 2, 1, 2), axis(4, 3)), False),  # stride and dilation of one axis
        (make(2, (8, 12), axis(4, 3, 1, 1), axis(4, 3), axis(4, 3)), True),  # on padded copies
        (make(2, (3, 8), axis(4, 3, 1, 1), axis(4, 3), axis(4, 3)), True),
        (make(2, (8, 8), axis(4, 3, 1, 1), axis(4, 3), axis(2, 3, 3, 2)), False),  # a phase of columns without any
        (conv_shape("test", (2, 9, 9, 16), (16, 3, 3, 8), (1, 1), (1, 1), groups=2, dilation=(2, 2)), False),
    ],
)
def test_which_shapes_the_kernels_take(shape: ConvShape, takes: bool) -> None:
    assert computes_depth_or_dilation(shape, HOPPER) == takes
    assert not computes_depth_or_dilation(shape, AMPERE)
    if takes:
        for operator in OPERATORS:
            found = applicable(operator, shape, HOPPER, "tf32")
            assert found
            assert all(v in OF_DEPTH_OR_DILATION for v in found)


def test_taps_of_a_dilated_row_share_an_input_row_tile() -> None:
    row = next(v for v in OF_DEPTH_OR_DILATION if v.name == "conv_v2_sm90_bf16_128x128")
    tiles = conv_v2_tiles(make(8, (256, 256), TRIVIAL, axis(65, 3, 1, 2, 2), axis(65, 3, 1, 2, 2)), Tile.of(row))
    assert (tiles.tile_iw, tiles.box(0)[2]) == (tiles.tile_ow + 4, tiles.tile_ow + 4)
    assert tiles.input_tiles(3) == 1


def test_plans_say_how_many_axes_their_kernels_have() -> None:
    flat = conv_shape("test", (64, 16, 16, 256), (256, 3, 3, 256), (1, 1), (1, 1))
    for operator in OPERATORS:
        for s, ndim in ((flat, 2), (axes_geometry.SHAPES[0], 3)):
            launches = plan(ConvProblem(operator, s, "tf32"), HOPPER).launches
            assert {x.defines["NDIM"] for x in launches if "NDIM" in x.defines} == {ndim}
    assert as_axes_struct(flat).nbytes < as_axes_struct(axes_geometry.SHAPES[0]).nbytes
    dilated = make(8, (64, 64), TRIVIAL, axis(65, 3, 1, 1), axis(65, 3, 1, 4, 4))
    assert (
        plan(ConvProblem(WEIGHT, dilated, "bf16", dtype=arrays_of(OF_DEPTH_OR_DILATION[0])), HOPPER)
        .launches[0]
        .defines["DW"]
        == 4
    )


# -- which convolutions are computed as they are -----------------------------------------------------------------


def pieces_of(operator: str, c: ConvAxes, arch: str) -> int:
    X = DryDevice.of(arch).empty(c.X, np.float32)
    return len(pieces._pieces(operator, c, X, "tf32"))


def test_a_video_layer_is_one_piece_on_hopper_alone() -> None:
    for operator in OPERATORS:
        assert pieces_of(operator, VIDEO, "sm_90a") == 1
        assert pieces_of(operator, VIDEO, "sm_80") == 3
        assert pieces_of(operator, VIDEO._replace(IC=60), "sm_90a") == 1  # on a padded copy


def test_pieces_are_taken_if_they_are_predicted_to_be_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies of the pieces' arrays alone may make the difference."""
    s = with_axes(VIDEO)
    assert s is not None
    for whole, cut, expected in ((10.0, 1.0, 1), (1e9, 1.0, 3), (1e9, 1e9, 1)):
        monkeypatch.setattr(pieces, "predicted_cycles", lambda _, shape, *rest, w=whole, c=cut: w if shape == s else c)
        pieces._with_axes.cache_clear()
        assert pieces_of(FORWARD, VIDEO, "sm_90a") == expected
    pieces._with_axes.cache_clear()
    copies = 0.0
    for piece in pieces.forward_pieces(VIDEO):
        for box, size in ((piece.X, np.prod(VIDEO.X)), (piece.Y, np.prod(VIDEO.Y))):
            copies += 0.0 if pieces._is_whole(box, int(size)) else 1.0
    assert copies > 0
    monkeypatch.setattr(pieces, "predicted_cycles", lambda _, shape, *rest: 1000.0 if shape == s else 0.0)
    assert pieces_of(FORWARD, VIDEO, "sm_90a") == 1
    pieces._with_axes.cache_clear()


def test_pointwise_axes_become_images_or_pixels() -> None:
    one = axis(5, 1)
    h, w = axis(7, 3, 1, 1), axis(9, 3, 2, 1)
    assert without_pointwise(ConvAxes(2, 8, 8, 1, (one, h, w))) == ConvAxes(10, 8, 8, 1, (TRIVIAL, h, w))
    merged = ConvAxes(2, 8, 8, 1, (TRIVIAL, h, Axis(20, 1, 1, 0, 1, 20)))
    assert without_pointwise(ConvAxes(2, 8, 8, 1, (h, axis(4, 1), one))) == merged
    for kept in ((h, one, w), (h, axis(4, 1, 2), one), (h, axis(4, 1, 1, 1), one), (h, h, w)):
        assert without_pointwise(ConvAxes(2, 8, 8, 1, kept)).axes == kept
    shape = as_2d(ConvAxes(2, 8, 8, 1, (one, h, w)))
    assert shape is not None
    assert (shape.N, shape.is_dense) == (10, True)
    assert as_2d(VIDEO, "cuda") is None


@pytest.mark.slow
@pytest.mark.parametrize("precision", first_of("bf16", "float32"))
def test_layers_with_a_depth_and_dilation(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """conv3d, its transpose and all gradients as by the pieces on the cpu."""
    rng = np.random.default_rng(0)
    shapes = (2, 4, 6, 9, 16), (24, 3, 3, 2, 16), (24,)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    monkeypatch.setattr(pieces, "_with_axes", lambda operator, c, *rest: with_axes(c))
    exact = layer_results(arrays, "cpu")
    with standing_in(hopper()), alpha.precision(precision):
        found = layer_results(arrays, "cuda")
    limit = {"float32": 1e-6, "bf16": 1e-2}[precision]
    assert all(relative_error(value, best) < limit for value, best in zip(found, exact, strict=True))


def layer_results(arrays: list[np.ndarray], device: str) -> list[np.ndarray]:
    """Results and gradients of a convolution and of a transposed one, the latter of the former's result."""
    x, w, b = (alpha.tensor(array, device=device, requires_grad=True) for array in arrays)
    y = F.conv3d(x, w, b, (1, 2, 1), (1, 0, 2), (2, 1, 3), negative_slope=0.5)
    z = F.conv_transpose3d(y, w, None, (1, 2, 1), (1, 0, 2), 0, 1, (2, 1, 3))
    (z * z).sum().backward()
    return [t.detach().numpy().astype(np.float64) for t in (y, z, x.grad, w.grad, b.grad)]


def test_the_gradient_of_the_filter_is_not_copied() -> None:
    """The only piece is the result: no array of zeros, no copy into it."""
    device = DryDevice.of("sm_90a")
    X, dY = device.empty(VIDEO.X, np.float32), device.empty(VIDEO.Y, np.float32)
    with device.driver.noting() as found:
        dW = pieces.backward_weight(X, dY, VIDEO, "tf32")
    assert dW.shape == VIDEO.W
    assert not {x.entry for x in found} & {"copy_view", "fill_32"}


def test_arrays_of_bfloat16_are_predicted_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(pieces, "_with_axes", lambda operator, c, target, precision: asked.append(precision))
    device = DryDevice.of("sm_90a")
    for dtype, precision in ((arrays_of(BF16_ROW), "bf16"), (np.float32, "bf16"), (np.float32, "float32")):
        pieces._pieces(FORWARD, VIDEO, device.empty(VIDEO.X, dtype), precision)
    assert asked == ["bf16", "tf32", "float32"]


def test_shapes_with_another_depth_have_keys_of_their_own() -> None:
    """The arrays and rows of both are the same: 2 planes of 6 rows, 3 planes of 4."""
    two, three = (make(2, (8, 8), axis(n, 1), axis(12 // n, 1), axis(4, 3)) for n in (2, 3))
    assert two.X == three.X
    assert two.extras != three.extras
    assert conv_shape("test", (2, 9, 9, 8), (8, 3, 3, 8), (1, 1), (1, 1)).extras == ""
