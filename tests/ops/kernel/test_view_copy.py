"""Copies of boxes on cuda: which kernel, words and packs of all sizes, odd lengths, unaligned arrays, large offsets."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from launch_log import observed_launches
from trials import trials

import alpha
from alpha import ShapeError
from alpha.ops.kernel import views as view_copy
from alpha.ops.kernel.views import View, merged_axes, plan_copy, read_view, write_view
from alpha.runtime.cuda.cuda_device import CudaDevice

DTYPES = [np.dtype(name) for name in ("uint8", "uint16", "float32", "float64")]
ORDERS = {2: [(1, 0)], 3: [(0, 2, 1), (2, 0, 1), (1, 2, 0), (2, 1, 0)], 4: [(0, 2, 1, 3), (2, 0, 3, 1), (3, 1, 0, 2)]}


def cuda() -> CudaDevice:
    return alpha.get_device("cuda")  # type: ignore[return-value]


def numbers(dtype: np.dtype[Any], *shape: int) -> np.ndarray:
    """Neighbours, and elements that are one or two rows apart, differ in their lowest byte."""
    return (np.arange(np.prod(shape)) * 2654435761 >> 7).astype(dtype).reshape(shape)


def permuted(X: np.ndarray, order: tuple[int, ...], behind: int = 0) -> tuple[np.ndarray, str]:
    """A permutation on cuda of an array that lies `behind` elements after an aligned address, and what made it."""
    flat = np.concatenate([np.zeros(behind, X.dtype), X.reshape(-1)])
    array = cuda().upload(flat).slice_rows(behind, flat.size).reshape(X.shape)
    with observed_launches(cuda()) as log:
        Y = read_view(array, View.whole(X.shape).permuted(order))
    (launch,) = log
    return cuda().download(Y), launch.entry


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_permutations(dtype: np.dtype[Any]) -> None:
    """Whole tiles and parts of them, lengths that packs divide and that they do not, any axes around."""
    shapes = [
        (64, 128),
        (128, 272),
        (65, 130),
        (197, 24),
        (8, 9),
        (3, 40, 72),
        (5, 33, 16),
        (2, 24, 3, 64),
        (2, 8, 16, 8),
    ]
    with trials() as trial:
        for shape in shapes:
            for order in ORDERS[len(shape)]:
                for behind in (0, 1):
                    with trial(shape, order, behind):
                        X = numbers(dtype, *shape)
                        found, _ = permuted(X, order, behind)
                        np.testing.assert_array_equal(found, X.transpose(order))


def test_which_kernel_permutes() -> None:
    """Packs where all of them are aligned, of 16 bytes or 8; single elements otherwise."""
    with trials() as trial:
        for itemsize, shape, behind, kernel in (
            *((size, (48, 64), 0, "permute_packs") for size in (1, 2, 4, 8)),
            (2, (36, 64), 0, "permute_packs"),
            (2, (38, 64), 0, "permute"),
            (2, (64, 64), 1, "permute"),
            (4, (64, 62), 0, "permute"),
            (8, (64, 62), 0, "permute_packs"),
            (8, (64, 61), 0, "permute"),
            (1, (64, 60), 0, "permute"),
            (4, (64, 7), 0, "copy_view"),
        ):
            with trial(itemsize, shape, behind):
                X = numbers({d.itemsize: d for d in DTYPES}[itemsize], *shape)
                assert permuted(X, (1, 0), behind)[1] == kernel


def test_parts_of_matrices_are_transposed_into_parts() -> None:
    """Packs need that both bases and all strides are multiples of them, not only the lengths."""
    X = numbers(np.dtype(np.float32), 48, 80)
    with trials() as trial:
        for start, length, place, kernel in (
            (8, 32, 4, "permute_packs"),
            (7, 32, 4, "permute"),
            (8, 32, 3, "permute"),
            (8, 30, 4, "permute"),
        ):
            with trial(start, length, place):
                Y = np.zeros((length, 64), np.float32)
                source = View.whole(X.shape).sliced(1, start, length).permuted((1, 0))
                target = View.whole(Y.shape).sliced(1, place, 48)
                y = cuda().upload(Y)
                with observed_launches(cuda()) as log:
                    write_view(y, target, cuda().upload(X), source)
                assert [launch.entry for launch in log] == [kernel]
                Y[:, place : place + 48] = X[:, start : start + length].T
                np.testing.assert_array_equal(cuda().download(y), Y)


def test_heads_of_attention_are_copied_in_words_of_16_bytes() -> None:
    """The innermost axis stays where it is, so no tile is needed."""
    X = numbers(np.dtype(np.uint16), 2, 5, 3, 4, 24)
    for order in ((2, 0, 3, 1, 4), (0, 3, 1, 2, 4)):
        with observed_launches(cuda()) as log:
            Y = read_view(cuda().upload(X), View.whole(X.shape).permuted(order))
        assert [(launch.entry, launch.defines["WORD"]) for launch in log] == [("copy_view", "uint4")]
        np.testing.assert_array_equal(cuda().download(Y), X.transpose(order))


def test_offsets_of_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels for boxes of 2^31 elements and more, on small ones."""
    monkeypatch.setattr(view_copy, "_index_type", lambda *_: "unsigned long long")
    X = numbers(np.dtype(np.float32), 3, 36, 72)
    with trials() as trial:
        for view, expected in (
            (View.whole(X.shape).permuted((0, 2, 1)), X.transpose(0, 2, 1)),
            (View.whole(X.shape).sliced(1, 0, 35).permuted((2, 0, 1)), X[:, :35].transpose(2, 0, 1)),
            (View.whole(X.shape).flipped(2).flipped(0), X[::-1, :, ::-1]),
        ):
            plan = plan_copy.__wrapped__(View.whole(view.shape), view, 4, 16)
            with trial(plan.launches[0].entry):
                Y = cuda().empty(view.shape, np.dtype(np.float32))
                plan.launch(cuda(), {"Y": Y, "X": cuda().upload(X)})
                assert plan.launches[0].defines["INDEX"] == "unsigned long long"
                np.testing.assert_array_equal(cuda().download(Y), expected)


