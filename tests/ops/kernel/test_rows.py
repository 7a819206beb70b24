"""Operators on rows of neighbours, each of which is read once: tiles, every length, unaligned rows, special values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_log import observed_launches
from trials import trials

import alpha
from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.core.primitive import Array
from alpha.ops.activation.softmax import softmax_axis1, softmax_gradient_axis1
from alpha.ops.kernel.casts import BLOCK, widest_vector
from alpha.ops.kernel.rows.row_tile import RowTile, row_tile
from alpha.ops.normalization.group import _sum_tile, normalize_groups, normalize_groups_gradients
from alpha.runtime.cuda.cuda_device import CudaDevice

# tiles of each kind, and a row that is too long; with the gate every length that is near to a limit
LENGTHS = (
    *(65, 192, 1000, 1, 33, 4097),
    *(pytest.param(n, marks=pytest.mark.gate) for n in (2, 3, 5, 31, 32, 64, 96, 127, 768, 4096)),
)
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


def close(found: Array, exact: np.ndarray, terms: np.ndarray | None = None) -> None:
    """`terms`: numbers of which the exact ones are differences, if they cancel."""
    tolerance = ROUNDING[found.dtype]
    largest = np.abs(exact if terms is None else terms).max()
    np.testing.assert_allclose(wide(found), exact, rtol=tolerance, atol=tolerance * largest, equal_nan=True)


# -- tiles ----------------------------------------------------------------------------------------------------------


def test_tiles() -> None:
    assert row_tile(65, 1, 4) == RowTile(1, 16, 5, 2)
    assert row_tile(65, 1, 4, 16) == RowTile(1, 16, 5, 1)
    assert row_tile(192, 4, 4, elements=12) == RowTile(4, 16, 3, 1)
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


@pytest.mark.slow
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
    """The rule of softmax.cu: NaN if an element is NaN or +inf, or all are -inf; a thread's other rows are as ever."""
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


@pytest.mark.slow
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


# -- normalisation --------------------------------------------------------------------------------------------------

EPS = 0.1


