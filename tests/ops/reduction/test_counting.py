"""Counts, places in sorted rows, and elements without repetitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import ShapeError, Tensor
from alpha.errors import CaptureError
from alpha.runtime.recording import Recording, recorded

NAN, INF = np.nan, np.inf


def test_places_in_sorted_rows(device: str) -> None:
    rows = np.array([[-INF, -1, -1, 0, 2, INF, NAN], [1, 1, 1, 1, 1, 1, 1]], np.float32)
    values = np.array([[-INF, -1, 0, 1, INF, NAN], [0, 1, 2, NAN, 1, 1]], np.float32)
    for dtype in ("float32", "bfloat16"):
        S, V = (alpha.tensor(a, device=device).astype(dtype) for a in (rows, values))
        for side in ("left", "right"):
            expected = np.stack([np.searchsorted(r, v, side) for r, v in zip(rows, values, strict=True)])
            np.testing.assert_array_equal(alpha.searchsorted(S, V, side=side).numpy(), expected)
            np.testing.assert_array_equal(alpha.searchsorted(S[0], V, right=side == "right").numpy()[0], expected[0])
    bounds = alpha.tensor([1, 3, 5], device=device)
    assert alpha.bucketize(alpha.tensor([[0.5, 3, 9]], device=device), bounds).tolist() == [[0, 1, 3]]
    assert alpha.bucketize(3, bounds, right=True, out_int32=True).dtype == np.int32
    assert alpha.searchsorted(bounds, 2.5).item() == 1
    assert alpha.searchsorted(bounds[:0], bounds).tolist() == [0, 0, 0]
    mixed = alpha.tensor([5, 1, 3], device=device)
    assert alpha.searchsorted(mixed, bounds, sorter=mixed.argsort()).tolist() == [0, 1, 2]
    for call, error, message in (
        (lambda: alpha.searchsorted(S, V[0]), ShapeError, r"searchsorted: \(C,\), or rows"),
        (lambda: alpha.searchsorted(S, V, side="left", right=True), ValueError, "searchsorted: side='left'"),
        (lambda: alpha.searchsorted(S, "x"), TypeError, "searchsorted: str is no Tensor and no number"),
        (lambda: alpha.searchsorted(S, V, sorter=bounds), ShapeError, "searchsorted: sorter"),
        (lambda: alpha.bucketize(V, S), ShapeError, "bucketize: boundaries"),
    ):
        with pytest.raises(error, match=rf"^{message}"):
            call()


def test_classes_as_rows(device: str) -> None:
    x = alpha.tensor([[2, 0], [1, 1]], dtype="int32", device=device)
    found = F.one_hot(x)
    assert (found.shape, found.dtype) == ((2, 2, 3), np.int64)
    np.testing.assert_array_equal(found.numpy(), np.eye(3)[x.numpy()])
    assert F.one_hot(x[0, 0], 5).tolist() == [0, 0, 1, 0, 0]
    assert F.one_hot(x[:0], 4).shape == (0, 2, 4)
    if device == "cpu":
        for wrong, count in ((x, 2), (-x, 3)):
            with pytest.raises(ValueError, match=r"one_hot: class -?2 is out of range for num_classes="):
                F.one_hot(wrong, count)
    else:
        assert F.one_hot(x, 2).tolist() == [[[0, 0], [1, 0]], [[0, 1], [0, 1]]]
    with pytest.raises(ValueError, match="one_hot: num_classes=-1 for 0 elements"):
        F.one_hot(x[:0])


def test_counts(device: str) -> None:
    x = alpha.tensor([3, 1, 3, 0], device=device)
    assert alpha.bincount(x).tolist() == [1, 1, 0, 2]
    assert alpha.bincount(x, minlength=6).tolist() == [1, 1, 0, 2, 0, 0]
    found = alpha.bincount(x, alpha.tensor([0.5, 1, 2, 3], device=device))
    assert (found.tolist(), found.dtype.name) == ([3, 1, 0, 2.5], "float32")
    assert alpha.bincount(x, x).dtype == np.float64
    assert alpha.bincount(x[:0]).shape == (0,)
    with pytest.raises(ValueError, match="bincount: x has -3; no number may be below 0"):
        alpha.bincount(-x)
    values = alpha.tensor([0.0, 0.1, 0.5, 1.0, 1.5, NAN, -1, INF], device=device)
    assert alpha.histc(values, 2, 0, 1).tolist() == [2, 2]
    assert alpha.histc(values[:5], 3).tolist() == [2, 1, 2]
    assert alpha.histc(values[:1], 4).tolist() == [0, 0, 1, 0]
    near = alpha.tensor([1.0, 1.0078125, 1.015625], device=device).bfloat16()  # neighbours
    assert alpha.histc(near, 3, 0.99609375, 1.01953125).tolist() == [1, 1, 1]
    assert alpha.histc(values[:0], 4).tolist() == [0, 0, 0, 0]
    with pytest.raises(ValueError, match="histc: min=2 is more than max=1"):
        alpha.histc(values, 3, 2, 1)


def test_elements_without_repetitions(device: str) -> None:
    x = alpha.tensor([[2.0, 0.0, -0.0], [2.0, NAN, NAN]], device=device)
    values, inverse, counts = alpha.unique(x, return_inverse=True, return_counts=True)
    np.testing.assert_array_equal(values.numpy(), [0, 2, NAN, NAN])
    assert (inverse.tolist(), counts.tolist()) == ([[1, 0, 0], [1, 2, 3]], [2, 2, 1, 1])
    values, inverse, counts = (
        x.long().unique_consecutive(True, True) if device == "cpu" else x[0].unique_consecutive(True, True)
    )
    assert values.tolist()[:2] == [2, 0]
    assert inverse.shape == (2, 3) if device == "cpu" else inverse.tolist() == [0, 1, 1]
    rows = alpha.tensor([[1, 2], [0, 5], [1, 2], [1, 1]], dtype="int32", device=device)
    values, inverse, counts = rows.unique(dim=0, return_inverse=True, return_counts=True)
    assert values.tolist() == [[0, 5], [1, 1], [1, 2]]
    assert (inverse.tolist(), counts.tolist()) == ([2, 0, 2, 1], [1, 1, 2])
    assert rows.t().unique(dim=1).shape == (2, 3)
    assert rows.bfloat16().unique().tolist() == [0, 1, 2, 5]
    assert rows[:0].unique().shape == (0,)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: alpha.unique(x),
        lambda x: alpha.unique_consecutive(x),
        lambda x: alpha.bincount(x),
        lambda x: F.one_hot(x),
        lambda x: x.repeat_interleave(x),
        lambda x: x.masked_select(x > 0),
    ],
)
def test_what_the_host_counts_is_refused_in_a_captured_step(call: Callable[[Tensor], Any]) -> None:
    with recorded(Recording(capturing=True)), pytest.raises(CaptureError, match="only the host can"):
        call(alpha.tensor([1, 0, 2]))
