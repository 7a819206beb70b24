"""Channels that are no whole packs: kernels of tensor cores compute them on padded copies."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from conv2d_cases import OPERATORS, arrays_of, hopper, make, operands, relative_error
from helpers import first_of, smallest_of

import alpha
from alpha.core.numerics import BFLOAT16, FLOAT32, PRECISIONS
from alpha.core.primitive import REGISTRY
from alpha.nn import functional as F
from alpha.ops.conv2d import conv2d_forward
from alpha.ops.conv2d.channel_statistics import ChannelStatistics
from alpha.ops.conv2d.launch import plan
from alpha.ops.conv2d.plan import compute
from alpha.ops.conv2d.prepare import resized, shape_for
from alpha.ops.conv2d.problem import (
    FORWARD,
    INPUT,
    OPERANDS,
    RESULT,
    WEIGHT,
    Configuration,
    ConvProblem,
    Epilogue,
    Target,
)
from alpha.ops.conv2d.select import time_model
from alpha.ops.conv2d.select.choose import applicable, choose
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.shape import ConvShape
from alpha.runtime.cuda.cuda_device import CudaDevice

HOPPER = Target("cuda", (9, 0), 132, 227 << 10, name="NVIDIA H200")
AMPERE = Target("cuda", (8, 0), 108)
LIMITS = {"float32": 1e-6, "tf32": 1e-3, "bf16": 5e-3}
ROWS = [v for v in CONFIGURATIONS if v.pack > 1]
SHAPES = {
    "both odd": make(8, (5, 6), (19, 13), (3, 3), p=(1, 1)),
    "odd inputs": make(9, (5, 4), (9, 16), (3, 2), (2, 1), (1, 0)),
    "odd outputs": make(8, (4, 5), (16, 5), (2, 3), p=(1, 1)),
    "one tap": make(5, (3, 4), (17, 11), (1, 1)),
    "fewer than a pack": make(8, (6, 5), (3, 2), (3, 3), (1, 2), (1, 1)),
}


def device_for(v: Configuration) -> CudaDevice:
    return hopper() if "sm90" in v.name else alpha.get_device("cuda")


@pytest.mark.slow
@pytest.mark.parametrize("name", first_of(*SHAPES))
@pytest.mark.parametrize("v", smallest_of(ROWS))
def test_every_configuration_that_takes_packs_computes_the_others(v: Configuration, name: str) -> None:
    s, device = SHAPES[name], device_for(v)
    arrays = [a.astype(arrays_of(v)) for a in operands(v.operator, s, "float32")]
    exact = OPERATORS[v.operator][0](*(a.astype(np.float64) for a in arrays), s)
    found = device.download(compute(v, *(device.upload(a) for a in arrays), s))
    assert found.shape == exact.shape
    assert relative_error(found.astype(np.float64), exact) < LIMITS[v.precision]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("operator", OPERANDS)
def test_bias_activation_and_statistics_are_those_of_the_channels(operator: str, precision: str) -> None:
    """A kernel may compute the padding's channels, too, whose results nobody sees."""
    s, dtype = SHAPES["both odd"], ml_dtypes.bfloat16 if precision == "bf16" else np.float32
    if operator == WEIGHT:
        return
    channels = s.OC if operator == FORWARD else s.IC
    b = np.linspace(-1, 1, channels).astype(np.float32)
    for device in (hopper(), alpha.get_device("cuda")):
        arrays = [a.astype(dtype) for a in operands(operator, s, "float32")]
        exact = OPERATORS[operator][0](*(a.astype(np.float64) for a in arrays), s) + b
        exact = np.where(exact > 0, exact, 0.25 * exact)
        given = [device.upload(a) for a in arrays]
        found = device.download(REGISTRY[operator](*given, s, precision, device.upload(b), 0.25))
        assert relative_error(found.astype(np.float64), exact) < 2 * LIMITS[precision]
        if operator == FORWARD:
            statistics = ChannelStatistics()
            Y = device.download(conv2d_forward(*given, s, precision, statistics=statistics)).astype(np.float64)
            if statistics.part is not None:
                assert statistics.part.shape[-1] == channels
            assert Y.shape[-1] == channels


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_layer_with_odd_channels_trains_as_on_the_cpu(precision: str) -> None:
    """The functions train, whose magnitudes and statistics are found beside the convolution."""
    rng, found = np.random.default_rng(0), []
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((8, 5, 5, 19), (21, 3, 3, 19), (21,))]
    for device in (alpha.get_device("cpu"), hopper()):
        x, w, b = (alpha.tensor(a, device=device, requires_grad=True) for a in arrays)
        with alpha.precision(precision):
            y = F.conv2d(x * 1e4, w, b, padding=1, statistics=ChannelStatistics())
            (y * y).mean().backward()
        found.append([t.numpy() for t in (y, x.grad, w.grad, b.grad)])
    for host, mine in zip(*found, strict=True):
        np.testing.assert_allclose(mine, host, atol=4 * LIMITS[precision] * np.abs(host).max())


