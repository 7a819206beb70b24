"""Bags of rows of a table: their sums, means and extremes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import ShapeError, nn

_rng = np.random.default_rng(0)
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
