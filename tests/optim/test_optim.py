"""Optimizers: agreement with PyTorch and with the formulas, groups, checkpoints, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows.optimizers import OPTIMIZERS, OptimizerRow

import alpha
from alpha import CheckpointError, optim
from alpha.nn import Parameter

SHAPES = [(3, 4), (5,), (2, 3, 3, 2)]
SETTINGS = [pytest.param(row, settings, id=f"{row.name}-{settings}") for row in OPTIMIZERS for settings in row.settings]


def values(seed: int, shapes: list[tuple[int, ...]] = SHAPES) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.standard_normal(shape).astype(np.float32) for shape in shapes]


def run(optimizer: optim.Optimizer, first: int, last: int) -> None:
    """Steps with the gradients of seeds first..last-1."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for step in range(first, last):
        for parameter, gradient in zip(parameters, values(step, [p.shape for p in parameters]), strict=True):
            parameter.grad = alpha.tensor(gradient, device=parameter.device)
        optimizer.step()


def parameters(device: str = "cpu", row: OptimizerRow = OPTIMIZERS[0]) -> list[Parameter]:
    result = [Parameter(alpha.tensor(value, device=device)) for value in values(0, row.fitting(SHAPES))]
    assert all(p.device.name == device for p in result)
    return result


@pytest.mark.torch
@pytest.mark.parametrize(("row", "settings"), SETTINGS)
def test_five_steps_end_where_pytorchs_do(device: str, row: OptimizerRow, settings: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    row.needs_a_twin(settings)
    ours, shapes = parameters(device, row), row.fitting(SHAPES)
    run(row.kind(ours, **settings), 1, 6)
    theirs = [torch.nn.Parameter(torch.from_numpy(value)) for value in values(0, shapes)]
    other = getattr(torch.optim, row.name)(theirs, **settings)
    for step in range(1, 6):
        for parameter, gradient in zip(theirs, values(step, shapes), strict=True):
            parameter.grad = torch.from_numpy(gradient)
        with row.twin():
            other.step()
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(("row", "settings"), SETTINGS)
def test_steps_follow_the_formula(device: str, row: OptimizerRow, settings: dict[str, Any]) -> None:
    """Seven steps in float64, so that this holds where PyTorch is missing."""
    ours, shapes = parameters(device, row), row.fitting(SHAPES)
    optimizer = row.kind(ours, **settings)
    run(optimizer, 1, 8)
    for i, parameter in enumerate(ours):
        w, slots = values(0, shapes)[i].astype(np.float64), {}
        for step in range(1, 8):
            w = row.formula(optimizer.param_groups[0], step, w, values(step, shapes)[i].astype(np.float64), slots)
        np.testing.assert_allclose(parameter.numpy(), w, rtol=1e-5, atol=2e-6)


def test_groups_have_their_own_hyper_parameters() -> None:
    a, b, c = parameters()
    before = [p.numpy() for p in (a, b, c)]
    optimizer = optim.SGD([{"params": [a]}, {"params": b, "lr": 0.5}], lr=0.1)
    optimizer.add_param_group({"params": [c], "lr": 0.0})
    run(optimizer, 1, 2)
    optimizer.param_groups[0]["lr"] = 0.2
    run(optimizer, 2, 3)
    first, second = values(1), values(2)
    np.testing.assert_allclose(a.numpy(), before[0] - 0.1 * first[0] - 0.2 * second[0], rtol=1e-5)
    np.testing.assert_allclose(b.numpy(), before[1] - 0.5 * (first[1] + second[1]), rtol=1e-5)
    np.testing.assert_array_equal(c.numpy(), before[2])


def test_the_mean_of_asgd_is_the_parameter_itself_until_it_begins(device: str) -> None:
    """Equality to the last bit."""
    start, *gradients = values(0, [(300,)] * 7)
    w = Parameter(alpha.tensor(start, device=device))
    optimizer = optim.ASGD([w], lr=1.0, t0=3)
    for step, gradient in enumerate(gradients, 1):
        w.grad = alpha.tensor(gradient, device=device)
        optimizer.step()
        mean = alpha.Tensor(optimizer.state[w]["mean"])
        assert np.array_equal(mean.numpy(), w.numpy()) == (step < 6), step


def test_a_parameter_without_a_gradient_stays_and_its_age_with_it() -> None:
    """Bias correction counts a parameter's own steps, as for a layer that is unfrozen late."""
    late, early = parameters()[:2], parameters()[:2]
    optimizer, fresh = optim.Adam(late, lr=0.1), optim.Adam(early, lr=0.1)
    for _ in range(20):
        late[1].grad = alpha.tensor(values(1)[1])
        optimizer.step()
    np.testing.assert_array_equal(late[0].numpy(), values(0)[0])
    for side, one in ((late, optimizer), (early, fresh)):
        side[0].grad = alpha.tensor(values(1)[0])
        one.step()
    np.testing.assert_array_equal(late[0].numpy(), early[0].numpy())
    assert [optimizer.state[p]["step"] for p in late] == [1, 21]


def test_zero_grad() -> None:
    ours = parameters()
    optimizer = optim.Adam(ours)
    run(optimizer, 1, 2)
    optimizer.zero_grad()
    before = [p.numpy() for p in ours]
    optimizer.step()
    for parameter, value in zip(ours, before, strict=True):
        assert parameter.grad is None
        np.testing.assert_array_equal(parameter.numpy(), value)


def test_parameters_may_move_after_the_optimizer_was_made(device: str) -> None:
    layer, other = alpha.nn.Linear(3, 2), alpha.nn.Linear(3, 2)
    other.load_state_dict(layer.state_dict())
    x = alpha.tensor(np.ones((1, 3), np.float32))
    moving, staying = optim.Adam(layer.parameters()), optim.Adam(other.parameters())
    for place in ("cpu", device, "cpu"):
        layer.to(place)
        for one, module, where in ((moving, layer, place), (staying, other, "cpu")):
            one.zero_grad()
            (module(x.to(where)) ** 2).sum().backward()
            one.step()
    for a, b in zip(layer.parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("row", "settings"), SETTINGS)
def test_resumed_is_uninterrupted(device: str, row: OptimizerRow, settings: dict[str, Any]) -> None:
    whole, half = parameters(device, row), parameters(device, row)
    run(row.kind(whole, **settings), 1, 7)
    first = row.kind(half, **settings)
    run(first, 1, 4)
    state = first.state_dict()
    run(first, 9, 10)  # the copy does not follow
    rest = [Parameter(alpha.tensor(p.numpy(), device=device)) for p in parameters(device, row)]
    run(row.kind(rest, **settings), 1, 4)
    second = row.kind(rest, lr=99.0)
    second.load_state_dict(state)
    run(second, 4, 7)
    for a, b in zip(whole, rest, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_a_checkpoint_that_does_not_fit_changes_nothing() -> None:
    optimizer = optim.Adam(parameters())
    run(optimizer, 1, 2)
    state = optimizer.state_dict()
    other = optim.Adam(parameters()[:2])
    with pytest.raises(CheckpointError, match=r"Adam: groups of \[3\] parameters, here \[2\]"):
        other.load_state_dict(state)
    state["state"][1]["first"] = np.zeros(6, np.float32)
    state["state"][2]["second"] = np.zeros(7, np.float32)
    state["param_groups"][0]["lr"] = 5.0
    with pytest.raises(CheckpointError) as error:
        optimizer.load_state_dict(state)
    assert str(error.value).splitlines() == [
        "Adam: state does not fit:",
        "  parameter 1: first has shape (6,), the parameter (5,)",
        "  parameter 2: second has shape (7,), the parameter (2, 3, 3, 2)",
    ]
    assert optimizer.param_groups[0]["lr"] == 1e-3


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda p: optim.Adam([]), ValueError, "Adam: there are no parameters"),
        (lambda p: optim.Adam(p[0]), TypeError, "params is one tensor; give a list"),
        (lambda p: optim.Adam([p[0], 3]), TypeError, "Adam: int is not a tensor"),
        (lambda p: optim.Adam([p[0], p[0]]), ValueError, r"a parameter \(3, 4\) comes twice"),
        (lambda p: optim.Adam([p[0] * 2.0]), ValueError, "a result of operators"),
        (lambda p: optim.Adam(p, lr=-1.0), ValueError, "Adam: lr=-1.0 is negative"),
        (lambda p: optim.Adam(p, betas=(0.9, 1.0)), ValueError, r"betas=\(0.9, 1.0\) are not"),
        (lambda p: optim.AdamW(p, eps=-1.0), ValueError, "AdamW: eps=-1.0 is negative"),
        (lambda p: optim.SGD(p, nesterov=True), ValueError, "SGD: nesterov needs momentum > 0 and dampening 0"),
        (lambda p: optim.SGD(p, weight_decay=-0.1), ValueError, "weight_decay=-0.1 is negative"),
        (lambda p: optim.Muon(p), ValueError, r"Muon: a parameter has shape \(5,\); only matrices and filters"),
    ],
)
def test_what_is_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(parameters())
