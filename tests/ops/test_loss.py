"""Losses: gradients, agreement with PyTorch; cross-entropy: extreme logits, labels outside the classes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from helpers import check_gradient, check_torch
from rows.kinds import LossRow
from rows.losses import LOSSES

import alpha
import alpha.nn.functional as F
from alpha import DeviceError, ShapeError

LABELS = np.array([2, 0, 1, 4, 4, 3])
CASES = [(reduction, smoothing) for reduction in ("mean", "sum", "none") for smoothing in (0.0, 0.1)]


SETTINGS = [pytest.param(row, settings, id=f"{row.name}-{settings}") for row in LOSSES for settings in row.settings]


@pytest.mark.parametrize(("row", "settings"), SETTINGS)
def test_gradients(row: LossRow, settings: dict[str, Any]) -> None:
    """Of x, and of the target if it is not a label."""
    x, target = row.inputs
    if target.dtype.kind == "f":
        check_gradient(partial(row.function, **settings), x, target)
    else:
        check_gradient(lambda x: row.function(x, alpha.tensor(target), **settings), x)


@pytest.mark.torch
@pytest.mark.parametrize(("row", "settings"), SETTINGS)
def test_a_loss_is_pytorchs(device: str, row: LossRow, settings: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    if row.own:
        pytest.skip(row.own)
    ours, theirs = (partial(room, **settings) for room in (row.function, getattr(torch.nn.functional, row.name)))
    x, target = row.inputs
    if target.dtype.kind == "f":
        check_torch(ours, theirs, x, target, device=device, length=x.size)
        return
    labels = alpha.tensor(target, device=device), torch.tensor(target)
    check_torch(lambda x: ours(x, labels[0]), lambda x: theirs(x, labels[1]), x, device=device, length=x.size)


@pytest.mark.torch
@pytest.mark.parametrize("classes", [5, 37, 2050])
@pytest.mark.parametrize(("reduction", "smoothing"), CASES)
def test_cross_entropy_as_in_pytorch(device: str, reduction: str, smoothing: float, classes: int) -> None:
    torch = pytest.importorskip("torch")
    labels = alpha.tensor(LABELS, device=device)
    check_torch(
        lambda x: F.cross_entropy(x, labels, reduction=reduction, label_smoothing=smoothing),
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
    y = F.cross_entropy(x, alpha.tensor([0, 1], device=device), reduction="none")
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
    y = F.cross_entropy(x, labels, reduction="none", label_smoothing=smoothing)
    assert list(np.isnan(y.numpy())) == [True, False]
    y.sum().backward()
    assert x.grad is not None
    assert list(np.isnan(x.grad.numpy()).any(axis=1)) == [True, False]


def test_errors(device: str) -> None:
    x = alpha.tensor(np.zeros((2, 5), np.float32), device=device)
    labels = alpha.tensor([0, 1], device=device)
    with pytest.raises(ShapeError, match=r"\(x \(2, 5\), target \(3,\)\)"):
        F.cross_entropy(x, alpha.tensor([0, 1, 2], device=device))
    with pytest.raises(ShapeError, match=r"\(x \(0, 5\), target \(0,\)\)"):
        F.cross_entropy(x[:0], labels[:0])
    with pytest.raises(TypeError, match="target has dtype float32; int32, int64 or uint8 is needed"):
        F.cross_entropy(x, labels.astype("float32"))
    with pytest.raises(ValueError, match="reduction='max' is not mean, sum or none"):
        F.cross_entropy(x, labels, reduction="max")
    with pytest.raises(ValueError, match=r"label_smoothing=1 is not in \[0, 1\)"):
        F.cross_entropy(x, labels, label_smoothing=1)
    with pytest.raises(TypeError, match="cross_entropy: target is a ndarray, a Tensor is needed"):
        F.cross_entropy(x, LABELS)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="x is a list"):
        F.cross_entropy([[0.0, 1.0]], labels)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="weight=a Tensor is not offered; only None"):
        F.cross_entropy(x, labels, x)  # type: ignore[arg-type]


@pytest.mark.parametrize("sides", [("cuda", "cpu"), ("cpu", "cuda")])
def test_labels_on_another_device(sides: tuple[str, str]) -> None:
    alpha.get_device("cuda")
    x = alpha.tensor(np.zeros((2, 5), np.float32), device=sides[0])
    labels = alpha.tensor([0, 1], device=sides[1])
    match = rf"cross_entropy: x is on {sides[0]} and target on {sides[1]}; move them together with .to\(device\)"
    with pytest.raises(DeviceError, match=match):
        F.cross_entropy(x, labels)


@pytest.mark.parametrize("label", [2**32 + 1, -(2**32), 2**31, 2**62, -(2**63), 200])
def test_a_label_does_not_wrap(device: str, label: int) -> None:
    dtype = np.uint8 if label == 200 else np.int64
    x = alpha.tensor(np.zeros((2, 5), np.float32), requires_grad=True, device=device)
    labels = alpha.tensor(np.array([1, label], dtype), device=device)
    if device == "cpu":
        with pytest.raises(ShapeError, match=rf"labels {label}\.\.{label} are not in \[0, 5\)"):
            F.cross_entropy(x, labels)
        return
    y = F.cross_entropy(x, labels, reduction="none")
    assert list(np.isnan(y.numpy())) == [False, True]
    assert np.isnan(F.cross_entropy(x, labels).item())


IGNORED = [(-100, [2, -100, 1, -100, 4, 3]), (4, [2, 0, 1, 4, 4, 3]), (2**40, [2**40, 0, 1, 4, 2**40, 3]), (1, [1] * 6)]


@pytest.mark.torch
@pytest.mark.parametrize("classes", [5, 2050])
@pytest.mark.parametrize(("ignore", "labels"), IGNORED, ids=lambda v: str(v)[:12])
@pytest.mark.parametrize(("reduction", "smoothing"), CASES)
def test_ignored_labels_as_in_pytorch(
    device: str, reduction: str, smoothing: float, ignore: int, labels: list[int], classes: int
) -> None:
    torch = pytest.importorskip("torch")
    target = alpha.tensor(np.array(labels), device=device)
    options = {"ignore_index": ignore, "reduction": reduction, "label_smoothing": smoothing}
    with np.errstate(all="ignore"):  # a mean of no row
        check_torch(
            lambda x: F.cross_entropy(x, target, **options),
            lambda x: torch.nn.functional.cross_entropy(x, torch.tensor(labels), **options),
            (6, classes),
            device=device,
            length=classes,
        )


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
def test_ignored_labels_of_any_integer_type(device: str, dtype: type) -> None:
    x = alpha.tensor(np.eye(6, 5, dtype=np.float32), device=device)
    losses = [
        F.cross_entropy(x, alpha.tensor(LABELS.astype(t), device=device), ignore_index=4).item()
        for t in (dtype, np.int64)
    ]
    assert losses[0] == losses[1] != F.cross_entropy(x, alpha.tensor(LABELS, device=device)).item()


def test_an_ignored_row_has_no_share_in_anything(device: str) -> None:
    """Neither its logits nor its gradient, though they are inf and NaN, nor its number in the mean."""
    values = np.zeros((3, 4), np.float32)
    values[1] = [np.nan, np.inf, -np.inf, 1]
    target = alpha.tensor([0, -100, 1], device=device)
    for reduction, losses in {"mean": [1.0], "sum": [2.0], "none": [1.0, 0.0, 1.0]}.items():
        x = alpha.tensor(values, requires_grad=True, device=device)
        with np.errstate(all="ignore"):
            y = F.cross_entropy(x, target, reduction=reduction)
            np.testing.assert_allclose(y.numpy().reshape(-1), np.log(4) * np.array(losses), rtol=1e-6)
            grad = np.ones(y.shape, np.float32)
            grad.reshape(-1)[len(losses) // 2 : len(losses) - 1] = np.nan
            y.backward(alpha.tensor(grad, device=device))
        assert x.grad is not None
        assert not x.grad.numpy()[1].any()
        assert np.isfinite(x.grad.numpy()).all()


def test_an_ignored_label_fits_int64() -> None:
    x, labels = alpha.tensor(np.zeros((2, 3), np.float32)), alpha.tensor(np.zeros(2, np.int64))
    for ignored in (-(2**63), 2**63 - 1):
        assert F.cross_entropy(x, labels, ignore_index=ignored).item() == pytest.approx(np.log(3))
    for ignored in (-(2**63) - 1, 2**63):
        with pytest.raises(ValueError, match=f"^cross_entropy: ignore_index={ignored} does not fit int64"):
            F.cross_entropy(x, labels, ignore_index=ignored)
