"""Losses of operands of several shapes: PyTorch's values, gradients and refusals, on both devices."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from trials import trials

import alpha
import alpha.nn.functional as F
from alpha import ShapeError, nn

_rng = np.random.default_rng(0)
Shapes = tuple[tuple[int, ...], ...]
PAIRS: list[Shapes] = [
    *(((3, 4), (3, 4)), ((3, 1), (3, 4)), ((3, 4), (3, 1)), ((3, 1), (1, 4)), ((3, 4), (4,)), ((4,), (3, 4))),
    *(((), (3,)), ((3,), ()), ((1,), (3, 1)), ((2, 3, 4), (3, 1)), ((3,), (3, 4)), ((3, 4), (2,)), ((3, 1), (3,))),
]
TRIPLES: list[Shapes] = [
    *(((3, 4), (3, 4), (3, 4)), ((3, 1), (3, 4), (1, 4)), ((3, 4), (3, 4), (3, 1)), ((1, 4), (3, 4), (1, 4))),
    *(((3, 4), (4,), (3, 4)), ((4,), (4,), (4,)), ((3, 4), (2, 4), (3, 4)), ((3, 4), (3, 4), (4,)), ((3,), (1,), (3,))),
]
ROWS: list[Shapes] = [
    *(((3, 4), (3, 4), (3,)), ((1, 4), (3, 4), (3,)), ((3, 4), (1, 4), (1,)), ((3, 1), (3, 4), (3,))),
    *(((4,), (4,), ()), ((4,), (3, 4), (3,)), ((3, 4), (3, 4), (2,)), ((3, 4), (3, 4), ()), ((2, 3, 4),) * 2 + ((2,),)),
]
VARIANCES: list[Shapes] = [
    *(((3, 4), (3, 4), (3,)), ((3, 4), (3, 4), (3, 1)), ((3, 4), (3, 4), (1, 4)), ((3, 4), (4,), (3, 4))),
    *(((3, 1), (3, 4), (3, 1)), ((3, 4), (2, 3, 4), (3, 4)), ((3, 4), (3, 4), (4,)), ((3, 4), (3, 4), (1, 1))),
    *(((4,), (4,), ()), ((4,), (4,), (1,)), ((3, 4), (2, 4), (3, 4))),
]
LOSSES: dict[str, tuple[list[Shapes], tuple[str, ...], dict[str, Any]]] = {  # shapes, kinds of numbers, arguments
    "mse_loss": (PAIRS, ("any", "any"), {}),
    "l1_loss": (PAIRS, ("any", "any"), {}),
    "smooth_l1_loss": (PAIRS, ("any", "any"), {"beta": 0.5}),
    "huber_loss": (PAIRS, ("any", "any"), {"delta": 0.5}),
    "kl_div": (PAIRS, ("any", "probability"), {}),
    "kl_div, log_target": (PAIRS, ("any", "any"), {"log_target": True}),
    "hinge_embedding_loss": (PAIRS, ("any", "sign"), {"margin": 0.5}),
    "soft_margin_loss": (PAIRS, ("any", "sign"), {}),
    "poisson_nll_loss": (PAIRS, ("any", "probability"), {}),
    "multilabel_soft_margin_loss": (PAIRS[:-3], ("any", "probability"), {}),
    "binary_cross_entropy": (PAIRS, ("probability", "probability"), {}),
    "binary_cross_entropy_with_logits": (PAIRS, ("any", "probability"), {}),
    "margin_ranking_loss": (TRIPLES, ("any", "any", "sign"), {"margin": 0.2}),
    "triplet_margin_loss": (TRIPLES, ("any", "any", "any"), {"swap": True, "margin": 3.0}),
    "triplet_margin_with_distance_loss": (TRIPLES, ("any", "any", "any"), {"margin": 3.0}),
    "cosine_embedding_loss": (ROWS, ("any", "any", "sign"), {"margin": -0.4}),
    "gaussian_nll_loss": (VARIANCES, ("any", "any", "probability"), {"full": True}),
}


def drawn(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    values = _rng.standard_normal(shape)
    if kind == "sign":
        return np.where(values > 0, 1.0, -1.0)
    return np.asarray(1 / (1 + np.exp(-values)) if kind == "probability" else values)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")  # PyTorch's, of shapes and of the mean of kl_div
@pytest.mark.parametrize("name", LOSSES)
def test_values_gradients_and_refusals_are_pytorchs(device: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    shapes, kinds, arguments = LOSSES[name]
    function = name.split(",")[0]
    dtype, near = ("float64", 1e-9) if device == "cpu" else ("float32", 1e-4)
    reductions = ["mean", "sum", "none"] + ["batchmean"] * (function == "kl_div")
    refused = 0
    with trials() as trial:
        for group in shapes:
            values = [drawn(kind, shape).astype(dtype) for kind, shape in zip(kinds, group, strict=True)]
            for reduction in reductions if device == "cpu" else reductions[::2]:
                given = {**arguments, "reduction": reduction}
                ours = [
                    alpha.tensor(v, device=device, requires_grad=k != "sign")
                    for v, k in zip(values, kinds, strict=True)
                ]
                theirs = [torch.tensor(v, requires_grad=k != "sign") for v, k in zip(values, kinds, strict=True)]
                with trial(group, reduction):
                    try:
                        wanted = getattr(torch.nn.functional, function)(*theirs, **given)
                        wanted.sum().backward()
                    except (IndexError, RuntimeError, ValueError):
                        refused += 1
                        with pytest.raises(ShapeError, match=rf"^{function}: .*\("):
                            getattr(F, function)(*ours, **given)
                        continue
                    found = getattr(F, function)(*ours, **given)
                    found.sum().backward()
                    np.testing.assert_allclose(found.numpy(), wanted.detach().numpy(), rtol=near, atol=near)
                    for a, b in zip(ours, theirs, strict=True):
                        if b.grad is not None:
                            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=near, atol=near)
    assert refused


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss"])
def test_a_weight_has_the_shape_of_x(device: str, name: str) -> None:
    """The x may repeat: its weights then count once in a mean."""
    torch = pytest.importorskip("torch")
    values = [drawn(kind, shape).astype(np.float32) for kind, shape in (("any", (3, 1)), ("any", (3, 4)))]
    weight = drawn("probability", (3, 1)).astype(np.float32)
    for reduction in ("mean", "sum", "none"):
        ours = [alpha.tensor(value, device=device, requires_grad=True) for value in values]
        theirs = [torch.tensor(value, requires_grad=True) for value in values]
        found = getattr(F, name)(*ours, reduction=reduction, weight=alpha.tensor(weight, device=device))
        wanted = getattr(torch.nn.functional, name)(*theirs, reduction=reduction, weight=torch.tensor(weight))
        np.testing.assert_allclose(found.numpy(), wanted.detach().numpy(), rtol=1e-5)
        found.sum().backward()
        wanted.sum().backward()
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-5, atol=1e-7)
    with pytest.raises(ShapeError, match=rf"{name}: weight needs the shape of x  \(x \(3, 1\), weight \(3, 4\)\)"):
        getattr(F, name)(*ours, weight=ours[1].detach())


@pytest.mark.parametrize("layer", [nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss])
def test_errors_of_numbers_warn_of_two_shapes(layer: Any) -> None:
    """The mean over (6, 6) of x (6, 1) and target (6,) is a mistake that nothing else shows."""
    x, target = alpha.ones(6, 1), alpha.zeros(6)
    message = (
        r"_loss: x \(6, 1\) and target \(6,\) are broadcast to \(6, 6\), which is rarely meant; give both one shape"
    )
    with pytest.warns(UserWarning, match=message) as caught:
        layer()(x, target)
    assert caught[0].filename == __file__  # the line of the program
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer()(x, target.unsqueeze(1))
        F.hinge_embedding_loss(x, target)  # of which PyTorch does not warn


def test_what_does_not_broadcast_says_so() -> None:
    x, target = alpha.ones(3, 4), alpha.ones(3)
    with pytest.raises(ShapeError, match=r"mse_loss: the shapes do not broadcast  \(x \(3, 4\), target \(3,\)\)"):
        F.mse_loss(x, target)
    with pytest.raises(ShapeError, match=r"binary_cross_entropy: x and target need one shape  \(x .*, target \(4,\)\)"):
        F.binary_cross_entropy(x, alpha.ones(4))
    with pytest.raises(ShapeError, match=r"soft_margin_loss: target \(2, 3, 4\) does not repeat along x \(3, 4\)"):
        F.soft_margin_loss(x, alpha.ones(2, 3, 4))
    with pytest.raises(
        ShapeError, match=r"margin_ranking_loss: all need as many axes  \(input1 \(3, 4\), input2 \(4,\)"
    ):
        F.margin_ranking_loss(x, alpha.ones(4), x)
