"""Gradients of layers with few output channels: the direct kernels with the roles of X and dY exchanged."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from conv2d_cases import OPERATORS, arrays_of, make, operands, relative_error

import alpha
from alpha.core.numerics import BFLOAT16, FLOAT32, PRECISIONS
from alpha.ops.conv2d import conv2d_backward_input, conv2d_backward_weight, direct
from alpha.ops.conv2d.launch import plan
from alpha.ops.conv2d.plan import compute
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, Configuration, ConvProblem, Target, seen_by_kernels
from alpha.ops.conv2d.select.choose import choose
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.shape import ConvShape

ROWS = [v for v in CONFIGURATIONS if v.base is not None]
LIMITS = {"float32": 1e-6, "tf32": 5e-4, "bf16": 4e-3}  # bf16: dX is rounded to 8 bits
HOPPER = Target("cuda", (9, 0), 132, 227 << 10)
AMPERE = Target("cuda", (8, 0), 108)
TURING = Target("cuda", (7, 5), 40, 64 << 10)

SHAPES = {
    "one tap": make(2, (12, 16), (64, 2), (1, 1)),
    "one tap, one output": make(3, (7, 11), (40, 1), (1, 1)),
    "one tap, a prime number of pixels": make(1, (1, 131), (16, 3), (1, 1)),
    "two rows of two taps": make(2, (6, 5), (16, 2), (2, 2), p=(1, 0)),
    "one tap, few inputs": make(2, (6, 5), (4, 4), (1, 1)),
    "3x3": make(2, (9, 13), (64, 3), (3, 3), p=(1, 1)),
    "3x3 without padding": make(2, (9, 8), (40, 4), (3, 3)),
    "3x3 with all padding": make(2, (9, 8), (16, 2), (3, 3), p=(2, 2)),
    "5x5": make(1, (11, 14), (72, 3), (5, 5), p=(2, 2)),
    "another height than width": make(2, (8, 19), (24, 2), (2, 5), p=(0, 3)),
    "one column": make(2, (33, 1), (16, 1), (3, 1), p=(1, 0)),
    "channels that no 16 bytes hold": make(2, (7, 9), (70, 3), (3, 3), p=(1, 1)),
    "more channels than a block": make(1, (6, 10), (136, 4), (3, 2), p=(1, 1)),
    "more rows than blocks": make(300, (5, 6), (8, 2), (3, 3), p=(1, 1)),
}


def test_each_direct_configuration_has_one() -> None:
    bases = {v.name for v in CONFIGURATIONS if v.name.startswith("direct")}
    assert {v.base.name for v in ROWS if v.base} == bases
    assert {v.operator for v in ROWS} == {INPUT, WEIGHT}
    for v in ROWS:
        assert v.base is not None
        assert (v.math, v.registers) == (v.base.math, v.base.registers)


@pytest.mark.parametrize("row", ROWS, ids=lambda v: v.name)
@pytest.mark.parametrize("name", SHAPES)
def test_equals_the_formula(row: Configuration, name: str) -> None:
    s = SHAPES[name]
    if not row.supports(seen_by_kernels(s, AMPERE), AMPERE):
        item = arrays_of(row).itemsize  # rows of X are read as dY: 16 bytes at a time
        assert row.operator == WEIGHT, f"{row.name} cannot compute {s}"
        assert s.IC * item % 16, f"{row.name} cannot compute {s}"
        return
    device = alpha.get_device("cuda")
    arrays = [a.astype(arrays_of(row)) for a in operands(row.operator, s, "float32")]
    exact = OPERATORS[row.operator][0](*(a.astype(np.float64) for a in arrays), s)
    found = device.download(compute(row, *(device.upload(a) for a in arrays), s))
    assert found.dtype == (np.float32 if row.operator == WEIGHT else arrays[0].dtype)
    assert found.shape == exact.shape
    assert relative_error(found.astype(np.float64), exact) < LIMITS[row.precision]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_operators_take_them(precision: str) -> None:
    """The two gradients of a last layer launch these kernels, and are right."""
    device, s = alpha.get_device("cuda"), make(2, (32, 32), (64, 2), (1, 1))
    dtype = ml_dtypes.bfloat16 if precision == "bf16" else np.float32
    for operator, gradient in ((INPUT, conv2d_backward_input), (WEIGHT, conv2d_backward_weight)):
        arrays = [a.astype(dtype) for a in operands(operator, s, "float32")]
        exact = OPERATORS[operator][0](*(a.astype(np.float64) for a in arrays), s)
        found = device.download(gradient(*(device.upload(a) for a in arrays), s, precision))
        assert relative_error(found.astype(np.float64), exact) < LIMITS[precision]


# -- the choice -------------------------------------------------------------------------------------

LAYERS = {  # a U-Net's last layer and a decoder's
    (1, 2): make(8, (256, 256), (64, 2), (1, 1)),
    (3, 3): make(8, (256, 256), (64, 3), (3, 3), p=(1, 1)),
}
CHOSEN = {  # FFMA if the filter has few numbers
    ((1, 2), INPUT): {"float32": "ffma", "tf32": "ffma", "bf16": "sm80_bf16"},
    ((3, 3), INPUT): {"float32": "sm80_fp16x3", "tf32": "sm80_fp16", "bf16": "sm80_bf16"},
    ((1, 2), WEIGHT): {"float32": "weight_sm80_tf32x3", "tf32": "weight_sm80_tf32x3", "bf16": "weight_sm80_bf16"},
    ((3, 3), WEIGHT): {"float32": "weight_sm80_tf32x3", "tf32": "weight_sm80_tf32", "bf16": "weight_sm80_bf16"},
}


@pytest.mark.parametrize("operator", [INPUT, WEIGHT])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_last_layers(layer: tuple[int, int], precision: str, operator: str) -> None:
    s, dtype = LAYERS[layer], BFLOAT16 if precision == "bf16" else FLOAT32
    for target in (HOPPER, AMPERE):
        made = plan(ConvProblem(operator, s, precision, dtype=dtype), target)
        if (layer, operator, target) == ((1, 2), INPUT, HOPPER):  # one tap: mma.sync reads W as it is, wgmma keeps it
            products = {"tf32": "product_sm80_tf32", "bf16": "ks_deconv_sm90_bf16_256x64"}
            assert made.name == products.get(precision, made.name)
            assert "few_outputs" not in made.name
            continue
        assert made.name == "few_outputs_" + CHOSEN[layer, operator][precision]
        kernels = [x.entry for x in made.launches if not x.source.startswith("reduce/")]
        kernel = "direct_forward" if operator == INPUT else "direct_weight"
        rotated, multiplied = kernels if operator == INPUT else kernels[::-1]  # and no casts
        assert rotated == "copy_view"
        assert multiplied.startswith(kernel)
        assert made.workspace_bytes < 4 << 20  # no array of the size of X or dY
    for v in (choose(operator, s, TURING), choose(operator, s, TURING, "bf16")):
        assert v.name == ("few_outputs_ffma" if operator == INPUT else "few_outputs_weight_ffma")


def test_the_forward_of_a_last_layer_on_hopper_needs_no_casts() -> None:
    for s in LAYERS.values():
        made = plan(ConvProblem(FORWARD, s, "bf16", dtype=BFLOAT16), HOPPER)
        assert [x.entry for x in made.launches] == ["conv_v2_sm90"]


def test_what_they_do_not_take() -> None:
    """Strides, more than four outputs, padding beyond the filter, and images that an int cannot index."""
    s = LAYERS[3, 3]
    others = [
        make(8, (256, 256), (64, 3), (3, 3), (2, 1), (1, 1)),
        make(8, (256, 256), (64, 3), (3, 3), (1, 2), (1, 1)),
        make(8, (256, 256), (64, 5), (3, 3), p=(1, 1)),
        make(8, (256, 256), (64, 3), (3, 3), p=(3, 1)),
        make(8, (256, 256), (64, 3), (3, 3), p=(1, 3)),
        make(1, (1 << 15, 1 << 14), (64, 4), (3, 3), p=(1, 1)),
    ]
    for v in ROWS:
        assert v.supports(s, AMPERE)
        assert not any(v.supports(other, AMPERE) for other in others)


def test_short_rows_are_not_preferred() -> None:
    """A prime number of pixels that is long makes a matrix product of one pixel per row."""
    for s in (make(1, (1, 2003), (64, 2), (1, 1)), make(8, (64, 3), (64, 2), (3, 3), p=(1, 1))):
        for v in ROWS:
            assert v.supports(s.as_product, AMPERE)
            assert not v.preferred(s.as_product, AMPERE)
        assert choose(INPUT, s, HOPPER, "bf16").base is None


# -- the swapped shape ------------------------------------------------------------------------------


def test_the_swapped_shape() -> None:
    s = make(2, (8, 19), (24, 2), (2, 5), p=(0, 3))
    other = direct.swapped(s)
    assert (other.X, other.W, other.Y) == (s.Y, (24, 2, 5, 2), s.X)
    assert (other.sh, other.sw, other.ph, other.pw) == (1, 1, 1, 1)
    cropped = replace(s, OH=s.OH - 2)  # as a part of a larger convolution may be
    assert direct.swapped(cropped).Y == s.X
    cropped = replace(make(2, (8, 19), (24, 2), (1, 1)), OH=6)  # no matrix product, since X has pixels that dY lacks
    assert (direct.swapped(cropped).X, direct.swapped(cropped).Y) == (cropped.Y, cropped.X)


@pytest.mark.parametrize(
    ("pixels", "row"),
    [(8 * 256 * 256, 128), (8 * 227 * 227, 227), (8 * 257 * 257, 257), (2003, 1), (6, 6), (1000, 125)],
)
def test_rows_of_a_matrix_product(pixels: int, row: int) -> None:
    """Rows are as long as rows of images are, whatever the images were."""
    s = ConvShape(pixels, 1, 1, 64, 2, 1, 1, 1, 1, 0, 0, 1, 1)
    assert (1, pixels // row, row, 2) == direct.swapped(s).X
    assert (1, pixels // row, row, 64) == direct.swapped(s).Y


def test_a_part_of_a_convolution() -> None:
    """Fewer or more outputs than the sizes give, as the pieces of a convolution of three axes have."""
    device = alpha.get_device("cuda")
    whole = make(2, (8, 9), (16, 3), (3, 3), p=(1, 1))
    for s in (replace(whole, OH=whole.OH - 3), replace(whole, OW=whole.OW + 1)):
        for v in ROWS:
            if v.precision != "float32":
                continue
            arrays = operands(v.operator, s, "float32")
            exact = OPERATORS[v.operator][0](*(a.astype(np.float64) for a in arrays), s)
            found = device.download(compute(v, *map(device.upload, arrays), s))
            assert relative_error(found, exact) < 1e-6, v.name
