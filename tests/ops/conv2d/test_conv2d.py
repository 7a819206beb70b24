"""The convolution algorithms against their formula, on both devices, for every kernel configuration."""

from __future__ import annotations

import dataclasses
import itertools

import conv2d_geometry
import conv2d_reference as reference
import numpy as np
import pytest
from conv2d_cases import (
    CPU_FORMS,
    CUDA_ROWS,
    FEW_OUTPUTS,
    LONG,
    MANY,
    OPERATORS,
    SIMPLE,
    arrays_of,
    cuda_shapes,
    hopper,
    make,
    operands,
    relative_error,
    reordered,
    shapes,
)
from helpers import first_of, sample_names, sample_of, smallest_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import alpha
import alpha.nn.functional as F
from alpha.errors import ShapeError
from alpha.ops.conv2d import conv_v2, cpu, ks_deconv, partial_sums, sk_dilated
from alpha.ops.conv2d.hopper import output_tiles, tile_schedule
from alpha.ops.conv2d.hopper.output_tiles import Tile
from alpha.ops.conv2d.launch import prepare
from alpha.ops.conv2d.plan import compute
from alpha.ops.conv2d.prepare import shape_for
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, Configuration, MathMode, Target
from alpha.ops.conv2d.select import table
from alpha.ops.conv2d.select.choose import applicable, choose
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.shape import ConvShape
from alpha.runtime.cuda.cuda_device import CudaDevice

TARGETS = (Target("cpu"), Target("cuda", (7, 5), 40), Target("cuda", (8, 0), 108), Target("cuda", (9, 0), 132))
AMPERE = Target("cuda", (8, 0), 108)
SAMPLE = sample_names(CUDA_ROWS)


@given(s=shapes())
@settings(max_examples=150, deadline=None)
def test_cpu_forms_equal_the_formula(s: ConvShape) -> None:
    for operator, form in CPU_FORMS:
        first, second = operands(operator, s, "float64")
        exact = OPERATORS[operator][0](first, second, s)
        np.testing.assert_allclose(form(first, second, s), exact, atol=1e-10, err_msg=form.__name__)


@given(s=shapes())
@settings(max_examples=100, deadline=None)
def test_adjoint_identity(s: ConvShape) -> None:
    """<conv(X), dY> = <X, dX> = <W, dW>: needs no reference."""
    X, W = operands(FORWARD, s, "float64")
    dY = np.random.default_rng(1).standard_normal(s.Y)
    left = (cpu.conv_v2_patches(X, W, s) * dY).sum()
    through_X = (X * cpu.ks_deconv_patches(dY, W, s)).sum()
    through_W = (W * cpu.sk_dilated_patches(X, dY, s)).sum()
    assert left == pytest.approx(through_X, abs=1e-8)
    assert left == pytest.approx(through_W, abs=1e-8)


@pytest.mark.parametrize("part", first_of("first shapes", "other shapes"))
@pytest.mark.parametrize("row", sample_of(CUDA_ROWS))
def test_every_cuda_row_equals_the_formula(row: Configuration, part: str) -> None:
    """Each row computes its drawn shapes; the first two are the same but for rows and columns exchanged.

    The others with bias and activation, if the row has them; the larger tiles of a kernel only on whole tiles.
    """
    device = alpha.get_device("cuda") if row.supports(SIMPLE, AMPERE) else hopper()
    # a row for newer GPUs than this one is left to the compile gate
    target = Target("cuda", device.properties.compute_capability, device.properties.num_sms)
    limit = {"float32": 1e-6, "tf32": 1e-3, "bf16": 5e-3}[row.precision]
    drawn = conv2d_geometry.of(row)
    if conv2d_geometry.is_hopper(row):  # which is compiled for each shape
        others = drawn[2:] if row.name in SAMPLE else ()
        shapes = drawn[:2] if part == "first shapes" else (*others, conv2d_geometry.whole(row))
    else:
        edges = FEW_OUTPUTS if row.base is not None else cuda_shapes()
        shapes = drawn if part == "first shapes" else tuple(s for s in edges if row.supports(s, target))
    for seed, s in enumerate(shapes):
        first, second = operands(row.operator, s, "float32", seed)
        # gradients are small, activations are not
        scale = np.float32(1e-6 if row.operator != FORWARD else 1e3)
        first, second = (first * scale, second) if row.operator == INPUT else (first, second * scale)
        first, second = (a.astype(arrays_of(row)) for a in (first, second))
        exact = OPERATORS[row.operator][0](first.astype("float64"), second.astype("float64"), s)
        on_device = device.upload(first), device.upload(second)
        if row.supports_epilogue and part == "other shapes":
            b = np.linspace(-2, 2, exact.shape[-1], dtype=np.float32) * np.float32(exact.std())
            exact = np.where(exact + b > 0, exact + b, 0.25 * (exact + b))
            value = device.download(compute(row, *on_device, s, device.upload(b), 0.25))
        else:
            value = device.download(compute(row, *on_device, s))
        assert value.shape == exact.shape
        assert relative_error(value.astype("float64"), exact) < limit, f"{row.name} {s}"


