"""The model of a configuration's time: its counts, what it prefers, and that a plan has the passes that it counts."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from pathlib import Path

import pytest

from alpha.errors import ConfigError
from alpha.ops.conv2d import cuda_target, direct
from alpha.ops.conv2d.plan import ConvProblem, plan_configuration
from alpha.ops.conv2d.problem import FORWARD, INPUT, PLAIN, WEIGHT, Configuration, Target, seen_by_kernels
from alpha.ops.conv2d.select import time_model
from alpha.ops.conv2d.select.choose import applicable
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.shape import ConvShape, conv_shape
from alpha.ops.gemm.tiles import DEPTH, Product, splits_of
from alpha.runtime.cuda.planning.driver_dry import DryDevice

OPERATORS = (FORWARD, INPUT, WEIGHT)
PRECISIONS = ("float32", "tf32", "bf16")


@functools.cache
def target(arch: str = "sm_90a") -> Target:
    return cuda_target(DryDevice.of(arch))


def layer(N: int, H: int, IC: int, OC: int, F: int, s: int = 1) -> ConvShape:
    return conv_shape("test", (N, H, H, IC), (OC, F, F, IC), (s, s), (F // 2, F // 2))


LAYERS = [
    layer(32, 56, 64, 256, 1),
    layer(32, 28, 128, 128, 3, 2),
    layer(32, 14, 16, 48, 5),
    layer(512, 4, 256, 512, 3, 2),
    layer(8, 64, 3, 64, 7, 2),
    layer(4, 9, 160, 10, 3),
    layer(8, 32, 64, 2, 1),
    layer(4, 16, 40, 3, 3),
]


def row(name: str, operator: str = FORWARD) -> Configuration:
    return next(v for v in CONFIGURATIONS if (v.name, v.operator) == (name, operator))


def cycles(v: Configuration, s: ConvShape, **changes: float) -> float:
    constants = replace(time_model.Constants(), **changes)  # type: ignore[arg-type]
    return time_model.cycles(v, seen_by_kernels(s, target()), target(), constants)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_configuration_is_predicted_for_what_it_supports(arch: str, operator: str) -> None:
    for s in LAYERS:
        for precision in PRECISIONS:
            for v in applicable(operator, s, target(arch), precision):
                found = time_model.cycles(v, seen_by_kernels(s, target(arch)), target(arch), time_model.Constants())
                assert math.isfinite(found), v.name
                assert found > 0, v.name


@pytest.mark.slow
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_plan_launches_what_the_model_counts(operator: str) -> None:
    """The kernel itself, what prepares its operands, and the sum of partial sums."""
    for s in LAYERS:
        for v in (v for v in CONFIGURATIONS if v.operator == operator and v.device == "cuda"):
            seen = seen_by_kernels(s, target())
            if not v.supports(seen, target()):
                continue
            plan = plan_configuration(ConvProblem(operator, s, v.precision, PLAIN, v.dtype), v, target())
            expected = time_model.passes(v, seen, target()).launches + 1
            launches = len(plan.launches) + bool(plan.facts.get("scales"))  # the magnitudes
            if "part" in plan.workspaces:
                launches -= sum("reduce/" in x.source or x.entry == "sum_splits" for x in plan.launches)
            assert launches == expected, (v.name, s)
            assert plan.cycles == time_model.cycles(v, seen, target(), time_model.constants_of(target().name))


def test_whole_tiles_cost_their_multiplications() -> None:
    """132 SMs, each with two tiles of 128 x 256 and 9 taps; 2048 multiply-adds per cycle."""
    s = conv_shape("test", (132 * 128, 3, 3, 64), (512, 3, 3, 64), (1, 1), (0, 0))
    found = time_model.work_of(row("conv_v2_sm90_bf16_128x256"), s, target())
    assert found.products == 2 * 128 * 256 * 9 * 64 / 2048
    assert found.blocks == 2
    assert found.read == 2 * 9 * 64 * 2 * (128 + 256)
    assert found.partial == 0


def test_a_few_channels_more_cost_a_tile_more() -> None:
    """Channels above a tile, a last step of K that is not whole, and map rows off the tile are work that is wasted."""
    v = row("conv_v2_sm90_bf16_128x128")
    products = {OC: time_model.work_of(v, layer(64, 32, 64, OC, 3), target()).products for OC in (128, 136, 256)}
    assert products[136] == products[256] > 1.9 * products[128]
    of_K = [time_model.work_of(v, layer(64, 32, IC, 128, 3), target()).products for IC in (16, 64, 80, 128)]
    assert of_K == [of_K[0] * n for n in (1, 4, 5, 8)]


def test_tiles_that_fit_the_channels_are_predicted_to_be_faster() -> None:
    for OC, fitting, other in ((32, "128x32", "128x64"), (96, "128x96", "128x128"), (192, "128x192", "128x256")):
        s = layer(64, 32, 128, OC, 3)
        assert cycles(row(f"conv_v2_sm90_bf16_{fitting}"), s) < cycles(row(f"conv_v2_sm90_bf16_{other}"), s)
        s = layer(64, 32, OC, 128, 3)
        fits, others = row(f"ks_deconv_sm90_bf16_{fitting}", INPUT), row(f"ks_deconv_sm90_bf16_{other}", INPUT)
        assert cycles(fits, s) < cycles(others, s)


def test_each_constant_counts() -> None:
    s, v = layer(32, 28, 128, 128, 3), row("conv_v2_sm90_fp16x3_128x128")
    usual = cycles(v, s)
    assert cycles(v, s, launch=5000.0) == pytest.approx(usual + 3 * 1000)  # magnitudes, fp16 terms and the kernel
    assert cycles(v, s, memory=4400.0) < usual
    for kind, key, value in (
        ("read", "conv_v2_sm90_fp16x3", 16.0),
        ("block", "conv_v2_sm90_fp16x3", 4000.0),
        ("slowdown", v.name, 2.0),
    ):
        assert cycles(v, s, **{kind: {key: value}}) > usual  # type: ignore[arg-type]
        assert cycles(v, s, **{kind: {"another": value}}) == usual  # type: ignore[arg-type]
    weight = row("sk_dilated_sm90_fp16x3_128x64", WEIGHT)
    assert time_model.work_of(weight, s, target()).partial > 0
    usual = cycles(weight, s)
    assert cycles(weight, s, partial=1000.0) > usual
    assert cycles(weight, s, split={"sk_dilated_sm90_fp16x3": 700.0}) == pytest.approx(usual + 200)  # type: ignore[arg-type]
    assert cycles(weight, s, converted={"sk_dilated_sm90_fp16x3": 3.0}) > usual  # type: ignore[arg-type]
    assert cycles(weight, s, not_hidden=0.5) > usual
    assert cycles(weight, s, memory_not_hidden=0.5) > usual
    few = layer(4, 8, 64, 64, 3)
    assert time_model.work_of(v, few, target()).active < 1
    assert cycles(v, few, least_active=0.9) > cycles(v, few, least_active=0.1)


def test_the_constants_of_the_reference_name_every_configuration() -> None:
    """A configuration that was added since the fit has to be measured, and a renamed one too.

    Steps and ends are 0 for kernels that were fitted before there were any.
    """
    constants = time_model.constants_of(time_model.REFERENCE)
    for v in CONFIGURATIONS:
        for kind in (k for k, usual in time_model.USUAL.items() if usual) if time_model.is_counted(v) else ():
            assert time_model.key_of(kind, v) in getattr(constants, kind), (kind, v.name)


def test_few_outputs_take_what_the_first_layer_of_dY_takes_and_a_rotation() -> None:
    """The constants of the direct kernels hold for both."""
    s = layer(8, 32, 64, 3, 3)
    of_dY = direct.swapped(s)
    for v in (v for v in CONFIGURATIONS if v.base is not None):
        assert v.base is not None
        assert time_model.work_of(v, s, target()) == time_model.work_of(v.base, of_dY, target())
        changes = {"slowdown": {v.base.name: 3.0}, "block": {time_model.kernel_of(v.base): 9000.0}}
        for c in (time_model.Constants(), replace(time_model.Constants(), **changes)):  # type: ignore[arg-type]
            both = time_model.cycles(v, s, target(), c), time_model.cycles(v.base, of_dY, target(), c)
            assert both[0] - both[1] == pytest.approx(
                c.launch + time_model.passes(v, s, target()).bytes / c.memory, rel=0.01
            )


def test_a_1x1_convolution_is_a_matrix_product() -> None:
    """The stride must be 1, without padding, with many channels, and an int must hold the number of rows."""
    s = layer(3, 5, 16, 24, 1)
    assert (s.as_product.X, s.as_product.W, s.as_product.Y) == ((75, 1, 1, 16), (24, 1, 1, 16), (75, 1, 1, 24))
    assert seen_by_kernels(s, target()) == s.as_product
    assert seen_by_kernels(s, Target("cpu")) is s
    padded = conv_shape("test", s.X, s.W, (1, 1), (0, 1))
    huge = conv_shape("test", (1 << 11, 1 << 10, 1 << 10, 8), (8, 1, 1, 8), (1, 1), (0, 0))
    for other in (layer(3, 5, 16, 24, 3), layer(3, 5, 16, 24, 1, 2), layer(3, 5, 4, 24, 1), padded, huge):
        assert other.as_product is other


def test_an_algorithm_without_counts_runs_without_a_prediction() -> None:
    """Adding one touches its plan, its row and its kernel; `time_model.py` may follow."""
    s, known = layer(2, 6, 16, 24, 3), row("conv_v2_sm90_fp16x3_128x64")
    new = replace(known, name="new", make=lambda *given: known.make(*given))
    plan = plan_configuration(ConvProblem(FORWARD, s, new.precision, PLAIN, new.dtype), new, target())
    assert plan.cycles is None
    assert "predicted" not in plan.describe()
    every = {v.make for v in CONFIGURATIONS if v.device == "cuda"}
    assert all(time_model.is_counted(v) == (v.make in every) for v in CONFIGURATIONS)


def test_constants_of_a_gpu(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(time_model, "FITTED", tmp_path)
    (tmp_path / time_model.file_name("A GPU/1")).write_text('{"launch": 7.0, "slowdown": {"row": 3.0}}')
    time_model.constants_of.cache_clear()
    try:
        found = time_model.constants_of("A GPU/1")
        assert (found.launch, found.slowdown, found.memory) == (7.0, {"row": 3.0}, time_model.Constants().memory)
        (tmp_path / time_model.file_name(time_model.REFERENCE)).write_text('{"launch": 8.0}')
        assert time_model.constants_of("another").launch == 8.0
    finally:
        time_model.constants_of.cache_clear()


def test_a_product_on_ffma_counts_the_partial_sums_of_its_splits() -> None:
    p = Product(3, 64, 48, 1 << 14, False, True)
    found = time_model.product_quantities(p, target())
    splits, _ = splits_of(p.K, DEPTH, p.D, target().num_sms)
    assert splits > 1
    assert (found.work.partial, found.launches) == (4 * splits * p.D * p.M * p.N, 2)
    assert found.least == 4 * p.D * (p.M * p.K + p.K * p.N + p.M * p.N)
    alone = time_model.product_quantities(Product(1, 4096, 4096, 64, False, True), target())
    assert (alone.work.partial, alone.launches) == (0, 1)


def test_constants_of_another_version_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    path.write_text('{"clock_mhz": 1000.0, "overlap": 0.3}')
    with pytest.raises(ConfigError, match=r"gpu\.json: has constants of another version \(overlap\); fit them anew"):
        time_model.Constants.load(path)
