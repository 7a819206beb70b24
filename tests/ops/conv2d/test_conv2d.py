"""The convolution algorithms against their formula, on both devices, for every kernel configuration."""

from __future__ import annotations

import dataclasses

import conv2d_geometry
import conv2d_reference as reference
import numpy as np
import pytest
from conv2d_cases import (
    CUDA_ROWS,
    FEW_OUTPUTS,
    OPERATORS,
    SIMPLE,
    arrays_of,
    cuda_shapes,
    hopper,
    make,
    operands,
    relative_error,
    reordered,
)
from helpers import first_of, sample_names, sample_of, smallest_of
from written import checked_writes

import alpha
import alpha.nn.functional as F
from alpha.ops.conv2d import conv_v2, ks_deconv, partial_sums, sk_dilated
from alpha.ops.conv2d.launch import prepare
from alpha.ops.conv2d.plan import compute
from alpha.ops.conv2d.problem import FORWARD, INPUT, Configuration, Target
from alpha.ops.conv2d.select import table
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.runtime.cuda.cuda_device import CudaDevice

AMPERE = Target("cuda", (8, 0), 108)
SAMPLE = sample_names(CUDA_ROWS)


@pytest.mark.slow
@pytest.mark.parametrize("part", first_of("first shapes", "other shapes"))
@pytest.mark.parametrize("row", sample_of(CUDA_ROWS))
def test_every_cuda_row_equals_the_formula(row: Configuration, part: str) -> None:
    """Each row computes its drawn shapes; the first two are the same but for rows and columns exchanged.

    The others with bias and activation, if the row has them. Hopper's kernels are compiled for each shape, so their
    larger tiles compute the first or the second in turn, and whole tiles.
    """
    device = alpha.get_device("cuda") if row.supports(SIMPLE, AMPERE) else hopper()
    # a row for newer GPUs than this one is left to the compile gate
    target = Target("cuda", device.properties.compute_capability, device.properties.num_sms)
    limit = {"float32": 1e-6, "tf32": 1e-3, "bf16": 5e-3}[row.precision]
    drawn = conv2d_geometry.of(row)
    if conv2d_geometry.is_hopper(row):
        turn = CUDA_ROWS.index(row) % 2
        first, others = (drawn[:2], drawn[2:]) if row.name in SAMPLE else (drawn[turn : turn + 1], ())
        shapes = first if part == "first shapes" else (*others, conv2d_geometry.whole(row))
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
        b, slope = None, 1.0
        if row.supports_epilogue and part == "other shapes":
            b = np.linspace(-2, 2, exact.shape[-1], dtype=np.float32) * np.float32(exact.std())
            exact = np.where(exact + b > 0, exact + b, 0.25 * (exact + b))
            b, slope = device.upload(b), 0.25
        with checked_writes() as writes:
            value = device.download(compute(row, *on_device, s, b, slope))
        assert not writes.found
        assert value.shape == exact.shape
        assert relative_error(value.astype("float64"), exact) < limit, f"{row.name} {s}"


@pytest.mark.parametrize("row", sample_of(CUDA_ROWS))
def test_the_shapes_of_a_row_have_all_of_its_checklist(row: Configuration) -> None:
    shapes = conv2d_geometry.of(row)
    assert 2 <= len(shapes) <= 6
    assert all(conv2d_geometry.irregular(row, s) for s in shapes)
    assert {conv2d_geometry.transposed(s) for s in shapes} == set(shapes)
    assert not conv2d_geometry.missing(row, shapes)
    # to draw them anew takes up to a minute in each process
    assert conv2d_geometry.are_kept(row), "the kept shapes are stale: python tests/support/conv2d/conv2d_geometry.py"


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_useful_share() -> None:
    """The shares of the design: 3x3, padding 1."""
    for size, share in ((32, 0.959), (16, 0.918), (8, 0.840), (4, 0.694), (2, 0.444)):
        assert make(1, (size, size), (1, 1), (3, 3), p=(1, 1)).useful == pytest.approx(share, abs=1e-3)


@pytest.mark.slow
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


def test_aligned_arrays_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    s = make(3, (5, 5), (3, 8), (3, 3))
    arrays = operands(FORWARD, s, "float32")
    x, w = (alpha.tensor(np.append(np.zeros(4, np.float32), a), device="cuda")[4:].reshape(*a.shape) for a in arrays)
    assert x.array.address % 16 == 0
    assert x.array.address % 32 != 0
    monkeypatch.setattr(CudaDevice, "copy", lambda *_: pytest.fail("an aligned array is copied"))
    np.testing.assert_allclose(F.conv2d(x, w).numpy(), reference.forward(*arrays, s), atol=1e-4)


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
