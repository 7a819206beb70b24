"""Schedules: PyTorch's values, before and beyond T_max, and their checkpoints."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from alpha import CheckpointError, optim
from alpha.nn import Parameter


def optimizer(*rates: float) -> optim.SGD:
    return optim.SGD([{"params": [Parameter(np.ones(2, np.float32))], "lr": rate} for rate in rates])


def rates(subject: optim.Optimizer) -> list[float]:
    return [group["lr"] for group in subject.param_groups]


@pytest.mark.torch
@pytest.mark.parametrize("options", [{}, {"eta_min": 0.1}, {"eta_min": 2.0}])
@pytest.mark.parametrize("T_max", [1, 4, 7])
def test_values_are_pytorchs_also_beyond_the_end(T_max: int, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    ours = optimizer(0.5, 1.0)
    theirs = torch.optim.SGD([{"params": [torch.ones(2, requires_grad=True)], "lr": lr} for lr in (0.5, 1.0)])
    schedule = optim.CosineAnnealingLR(ours, T_max, **options)
    other = torch.optim.lr_scheduler.CosineAnnealingLR(theirs, T_max, **options)
    for _ in range(3 * T_max + 2):
        np.testing.assert_allclose(rates(ours), [group["lr"] for group in theirs.param_groups], rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(schedule.get_last_lr(), rates(ours), rtol=0)
        assert schedule.last_epoch == other.last_epoch
        theirs.step()
        schedule.step()
        other.step()


def test_the_formula() -> None:
    subject = optimizer(0.5, 1.0)
    schedule = optim.CosineAnnealingLR(subject, 4, 0.1)
    seen = [rates(subject)]
    for _ in range(8):
        schedule.step()
        seen.append(rates(subject))
    shares = [(1 + np.cos(np.pi * k / 4)) / 2 for k in range(9)]
    np.testing.assert_allclose(seen, [[0.1 + 0.4 * s, 0.1 + 0.9 * s] for s in shares], rtol=1e-12)


def test_a_group_added_later_follows_the_cosine_from_its_own_rate() -> None:
    subject = optimizer(0.5)
    schedule = optim.CosineAnnealingLR(subject, 4)
    subject.add_param_group({"params": [Parameter(np.ones(2, np.float32))], "lr": 2.0})
    schedule.step()
    share = (1 + np.cos(np.pi / 4)) / 2
    np.testing.assert_allclose(rates(subject), [0.5 * share, 2.0 * share], rtol=1e-12)


@pytest.mark.parametrize("done", [0, 1, 3, 6])
def test_resumed_is_uninterrupted_through_json(done: int) -> None:
    whole = optimizer(0.5, 1.0)
    schedule = optim.CosineAnnealingLR(whole, 4, 0.01)
    for step in range(8):
        if step == done:
            saved = json.loads(json.dumps([whole.state_dict()["param_groups"], schedule.state_dict()]))
        schedule.step()
    resumed = optimizer(9.0, 9.0)
    again = optim.CosineAnnealingLR(resumed, 1)
    resumed.load_state_dict({"optimizer": "SGD", "state": {}, "param_groups": saved[0]})
    again.load_state_dict(saved[1])
    for _ in range(done, 8):
        again.step()
    assert rates(resumed) == rates(whole)
    assert again.state_dict() == schedule.state_dict()


@pytest.mark.torch
def test_last_epoch_goes_on_as_in_pytorch() -> None:
    torch = pytest.importorskip("torch")
    ours = optimizer(0.5)
    theirs = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.5)
    with pytest.raises(ValueError, match="group 0 of the optimizer has no 'initial_lr'"):
        optim.CosineAnnealingLR(ours, 5, 0.0, 2)
    ours.param_groups[0]["initial_lr"] = theirs.param_groups[0]["initial_lr"] = 1.0
    schedule = optim.CosineAnnealingLR(ours, 5, 0.0, 2)
    other = torch.optim.lr_scheduler.CosineAnnealingLR(theirs, 5, 0.0, 2)
    assert schedule.last_epoch == other.last_epoch == 3
    assert rates(ours) == other.get_last_lr() == [0.5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"T_max": 0}, "T_max=0 is not a whole number of at least 1"),
        ({"T_max": 2.5}, "T_max=2.5 is not"),
        ({"T_max": 3, "eta_min": float("nan")}, "eta_min=nan is not finite"),
        ({"T_max": 3, "eta_min": "x"}, "eta_min='x' is a str"),
        ({"T_max": 3, "last_epoch": -2}, "last_epoch=-2 is not"),
    ],
)
def test_arguments_that_mean_nothing(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^CosineAnnealingLR: {message}"):
        optim.CosineAnnealingLR(optimizer(0.5), **arguments)


def test_something_else_than_an_optimizer() -> None:
    with pytest.raises(TypeError, match="CosineAnnealingLR: list is not an Alpha optimizer"):
        optim.CosineAnnealingLR([], 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schedule": "StepLR"}, "it is that of StepLR"),
        ({"last_epoch": -1}, "last_epoch=-1 is not"),
        ({"base_lrs": [0.1, 0.2]}, "is not a list of 1 numbers"),
        ({"last_lr": ["x"]}, "one is a str"),
        ({"T_max": 0}, "T_max=0 is not"),
        ({"gamma": 1}, "gamma is unknown"),
        ({"eta_min": None}, "eta_min=None is a NoneType"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(change: dict[str, Any], message: str) -> None:
    schedule = optim.CosineAnnealingLR(optimizer(0.5), 4)
    before = schedule.state_dict()
    with pytest.raises(CheckpointError, match=message):
        schedule.load_state_dict({**before, **change})
    with pytest.raises(CheckpointError, match="T_max is missing"):
        schedule.load_state_dict({name: value for name, value in before.items() if name != "T_max"})
    assert schedule.state_dict() == before
