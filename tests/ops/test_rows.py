"""Operators on rows of neighbours, each of which is read once: tiles, every length, unaligned rows, special values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_log import observed_launches
from trials import trials

import alpha
from alpha.numerics import BFLOAT16, FLOAT32
from alpha.ops.dtypes import BLOCK, widest_vector
from alpha.ops.rows import RowTile, row_tile
from alpha.ops.softmax import softmax_axis1, softmax_gradient_axis1
from alpha.primitive import Array
from alpha.runtime.cuda.device import CudaDevice

LENGTHS = (65, 192, 1000, 1, 2, 3, 5, 31, 32, 33, 64, 96, 127, 768, 4096, 4097)
COUNTS = (1, 2, 37)  # rows; the last ones of a block are missing
DTYPES = (FLOAT32, BFLOAT16)
INF, NAN = np.float32("inf"), np.float32("nan")
ROUNDING = {FLOAT32: 1e-5, BFLOAT16: 2**-7}


def cuda() -> CudaDevice:
    return alpha.get_device("cuda")  # type: ignore[return-value]


def wide(X: Array) -> np.ndarray:
    """A copy on the host in float64."""
    return cuda().download(X).astype(np.float64)


def uploaded(values: np.ndarray, dtype: np.dtype[Any], unaligned: bool = False) -> Array:
    """An array on the device; `unaligned` rows of an odd length do not begin at a multiple of 16 bytes."""
    if not unaligned:
        return cuda().upload(values.astype(dtype))
    return cuda().upload(np.concatenate([values[:1], values]).astype(dtype)).slice_rows(1, len(values) + 1)


def close(found: Array, exact: np.ndarray) -> None:
    tolerance = ROUNDING[found.dtype]
    np.testing.assert_allclose(wide(found), exact, rtol=tolerance, atol=tolerance * np.abs(exact).max(), equal_nan=True)


# -- tiles ----------------------------------------------------------------------------------------------------------


def test_tiles() -> None:
    assert row_tile(65, 1, 4) == RowTile(1, 16, 5, 2)
    assert row_tile(65, 1, 4, 2) == RowTile(1, 16, 5, 1)
    assert row_tile(192, 4, 4) == RowTile(4, 8, 6, 1)
    assert row_tile(768, 8, 2) == RowTile(8, 32, 3, 1)
    assert row_tile(4096, 4, 4) == RowTile(4, 256, 4, 1)
    assert row_tile(6145, 1, 4) is None
    assert row_tile(4097, 1, 8) is None
    assert RowTile(1, 16, 5, 2).blocks(99_840) == 3120
    assert RowTile(4, 256, 4, 1).blocks(7) == 7


def test_tiles_hold_their_rows() -> None:
    with trials() as trial:
        for itemsize, vectors in ((2, (1, 4, 8)), (4, (1, 4)), (8, (1, 4))):
            for length in (*range(1, 700), *range(700, 3072, 97)):
                for vector in vectors:
                    if length % vector:
                        continue
                    with trial(itemsize, length, vector):
                        tile = row_tile(length, vector, itemsize)
                        assert tile is not None
                        assert (tile.packs - 1) * tile.lanes < length // vector <= tile.packs * tile.lanes
                        assert BLOCK % tile.lanes == 0
                        assert tile.rows == 1 or tile.lanes <= 32
                        assert tile.packs * vector * max(4, itemsize) <= 96


# -- softmax --------------------------------------------------------------------------------------------------------


def exact_softmax(x: np.ndarray, logarithm: bool) -> np.ndarray:
    y = x - x.max(1, keepdims=True)
    sums = np.exp(y).sum(1, keepdims=True)
    return y - np.log(sums) if logarithm else np.exp(y) / sums


def check_softmax(X: np.ndarray, dY: np.ndarray, dtype: np.dtype[Any], logarithm: bool, unaligned: bool) -> None:
    x, dy = uploaded(X, dtype, unaligned), uploaded(dY, dtype, unaligned)
    exact = exact_softmax(wide(x), logarithm)[..., None]
    Y = softmax_axis1(x.reshape((*X.shape, 1)), logarithm)
    close(Y, exact)
    y, g = wide(Y), wide(dy)[..., None]
    sums = (g if logarithm else g * y).sum(1, keepdims=True)
    exact = g - np.exp(y) * sums if logarithm else y * (g - sums)
    close(softmax_gradient_axis1(dy.reshape((*X.shape, 1)), Y, logarithm), exact)


@pytest.mark.parametrize("length", LENGTHS)
def test_softmax_of_rows(length: int) -> None:
    rng = np.random.default_rng(length)
    with trials() as trial:
        for dtype in DTYPES:
            for count in COUNTS:
                X, dY = rng.standard_normal((2, count, length)) * 3
                for logarithm in (False, True):
                    with trial(dtype.name, count, logarithm):
                        check_softmax(X, dY, dtype, logarithm, False)


def test_softmax_of_unaligned_rows() -> None:
    """Packs of one element are read if a row begins between two packs."""
    X, dY = np.random.default_rng(0).standard_normal((2, 5, 33))
    with trials() as trial:
        for dtype in DTYPES:
            with trial(dtype.name, "33"):
                check_softmax(X, dY, dtype, False, True)
            with trial(dtype.name, "32 behind 33"):
                whole = uploaded(X.reshape(-1)[: 33 + 128], dtype)
                x = whole.slice_rows(33, 33 + 128).reshape((4, 32, 1))
                with observed_launches(cuda()) as log:
                    Y = softmax_axis1(x, False)
                assert log[0].defines["VECTOR"] == 1
                close(Y, exact_softmax(wide(x)[..., 0], False)[..., None])


@pytest.mark.parametrize("length", [65, 192, 1000])
def test_softmax_of_special_rows(length: int) -> None:
    """As softmax.cu: NaN if an element is NaN or +inf, or all are -inf; the other rows of a thread are as ever."""
    X = np.random.default_rng(0).standard_normal((6, length)).astype(np.float32)
    X[0, -1], X[1, 0], X[2], X[4, : length // 2] = INF, NAN, -INF, -INF
    for dtype in DTYPES:
        for logarithm in (False, True):
            Y = cuda().download(softmax_axis1(uploaded(X, dtype).reshape((6, length, 1)), logarithm))
            Y = Y.astype(np.float32)[..., 0]
            assert np.isnan(Y[:3]).all()
            assert not np.isnan(Y[3:]).any()
            assert (Y[4, : length // 2] == (-INF if logarithm else 0)).all()
            shares = np.exp(Y[3:]) if logarithm else Y[3:]
            np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5 if dtype == FLOAT32 else 2e-2)


def test_which_softmax_is_launched() -> None:
    with trials() as trial:
        for sizes, dtype, source in (
            ((4, 65, 1), FLOAT32, "softmax/rows.cu"),
            ((4, 6144, 1), FLOAT32, "softmax/rows.cu"),
            ((2, 6145, 1), FLOAT32, "softmax/softmax.cu"),
            ((4, 65, 2), FLOAT32, "softmax/softmax.cu"),
            ((2, 5, 1), np.dtype(np.float64), "softmax/rows.cu"),
            ((2, 4097, 1), np.dtype(np.float64), "softmax/softmax.cu"),
        ):
            with trial(sizes, dtype.name), observed_launches(cuda()) as log:
                Y = softmax_axis1(cuda().zeros(sizes, dtype), False)
                softmax_gradient_axis1(Y, Y, False)
                assert [launched.source for launched in log] == [source] * 2
                if source == "softmax/rows.cu":
                    assert log[0].defines["VECTOR"] == widest_vector(dtype, sizes[1])
