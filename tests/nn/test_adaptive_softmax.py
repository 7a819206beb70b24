"""The adaptive softmax against PyTorch's, with its weights, on both devices."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import ShapeError, nn
from alpha.errors import CaptureWarning

_rng = np.random.default_rng(0)
USUAL: dict[str, Any] = {"in_features": 16, "n_classes": 12, "cutoffs": [3, 5, 9], "div_value": 2.0}
X = _rng.standard_normal((8, 16))
TARGETS = {  # in all clusters but one, in one of them, in none, and one alone
    "several": np.array([0, 11, 2, 3, 9, 4, 10, 2]),
    "one cluster": np.array([5, 6, 7, 8, 5, 6, 7, 8]),
    "the head": np.array([0, 1, 2, 0, 1, 2, 0, 1]),
    "a number": np.array(9),
}


def twins(device: str, dtype: str, **arguments: Any) -> tuple[Any, Any]:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(**arguments).to(getattr(torch, dtype))
    ours = nn.AdaptiveLogSoftmaxWithLoss(**arguments).astype(dtype).to(device)
    ours.load_state_dict({name: value.detach().numpy() for name, value in theirs.state_dict().items()})
    return ours, theirs


@pytest.mark.torch
@pytest.mark.parametrize("arguments", [{}, {"head_bias": True}, {"div_value": 1.5}, {"cutoffs": (11,)}], ids=str)
@pytest.mark.parametrize("name", TARGETS)
def test_results_and_gradients_are_pytorchs(device: str, name: str, arguments: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    dtype, near = ("float64", 1e-10) if device == "cpu" else ("float32", 1e-4)
    ours, theirs = twins(device, dtype, **{**USUAL, **arguments})
    target = TARGETS[name]
    values = (X if target.ndim else X[0]).astype(dtype)
    x, t = alpha.tensor(values, device=device, requires_grad=True), torch.tensor(values, requires_grad=True)
    found, wanted = ours(x, alpha.tensor(target, device=device)), theirs(t, torch.tensor(target))
    factors = _rng.standard_normal(target.shape).astype(dtype)
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == tuple(b.shape)
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=near, atol=near)
    assert found.loss.item() == found[1].item()
    assert found.output is found[0]
    (found.loss + (found.output * alpha.tensor(factors, device=device)).sum()).backward()
    (wanted.loss + (wanted.output * torch.tensor(factors)).sum()).backward()
    pairs = [("x", x, t)] + [(n, dict(ours.named_parameters())[n], p) for n, p in theirs.named_parameters()]
    for n, a, b in pairs:
        assert (a.grad is None) == (b.grad is None), n  # a cluster without a target has no gradient
        if a.grad is not None:
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=near, atol=near, err_msg=n)


@pytest.mark.torch
@pytest.mark.parametrize("scale", [1, 30, -30], ids=["some", "head", "clusters"])
def test_log_prob_and_predict_are_pytorchs(device: str, scale: int) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = twins(device, "float32", **USUAL, head_bias=True)
    ours.head.bias.data[:3] += scale
    theirs.head.bias.data[:3] += scale
    values = X.astype(np.float32)
    x, t = alpha.tensor(values, device=device), torch.tensor(values)
    found = ours.log_prob(x).numpy()
    np.testing.assert_allclose(found, theirs.log_prob(t).detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.exp(found).sum(1), 1, rtol=1e-4)
    np.testing.assert_array_equal(ours.predict(x).numpy(), theirs.predict(t).numpy())
    np.testing.assert_array_equal(ours.predict(x).numpy(), found.argmax(1))
    several = alpha.tensor(TARGETS["several"], device=device)
    np.testing.assert_allclose(ours(x, several)[0].numpy(), found[range(8), TARGETS["several"]], rtol=1e-4, atol=1e-5)


def test_its_attributes_have_pytorchs_names() -> None:
    layer = nn.AdaptiveLogSoftmaxWithLoss(64, 12, [3, 5, 9])
    assert (layer.cutoffs, layer.shortlist_size, layer.n_clusters, layer.head_size) == ([3, 5, 9, 12], 3, 3, 6)
    assert layer.div_value == 4.0
    assert not layer.head_bias
    assert [tuple(p.shape) for p in layer.tail[1].parameters()] == [(4, 64), (4, 4)]


def test_a_step_with_it_is_not_captured() -> None:
    layer = nn.AdaptiveLogSoftmaxWithLoss(**USUAL).to("cuda")
    x = alpha.tensor(X.astype(np.float32), device="cuda")
    target = alpha.tensor(TARGETS["several"], device="cuda")
    step = alpha.capture(lambda x, target: layer(x, target).loss)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [step(x, target).item() for _ in range(3)]
    assert found == [layer(x, target).loss.item()] * 3
    assert all(issubclass(warning.category, CaptureWarning) for warning in caught)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cutoffs": []}, r"cutoffs=\[\] must rise from at least 1 to at most n_classes - 1, 11"),
        ({"cutoffs": [3, 3]}, r"cutoffs=\[3, 3\] must rise"),
        ({"cutoffs": [0, 3]}, r"cutoffs=\[0, 3\] must rise"),
        ({"cutoffs": [5, 12]}, r"cutoffs=\[5, 12\] must rise"),
        ({"cutoffs": [2.5]}, "cutoffs=2.5 is not an integer"),
        ({"cutoffs": 3}, "cutoffs=3 is not a tuple of integers"),
        ({"div_value": 8.0}, "div_value=8.0 leaves no feature of 16 for cluster 2"),
    ],
)
def test_arguments_that_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"AdaptiveLogSoftmaxWithLoss: {message}"):
        nn.AdaptiveLogSoftmaxWithLoss(**{**USUAL, **arguments})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda layer, x, t: layer(x, t + 7), "target 12 is no class of 0 to 11"),
        (lambda layer, x, t: layer(x, t - 1), "target -1 is no class of 0 to 11"),
        (lambda layer, x, t: layer(x, t.float()), "target has dtype float32; int64 or int32 is needed"),
        (lambda layer, x, t: layer(x, t[:3]), r"\(input \(8, 16\), target \(3,\)\)"),
        (lambda layer, x, t: layer(x[:, :3], t), r"input \(N, 16\) and target \(N,\) are needed, or \(16,\) and \(\)"),
        (lambda layer, x, t: layer(x, t[0]), r"target \(\)\)"),
        (lambda layer, x, t: layer(x, [1]), "target is a list, a Tensor is needed"),
        (lambda layer, x, t: layer.log_prob(x[0]), r"log_prob: \(N, 16\) is needed  \(input \(16,\)\)"),
        (lambda layer, x, t: layer.predict(x[:, :3]), r"predict: \(N, 16\) is needed"),
    ],
)
def test_calls_that_are_refused(call: Any, message: str) -> None:
    layer = nn.AdaptiveLogSoftmaxWithLoss(**USUAL)
    target = alpha.tensor(np.array([0, 1, 2, 3, 4, 5, 5, 5]))
    with pytest.raises((IndexError, ShapeError, TypeError), match=message):
        call(layer, alpha.tensor(X.astype(np.float32)), target)
