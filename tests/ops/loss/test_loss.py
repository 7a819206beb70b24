"""Losses: gradients, agreement with PyTorch; cross-entropy: extreme logits, labels outside the classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import check_gradient, check_torch
from rows.arrays import MATRIX
from rows.kinds import LossRow
from rows.losses import LOSSES

import alpha
import alpha.nn.functional as F
from alpha import DeviceError, ShapeError

LABELS = np.array([2, 0, 1, 4, 4, 3])
CASES = [(reduction, smoothing) for reduction in ("mean", "sum", "none") for smoothing in (0.0, 0.1, 1.0)]


SETTINGS = [pytest.param(row, settings, id=f"{row.name}-{settings}") for row in LOSSES for settings in row.settings]


def split(row: LossRow, settings: dict[str, Any]) -> tuple[list[np.ndarray], dict[str, np.ndarray], dict[str, Any]]:
    """The tensors with a gradient, the constant ones, and all other arguments."""
    tensors = {**row.named_inputs, **{name: value for name, value in settings.items() if isinstance(value, np.ndarray)}}
    constants = {name: value for name, value in tensors.items() if name in row.constants or value.dtype.kind in "iu"}
    others = {name: value for name, value in settings.items() if name not in tensors}
    return [value for name, value in tensors.items() if name not in constants], constants, others


def called(function: Any, row: LossRow, constants: dict[str, Any], others: dict[str, Any]) -> Any:
    """The function of the tensors with a gradient, which keep their places among the first arguments."""
    names = [name for name in row.named_inputs if name not in constants]

    def call(*given: Any) -> Any:
        inputs = {**dict(zip(names, given, strict=True)), **constants}
        keywords = {name: value for name, value in constants.items() if name not in row.named_inputs}
        return function(*(inputs[name] for name in row.named_inputs), **keywords, **others)

    return call


@pytest.mark.parametrize(("row", "settings"), SETTINGS)
def test_gradients(row: LossRow, settings: dict[str, Any]) -> None:
    """Gradients are checked of all inputs that are no labels or constants."""
    trained, constants, others = split(row, settings)
    exact = {k: alpha.tensor(v.astype(np.float64) if v.dtype.kind == "f" else v) for k, v in constants.items()}
    check_gradient(called(row.function, row, exact, others), *trained)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")  # PyTorch's word on the mean of kl_div
@pytest.mark.parametrize(("row", "settings"), SETTINGS)
def test_a_loss_is_pytorchs(device: str, row: LossRow, settings: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    if row.own:
        pytest.skip(row.own)
    trained, constants, others = split(row, settings)
    ours = {name: alpha.tensor(value, device=device) for name, value in constants.items()}
    theirs = {
        name: torch.tensor(value.astype(np.float64) if value.dtype.kind == "f" else value)
        for name, value in constants.items()
    }
    check_torch(
        called(row.function, row, ours, others),
        called(getattr(torch.nn.functional, row.name), row, theirs, others),
        *trained,
        device=device,
        length=trained[0].size,
    )


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


@pytest.mark.torch
def test_variances_below_the_least_one_as_in_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for var in (np.abs(MATRIX), np.abs(MATRIX[:, 0]), np.abs(MATRIX[:, :1])):
        check_torch(
            lambda x, t, v: F.gaussian_nll_loss(x, t, v, eps=0.5),
            lambda x, t, v: torch.nn.functional.gaussian_nll_loss(x, t, v, eps=0.5),
            MATRIX,
            MATRIX[::-1],
            var,
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
    for label in (5, -1):
        wrong = alpha.tensor([0, label], device=device)
        if device == "cpu":
            with pytest.raises(ShapeError, match=r"multi_margin_loss: labels .* are not in \[0, 5\)"):
                F.multi_margin_loss(x, wrong)
        else:
            loss = F.multi_margin_loss(x, wrong, reduction="none").numpy()
            assert (np.isnan(loss) == [False, True]).all()
    with pytest.raises(ValueError, match="multi_margin_loss: p=3 is neither 1 nor 2"):
        F.multi_margin_loss(x, labels, p=3)
    with pytest.raises(ShapeError, match=r"gaussian_nll_loss: var \(5,\) fits neither x \(2, 5\) nor its rows"):
        F.gaussian_nll_loss(x, x, x[0])
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


@pytest.mark.parametrize("row", LOSSES, ids=lambda row: row.name)
def test_a_loss_of_bfloat16_is_float32(row: LossRow) -> None:
    """The gradients have the dtype of the inputs."""
    inputs = {name: value for name, value in row.named_inputs.items() if value.dtype.kind == "f"}
    others = {name: alpha.tensor(value) for name, value in row.named_inputs.items() if name not in inputs}

    def run(dtype: str) -> tuple[alpha.Tensor, list[alpha.Tensor]]:
        leaves = {name: alpha.tensor(value) for name, value in inputs.items()}
        cast = {name: leaf.astype("bfloat16").astype(dtype).detach() for name, leaf in leaves.items()}
        for name, tensor in cast.items():
            tensor.requires_grad = name not in row.constants
        loss = row.function(**cast, **others)
        loss.backward()
        return loss, [tensor.grad for tensor in cast.values() if tensor.grad is not None]

    (ours, gradients), (expected, wide) = run("bfloat16"), run("float32")
    composed = row.name in ("cosine_embedding_loss", "triplet_margin_loss", "margin_ranking_loss")
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours.item(), expected.item(), rtol=2e-2 if composed else 1e-5)
    assert gradients
    for a, b in zip(gradients, wide, strict=True):
        assert a.dtype.name == "bfloat16"
        np.testing.assert_allclose(a.numpy().astype(np.float32), b.numpy(), rtol=1e-2, atol=2e-2 if composed else 1e-6)


def test_weights_that_do_not_fit_or_want_a_gradient() -> None:
    x = alpha.tensor(np.full((6, 5), 0.5, np.float32))
    with pytest.raises(ShapeError, match=r"binary_cross_entropy: weight \(6,\) does not repeat along x \(6, 5\)"):
        F.binary_cross_entropy(x, x, alpha.tensor(np.ones(6, np.float32)))
    with pytest.raises(ShapeError, match=r"mse_loss: weight needs the shape of x  \(x \(6, 5\), weight \(5,\)\)"):
        F.mse_loss(x, x, weight=alpha.tensor(np.ones(5, np.float32)))
    with pytest.raises(ValueError, match="weight requires a gradient, which is not offered"):
        F.mse_loss(x, x, weight=alpha.tensor(np.ones((6, 5), np.float32), requires_grad=True))
    with pytest.raises(ValueError, match="pos_weight requires a gradient, which is not offered"):
        F.binary_cross_entropy_with_logits(x, x, pos_weight=alpha.tensor(np.ones(5, np.float32), requires_grad=True))


@pytest.mark.parametrize("loss", [F.binary_cross_entropy, F.cross_entropy, F.nll_loss])
def test_a_weight_of_another_dtype(device: str, loss: Any) -> None:
    x = alpha.tensor(np.array([[0.25, 0.5, 0.75]] * 3, np.float32), device=device)
    target = x if loss is F.binary_cross_entropy else alpha.tensor(np.arange(3), device=device)
    weight = alpha.tensor(np.array([1.0, 2.0, 3.0], np.float32), device=device)
    found = loss(x, target, weight.astype("float64" if device == "cpu" else "bfloat16"), reduction="none")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.numpy(), loss(x, target, weight, reduction="none").numpy())


def test_extreme_logits_of_a_binary_cross_entropy(device: str) -> None:
    x = alpha.tensor([1e4, -1e4, 0.0, 200.0], requires_grad=True, device=device)
    target = alpha.tensor([1.0, 0.0, 0.5, 0.0], device=device)
    y = F.binary_cross_entropy_with_logits(x, target, reduction="none")
    np.testing.assert_allclose(y.numpy(), [0, 0, np.log(2), 200], rtol=1e-6)
    y.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [0, 0, 0, 1], atol=1e-6)
    certain = alpha.tensor([0.0, 1.0], device=device)
    losses = F.binary_cross_entropy(certain, alpha.tensor([1.0, 1.0], device=device), reduction="none")
    np.testing.assert_array_equal(losses.numpy(), [100, 0])


@pytest.mark.parametrize("bad", [1.5, -0.25, np.nan, np.inf])
def test_what_is_no_probability_is_refused_on_the_cpu_and_nan_on_cuda(device: str, bad: float) -> None:
    for dtype in ("float32", "bfloat16"):
        x = alpha.tensor([0.0, bad, 1.0], device=device).to(dtype)
        target = alpha.tensor([1.0, 1.0, 0.0], device=device).to(dtype)
        if device == "cuda":
            assert np.isnan(F.binary_cross_entropy(x, target).item())
            continue
        low, high = ("nan", "nan") if np.isnan(bad) else (f"{min(bad, 0):g}", f"{max(bad, 1):g}")
        with pytest.raises(ValueError, match=rf"^binary_cross_entropy: x has numbers from {low} to {high}, and prob"):
            alpha.nn.BCELoss()(x, target)
    nothing = alpha.zeros(0, device=device)
    assert F.binary_cross_entropy(nothing, nothing, reduction="sum").item() == 0


@pytest.mark.parametrize("reduction", ["mean", "sum", "batchmean"])
def test_a_mean_of_nothing(device: str, reduction: str) -> None:
    x = alpha.tensor(np.zeros((0, 3), np.float32), device=device)
    with np.errstate(all="ignore"):
        found = F.kl_div(x, x, reduction=reduction).item()
    assert found == 0 if reduction == "sum" else np.isnan(found)


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