# -- the plan ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "copies"), [(FORWARD, {"X", "W"}), (INPUT, {"dY", "W"}), (WEIGHT, {"X", "dY", "dW"})]
)
def test_only_what_a_kernel_reads_is_padded(operator: str, copies: set[str]) -> None:
    s = make(64, (14, 14), (50, 70), (3, 3), p=(1, 1))
    for precision, dtype in (("bf16", BFLOAT16), ("tf32", FLOAT32)):
        v = choose(operator, s, HOPPER, precision)
        used = shape_for(v, s, HOPPER)
        assert "sm90" in v.name
        assert used is not None
        assert set(resized(operator, s, used)) == copies
        made = plan(ConvProblem(operator, s, precision, Epilogue(operator != WEIGHT), dtype), HOPPER)
        launches = [x.entry for x in made.launches]
        assert launches.count("resize_rows") == len(copies)
        assert (launches[-1] == "resize_rows") == (operator == WEIGHT)
        assert set(made.outputs) == {RESULT[operator]}
        assert {name for name in made.workspaces if name.endswith("padded")} == {f"{name} padded" for name in copies}
    even = make(64, (14, 14), (48, 72), (3, 3), p=(1, 1))
    assert "resize_rows" not in [x.entry for x in plan(ConvProblem(operator, even, "tf32"), HOPPER).launches]


def test_both_channels_are_padded_if_a_kernel_asks_for_it() -> None:
    s = make(64, (14, 14), (48, 70), (3, 3), p=(1, 1))
    v = next(v for v in ROWS if v.operator == FORWARD and v.name.startswith("conv_v2_sm80_bf16"))
    used = shape_for(v, s, AMPERE)
    assert used is not None
    assert (used.IC, used.OC) == (48, 72)
    assert set(resized(FORWARD, s, used)) == {"W", "Y"}


def test_what_a_copy_costs_counts() -> None:
    """The prediction for odd channels is that for the padded ones, and the launches and the bytes of the copies."""
    c = time_model.constants_of(HOPPER.name)
    s, wide = (make(64, (14, 14), (channels, 64), (3, 3), p=(1, 1)) for channels in (50, 56))
    v = next(v for v in ROWS if v.name == "conv_v2_sm90_bf16_128x64")
    moved = time_model.COPIED * 2 * (64 * 14 * 14 + 64 * 9) * (50 + 56)
    extra = time_model.cycles(v, s, HOPPER, c) - time_model.cycles(v, wide, HOPPER, c)
    assert extra == pytest.approx(2 * c.launch + moved / c.memory, rel=0.05)


def test_kernels_without_packs_pad_nothing() -> None:
    s = SHAPES["both odd"]
    for operator in OPERANDS:
        for v in CONFIGURATIONS:
            if v.operator == operator and v.device == "cuda" and v.pack == 1:
                assert shape_for(v, s, HOPPER) in (s, None)
        names = {v.name for v in applicable(operator, s, Target("cuda", (7, 5), 40, 64 << 10))}
        assert not any("sm80" in name or "sm90" in name for name in names)


def test_large_layers_with_odd_channels_use_tensor_cores() -> None:
    """A head for 19 classes, one for boxes, one tap; and a first layer of 17 planes."""
    layers = [
        make(8, (128, 128), (256, 19), (3, 3), p=(1, 1)),
        make(32, (40, 40), (512, 255), (1, 1)),
        make(64, (19, 19), (17, 256), (3, 3), p=(1, 1)),
    ]
    for s in layers:
        for operator in OPERANDS:
            for precision in PRECISIONS:
                assert not choose(operator, s, HOPPER, precision).is_ffma, (s, operator, precision)
    for operator in OPERANDS:
        for precision in ("tf32", "bf16"):
            assert not choose(operator, layers[2], AMPERE, precision).is_ffma, (operator, precision)


def test_an_unsupported_shape_stays_so() -> None:
    """Channels alone are padded: a stride wider than the map is not taken."""
    s = ConvShape(8, 6, 1, 19, 13, 3, 3, 1, 2, 1, 1, 6, 1)
    for v in ROWS:
        if "sm90" in v.name:
            assert shape_for(v, s, HOPPER) is None


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_is_not_finite_stays_with_the_results_that_read_it(precision: str) -> None:
    """The zeros of the padding meet no NaN and no infinity: both operands have them at the same channels."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((8, 6, 6, 19), (21, 3, 3, 19)))
    x[3, 0, 0, 18] = np.inf
    w[20, 1, 1, 2] = np.nan
    given = (alpha.tensor(a, device=hopper()) for a in (x, w))
    with alpha.precision(precision):
        y = F.conv2d(*given, padding=1)
    found = np.isfinite(y.astype("float32").numpy())
    expected = np.ones(y.shape, bool)
    expected[3, :2, :2] = False
    expected[..., 20] = False
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 7, 18, 63, 65, 67, 131])
@pytest.mark.parametrize("name", ["conv_v2_sm90_bf16_128x64", "conv_v2_sm90_tf32_128x64", "ks_deconv_sm90_bf16_128x64"])
def test_rows_of_any_length_are_stored(name: str, channels: int) -> None:
    """Rows of an odd length begin in the middle of a word each second time, and tiles end within a row."""
    row, device = next(v for v in CONFIGURATIONS if v.name == name), hopper()
    C = (16, channels) if row.operator == FORWARD else (channels, 16)
    s = make(9, (3, 5), C, (1, 3), p=(0, 1))
    first, second = (a.astype(arrays_of(row)) for a in operands(row.operator, s, "float32"))
    formula = OPERATORS[row.operator][0]
    exact = formula(first.astype("float64"), second.astype("float64"), s)
    b = np.linspace(-2, 2, exact.shape[-1], dtype=np.float32)
    found = compute(row, device.upload(first), device.upload(second), s, device.upload(b), 0.25)
    exact = np.where(exact + b > 0, exact + b, 0.25 * (exact + b))
    assert relative_error(device.download(found).astype("float64"), exact) < 5e-3