@pytest.mark.parametrize("row", sample_of(CUDA_ROWS))
def test_the_shapes_of_a_row_have_all_of_its_checklist(row: Configuration) -> None:
    shapes = conv2d_geometry.of(row)
    assert 2 <= len(shapes) <= 6
    assert all(conv2d_geometry.irregular(row, s) for s in shapes)
    assert {conv2d_geometry.transposed(s) for s in shapes} == set(shapes)
    assert not conv2d_geometry.missing(row, shapes)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_every_shape_has_a_row(operator: str, target: Target) -> None:
    """The row has the precision that is asked for, or a better one."""
    for s, precision in itertools.product(cuda_shapes(), ("float32", "tf32", "bf16")):
        chosen = choose(operator, s, target, precision)
        assert shape_for(chosen, s, target), f"{chosen.name} cannot compute {s} on {target}"
        assert chosen.precision in ("float32", precision)
        assert chosen in applicable(operator, s, target, precision)


@pytest.mark.parametrize(
    # what tf32 does with a result is the code of float32; the other tiles are in the test of the formula
    "row",
    smallest_of(v for v in CONFIGURATIONS if v.supports_epilogue and v.precision != "tf32"),
)
def test_bias_and_activation_with_the_product(row: Configuration) -> None:
    """The results are as by operators for bias and activation alone, also if a tile is wider than the channels."""
    device = alpha.get_device("cuda") if row.supports(SIMPLE, AMPERE) else hopper()
    s = conv2d_geometry.of(row)[0]
    first, second = (a.astype(arrays_of(row)) for a in operands(row.operator, s, "float32"))
    b = np.linspace(-2, 2, s.OC if row.operator == FORWARD else s.IC, dtype=np.float32)
    on_device = device.upload(first), device.upload(second)
    plain = device.download(compute(row, *on_device, s)).astype(np.float32) + b
    fused = device.download(compute(row, *on_device, s, device.upload(b), 0.25))
    expected = np.where(plain > 0, plain, 0.25 * plain)
    assert relative_error(fused.astype("float64"), expected) < (4e-3 if row.precision == "bf16" else 1e-6)


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


def test_ping_pong_warpgroups_at_two_stages() -> None:
    """The warpgroups would both wait if each held a step until its next has come."""
    s = make(320, (5, 6), (40, 32), (1, 6), (1, 5))
    row = next(v for v in CONFIGURATIONS if v.name == "sk_dilated_sm90_bf16_64x64")
    first, second = (a.astype(arrays_of(row)) for a in operands(WEIGHT, s, "float32"))
    exact = reference.backward_weight(first.astype("float64"), second.astype("float64"), s)
    device = hopper()
    value = device.download(compute(row, device.upload(first), device.upload(second), s))
    assert relative_error(value.astype("float64"), exact) < 1e-6


def test_what_is_not_finite_leaves_the_others_their_bits() -> None:
    """The scale of fp16 terms is that of the finite numbers."""
    s = make(64, (2, 2), (32, 32), (3, 3), p=(1, 1))
    row = next(v for v in CONFIGURATIONS if v.name == "conv_v2_sm90_fp16x3_128x64")
    X, W = operands(FORWARD, s, "float32")
    exact = reference.forward(X.astype("float64"), W.astype("float64"), s)[1:]
    device = hopper()
    for value in (np.nan, np.inf):
        for scale in (np.float32(1e-6), np.float32(1e6)):
            x = X * scale
            x[0, 0, 0, 0] = value
            Y = device.download(compute(row, device.upload(x), device.upload(W), s))
            assert not np.isfinite(Y[0]).any()
            assert relative_error(Y[1:].astype("float64"), exact * scale) < 1e-6


