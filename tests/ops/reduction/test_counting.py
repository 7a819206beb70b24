"""Counts, places in sorted rows, elements without repetitions, combined elements, and bags of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import check_gradient

import alpha
import alpha.nn.functional as F
from alpha import ShapeError, Tensor, nn
from alpha.errors import CaptureError
from alpha.runtime.recording import Recording, recorded

_rng = np.random.default_rng(0)
NAN, INF = np.nan, np.inf
FOLDS = ("sum", "prod", "mean", "amax", "amin")
INDEX = np.array([[0, 1, 0, 2, 0], [0, 1, 1, 1, 2], [2, 0, 0, 0, 0]])


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


@pytest.mark.torch
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("fold", FOLDS)
def test_combined_elements(device: str, fold: str, include_self: bool) -> None:
    torch = pytest.importorskip("torch")
    x, src = np.round(_rng.standard_normal((4, 5))), np.round(_rng.standard_normal((3, 5)))
    src[1, 1], src[2, 0] = 0, 0
    # no element of x is one of src: PyTorch counts such a one even if it does not take part
    x, src = (x + np.arange(1, 21).reshape(4, 5) / 61).astype(np.float32), (src + (src != 0) / 8).astype(np.float32)
    g = _rng.standard_normal((4, 5)).astype(np.float32)
    ours = [alpha.tensor(a, device=device, requires_grad=True) for a in (x, src)]
    theirs = [torch.tensor(a, requires_grad=True) for a in (x, src)]
    y = ours[0].scatter_reduce(0, alpha.tensor(INDEX, device=device), ours[1], fold, include_self=include_self)
    expected = theirs[0].scatter_reduce(0, torch.tensor(INDEX), theirs[1], fold, include_self=include_self)
    np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), rtol=1e-6)
    y.backward(alpha.tensor(g, device=device))
    expected.backward(torch.tensor(g))
    for mine, their in zip(ours, theirs, strict=True):
        assert mine.grad is not None
        np.testing.assert_allclose(mine.grad.numpy(), their.grad.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fold", FOLDS)
def test_gradients_of_combined_elements(fold: str) -> None:
    values = (np.random.default_rng(2).permutation(35) - 17.5) / 10
    index = alpha.tensor(INDEX)
    for dim, include_self in ((0, True), (1, False)):
        check_gradient(
            lambda x, src, d=dim, i=include_self: x.scatter_reduce(d, index, src, fold, include_self=i),
            values[:20].reshape(4, 5),
            values[20:].reshape(3, 5),
        )


def test_equal_extremes_share_the_gradient(device: str) -> None:
    x = alpha.tensor([2.0, 5.0], device=device, requires_grad=True)
    src = alpha.tensor([2.0, 2.0, 1.0, 5.0], device=device, requires_grad=True)
    y = x.scatter_reduce(0, alpha.tensor([0, 0, 0, 1], device=device), src, "amax")
    y.backward(alpha.tensor([6.0, 8.0], device=device))
    assert x.grad is not None
    assert src.grad is not None
    assert (x.grad.tolist(), src.grad.tolist()) == ([2, 4], [2, 2, 0, 4])


def test_combined_integers_and_nan(device: str) -> None:
    index = alpha.tensor([0, 0, 1, 1], device=device)
    for dtype, expected in (("int64", [7, -9]), ("int32", [7, -9]), ("bfloat16", [7, -9])):
        x = alpha.tensor([1, -9], device=device).astype(dtype)
        src = alpha.tensor([3, 7, -20, -10], device=device).astype(dtype)
        assert x.scatter_reduce(0, index, src, "amax").tolist() == expected
        assert x.scatter_reduce(0, index, src, "amin", include_self=False).tolist() == [3, -20]
        assert x.scatter_reduce(0, index, src, "prod", include_self=False).tolist() == [21, 200]
    assert x.long().scatter_reduce(0, index, src.long(), "mean").tolist() == [3, -13]
    found = alpha.zeros(2, device=device).scatter_reduce(
        0, index, alpha.tensor([1, NAN, 2, 3.0], device=device), "amin"
    )
    np.testing.assert_array_equal(found.numpy(), [NAN, 0])
    with pytest.raises(ValueError, match="scatter_reduce: reduce='max' is not one of sum, prod, mean, amax, amin"):
        x.scatter_reduce(0, index, src, "max")


BAGS = np.array([1, 4, 4, 0, 2, 1])
OFFSETS = np.array([0, 2, 2, 5])  # the second bag is empty


@pytest.mark.torch
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 4])
@pytest.mark.parametrize("last", [False, True])
def test_bags_of_rows(device: str, mode: str, padding: int | None, last: bool) -> None:
    torch = pytest.importorskip("torch")
    table = _rng.standard_normal((5, 3)).astype(np.float32)
    offsets = np.append(OFFSETS, 6) if last else OFFSETS
    options = {"mode": mode, "padding_idx": padding}
    layer = nn.EmbeddingBag.from_pretrained(alpha.tensor(table), False, include_last_offset=last, **options).to(device)  # type: ignore[arg-type]
    twin = torch.nn.EmbeddingBag.from_pretrained(torch.tensor(table), False, include_last_offset=last, **options)
    calls = [((BAGS, offsets), (BAGS, offsets)), ((BAGS.reshape(2, 3),), (BAGS.reshape(2, 3),))]
    for ours, theirs in calls:
        layer.zero_grad()
        twin.zero_grad()
        y = layer(*(alpha.tensor(a, device=device) for a in ours))
        expected = twin(*map(torch.tensor, theirs))
        np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
        g = _rng.standard_normal(y.shape).astype(np.float32)
        y.backward(alpha.tensor(g, device=device))
        expected.backward(torch.tensor(g))
        assert layer.weight.grad is not None
        np.testing.assert_allclose(layer.weight.grad.numpy(), twin.weight.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_bags_of_weighted_rows(device: str) -> None:
    table, factors = (_rng.standard_normal(shape).astype(np.float32) for shape in ((5, 3), 6))
    x, w = alpha.tensor(BAGS, device=device), alpha.tensor(table, device=device)
    weights = alpha.tensor(factors, device=device, requires_grad=True)
    y = F.embedding_bag(x, w, alpha.tensor(OFFSETS, device=device), mode="sum", per_sample_weights=weights)
    parts = np.split(table[BAGS] * factors[:, None], OFFSETS[1:])
    np.testing.assert_allclose(y.numpy(), [part.sum(0) for part in parts], rtol=1e-5, atol=1e-6)
    y.sum().backward()
    assert weights.grad is not None
    np.testing.assert_allclose(weights.grad.numpy(), table[BAGS].sum(1), rtol=1e-5, atol=1e-6)
    empty = F.embedding_bag(x[:0].reshape(2, 0), w, mode="max")
    np.testing.assert_array_equal(empty.numpy(), np.zeros((2, 3)))
    o = alpha.tensor(OFFSETS, device=device)
    wrong: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: F.embedding_bag(x, w), ShapeError, r"x \(B, L\), or x \(N,\) and offsets, are needed"),
        (lambda: F.embedding_bag(x.reshape(2, 3), w, o), ShapeError, r"x \(B, L\)"),
        (lambda: F.embedding_bag(x, w, o, mode="min"), ValueError, "mode='min' is not one of sum, mean, max"),
        (lambda: F.embedding_bag(x, w, o, per_sample_weights=weights), ValueError, "per_sample_weights need mode"),
        (lambda: F.embedding_bag(x, w, o, mode="sum", per_sample_weights=weights[:2]), ShapeError, "per_sample_we"),
        (lambda: F.embedding_bag(x, w, weights), TypeError, "offsets has dtype float32"),
    ]
    if device == "cpu":
        wrong += [
            (lambda values=values: F.embedding_bag(x, w, alpha.tensor(values)), ValueError, "offsets must ascend")
            for values in ([1, 2], [0, 7], [0, 3, 2])
        ]
    for call, error, message in wrong:
        with pytest.raises(error, match=rf"^embedding_bag: {message}"):
            call()
