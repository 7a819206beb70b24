"""Limits for gradients: PyTorch's values on both devices, special values, refusals, captured steps."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.nn import Parameter, utils

SHAPES = [(3, 4), (), (20000,), (2, 3, 3, 2)]
NAMES = ["clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]


def values(scale: float = 1.0) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    return [(scale * np.asarray(draw.standard_normal(shape))).astype(np.float32) for shape in SHAPES]


def parameters(device: str, gradients: list[np.ndarray]) -> list[Parameter]:
    """Parameters with these gradients, and one more that has none."""
    result = [Parameter(alpha.tensor(np.ones(g.shape, np.float32), device=device)) for g in gradients]
    for parameter, gradient in zip(result, gradients, strict=True):
        parameter.grad = alpha.tensor(gradient, device=device)
    return [Parameter(alpha.tensor(np.ones(3, np.float32), device=device)), *result]


def pytorchs(gradients: list[np.ndarray]) -> list[Any]:
    import torch

    result = [torch.ones(g.shape, requires_grad=True) for g in gradients]
    for parameter, gradient in zip(result, gradients, strict=True):
        parameter.grad = torch.tensor(gradient)
    return result


def compare(ours: list[Parameter], theirs: list[Any]) -> None:
    for a, b in zip(ours[1:], theirs, strict=True):
        assert a.grad is not None
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=2e-6)
    assert ours[0].grad is None


@pytest.mark.torch
@pytest.mark.parametrize("name", NAMES)
def test_the_signatures_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = (inspect.signature(getattr(room, name)).parameters for room in (utils, torch.nn.utils))
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [
        (p.name, p.kind, p.default) for p in theirs.values()
    ]


@pytest.mark.torch
@pytest.mark.parametrize("p", [1, 2.0, 3.5, math.inf])
@pytest.mark.parametrize("most", [1e6, 10.0, 0.0])
def test_norms_are_pytorchs(device: str, p: float, most: float) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = parameters(device, values()), pytorchs(values())
    norm = nn.utils.clip_grad_norm_(ours, most, p)
    expected = torch.nn.utils.clip_grad_norm_(theirs, most, p)
    assert norm.shape == ()
    assert norm.device.name == device
    np.testing.assert_allclose(norm.item(), expected.item(), rtol=2e-6)
    compare(ours, theirs)


def test_the_norm_is_that_of_all_gradients(device: str) -> None:
    ours, given = parameters(device, values()), np.concatenate([v.reshape(-1) for v in values()])
    norm = np.linalg.norm(given.astype(np.float64))
    np.testing.assert_allclose(utils.get_total_norm([p.grad for p in ours if p.grad is not None]).item(), norm, 1e-6)
    utils.clip_grad_norm_(ours, 10.0)
    found = np.concatenate([p.grad.numpy().reshape(-1) for p in ours if p.grad is not None])
    np.testing.assert_allclose(found, given * (10.0 / (norm + 1e-6)), rtol=1e-5)


def test_values_are_limited(device: str) -> None:
    ours = parameters(device, values())
    utils.clip_grad_value_(ours, 0.5)
    for parameter, value in zip(ours[1:], values(), strict=True):
        assert parameter.grad is not None
        np.testing.assert_array_equal(parameter.grad.numpy(), np.clip(value, -0.5, 0.5))


def test_a_norm_that_is_known(device: str) -> None:
    ours = parameters(device, values())
    utils.clip_grads_with_norm_(ours[2], 1.0, alpha.tensor(4.0, device=device))
    assert ours[1].grad is not None
    assert ours[2].grad is not None
    np.testing.assert_array_equal(ours[1].grad.numpy(), values()[0])
    np.testing.assert_allclose(ours[2].grad.numpy(), values()[1] / 4, rtol=1e-6)


def test_the_error_of_a_norm_is_a_runtime_error_as_in_pytorch() -> None:
    for base in (RuntimeError, ArithmeticError, alpha.AlphaError):
        with pytest.raises(base, match=r"^get_total_norm: the norm of the gradients is inf"):
            utils.get_total_norm([alpha.tensor([np.inf])], error_if_nonfinite=True)


@pytest.mark.parametrize("p", [2.0, math.inf])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_gradients_that_are_not_finite(device: str, bad: float, p: float) -> None:
    given = values()
    given[2][17000] = bad
    ours = parameters(device, given)
    with pytest.raises(alpha.NonFiniteError, match=r"^clip_grad_norm_: the norm of the gradients is (nan|inf); noth"):
        utils.clip_grad_norm_(ours, 1.0, p, error_if_nonfinite=True)
    compare_unchanged = [p.grad.numpy() for p in ours[1:] if p.grad is not None]
    for a, b in zip(compare_unchanged, given, strict=True):
        np.testing.assert_array_equal(a, b)
    norm = utils.clip_grad_norm_(ours, 1.0, p).item()
    assert math.isnan(norm) if math.isnan(bad) else norm == math.inf
    assert ours[1].grad is not None
    np.testing.assert_array_equal(ours[1].grad.numpy(), np.nan if math.isnan(bad) else given[0] * 0)
    ours = parameters(device, given)
    utils.clip_grad_value_(ours, 0.5)
    assert ours[3].grad is not None
    np.testing.assert_array_equal(ours[3].grad.numpy(), np.clip(given[2], -0.5, 0.5))


def test_nothing_to_clip(device: str) -> None:
    assert utils.clip_grad_norm_(parameters(device, [])[:1], 1.0).item() == 0
    assert utils.get_total_norm([]).item() == 0
    utils.clip_grad_value_([], 1.0)
    empty = parameters(device, [np.zeros((0, 3), np.float32)])
    assert utils.clip_grad_norm_(empty, 1.0).item() == 0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda p: utils.clip_grad_norm_(p, -1.0), ValueError, "clip_grad_norm_: max_norm=-1.0 is negative"),
        (lambda p: utils.clip_grad_norm_(p, "x"), TypeError, "clip_grad_norm_: max_norm='x' is not a number"),
        (lambda p: utils.clip_grad_norm_(p, 1.0, 0), ValueError, "clip_grad_norm_: norm_type=0 is not above 0"),
        (lambda p: utils.clip_grad_value_(p, math.nan), ValueError, "clip_grad_value_: clip_value=nan is not finite"),
        (
            lambda p: utils.clip_grads_with_norm_(p, 1.0, 2.0),
            TypeError,
            "clip_grads_with_norm_: total_norm is no tensor",
        ),
    ],
)
def test_what_is_refused(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(parameters("cpu", values()))


def test_devices_are_not_mixed() -> None:
    mixed = [*parameters("cpu", values()), *parameters("cuda", values())]
    with pytest.raises(alpha.DeviceError, match="clip_grad_norm_: the gradients are on cpu and cuda; clip"):
        utils.clip_grad_norm_(mixed, 1.0)


def test_a_gradient_that_was_saved_is_guarded(device: str) -> None:
    parameter = parameters(device, values())[1]
    assert parameter.grad is not None
    x = alpha.tensor(np.ones((3, 4), np.float32), device=device, requires_grad=True)
    y = (x * parameter.grad).sum()
    utils.clip_grad_value_([parameter], 0.1)
    with pytest.raises(alpha.AlphaError, match="clip_grad_value_"):
        y.backward()


def test_in_a_captured_step() -> None:
    device: Any = alpha.get_device("cuda")
    if device.driver.why_no_capture:
        pytest.skip(device.driver.why_no_capture)

    def run(captured: bool) -> tuple[list[np.ndarray], Any]:
        layer = nn.Linear(3, 2).to("cuda")
        for parameter in layer.parameters():
            parameter.data.fill_(0.5)
        optimizer = alpha.optim.SGD(layer.parameters(), lr=0.1)

        def step(x: alpha.Tensor) -> alpha.Tensor:
            optimizer.zero_grad()
            (layer(x) ** 2).sum().backward()
            norm = utils.clip_grad_norm_(layer.parameters(), 0.5)
            utils.clip_grad_value_(layer.parameters(), 0.3)
            optimizer.step()
            return norm

        function = alpha.capture(step) if captured else step
        norms = [
            function(alpha.tensor(np.full((2, 3), number, np.float32), device="cuda")).numpy() for number in range(6)
        ]
        return [*norms, *(p.numpy() for p in layer.parameters())], function

    (ours, function), (expected, _) = run(True), run(False)
    for a, b in zip(ours, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(function.graphs) == 1