def test_parts_of_arrays_may_begin_anywhere() -> None:
    """Kernels read 16 bytes at a time."""
    for s in (make(3, (5, 5), (3, 8), (3, 3)), make(64, (2, 2), (32, 32), (3, 3), p=(1, 1))):
        arrays = operands(FORWARD, s, "float32")
        x, w = (alpha.tensor(np.append(np.float32(0), a), device="cuda")[1:].reshape(*a.shape) for a in arrays)
        y = F.conv2d(x, w, None, (s.sh, s.sw), (s.ph, s.pw))
        np.testing.assert_allclose(y.numpy(), reference.forward(*arrays, s), atol=1e-4)


def test_a_bias_that_begins_anywhere_is_copied() -> None:
    x, w, b = (alpha.ones(*shape, device="cuda").array for shape in ((2, 5, 5, 16), (16, 3, 3, 16), (17,)))
    s = make(2, (5, 5), (16, 16), (3, 3), p=(1, 1))
    for start, copied in ((0, False), (1, True)):
        part = b.slice_rows(start, start + 16)
        _, given = prepare(FORWARD, (x, w), s, "float32", part)
        assert given["bias"].address % 16 == 0
        assert (given["bias"].address != part.address) == copied


def test_a_bias_of_another_dtype() -> None:
    s = make(64, (2, 2), (32, 32), (3, 3), p=(1, 1))
    device = hopper()
    X, W = (device.upload(a) for a in operands(FORWARD, s, "float32"))
    b = np.linspace(-2, 2, s.OC).astype("bfloat16")
    run = alpha.core.primitive.REGISTRY["conv2d_forward"]
    low, full = (device.download(run(X, W, s, b=device.upload(a))) for a in (b, b.astype("float32")))
    assert low.tobytes() == full.tobytes()
    with pytest.raises(TypeError, match="conv2d: bias: cuda computes in float32, not float64"):
        run(X, W, s, b=device.upload(b.astype("float64")))


def test_choice_of_the_paper_networks() -> None:
    h200 = Target("cuda", (9, 0), 132)
    stem, deep = (make(512, (32, 32), (3, 64), (7, 7), (2, 2), (3, 3)), make(512, (4, 4), (256, 256), (3, 3), p=(1, 1)))
    assert choose(FORWARD, stem, h200).name == "direct_sm80_fp16x3"
    assert choose(FORWARD, deep, h200).name.startswith("conv_v2")
    assert choose(INPUT, deep, h200).name.startswith("ks_deconv")
    assert choose(WEIGHT, deep, h200).name.startswith("sk_dilated")
    assert choose(FORWARD, deep, Target("cuda", (7, 5), 40)).name == "implicit_gemm_ffma"
    for precision in ("tf32", "bf16"):
        for operator, algorithm in ((FORWARD, "conv_v2"), (INPUT, "ks_deconv"), (WEIGHT, "sk_dilated")):
            name = choose(operator, deep, AMPERE, precision).name
            assert name.startswith(f"{algorithm}_sm80_{precision}_")


