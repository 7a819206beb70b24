"""Softmax cross-entropy: gradients, smoothing, reductions, extreme logits, labels outside the classes."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import check_gradient, check_torch

import alpha
import alpha.nn.functional as F
from alpha import ShapeError

LABELS = np.array([2, 0, 1, 4, 4, 3])
CASES = [(reduction, smoothing) for reduction in ("mean", "sum", "none") for smoothing in (0.0, 0.1)]


@pytest.mark.parametrize(("reduction", "smoothing"), CASES)
def test_gradients(reduction: str, smoothing: float) -> None:
    check_gradient(lambda x: F.cross_entropy(x, alpha.tensor(LABELS), reduction, smoothing), (6, 5))


@pytest.mark.torch
@pytest.mark.parametrize("classes", [5, 37, 2050])
@pytest.mark.parametrize(("reduction", "smoothing"), CASES)
def test_as_in_pytorch(device: str, reduction: str, smoothing: float, classes: int) -> None:
    torch = pytest.importorskip("torch")
    labels = alpha.tensor(LABELS, device=device)
    check_torch(
        lambda x: F.cross_entropy(x, labels, reduction, smoothing),
        lambda x: torch.nn.functional.cross_entropy(
            x, torch.tensor(LABELS), reduction=reduction, label_smoothing=smoothing
        ),
        (6, classes),
        device=device,
        length=classes,
    )


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_labels_of_any_integer_type(device: str, dtype: type) -> None:
    x = alpha.tensor(np.eye(6, 5, dtype=np.float32), device=device)
    losses = [F.cross_entropy(x, alpha.tensor(LABELS.astype(t), device=device)).item() for t in (dtype, np.int64)]
    assert losses[0] == losses[1]


def test_extreme_logits(device: str) -> None:
    x = alpha.tensor([[1e4, -1e4, 0.0], [-np.inf, 0.0, 0.0]], requires_grad=True, device=device)
    y = F.cross_entropy(x, alpha.tensor([0, 1], device=device), "none")
    np.testing.assert_allclose(y.numpy(), [0, np.log(2)], atol=1e-6)
    y.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [[0, 0, 0], [0, -0.5, 0.5]], atol=1e-6)


@pytest.mark.parametrize("label", [-1, 5])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_label_outside_the_classes(device: str, label: int, smoothing: float) -> None:
    x = alpha.tensor(np.zeros((2, 5), np.float32), requires_grad=True, device=device)
    labels = alpha.tensor([label, 1], device=device)
    if device == "cpu":
        with pytest.raises(ShapeError, match=rf"labels .*{label}.* are not in \[0, 5\)"):
            F.cross_entropy(x, labels, label_smoothing=smoothing)
        return
    y = F.cross_entropy(x, labels, "none", smoothing)
    assert list(np.isnan(y.numpy())) == [True, False]
    y.sum().backward()
    assert x.grad is not None
    assert list(np.isnan(x.grad.numpy()).any(axis=1)) == [True, False]


def test_errors(device: str) -> None:
    x = alpha.tensor(np.zeros((2, 5), np.float32), device=device)
    labels = alpha.tensor([0, 1], device=device)
    with pytest.raises(ShapeError, match=r"\(x \(2, 5\), labels \(3,\)\)"):
        F.cross_entropy(x, alpha.tensor([0, 1, 2], device=device))
    with pytest.raises(ShapeError, match=r"\(x \(0, 5\), labels \(0,\)\)"):
        F.cross_entropy(x[:0], labels[:0])
    with pytest.raises(TypeError, match="labels have dtype float32, integers are needed"):
        F.cross_entropy(x, labels.astype("float32"))
    with pytest.raises(ValueError, match="reduction='max' is not mean, sum or none"):
        F.cross_entropy(x, labels, "max")
    with pytest.raises(ValueError, match=r"label_smoothing=1 is not in \[0, 1\)"):
        F.cross_entropy(x, labels, label_smoothing=1)
