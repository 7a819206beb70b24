"""The loss of connectionist temporal classification: by counting all ways, and as PyTorch's behind a log_softmax."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from helpers import check_gradient
from trials import trials

import alpha
import alpha.nn.functional as F
from alpha import ShapeError, nn

CASES = ((6, 3, 4, 3), (5, 2, 5, 2), (8, 1, 3, 4), (4, 3, 4, 0), (1, 2, 4, 1), (3, 2, 4, 3))  # T, N, C, S


def drawn(rng: np.random.Generator, T: int, N: int, C: int, S: int) -> tuple[np.ndarray, ...]:
    """Logits, labels without the blank 0, and lengths."""
    logits, labels = rng.standard_normal((T, N, C)), rng.integers(1, C, (N, S))
    return logits, labels, rng.integers(max(1, T - 2), T + 1, N), rng.integers(0, S + 1, N)


def read(way: tuple[int, ...], blank: int) -> tuple[int, ...]:
    """The labels that a way reads."""
    return tuple(label for label, _ in itertools.groupby(way) if label != blank)


@pytest.mark.parametrize("blank", [0, 2])
def test_the_sum_over_all_ways(device: str, rng: np.random.Generator, blank: int) -> None:
    x = rng.standard_normal((4, 3)).astype(np.float32)
    x -= np.log(np.exp(x).sum(1, keepdims=True))
    labels = [label for label in (1, 0, 2, 1) if label != blank][:2]
    ways = (way for way in itertools.product(range(3), repeat=4) if read(way, blank) == tuple(labels))
    total = sum(np.exp(sum(x[t, label] for t, label in enumerate(way))) for way in ways)
    loss = F.ctc_loss(
        alpha.tensor(x, device=device), alpha.tensor(labels, device=device), [4], [2], blank, reduction="none"
    )
    assert loss.shape == ()
    np.testing.assert_allclose(loss.numpy(), -np.log(total), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.torch
def test_as_pytorch(device: str, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    dtype = "float64" if device == "cpu" else "float32"
    kinds = itertools.product(CASES, ("none", "mean", "sum"), (False, True))
    with trials() as trial:
        for sizes, reduction, joined in kinds:
            with trial(sizes, reduction, joined):
                logits, labels, times, counts = drawn(rng, *sizes)
                if joined:
                    labels = np.concatenate([row[:count] for row, count in zip(labels, counts, strict=True)])
                theirs = torch.tensor(logits.astype(dtype), requires_grad=True)
                given = torch.tensor(labels), torch.tensor(times), torch.tensor(counts)
                there = torch.nn.functional.ctc_loss(theirs.log_softmax(2), *given, 0, reduction, zero_infinity=True)
                there.sum().backward()
                ours = alpha.tensor(logits, dtype=dtype, device=device, requires_grad=True)
                loss = nn.CTCLoss(reduction=reduction, zero_infinity=True)
                here = loss(ours.log_softmax(2), alpha.tensor(labels, device=device), times.tolist(), counts.tolist())
                here.sum().backward()
                np.testing.assert_allclose(here.numpy(), there.detach().numpy(), rtol=1e-5, atol=1e-6)
                np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=2e-5)


def test_the_gradient_of_log_probs(rng: np.random.Generator) -> None:
    """The gradient is that of the numbers themselves, without a log_softmax before them."""
    labels = alpha.tensor(np.array([[1, 1], [2, 1]]))
    check_gradient(lambda x: F.ctc_loss(x, labels, [5, 4], [2, 1]), rng.standard_normal((5, 2, 3)))


def test_labels_that_need_more_times_than_there_are(device: str) -> None:
    """Two equal labels need a blank between them."""
    x = alpha.zeros(2, 1, 3, device=device, requires_grad=True)
    labels = alpha.tensor([[1, 1]], device=device)
    assert F.ctc_loss(x, labels, [2], [2]).item() == np.inf
    loss = F.ctc_loss(x, labels, [2], [2], zero_infinity=True)
    loss.backward()
    assert loss.item() == 0
    assert not x.grad.numpy().any()


def test_bfloat16_is_computed_in_float32(device: str, rng: np.random.Generator) -> None:
    x = alpha.tensor(rng.standard_normal((6, 2, 4)), dtype="bfloat16", device=device)
    labels = alpha.tensor([[1, 2], [3, 3]], device=device)
    wide = F.ctc_loss(x.float(), labels, [6, 5], [2, 2])
    assert F.ctc_loss(x, labels, [6, 5], [2, 2]).item() == wide.item()


def test_targets_that_are_no_integers_are_refused(device: str) -> None:
    x = alpha.zeros(4, 2, 3, device=device)
    for dtype in ("float32", "bool", "uint8"):
        with pytest.raises(TypeError, match=f"^ctc_loss: targets have dtype {dtype}; int64 or int32 is needed"):
            F.ctc_loss(x, alpha.ones(2, 2, dtype=dtype, device=device), [4, 4], [2, 2])
    for dtype in ("int32", "int64"):
        assert np.isfinite(F.ctc_loss(x, alpha.ones(2, 1, dtype=dtype, device=device), [4, 4], [1, 1]).item())


@pytest.mark.parametrize(
    ("shape", "labels", "times", "counts", "options", "message"),
    [
        ((4, 2, 3, 1), (2, 2), [4, 4], [2, 2], {}, r"log_probs \(T, N, C\) or \(T, C\) are needed"),
        ((4, 2, 3), (2, 2), [4, 5], [2, 2], {}, "input_lengths from 4 to 5 must be from 1 to 4"),
        ((4, 2, 3), (2, 2), [4], [2, 2], {}, r"2 input_lengths are needed, not an array \(1,\)"),
        ((4, 2, 3), (2, 2), [4, 4], [3, 2], {}, r"targets \(2, 2\), target_lengths \[3, 2\]"),
        ((4, 2, 3), (3,), [4, 4], [2, 2], {}, r"targets \(3,\), target_lengths \[2, 2\]"),
        ((4, 2, 3), (2, 2), [4, 4], [2, -1], {}, "from -1 at least 0"),
        ((4, 2, 3), (2, 2), [4, 4], [2, 2], {"blank": 3}, "blank=3 is no class of 3"),
        ((4, 2, 3), (2, 2), [4, 4.5], [2, 2], {}, "input_lengths have dtype float64"),
        ((4, 2, 3), (2, 2), [4, 4], [2, 2], {"reduction": "max"}, "reduction='max' is not mean, sum or none"),
    ],
)
def test_what_does_not_fit_is_refused(
    shape: Any, labels: Any, times: Any, counts: Any, options: Any, message: str
) -> None:
    with pytest.raises((ShapeError, TypeError, ValueError), match=message):
        F.ctc_loss(alpha.zeros(*shape), alpha.ones(*labels, dtype="int64"), times, counts, **options)
