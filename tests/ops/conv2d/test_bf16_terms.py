"""Sk-dilated with two bfloat16 terms (BF16X3), and the warps that convert X to terms of 16 bits."""

from __future__ import annotations

from math import prod

import conv2d_reference as reference
import numpy as np
import pytest
from conv2d_cases import hopper, make, relative_error

from alpha.ops.conv2d.hopper.output_tiles import Tile
from alpha.ops.conv2d.hopper.weight_schedule import weight_schedule
from alpha.ops.conv2d.hopper.weight_tiles import WeightTile, weight_tile
from alpha.ops.conv2d.launch import prepare
from alpha.ops.conv2d.magnitudes import Magnitudes, known_magnitudes
from alpha.ops.conv2d.plan import compute, cuda_target, plan_configuration
from alpha.ops.conv2d.problem import UNKNOWN, WEIGHT, ConvProblem, MathMode
from alpha.ops.conv2d.select import time_model
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.runtime.cuda.planning.driver_dry import DryDevice

BY_NAME = {v.name: v for v in CONFIGURATIONS}
TERMS = BY_NAME["sk_dilated_sm90_bf16x3_128x64"]
LAYER = make(8, (6, 6), (64, 128), (3, 3), p=(1, 1))


def error_of(name: str, X: np.ndarray, dY: np.ndarray, column: int) -> float:
    """Error of dW for one input channel."""
    device = hopper()
    found = device.download(compute(BY_NAME[name], device.upload(X), device.upload(dY), LAYER))
    exact = reference.backward_weight(X.astype(np.float64), dY.astype(np.float64), LAYER)
    return relative_error(found[..., column].astype(np.float64), exact[..., column])


def drawn() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X, dY = (rng.standard_normal(sizes).astype(np.float32) for sizes in (LAYER.X, LAYER.Y))
    return X, dY


@pytest.mark.slow
def test_two_terms_are_more_exact_than_tf32() -> None:
    """One term would have an error of 2e-3, one scaled fp16 term has 2.9e-4."""
    error = error_of(TERMS.name, *drawn(), column=0)
    assert 1e-7 < error < 1e-5
    assert error_of("sk_dilated_sm90_fp16_128x64", *drawn(), column=0) > 10 * error


@pytest.mark.parametrize("factor", [2.0**-80, 2.0**60])
def test_bfloat16_terms_need_no_scale(factor: float) -> None:
    """One channel of X is so much smaller or larger than the others that no scale of fp16 terms suits both."""
    X, dY = drawn()
    X[..., 1] *= np.float32(factor)
    for column in (0, 1):
        assert error_of(TERMS.name, X, dY, column) < 1e-5
    lost = 1 if factor < 1 else 0
    assert error_of("sk_dilated_sm90_fp16_128x64", X, dY, lost) > 0.5


def test_no_magnitudes_are_computed_for_bfloat16_terms() -> None:
    made = plan_configuration(ConvProblem(WEIGHT, LAYER, "tf32"), TERMS, cuda_target(hopper()))
    assert not made.facts.get("scales")
    fp16 = plan_configuration(
        ConvProblem(WEIGHT, LAYER, "tf32"), BY_NAME["sk_dilated_sm90_fp16_128x64"], cuda_target(hopper())
    )
    assert fp16.facts["scales"]
    assert MathMode.BF16X3.precision == "tf32"
    assert MathMode.BF16X3.in_terms
    assert not MathMode.BF16X3.in_fp16


@pytest.mark.parametrize(
    ("tile", "taps", "warps"),
    [
        (Tile(64, 64, MathMode.FP16), 3, 7),
        (Tile(64, 64, MathMode.FP16), 5, 3),  # the sums need the registers
        (Tile(128, 64, MathMode.FP16), 3, 3),  # the products take longer than the conversion
        (Tile(128, 64, MathMode.FP16X3), 3, 7),
        (Tile(128, 64, MathMode.FP16X3), 4, 3),  # as each step is summed apart, in registers of its own
        (Tile(64, 64, MathMode.BF16X3), 4, 7),
        (Tile(128, 128, MathMode.BF16X3), 1, 7),
        (Tile(128, 256, MathMode.BF16X3), 1, 3),  # a product needs more registers than the launch gives
        (Tile(128, 128, MathMode.FP16, prepared=True), 1, 3),  # nothing to convert
        (Tile(64, 64, MathMode.BF16), 3, 3),
    ],
)
def test_warps_that_convert(tile: Tile, taps: int, warps: int) -> None:
    block = WeightTile(tile, 8, taps, 8 + taps - 1, 1)
    assert block.transform_warps == warps
    assert block.threads == {3: 384, 7: 512}[warps]


def test_more_warps_convert_faster() -> None:
    three, seven = (WeightTile(Tile(64, 64, MathMode.FP16), 8, taps, 12, 1) for taps in (5, 3))
    assert three.converted_cycles * 3 == pytest.approx(seven.converted_cycles * 7)


def test_k_is_split_if_that_is_worth_a_launch() -> None:
    """The launch that adds the parts takes as long as some steps."""
    small, large = (make(N, (4, 4), (64, 64), (3, 3), p=(1, 1)) for N in (64, 1024))
    tile = Tile.of(BY_NAME["sk_dilated_sm90_bf16_64x64"])
    splits = [weight_schedule(s, weight_tile(s, tile), 1, 132).parts for s in (small, large)]
    assert splits[0] == 1
    assert splits[1] > 1


WIDE = make(512, (32, 32), (64, 64), (3, 3), p=(1, 1))


def test_a_known_magnitude_costs_no_pass() -> None:
    fp16 = BY_NAME["sk_dilated_sm90_fp16_64x64"]
    X, dY = (4 * prod(sizes) for sizes in (WIDE.X, WIDE.Y))
    for known, expected in (
        (UNKNOWN, (1, X + dY)),
        ((True, False), (1, dY)),
        ((False, True), (1, X)),
        ((True, True), (0, 0)),
    ):
        assert time_model.passes(fp16, WIDE, cuda_target(hopper()), known) == expected
        assert time_model.passes(TERMS, WIDE, cuda_target(hopper()), known) == (0, 0)


def test_dw_has_fp16_terms_if_both_magnitudes_are_known() -> None:
    """Kernels of batch normalisation find both magnitudes within a training step. One term is faster then."""
    device = DryDevice.double(hopper().properties)
    X, dY = device.empty(WIDE.X, np.float32), device.empty(WIDE.Y, np.float32)
    found = {}
    for name, noted in (("none", ()), ("both", (X, dY))):
        magnitudes = Magnitudes()
        for array in noted:
            magnitudes.note(array, device.empty((1,), np.uint32))
        with magnitudes:
            assert known_magnitudes(X, dY) == (bool(noted),) * 2
            found[name] = prepare(WEIGHT, (X, dY), WIDE, "tf32")[0]
    assert found["none"].name.startswith("sk_dilated_sm90_bf16x3_")
    assert found["both"].name.startswith("sk_dilated_sm90_fp16_")
    assert known_magnitudes(X, dY) == UNKNOWN
    assert prepare(WEIGHT, (X, dY), WIDE, "tf32")[0] is found["none"]


def test_the_predicted_time_of_a_plan_knows_of_the_magnitudes() -> None:
    target, fp16 = cuda_target(hopper()), BY_NAME["sk_dilated_sm90_fp16_64x64"]
    problems = [ConvProblem(WEIGHT, WIDE, "tf32", known=known) for known in (UNKNOWN, (True, True))]
    slow, fast = (plan_configuration(p, fp16, target).cycles for p in problems)
    assert slow is not None
    assert fast is not None
    assert slow > fast
