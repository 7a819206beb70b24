"""Optimizers and schedules that a Trainer takes, refuses, or steps once per epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.data import ArrayDataset, DataLoader
from alpha.optim import LBFGS, SGD, CosineAnnealingLR, LRScheduler, Optimizer, ReduceLROnPlateau, StepLR
from alpha.train import Trainer, change_rates
from alpha.train.files.state_file import load_state, save_state


def loader() -> DataLoader:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (20, 2, 2, 1), np.uint8)
    return DataLoader(ArrayDataset(images, rng.integers(0, 2, 20).astype(np.int32)), 8)


def model(device: str = "cpu") -> nn.Module:
    alpha.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).to(device)


class Closing(SGD):
    def step(self, closure: Any) -> Any:
        return super().step(closure)


class Plain(SGD):
    """Optimizer whose step has an argument that may be left out."""

    def step(self, closure: Any = None, *others: Any, **named: Any) -> Any:
        return super().step(closure)


@pytest.mark.parametrize("kind", [LBFGS, Closing])
def test_an_optimizer_that_needs_a_closure_is_refused_at_once(kind: Any) -> None:
    subject = model()
    with pytest.raises(
        TypeError, match=f"^Trainer: {kind.__name__}.step needs a closure, .* Train with {kind.__name__}"
    ):
        Trainer(subject, kind(subject.parameters(), lr=0.1), "cpu")
    Trainer(subject, Plain(subject.parameters(), lr=0.1), "cpu").train_epoch(loader())


def test_a_schedule_whose_step_needs_a_value_is_refused_at_once() -> None:
    class Measured(StepLR):
        def step(self, measure: float) -> None:  # type: ignore[override]
            super().step()

    subject = model()
    optimizer = SGD(subject.parameters(), lr=0.1)
    with pytest.raises(TypeError, match=r"^Trainer: Measured\.step needs measure; a Trainer calls step\(\) by itself"):
        Trainer(subject, optimizer, "cpu", schedule=Measured(optimizer, 1))


def trainer(device: str, mode: Any = "min") -> Trainer:
    subject = model(device)
    optimizer: Optimizer = SGD(subject.parameters(), lr=0.5)
    schedule: LRScheduler = ReduceLROnPlateau(optimizer, mode, factor=0.5, patience=0, threshold=0.2)
    return Trainer(subject, optimizer, device, schedule=schedule)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_plateau_is_looked_for_after_each_epoch(device: str, mode: Any) -> None:
    subject, twin = trainer(device, mode), trainer(device, mode)
    plateau: Any = twin.schedule
    twin.schedule = None
    rates = []
    for _ in range(6):
        subject.train_epoch(loader())
        result = twin.train_epoch(loader())
        plateau.step(result.loss if mode == "min" else result.accuracy)
        rates.append(subject.optimizer.param_groups[0]["lr"])
        assert rates[-1] == twin.optimizer.param_groups[0]["lr"]
    assert rates[-1] < 0.5
    assert subject.schedule is not None
    assert subject.schedule.last_epoch == 6


@pytest.mark.slow
def test_a_run_with_a_plateau_is_resumed(device: str, tmp_path: Path) -> None:
    whole = trainer(device)
    for epoch in range(6):
        whole.train_epoch(loader())
        if epoch == 2:
            save_state(tmp_path / "state", whole.state_dict())
    resumed = trainer(device)
    resumed.load_state_dict(load_state(tmp_path / "state"))
    for _ in range(3):
        resumed.train_epoch(loader())
    assert resumed.schedule is not None
    assert whole.schedule is not None
    assert resumed.schedule.state_dict() == whole.schedule.state_dict()
    weights = whole.model.state_dict()
    for name, values in resumed.model.state_dict().items():
        np.testing.assert_array_equal(values, weights[name])


def rates_of(subject: Trainer, steps: int) -> list[float]:
    """The rates of the next steps."""
    found = []
    for _ in range(steps):
        found.append(float(subject.optimizer.param_groups[0]["lr"]))
        subject.optimizer.step()
        for schedule in subject.schedules:
            schedule.step()
    return found


def cosine(first: float, steps: int, done: int = 0, least: float = 0.0) -> list[float]:
    return [least + (first - least) * (1 + np.cos(np.pi * step / steps)) / 2 for step in range(done, steps)]


@pytest.mark.parametrize("done", [0, 1, 5, 8, 10])
def test_a_rate_is_changed_from_here_on(done: int) -> None:
    """Change the rate at any step of a cosine of 10 steps, at its end, and again."""

    def begun() -> Trainer:
        model = nn.Linear(2, 1)
        optimizer = SGD(model.parameters(), lr=0.5)
        subject = Trainer(model, optimizer, "cpu", schedule=CosineAnnealingLR(optimizer, 10, eta_min=0.01))
        rates_of(subject, done)
        return subject

    longer = begun()
    change_rates(longer, 0.5, 14 - done)
    assert rates_of(longer, 14 - done) == pytest.approx(cosine(0.5, 14, done, 0.01))
    other = begun()
    change_rates(other, 0.2, 6)
    assert rates_of(other, 2) == pytest.approx(cosine(0.2, 6, 0, 0.01)[:2])
    change_rates(other, 0.2, 10)  # its cosine has 12 steps now
    assert rates_of(other, 3) == pytest.approx(cosine(0.2, 12, 2, 0.01)[:3])
    change_rates(other, 0.3, 4)
    assert rates_of(other, 4) == pytest.approx(cosine(0.3, 4, 0, 0.01))
    change_rates(other, 0.3, 0)  # nothing is left
    assert rates_of(other, 1) == pytest.approx([0.01])
    change_rates(other, 0.1, 0)
    assert rates_of(other, 1) == pytest.approx([0.1])


def test_a_constant_rate_and_one_that_no_cosine_has() -> None:
    model = nn.Linear(2, 1)
    constant = Trainer(model, SGD(model.parameters(), lr=0.5), "cpu")
    change_rates(constant, 0.1, 3)
    assert rates_of(constant, 2) == [0.1, 0.1]
    optimizer = SGD(model.parameters(), lr=0.5)
    stepped = Trainer(model, optimizer, "cpu", schedule=StepLR(optimizer, 2))
    with pytest.raises(TypeError, match="the rates of a StepLR cannot be changed"):
        change_rates(stepped, 0.1, 3)
