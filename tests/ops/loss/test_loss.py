"""Losses: gradients, PyTorch's values, dtypes, weights, numbers that are no probabilities, errors."""

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
from alpha import ShapeError

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


def test_errors_of_margins_and_variances(device: str) -> None:
    x = alpha.tensor(np.zeros((2, 5), np.float32), device=device)
    labels = alpha.tensor([0, 1], device=device)
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