def check_normalize(
    X: np.ndarray, dtype: np.dtype[Any], groups: int, centered: bool, affine: bool, unaligned: bool
) -> None:
    """Values, statistics and all gradients of rows of X, whose channels are cut into groups, against float64."""
    rng = np.random.default_rng(1)
    count, C = X.shape
    sizes = (count, 1, groups, C // groups)
    x, dy = (uploaded(values, dtype, unaligned) for values in (X, rng.standard_normal(X.shape)))
    w, b = (uploaded(rng.standard_normal(C), FLOAT32) if affine else None for _ in range(2))
    Y, mean, rstd = normalize_groups(x.reshape(sizes), w, b, EPS, centered)
    dX, dw, db = normalize_groups_gradients(dy.reshape(sizes), x.reshape(sizes), mean, rstd, w, centered)

    x64, dy64 = (wide(a).reshape(sizes) for a in (x, dy))
    w64, b64 = (np.full(C, other) if a is None else wide(a) for a, other in ((w, 1.0), (b, 0.0)))
    center = x64.mean(3, keepdims=True) * centered
    scale = 1 / np.sqrt(((x64 - center) ** 2).mean(3, keepdims=True) + EPS)
    H = (x64 - center) * scale
    D = dy64 * w64.reshape(sizes[2:])
    close(Y, H * w64.reshape(sizes[2:]) + b64.reshape(sizes[2:]))
    close(mean, center.reshape(count, groups))
    close(rstd, scale.reshape(count, groups))
    close(dX, scale * (D - D.mean(3, keepdims=True) * centered - H * (D * H).mean(3, keepdims=True)), scale * D)
    close(dw, (dy64 * H).sum((0, 1)).reshape(C))
    close(db, dy64.sum((0, 1)).reshape(C))


@pytest.mark.slow
@pytest.mark.parametrize("length", LENGTHS)
def test_normalisation_of_rows(length: int) -> None:
    rng = np.random.default_rng(length)
    with trials() as trial:
        for dtype in DTYPES:
            for count, centered, affine in ((1, True, True), (2, False, True), (37, True, True), (37, False, False)):
                X = rng.standard_normal((count, length)) * 2 + 1
                with trial(dtype.name, count, centered, affine):
                    check_normalize(X, dtype, 1, centered, affine, False)


@pytest.mark.slow
def test_normalisation_of_groups_of_channels() -> None:
    """A row of (N, C) is several groups, each with channels of its own."""
    X = np.random.default_rng(0).standard_normal((9, 60))
    with trials() as trial:
        for dtype in DTYPES:
            for groups in (2, 3, 5, 60):
                with trial(dtype.name, groups):
                    check_normalize(X, dtype, groups, True, True, False)


@pytest.mark.slow
def test_normalisation_of_unaligned_rows() -> None:
    X = np.random.default_rng(0).standard_normal((5, 33))
    with trials() as trial:
        for dtype in DTYPES:
            with trial(dtype.name, "rows"):
                check_normalize(X, dtype, 1, True, True, True)
            with trial(dtype.name, "weight"):
                x = uploaded(X[:, 1:], dtype).reshape((5, 1, 1, 32))
                w = uploaded(X[0], FLOAT32)
                with observed_launches(cuda()) as log:
                    Y, mean, rstd = normalize_groups(x, w.slice_rows(1, 33), None, EPS, False)
                    normalize_groups_gradients(x, x, mean, rstd, w.slice_rows(1, 33), False)
                assert [log[i].defines["VECTOR"] for i in (0, 1)] == [1, 1]
                x64 = wide(x)[:, 0, 0]
                scale = 1 / np.sqrt((x64**2).mean(1, keepdims=True) + EPS)
                close(Y, (x64 * scale * wide(w)[1:])[:, None, None])


@pytest.mark.parametrize("length", [65, 192, 1000])
def test_normalisation_of_special_rows(length: int) -> None:
    """A row with NaN or an infinite element is NaN; the other rows of a thread are as ever."""
    X = np.random.default_rng(0).standard_normal((6, 1, 1, length)).astype(np.float32)
    X[0, ..., -1], X[1, ..., 0], X[2], X[4] = INF, NAN, -INF, 3
    for dtype in DTYPES:
        x = uploaded(X, dtype)
        Y, mean, rstd = normalize_groups(x, None, None, EPS, True)
        dX, dw, db = normalize_groups_gradients(x, x, mean, rstd, None, True)
        for found in (wide(Y), wide(dX)):
            assert np.isnan(found[:3]).all()
            assert np.isfinite(found[3:]).all()
        np.testing.assert_allclose(wide(Y)[4], 0, atol=1e-3)
        assert np.isnan(wide(dw)).all()
        assert np.isfinite(wide(db)[1:-1]).sum() == 0


def test_many_rows_share_the_blocks_of_a_gradient() -> None:
    """Blocks that take rows in turns, within a warp and across warps."""
    with trials() as trial:
        for count, length in ((30_011, 5), (3001, 192), (1031, 1000)):
            with trial(count, length):
                X = np.random.default_rng(0).standard_normal((count, length))
                check_normalize(X, FLOAT32, 1, True, True, False)


@pytest.mark.slow
def test_gradients_of_bfloat16_take_two_rows_at_a_time() -> None:
    """One row has too few bytes in flight, unless it needs several warps or most of the registers."""
    assert _sum_tile(256, BFLOAT16, 8) == RowTile(4, 32, 2, 2)
    assert _sum_tile(256, FLOAT32, 4) == RowTile(4, 32, 2, 1)
    assert _sum_tile(192, BFLOAT16, 8) == RowTile(4, 16, 3, 1)
    assert _sum_tile(512, BFLOAT16, 8) == RowTile(4, 64, 2, 1)
    with trials() as trial:
        for count in (1, 15, 16, 37, 3011):
            with trial(count):
                X = np.random.default_rng(count).standard_normal((count, 256))
                check_normalize(X, BFLOAT16, 1, True, True, False)


def test_which_normalisation_is_launched() -> None:
    rows, other = ("norm/rows.cu", "norm/rows.cu"), ("norm/norm.cu", "norm/norm.cu", "norm/norm.cu")
    mixed = ("norm/rows.cu", "norm/rows.cu", "norm/norm.cu")
    double = np.dtype(np.float64)
    with trials() as trial:
        for sizes, dtype, sources in (
            ((4, 1, 1, 192), FLOAT32, rows),
            ((4, 1, 1, 192), BFLOAT16, rows),
            ((4, 1, 1, 3072), FLOAT32, rows),
            ((4, 1, 1, 4096), FLOAT32, mixed),
            ((4, 1, 3, 20), FLOAT32, mixed),
            ((4, 1, 1, 192), double, mixed),
            ((2, 1, 1, 6145), FLOAT32, other),
            ((4, 5, 1, 192), FLOAT32, other),
        ):
            with trial(sizes, dtype.name), observed_launches(cuda()) as log:
                X = cuda().zeros(sizes, dtype)
                _, mean, rstd = normalize_groups(X, None, None, EPS, True)
                normalize_groups_gradients(X, X, mean, rstd, None, True)
                launched = tuple(x.source for x in log if x.source.startswith("norm/"))
                assert launched == sources