def test_a_row_can_be_forced(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    s = make(64, (4, 4), (64, 64), (3, 3), p=(1, 1))
    monkeypatch.setenv("ALPHA_CONV_KERNEL", "conv_v2_patches")
    monkeypatch.setenv("ALPHA_DEBUG", "1")
    assert choose(FORWARD, s, Target("cpu")).name == "conv_v2_patches"
    choose(FORWARD, s, Target("cpu"))
    printed = capsys.readouterr().err
    assert printed.count("conv_v2_patches (forced)") == 1
    assert "69.4%" in printed


def test_useful_share() -> None:
    """The shares of the design: 3x3, padding 1."""
    for size, share in ((32, 0.959), (16, 0.918), (8, 0.840), (4, 0.694), (2, 0.444)):
        assert make(1, (size, size), (1, 1), (3, 3), p=(1, 1)).useful == pytest.approx(share, abs=1e-3)


@given(s=shapes(images=2, channels=st.integers(1, 3)))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_operator_and_gradients(device: str, s: ConvShape) -> None:
    rng = np.random.default_rng(0)
    x = alpha.tensor(rng.standard_normal(s.X).astype("f"), requires_grad=True, device=device)
    w = alpha.tensor(rng.standard_normal(s.W).astype("f"), requires_grad=True, device=device)
    b = alpha.tensor(rng.standard_normal(s.OC).astype("f"), requires_grad=True, device=device)
    dY = rng.standard_normal(s.Y).astype("f")
    y = F.conv2d(x, w, b, (s.sh, s.sw), (s.ph, s.pw))
    y.backward(alpha.tensor(dY, device=device))
    assert x.grad is not None
    assert w.grad is not None
    assert b.grad is not None
    tolerance = {"atol": 1e-4, "rtol": 1e-4}
    np.testing.assert_allclose(y.numpy(), reference.forward(x.numpy(), w.numpy(), s) + b.numpy(), **tolerance)
    np.testing.assert_allclose(x.grad.numpy(), reference.backward_input(dY, w.numpy(), s), **tolerance)
    np.testing.assert_allclose(w.grad.numpy(), reference.backward_weight(x.numpy(), dY, s), **tolerance)
    np.testing.assert_allclose(b.grad.numpy(), dY.sum(axis=(0, 1, 2)), **tolerance)


def test_transposed_convolution_is_the_adjoint(device: str) -> None:
    rng = np.random.default_rng(0)
    s = make(2, (7, 6), (3, 4), (3, 2), (2, 3), (1, 0))  # the convolution; its input is our output
    x = alpha.tensor(rng.standard_normal(s.Y).astype("f"), requires_grad=True, device=device)
    w = alpha.tensor(rng.standard_normal(s.W).astype("f"), requires_grad=True, device=device)
    rest = (s.IH - ((s.OH - 1) * s.sh - 2 * s.ph + s.FH), s.IW - ((s.OW - 1) * s.sw - 2 * s.pw + s.FW))
    y = F.conv_transpose2d(x, w, None, (s.sh, s.sw), (s.ph, s.pw), rest)
    assert y.shape == s.X
    np.testing.assert_allclose(y.numpy(), reference.backward_input(x.numpy(), w.numpy(), s), atol=1e-5)
    dY = rng.standard_normal(s.X).astype("f")
    y.backward(alpha.tensor(dY, device=device))
    assert x.grad is not None
    assert w.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), reference.forward(dY, w.numpy(), s), atol=1e-5)
    np.testing.assert_allclose(w.grad.numpy(), reference.backward_weight(dY, x.numpy(), s), atol=1e-4)


@pytest.mark.torch
@pytest.mark.parametrize(("stride", "padding", "output_padding"), [(1, 0, 0), (2, 1, 1), ((3, 2), (0, 2), (2, 0))])
def test_transposed_convolution_equals_pytorch(stride, padding, output_padding) -> None:  # type: ignore[no-untyped-def]
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((2, 5, 4, 3)).astype("f"), rng.standard_normal((3, 3, 2, 6)).astype("f"))
    y = F.conv_transpose2d(alpha.tensor(x), alpha.tensor(w), None, stride, padding, output_padding)
    expected = torch.nn.functional.conv_transpose2d(
        torch.tensor(x.transpose(0, 3, 1, 2)),
        torch.tensor(w.transpose(0, 3, 1, 2)),
        None,
        stride,
        padding,
        output_padding,
    )
    np.testing.assert_allclose(y.numpy(), expected.numpy().transpose(0, 2, 3, 1), atol=1e-5)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
def test_two_runs_agree_bit_for_bit(operator: str, arch: str) -> None:
    """The order of blocks, warps and lanes makes no difference."""
    s = make(64, (4, 4), (32, 32), (3, 3), p=(1, 1))
    run = alpha.core.primitive.REGISTRY[operator]
    arrays = operands(operator, s, "float32")
    results = []
    for seed in (0, 1, 2):
        where = reordered(arch, seed)
        results.append(where.download(run(*(where.upload(a) for a in arrays), s)).tobytes())
    assert results[0] == results[1] == results[2]


def test_forward_order_lists_every_position_once() -> None:
    s = make(1, (5, 4), (1, 1), (3, 3), (2, 1), (1, 1))
    for order, count in ((conv_v2.pixel_order(s), s.OH * s.OW), (ks_deconv.pixel_order(s), s.IH * s.IW)):
        assert sorted(order) == list(range(count))