def test_which_boxes_need_64_bits() -> None:
    def index(target: View, source: View) -> Any:
        (launch,) = plan_copy(target, source, 4, 4).launches
        return launch.defines["INDEX"]

    with trials() as trial:
        for rows, kind in ((2**15, "unsigned"), (2**16 + 1, "unsigned long long")):
            with trial(rows):  # a part of a large array, a large box, a repeated row, a transpose
                whole = View.whole((rows, 2**15))
                part = whole.sliced(1, 5, 3)
                assert index(View.whole(part.shape), part) == kind
                assert index(whole, whole.flipped(1)) == kind
                assert index(whole, View.whole((2**15,)).broadcast(whole.shape)) == kind
                assert index(View.whole(whole.shape[::-1]), whole.permuted((1, 0))) == kind


def test_divisions_are_multiplications() -> None:
    lengths = [*range(2, 300), *(2**k + d for k in range(9, 31) for d in (-1, 0, 1)), 2**31 - 1]
    for length in lengths:
        multiplier, shift = view_copy._reciprocal(length)
        assert 0 < multiplier < 2**32
        near = (k * length + d for k, d in itertools.product((0, 1, 2, 7, (2**31 - 1) // length), (-1, 0, 1)))
        for i in (*near, 2**31 - 1, 2**30 + 12345):
            if 0 <= i < 2**31:
                assert (i * multiplier >> 32) >> shift == i // length


def test_axes_of_a_copy_are_merged() -> None:
    whole = View.whole((4, 5, 6))
    assert merged_axes(whole, whole) == [(120, 1, 1)]
    assert merged_axes(View.whole((4, 5, 3)), whole.sliced(2, 1, 3)) == [(20, 6, 3), (3, 1, 1)]
    assert merged_axes(View.whole((6, 4, 5)), whole.permuted((2, 0, 1))) == [(6, 1, 20), (20, 6, 1)]
    long = View.whole((2, 3) * 5)
    with pytest.raises(ShapeError, match="a box of 10 axes with strides of their own"):
        merged_axes(View.whole(long.shape[::-1]), long.permuted(tuple(range(9, -1, -1))))
