"""Cross-entropy of labels and of probabilities: PyTorch's values, ignored labels, labels outside the classes."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import check_torch
from rows.arrays import MATRIX

import alpha
import alpha.nn.functional as F
from alpha import DeviceError, ShapeError

LABELS = np.array([2, 0, 1, 4, 4, 3])
CASES = [(reduction, smoothing) for reduction in ("mean", "sum", "none") for smoothing in (0.0, 0.1, 1.0)]


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


@pytest.mark.torch
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_the_gradient_of_probabilities_of_classes(reduction: str) -> None:
    weight, shares = np.arange(1, 6, dtype=np.float32), np.exp(MATRIX)
    options = {"reduction": reduction, "label_smoothing": 0.2}
    torch = pytest.importorskip("torch")
    check_torch(
        lambda x, t: F.cross_entropy(x, t, alpha.tensor(weight), **options),
        lambda x, t: torch.nn.functional.cross_entropy(x, t, torch.tensor(weight, dtype=x.dtype), **options),
        MATRIX,
        shares,
        device="cpu",
    )


def test_errors(device: str) -> None:
    x = alpha.tensor(np.zeros((2, 5), np.float32), device=device)
    labels = alpha.tensor([0, 1], device=device)
    with pytest.raises(ShapeError, match=r"\(x \(2, 5\), target \(3,\)\)"):
        F.cross_entropy(x, alpha.tensor([0, 1, 2], device=device))
    with pytest.raises(ShapeError, match=r"\(x \(0, 5\), target \(2,\)\)"):
        F.cross_entropy(x[:0], labels)
    with pytest.raises(TypeError, match="target has dtype float32; int32, int64 or uint8 is needed"):
        F.cross_entropy(x, labels.astype("float32"))
    with pytest.raises(ValueError, match="reduction='max' is not mean, sum or none"):
        F.cross_entropy(x, labels, reduction="max")
    with pytest.raises(ValueError, match=r"label_smoothing=1.01 is not in \[0, 1\]"):
        F.cross_entropy(x, labels, label_smoothing=1.01)
    with pytest.raises(TypeError, match="cross_entropy: target is a ndarray, a Tensor is needed"):
        F.cross_entropy(x, LABELS)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="x is a list"):
        F.cross_entropy([[0.0, 1.0]], labels)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"weight needs one number per class  \(x \(2, 5\), weight \(2, 5\)\)"):
        F.cross_entropy(x, labels, x)
    with pytest.raises(ShapeError, match="the classes on the last axis, where PyTorch has them on axis 1"):
        F.cross_entropy(alpha.tensor(np.zeros((2, 5, 3), np.float32)), alpha.tensor(np.zeros((2, 3), np.int64)))
    weight = alpha.tensor(np.ones(5, np.float32), requires_grad=True, device=device)
    with pytest.raises(ValueError, match="cross_entropy: weight requires a gradient, which is not offered"):
        F.cross_entropy(x, labels, weight)
    with pytest.raises(TypeError, match="nll_loss: target has dtype float32; int32, int64 or uint8 is needed"):
        F.nll_loss(x, x.detach())


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


@pytest.mark.torch
@pytest.mark.parametrize("classes", [5, 2050])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("reduction", "smoothing"), CASES)
def test_probabilities_of_classes(device: str, reduction: str, smoothing: float, weighted: bool, classes: int) -> None:
    torch = pytest.importorskip("torch")
    draw = np.random.default_rng(0)
    target = draw.uniform(size=(6, classes)).astype(np.float32)
    target[2, 1:] = 0
    weight = draw.uniform(0.5, 2, classes).astype(np.float32) if weighted else None
    options = {"reduction": reduction, "label_smoothing": smoothing}
    own = [None if a is None else alpha.tensor(a, device=device) for a in (target, weight)]
    theirs = [None if a is None else torch.tensor(a.astype(np.float64)) for a in (target, weight)]
    check_torch(
        lambda x: F.cross_entropy(x, *own, **options),
        lambda x: torch.nn.functional.cross_entropy(x, *theirs, **options),
        (6, classes),
        device=device,
        length=classes * classes,
    )


@pytest.mark.torch
@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(5,), (2, 4, 5), (2, 3, 4, 5)])
def test_classes_are_the_last_axis(device: str, name: str, reduction: str, shape: tuple[int, ...]) -> None:
    """PyTorch has them on axis 1 of three axes and more."""
    torch = pytest.importorskip("torch")
    labels = np.random.default_rng(0).integers(0, 5, shape[:-1])
    weight = np.random.default_rng(1).uniform(0.5, 2, 5).astype(np.float32)
    target, weights = alpha.tensor(labels, device=device), alpha.tensor(weight, device=device)
    function = getattr(torch.nn.functional, name)
    check_torch(
        lambda x: getattr(F, name)(x, target, weights, reduction=reduction),
        lambda x: function(
            torch.moveaxis(x, -1, 1).contiguous() if x.ndim > 1 else x,
            torch.tensor(labels),
            torch.tensor(weight.astype(np.float64)),
            reduction=reduction,
        ),
        shape,
        device=device,
    )


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
    """The row's logits and gradient, though they are inf and NaN, and its number in the mean count for nothing."""
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


@pytest.mark.parametrize("labels", [True, False])
def test_the_cross_entropy_of_no_rows(device: str, labels: bool) -> None:
    """The sum is 0, the mean NaN, as PyTorch's."""
    for reduction, expected in (("sum", 0.0), ("mean", np.nan), ("none", np.zeros(0))):
        x = alpha.zeros(0, 3, device=device, requires_grad=True)
        target = alpha.zeros(0, dtype="int64", device=device) if labels else x.detach()
        loss = F.cross_entropy(x, target, reduction=reduction)
        np.testing.assert_array_equal(loss.numpy(), expected)
        loss.sum().backward()
        assert x.grad.shape == (0, 3)
    with pytest.raises(ShapeError, match=r"cross_entropy: x \(N, \.\., C\).*\(x \(2, 0\), target \(2,\)\)"):
        F.cross_entropy(alpha.zeros(2, 0, device=device), alpha.zeros(2, dtype="int64", device=device))
