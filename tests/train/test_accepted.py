"""Optimizers and schedules that a Trainer takes, refuses, or steps once per epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.data import ArrayDataset, DataLoader
from alpha.optim import LBFGS, SGD, LRScheduler, Optimizer, ReduceLROnPlateau, StepLR
from alpha.train import Trainer
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
