"""Sums and means over axes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import assert_close, check_gradient, check_torch, first_of
from launch_log import observed_launches
from trials import trials

import alpha
import alpha.nn.functional as F
from alpha import ShapeError
from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.ops.kernel import sums as reductions
from alpha.ops.kernel.plan import Buffer
from alpha.ops.kernel.rows.reductions import extreme_axis1
from alpha.ops.kernel.sums import COLUMN_THREADS, WARP, column_block, plan_reduce_splits, sum_axis1, sum_launches

DIMS: list[Any] = [None, 0, 1, -1, (0, 1), (1, 2), (0, 2), (0, 1, 2), (0, 1, 2, 3), (1, 3), (2, 0), ()]


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", DIMS, ids=str)
def test_gradients(dim: Any, keepdim: bool) -> None:
    check_gradient(lambda x: F.sum(x, dim, keepdim), (2, 3, 4, 5))
    check_gradient(lambda x: F.mean(x, dim, keepdim) * 2.0, (2, 3, 4, 5))


@pytest.mark.torch
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", DIMS, ids=str)
def test_as_in_pytorch(device: str, dim: Any, keepdim: bool) -> None:
    def both(x):  # type: ignore[no-untyped-def]
        return x.sum(dim, keepdim) + x.mean(dim=dim, keepdim=keepdim)

    check_torch(both, both, (3, 4, 5, 6), device=device)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5000), (5000, 1), (257, 33), (3, 4096), (70001,), (2, 3, 1)], ids=str)
def test_sums_of_any_length(device: str, shape: tuple[int, ...], rng: np.random.Generator) -> None:
    x = rng.standard_normal(shape).astype(np.float32)
    for dim in (*range(len(shape)), None):
        total = F.sum(alpha.tensor(x, device=device), dim).numpy()
        assert_close(total, x.sum(axis=dim, dtype=np.float64), x.size, f"dim {dim}")


def test_float64(device: str) -> None:
    x = np.arange(300.0).reshape(100, 3) + 1e-9
    np.testing.assert_allclose(alpha.tensor(x, device=device).sum(0).numpy(), x.sum(0), rtol=1e-14)


def test_empty(device: str) -> None:
    x = alpha.tensor(np.zeros((0, 3), np.float32), requires_grad=True, device=device)
    y = F.sum(x, 0)
    np.testing.assert_array_equal(y.numpy(), [0, 0, 0])
    y.backward(alpha.tensor([1.0, 1.0, 1.0], device=device))
    assert x.grad is not None
    assert x.grad.shape == (0, 3)
    assert F.sum(x, 1).shape == (0,)
    np.testing.assert_array_equal(F.mean(x, 0).numpy(), np.full(3, np.nan))


def test_errors(device: str) -> None:
    x = alpha.tensor(np.zeros((2, 3), np.float32), device=device)
    for dim in (2, -3, (0, 0), (0, -2)):
        with pytest.raises(ShapeError, match=r"sum: dim=.* are not distinct axes of shape \(2, 3\)"):
            F.sum(x, dim)
    for wrong in (True, 1.0, "0", (0, 1.5), (False,)):
        with pytest.raises(TypeError, match=r"sum: dim=.* is not an integer"):
            F.sum(x, wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="mean: the tensor has dtype int64"):
        F.mean(alpha.tensor([1, 2], device=device))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool"])
def test_integers_are_summed_as_int64(device: str, dtype: str) -> None:
    values = (np.arange(2 * 70 * 5) % 251).reshape(2, 70, 5).astype(dtype)
    x = alpha.tensor(values, device=device)
    for dim in (None, 0, 1, 2, (0, 1), (0, 2), -1):
        found = x.sum(dim)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found.numpy(), values.sum(axis=dim, dtype=np.int64))
    large = alpha.tensor([2**60 + 1, 2, -3], device=device)
    assert large.sum().item() == 2**60


def test_the_dtype_of_a_sum(device: str) -> None:
    x = alpha.tensor([1.5, 2.5], requires_grad=True, device=device)
    for reduce in (F.sum, F.mean):
        y = reduce(x, dtype="float64")
        assert y.dtype == np.float64
    assert alpha.tensor([1, 2], device=device).mean(dtype="float32").item() == 1.5


def test_numpy_integers_are_axes(device: str) -> None:
    x = alpha.tensor(np.ones((2, 3), np.float32), device=device)
    assert x.sum(np.int64(1)).shape == x.sum(dim=(np.int32(-1),)).shape == x.sum([1]).shape == (2,)


def test_a_mean_is_a_true_division(device: str) -> None:
    """The sum over the number of elements, not its product with a rounded reciprocal."""
    values = np.arange(1, 50, dtype=np.float32)
    for n in values:
        x = alpha.tensor([float(n)] + [0.0] * 48, requires_grad=True, device=device)
        y = x.mean()
        y.backward()
        assert y.item() == np.float32(n) / np.float32(49)
        assert x.grad is not None
        np.testing.assert_array_equal(x.grad.numpy(), np.full(49, np.float32(1) / np.float32(49)))


def test_blocks_of_a_column_sum_fit() -> None:
    """Any shape: powers of two of threads, no more than a block may have, none without work at the least."""
    sizes = (1, 2, 3, 5, 16, 17, 64, 100, 1000, 131072)
    for A in sizes:
        for R in sizes:
            for packs in sizes:
                across, lanes, slabs = column_block(A, R, packs)
                assert across * lanes * slabs <= COLUMN_THREADS
                assert slabs <= 64
                assert all(n & (n - 1) == 0 and n >= 1 for n in (across, lanes, slabs))
                assert lanes <= max(1, R)
                assert across < 2 * packs
                assert slabs < 2 * A


@pytest.mark.parametrize(("parts", "size"), [(4, 126_976), (20, 49_152), (44, 20_480), (3, 512)])
def test_a_sum_of_parts_has_a_block_for_each_sm(parts: int, size: int) -> None:
    """Blocks have one warp if there are too few columns."""
    (launch,) = plan_reduce_splits("part", "sum", parts, Buffer((size,), FLOAT32), num_sms=132).launches
    blocks, across = launch.grid[0], launch.block[0]
    assert blocks * across * 4 >= size
    assert blocks >= 132 or across <= WARP


@pytest.mark.parametrize("size", [1, 7, 4100])
def test_sums_of_parts_are_rounded_once(size: int) -> None:
    """The sums are rounded to bfloat16; so is a single part, which is a row of its own."""
    parts = np.random.default_rng(0).standard_normal((5, size), np.float32)
    parts[:, -1] = np.nan
    device, found = alpha.get_device("cuda"), []
    for dtype in (FLOAT32, BFLOAT16):
        made = Buffer((size,), dtype)
        plan = plan_reduce_splits("part", "sum", 5, made, device.properties.num_sms)
        plan = replace(plan, outputs={"sum": made})
        found.append(device.download(plan.launch(device, {"part": device.upload(parts)})["sum"]))
    np.testing.assert_array_equal(found[0].astype(BFLOAT16).astype(FLOAT32), found[1].astype(FLOAT32))


SUMS = (  # of the middle axis: tiles of columns, a part of a tile; packs and single elements; a rest that is no pack
    *(
        (1, 60_000, 40),
        (1, 60_000, 130),
        (1, 60_001, 3),
        (3, 30_000, 8),
        (2, 50_000, 72),
        (1, 70_000, 1),
        (1, 262_144, 1),
    ),
    *((1, 262_147, 1), (1, 1_000_005, 1), (2, 100_000, 1), (3, 99_999, 1), (1, 7, 1), (1, 3, 1)),
)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", first_of(BFLOAT16, np.dtype(np.float32), np.dtype(np.int64)))
def test_a_sum_is_one_launch(dtype: np.dtype[Any]) -> None:
    """Blocks may share a sum, and another sum may follow; arrays may begin at no multiple of 16 bytes."""
    device: Any = alpha.get_device("cuda")
    rng = np.random.default_rng(0)
    with trials() as trial:
        for sizes in SUMS:
            for behind in (0, 1):
                with trial(sizes, behind):
                    X = rng.integers(-3, 4, sizes).astype(dtype)
                    flat = np.concatenate([np.full(behind, 100, dtype), X.reshape(-1), np.full(3, 100, dtype)])
                    array = device.upload(flat).slice_rows(behind, behind + X.size).reshape(sizes)
                    for _ in range(2):
                        with observed_launches(device) as log:
                            total = device.download(sum_axis1(array))
                        (launch,) = log
                        assert launch.entry == ("sum_columns" if sizes[2] > 1 else "sum_long_rows")
                        np.testing.assert_array_equal(total, X.astype(np.float64).sum(1))


def test_which_sums_blocks_share() -> None:
    """Blocks share sums of long axes, if there are few of them."""
    with trials() as trial:
        for sizes, shared in (
            ((1, 60_000, 40), True),
            ((1, 2**24, 1), True),
            ((900, 2**14, 1), False),
            ((1, 90, 5), False),
        ):
            with trial(sizes):
                (launch,) = reductions.plan_sum(*sizes, np.dtype(np.float32), 1, 132).launches
                assert (launch.grid[1] > 1) == shared
                assert launch.grid[0] * launch.grid[1] <= (2 * 132 if shared else 900)


def test_a_single_row_is_read_in_packs_wherever_it_ends() -> None:
    device: Any = alpha.get_device("cuda")
    for size, behind, vector in ((40_003, 0, 4), (40_000, 0, 4), (40_003, 4, 4), (40_003, 1, 1)):
        array = device.zeros((size + behind,), np.float32).slice_rows(behind, size + behind)
        with observed_launches(device) as log:
            sum_axis1(array.reshape(1, size, 1))
        assert log[0].defines["VECTOR"] == vector


# -- rows of neighbours -----------------------------------------------------------------------------

ROW_LENGTHS = first_of(65, 256, 1000, 1, 2, 31, 33, 64, 127, 768, 4096, 7000)


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), BFLOAT16], ids=lambda d: d.name)
@pytest.mark.parametrize("length", ROW_LENGTHS)
def test_sums_and_extremes_of_rows(length: int, dtype: np.dtype[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows may begin at no multiple of 16 bytes; ties and NaN count by the first column."""
    monkeypatch.setattr(reductions, "LEAST_ROW_BYTES", 0)
    device: Any = alpha.get_device("cuda")
    rng = np.random.default_rng(length)
    for rows in (1, 37):
        X = rng.integers(-9, 9, (rows + 1, length)).astype(dtype)
        X[1:, length // 2] = X[1:, -1] = 9  # a tie
        X[1, length // 3] = np.nan
        for array, host in ((device.upload(X), X), (device.upload(X).slice_rows(1, rows + 1), X[1:])):
            with observed_launches(device) as log:
                total = device.download(sum_axis1(array.reshape(len(host), length, 1)))
                found, at = extreme_axis1(array.reshape(len(host), length, 1), True)
                least, lowest = extreme_axis1(array.reshape(len(host), length, 1), False)
            fits = length <= (8192 if dtype == BFLOAT16 else 6144)
            assert [launched.source == "reduce/rows.cu" for launched in log] == [fits] * len(log)
            wide = host.astype(np.float64)
            np.testing.assert_allclose(total[:, 0], wide.sum(1), rtol=1e-6, atol=1e-4)
            np.testing.assert_array_equal(device.download(at)[:, 0], wide.argmax(1))
            np.testing.assert_array_equal(device.download(lowest)[:, 0], wide.argmin(1))
            np.testing.assert_array_equal(device.download(found)[:, 0].astype(np.float64), wide.max(1))
            np.testing.assert_array_equal(device.download(least)[:, 0].astype(np.float64), wide.min(1))


@pytest.mark.parametrize("length", [65, 1000])
def test_extremes_of_special_rows(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of equal ones, of infinite ones and of NaNs; zeros of both signs are equal, and the first stays."""
    monkeypatch.setattr(reductions, "LEAST_ROW_BYTES", 0)
    device: Any = alpha.get_device("cuda")
    X: Any = np.tile(np.float32([-1.0, 1.0]), (7, length))[:, :length]
    X[0], X[1], X[2] = -np.inf, np.inf, 0
    X[2, ::2] = -0.0
    X[3, 5], X[3, 40], X[4, 64], X[5, length - 1] = np.nan, np.nan, np.nan, np.inf
    X[6], X[6, 64] = np.inf, np.nan
    for dtype in (np.dtype(np.float32), BFLOAT16):
        array = device.upload(X.astype(dtype).reshape(7, length, 1))
        for largest, find in ((True, np.argmax), (False, np.argmin)):
            found, at = (device.download(array)[:, 0] for array in extreme_axis1(array, largest))
            np.testing.assert_array_equal(at, find(X, axis=1))
            expected = X[np.arange(7), at]
            np.testing.assert_array_equal(found.astype(np.float32), expected)
            np.testing.assert_array_equal(np.signbit(found.astype(np.float32))[:3], np.signbit(expected)[:3])


def test_small_arrays_are_reduced_without_a_kernel_for_their_length() -> None:
    device: Any = alpha.get_device("cuda")
    sources = []
    for rows in (20, 200):
        with observed_launches(device) as log:
            sum_axis1(device.zeros((rows, 100, 1), np.float32))
        sources.append(log[0].source)
    assert sources == ["reduce/sum.cu", "reduce/rows.cu"]


def test_the_parts_of_many_rows_are_added_by_several_blocks() -> None:
    """The blocks are as many as lines of 128 bytes allow; few rows, or columns of many blocks, keep wide blocks."""
    for dtype, vector, B, tiles in (
        (FLOAT32, 4, 256, 8),
        (BFLOAT16, 8, 256, 4),
        (FLOAT32, 4, 64, 2),
        (FLOAT32, 4, 20, 1),
    ):
        launches, _ = sum_launches("X", "Y", (1, 65536, B), dtype, vector, 132)
        across, lanes, slabs = launches[0].block
        assert launches[0].grid[0] == tiles
        assert across * vector * dtype.itemsize >= min(128, B * dtype.itemsize)
        assert across * lanes * slabs == COLUMN_THREADS
    few, _ = sum_launches("X", "Y", (1, 300, 256), FLOAT32, 4, 132)
    assert few[0].block == column_block(1, 300, 64)