@pytest.mark.parametrize(
    ("x", "w", "options", "message"),
    [
        ((8, 32, 32, 3), (64, 3, 3, 4), {}, r"conv2d: x has 3 channels but weight expects 4  \(x \(8, 32, 32, 3\)"),
        ((1, 2, 2, 1), (1, 3, 3, 1), {}, r"the output would be \(1, 0, 0, 1\), which is empty"),
        ((0, 2, 2, 1), (1, 3, 3, 1), {}, "empty"),
        ((4, 1), (1, 3, 3, 1), {}, r"x \(N, H, W, C\)"),
        ((1, 4, 4, 1), (1, 3, 3, 1), {"stride": 0}, "stride=0 must be at least 1"),
        ((1, 4, 4, 1), (1, 3, 3, 1), {"padding": (-1, 0)}, "padding"),
    ],
)
def test_bad_shapes_say_what_is_wrong(x, w, options, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        F.conv2d(alpha.tensor(np.zeros(x, "f")), alpha.tensor(np.zeros(w, "f")), **options)


def test_a_wrong_bias_is_a_shape_error() -> None:
    x, w, b = (alpha.tensor(np.zeros(n, "f")) for n in ((1, 4, 4, 2), (3, 3, 3, 2), (2,)))
    with pytest.raises(ShapeError, match=r"bias has shape \(2,\), \(3,\) is needed"):
        F.conv2d(x, w, b)


def test_aligned_arrays_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    s = make(3, (5, 5), (3, 8), (3, 3))
    arrays = operands(FORWARD, s, "float32")
    x, w = (alpha.tensor(np.append(np.zeros(4, np.float32), a), device="cuda")[4:].reshape(*a.shape) for a in arrays)
    assert x.array.address % 16 == 0
    assert x.array.address % 32 != 0
    monkeypatch.setattr(CudaDevice, "copy", lambda *_: pytest.fail("an aligned array is copied"))
    np.testing.assert_allclose(F.conv2d(x, w).numpy(), reference.forward(*arrays, s), atol=1e-4)


def test_images_of_a_task_on_the_cpu() -> None:
    """Images fill the scratch, but 16 tasks and 512 rows for each product come first."""
    assert cpu._images_per_task(1000, 4, 10, 4) == 128
    assert cpu._images_per_task(10_000, 1000, 10, 4) == 625
    assert cpu._images_per_task(10_000, 4, 1 << 15, 4) == 32


def test_scratch_is_used_again() -> None:
    large = cpu.scratch("a test's", (8, 4), np.dtype(np.float32))
    small = cpu.scratch("a test's", (3,), np.dtype(np.float64))
    assert (small.shape, small.dtype) == ((3,), np.float64)
    assert np.shares_memory(large, small)


def test_splits_of_sk_dilated() -> None:
    """Blocks are as many as the GPU holds, with at least 6 steps each and at most 64 MiB of partial sums."""
    s = make(64, (8, 8), (64, 64), (3, 3), p=(1, 1))
    assert partial_sums.num_splits(10, 10_000, s, 216) == 21
    assert partial_sums.num_splits(10, 100, s, 216) == 16
    assert partial_sums.num_splits(1000, 10_000, s, 216) == 1
    large = make(64, (8, 8), (1024, 1024), (3, 3), p=(1, 1))  # 36 MiB each
    assert partial_sums.num_splits(10, 10_000, large, 216) == 1


@pytest.mark.parametrize(("shared_kib", "blocks"), [(227, 4), (163, 3), (99, 2), (48, 1)])
def test_blocks_of_sk_dilated_that_an_sm_holds(shared_kib: int, blocks: int) -> None:
    """The small tile: four by registers, fewer by shared memory; the large one has an SM for itself."""
    target = dataclasses.replace(AMPERE, shared_bytes=shared_kib << 10)
    assert sk_dilated.resident_blocks(table.WEIGHT_64x64, target) == blocks
    assert sk_dilated.resident_blocks(table.WEIGHT_128x128, target) == 1


def test_a_tile_is_what_its_row_says() -> None:
    for row in CONFIGURATIONS:
        if conv2d_geometry.is_hopper(row):
            tile = Tile.of(row)
            named = {"BM": tile.BM, "BN": tile.BN, "BLOCKS": tile.blocks}
            assert named.items() <= row.tile.items()
            assert tile.math is row.math
            assert tile.prepared == bool(row.tile.get("PREPARED"))


def test_cycles_of_the_tensor_cores() -> None:
    """1024 multiplications of tf32 per cycle, 2048 of 16 bits; float32 is three products of fp16 terms."""
    assert Tile(128, 128, MathMode.TF32).cycles == 128 * 128 * 32 / 1024
    assert Tile(128, 128, MathMode.BF16).cycles == 128 * 128 * 64 / 2048
    assert Tile(128, 128, MathMode.FP16X3).cycles == 3 * 128 * 128 * 64 / 2048


def test_the_gpu_of_a_target_is_no_part_of_it() -> None:
    """One choice is remembered for all GPUs of a kind."""
    assert Target("cuda", (9, 0), 132, gpu=alpha.get_device("cpu")) == Target("cuda", (9, 0), 132)
