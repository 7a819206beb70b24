"""The input gradient of 1x1 convolutions as a matrix product on mma.sync."""

from __future__ import annotations

import numpy as np
import pytest
from conv2d_cases import OPERATORS, operands, relative_error

import alpha
from alpha import Tensor
from alpha.ops.conv2d.plan import compute, plan_configuration
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, Configuration, ConvProblem, Target
from alpha.ops.conv2d.select import time_model
from alpha.ops.conv2d.select.choose import applicable, choose
from alpha.ops.conv2d.select.product_table import PRODUCTS, product_of
from alpha.ops.conv2d.shape import ConvShape, conv_shape
from alpha.runtime.cuda.planning.driver_dry import DryDevice

AMPERE = Target("cuda", (8, 0), 108, 163 << 10)
H200 = Target("cuda", (9, 0), 132, 227 << 10, None, "NVIDIA H200")


def pointwise(N: int, I: tuple[int, int], IC: int, OC: int) -> ConvShape:
    return conv_shape("test", (N, *I, IC), (OC, 1, 1, IC), (1, 1), (0, 0))


# whole packs of channels, and single ones; K in one part and in several; a last layer
SHAPES = (
    pointwise(3, (5, 7), 40, 24),
    pointwise(2, (9, 4), 11, 13),
    pointwise(9, (16, 11), 20, 36),
    pointwise(2, (3, 5), 72, 1040),
    pointwise(3, (6, 5), 66, 2),
)


@pytest.mark.parametrize("v", PRODUCTS, ids=lambda v: v.name)
@pytest.mark.parametrize("s", SHAPES, ids=str)
def test_products_equal_the_formula(v: Configuration, s: ConvShape) -> None:
    device = alpha.get_device("cuda")
    if device.properties.compute_capability < (8, 0):
        pytest.skip("needs tf32")
    first, second = operands(v.operator, s, "float32")
    exact = OPERATORS[v.operator][0](first.astype("float64"), second.astype("float64"), s)
    value = device.download(compute(v, device.upload(first), device.upload(second), s))
    assert value.shape == exact.shape
    assert relative_error(value.astype("float64"), exact) < 1e-3


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_products_of_more_columns_than_a_grid_has_blocks_across(precision: str) -> None:
    """N of A B is the number of rows of the filters, whose tiles are the blocks of a launch."""
    device = DryDevice.of("sm_90a")
    with alpha.precision(precision):
        for K, N in ((64, 1_200_000), (512, 1_048_600), (64, 2_200_000)):
            A, B = (Tensor(device.empty(shape, np.float32)) for shape in ((128, K), (K, N)))
            assert (A @ B).shape == (128, N)
            assert (Tensor(device.empty((N, K), np.float32)) @ A.T).shape == (N, 128)


def test_which_convolutions_are_products() -> None:
    names = {v.name for v in PRODUCTS}

    def found(operator: str, s: ConvShape, target: Target = H200, precision: str = "tf32") -> set[str]:
        return names & {v.name for v in applicable(operator, s, target, precision)}

    s = SHAPES[0]
    assert found(INPUT, s) == {"product_sm80_tf32"} == found(INPUT, s, AMPERE)
    others = (
        found(FORWARD, s),
        found(INPUT, s, Target("cuda", (7, 5), 40)),
        found(INPUT, s, precision="float32"),
        found(INPUT, conv_shape("test", (2, 9, 9, 8), (8, 1, 1, 8), (2, 2), (0, 0))),
        found(WEIGHT, s),
        found(INPUT, conv_shape("test", (2, 9, 9, 8), (8, 1, 1, 8), (1, 1), (1, 1))),
        found(INPUT, conv_shape("test", (2, 9, 9, 8), (8, 3, 1, 8), (1, 1), (1, 0))),
    )
    assert not any(others)


def test_products_are_preferred_for_few_output_channels() -> None:
    assert all(v.preferred(pointwise(2, (9, 9), 480, 64), H200) for v in PRODUCTS)
    assert not any(v.preferred(pointwise(2, (9, 9), 480, 65), H200) for v in PRODUCTS)
    assert choose(INPUT, pointwise(8, (7, 7), 832, 32), H200, "tf32") in PRODUCTS  # one tile per SM at most


def test_no_operand_is_prepared() -> None:
    """One launch, or two with split-K, of operands under the convolution's names."""
    s = pointwise(32, (14, 14), 480, 64)
    for v in PRODUCTS:
        made = plan_configuration(ConvProblem(v.operator, s, "tf32"), v, H200)
        assert made.launches[0].source == "matmul/sm80.cu"
        assert len(made.launches) == 1 + ("part" in made.workspaces)
        assert time_model.passes(v, s.as_product, H200).launches == 0
        assert time_model.quantities(v, s.as_product, H200).launches == len(made.launches)
    assert product_of(s.as_product)[:4] == (1, 32 * 14 * 14, 480, 64)
    assert made.outputs["dX"].shape == s.X
