"""Running sums and products on cuda: rows of a warp, several warps and several turns; segments; columns; both ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_log import observed_launches
from trials import trials

import alpha
from alpha.core.numerics import BFLOAT16
from alpha.ops.kernel.casts import BLOCK
from alpha.ops.kernel.rows.row_tile import RowTile
from alpha.ops.reduction import scan as running
from alpha.ops.reduction.scan import running_product, running_sum, tile_of_scan
from alpha.runtime.cuda.cuda_device import CudaDevice

FLOAT32, INT64 = np.dtype(np.float32), np.dtype(np.int64)
DTYPES = (FLOAT32, BFLOAT16, INT64)
# within a warp, of several warps, of several turns, a single one; with the gate every length that is near to a limit
LENGTHS = (
    *(33, 256, 1000, 9000, 1),
    *(pytest.param(n, marks=pytest.mark.gate) for n in (2, 31, 64, 255, 768, 2056, 4097, 6144, 24_004)),
)


def cuda() -> CudaDevice:
    return alpha.get_device("cuda")  # type: ignore[return-value]


def signs(rng: np.random.Generator, *sizes: int) -> np.ndarray:
    """Small integers, whose float32 sums are exact in any order."""
    return rng.integers(-3, 4, sizes)


def summed(X: np.ndarray, reverse: bool) -> np.ndarray:
    way = -1 if reverse else 1
    return np.cumsum(X[:, ::way].astype(np.float64), axis=1)[:, ::way]


@pytest.mark.slow
@pytest.mark.parametrize("length", LENGTHS)
def test_rows_of_any_length(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows may begin at no multiple of 16 bytes. The sums are exact, so each element must be right."""
    monkeypatch.setattr(running, "LEAST_ROW_BYTES", 0)
    rng = np.random.default_rng(length)
    with trials() as trial:
        for dtype in DTYPES:
            for rows in (1, 3, 37) if length < 2000 else (2,):
                whole = signs(rng, rows + 1, length).astype(dtype)
                array = cuda().upload(whole)
                for x, X in ((array, whole), (array.slice_rows(1, rows + 1), whole[1:])):
                    for reverse in (False, True):
                        with trial(dtype.name, rows, len(X), reverse):
                            Y = cuda().download(running_sum(x.reshape((*X.shape, 1)), reverse))[..., 0]
                            np.testing.assert_array_equal(Y, summed(X, reverse).astype(dtype))


def test_small_arrays_share_two_tiles() -> None:
    assert tile_of_scan(20, 100, FLOAT32, 4) == RowTile(1, 32, 4, 1)
    assert tile_of_scan(2, 1000, FLOAT32, 4) == RowTile(1, BLOCK, 4, 1)
    rng = np.random.default_rng(0)
    with trials() as trial:
        for rows, length in ((30, 100), (3, 256), (2, 257), (1, 5000)):
            for reverse in (False, True):
                with trial(rows, length, reverse):
                    X = signs(rng, rows, length).astype(FLOAT32)
                    Y = cuda().download(running_sum(cuda().upload(X).reshape((rows, length, 1)), reverse))
                    np.testing.assert_array_equal(Y[..., 0], summed(X, reverse))


def test_tiles_of_rows() -> None:
    assert tile_of_scan(65_536, 256, FLOAT32, 4) == RowTile(4, 16, 4, 1)
    assert tile_of_scan(65_536, 256, BFLOAT16, 8) == RowTile(8, 8, 4, 1)
    assert tile_of_scan(65_536, 255, FLOAT32, 1).packs <= 8
    assert tile_of_scan(9, 1 << 24, FLOAT32, 4) == RowTile(4, BLOCK, 4, 1)
    assert tile_of_scan(9, 1 << 24, BFLOAT16, 8) == RowTile(8, BLOCK, 4, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes", [(1, 70_000, 1), (2, 60_001, 1), (3, 80_000, 1), (1, 300, 5), (2, 700, 9), (1, 5000, 130)], ids=str
)
def test_few_long_axes_are_cut_into_segments(sizes: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(0)
    with trials() as trial:
        for dtype in DTYPES:
            for reverse in (False, True):
                with trial(dtype.name, reverse):
                    X = signs(rng, *sizes).astype(dtype)
                    with observed_launches(cuda()) as log:
                        Y = cuda().download(running_sum(cuda().upload(X), reverse))
                    kind = "rows" if sizes[2] == 1 else "columns"
                    assert [x.entry for x in (log[0], log[-1])] == [f"segment_{kind}", f"scan_{kind}"]
                    assert len(log) == 3
                    np.testing.assert_array_equal(Y, summed(X, reverse).astype(dtype))


def test_many_axes_are_not_cut() -> None:
    with trials() as trial:
        for sizes in ((2000, 9000, 1), (500, 200, 300), (1, 100, 5)):
            with trial(sizes):
                plan = running._plan_scan(sizes, FLOAT32, False, False, 1, 132)
                assert len(plan.launches) == 1


@pytest.mark.parametrize("sizes", [(3, 65, 1), (2, 2056, 1), (1, 40_000, 1), (1, 300, 5)], ids=str)
def test_products(sizes: tuple[int, int, int]) -> None:
    """Factors are such that nothing is rounded, and special ones, which change what is behind them only."""
    rng = np.random.default_rng(0)
    X = rng.choice(np.float32([-1, 1, 1, 0.5, 2]), sizes)
    X[:, 0] = 2.0**-20
    X[0, sizes[1] // 2], X[0, -1] = np.nan, 0
    Y = cuda().download(running_product(cuda().upload(X)))
    np.testing.assert_array_equal(Y, np.cumprod(X.astype(np.float64), axis=1).astype(np.float32))


def test_special_elements_change_only_what_is_behind_them() -> None:
    X: Any = np.ones((4, 1000, 1), np.float32)
    X[0, 500], X[1, 999], X[2, 0] = np.inf, np.nan, -np.inf
    for reverse in (False, True):
        Y = cuda().download(running_sum(cuda().upload(X), reverse))
        np.testing.assert_array_equal(Y[..., 0], summed(X[..., 0], reverse).astype(np.float32))
