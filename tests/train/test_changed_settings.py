"""Attributes of a Trainer that are set after a first epoch: the next one is as by a Trainer made with them."""

from __future__ import annotations

import gc
import inspect
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import Tensor, nn
from alpha.data import DataLoader, TensorDataset
from alpha.nn import functional as F
from alpha.optim import SGD
from alpha.optim.lr_scheduler import StepLR
from alpha.train import Trainer
from alpha.train.objective import DEFAULTS


class Parts(nn.Module):
    """A network whose result depends on the parts of a batch, and on the optimizer, of which it has more weights."""

    def __init__(self) -> None:
        self.first, self.norm, self.last = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x)).relu())  # type: ignore[no-any-return]


def doubled(outputs: Tensor, targets: Tensor) -> Tensor:
    return 2 * F.cross_entropy(outputs, targets)


def largest(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.max()


Make = Callable[[Trainer], Any]  # the value, of the trainer that trains
CASES: dict[str, Make] = {
    "optimizer": lambda trainer: SGD(trainer.model.parameters(), lr=0.5, momentum=0.9),
    "loss": lambda trainer: doubled,
    "schedule": lambda trainer: StepLR(trainer.optimizer, 1, gamma=0.5),
    "metrics": lambda trainer: {"largest": largest},
    "accumulate": lambda trainer: 2,
    "clip_norm": lambda trainer: 0.01,
    "ema": lambda trainer: 0.5,
}
NOT_SEEN = {"precision", "capture", "resident", "memory_mode"}  # in numbers on the cpu
OTHERS = {"model", "device", "step", "evaluate_step", "schedule_per"}  # see the tests below


def loader() -> DataLoader:
    rng = np.random.default_rng(0)
    images = rng.standard_normal((16, 4)).astype(np.float32)
    return DataLoader(TensorDataset(images, rng.integers(0, 3, 16)), batch_size=8)


def made(**settings: Any) -> Trainer:
    alpha.manual_seed(0)
    model = Parts()
    return Trainer(model, SGD(model.parameters(), lr=0.1), "cpu", **settings)


def result(trainer: Trainer) -> tuple[dict[str, np.ndarray], Any]:
    """The weights after an epoch, and what an evaluation gives."""
    trainer.train_epoch(loader())
    tested = trainer.evaluate(loader())
    return {name: value.numpy() for name, value in trainer.model.state_dict().items()}, (tested.loss, tested.metrics)


def test_every_argument_has_a_case() -> None:
    arguments = {*inspect.signature(Trainer).parameters, *DEFAULTS} - {"settings"}
    assert arguments == {*CASES, *NOT_SEEN, *OTHERS}


@pytest.mark.parametrize("name", CASES)
def test_the_next_epoch_is_as_if_it_was_given_first(name: str) -> None:
    changed, first = made(), made()
    for trainer in (changed, first):
        trainer.train_epoch(loader())
    setattr(changed, name, CASES[name](changed))
    value = CASES[name](first)
    settings = {"optimizer": first.optimizer, name: value}
    again = Trainer(first.model, device="cpu", **settings)
    again.epoch = first.epoch  # which decides on the order of items
    weights, evaluation = result(changed)
    expected, wanted = result(again)
    assert evaluation == wanted
    for key, array in expected.items():
        np.testing.assert_array_equal(weights[key], array, err_msg=key)
    plain = made()
    plain.train_epoch(loader())
    unchanged, before = result(plain)
    same = all(np.array_equal(weights[key], unchanged[key]) for key in weights)
    assert not same or evaluation != before, "the setting shows in no number"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("optimizer", 3), ("optimizers", []), ("loss", 3), ("metrics", {"a": 1}), ("accumulate", 0)],
        *[("clip_norm", "a"), ("ema", 2.0), ("schedule_per", "day"), ("precision", "fp8"), ("memory_mode", "none")],
        *[(name, value) for name in ("precision", "memory_mode") for value in ("", 0, False)],
        *[("device", "cuda"), ("schedule", "x"), ("capture", "x"), ("model", nn.Linear(4, 3)), ("user_step", largest)],
    ],
)
def test_a_wrong_value_changes_nothing(name: str, value: Any) -> None:
    trainer = made()
    before = getattr(trainer, name)
    with pytest.raises((TypeError, ValueError), match=name.removesuffix("s").replace("_", ".")):
        setattr(trainer, name, value)
    assert getattr(trainer, name) is before


@pytest.mark.parametrize("name", ["step", "evaluate_step"])
def test_an_argument_alone_is_no_attribute(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is an argument alone"):
        setattr(made(), name, largest)


def test_none_is_the_default() -> None:
    trainer = made(metrics={"largest": largest}, precision="tf32", memory_mode="least")
    for name, value in (("metrics", {}), ("precision", "float32"), ("memory_mode", "fast")):
        setattr(trainer, name, None)
        assert getattr(trainer, name) == value


def test_a_step_of_other_objects_is_forgotten() -> None:
    """The memory of what is gone is free then, and its step is not taken for that of another object."""
    trainer = made()
    for number in range(6):
        trainer.clip_norm = 1.0 + number
        result(trainer)
    assert len(trainer.machine.steps) == 2
    old = weakref.ref(trainer.optimizer)
    trainer.optimizer = SGD(trainer.model.parameters(), lr=0.1)
    trainer.train_epoch(loader())
    gc.collect()
    assert old() is None


def test_an_optimizer_of_other_weights_is_refused() -> None:
    trainer = made()
    trainer.train_epoch(loader())
    trainer.optimizer = SGD(Parts().parameters(), lr=0.1)
    with pytest.warns(UserWarning, match="optimizer"), pytest.raises(alpha.TrainingError, match="changed no parameter"):
        trainer.train_epoch(loader())


def test_a_mean_that_has_begun_keeps_its_decay() -> None:
    trainer = made(ema=0.5)
    trainer.train_epoch(loader())
    trainer.ema = 0.5
    with pytest.raises(ValueError, match=r"ema=0\.9: the mean of the weights has begun with ema=0\.5"):
        trainer.ema = 0.9


def test_a_step_takes_no_loss_and_no_metrics() -> None:
    trainer = made(step=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]))
    for name, value in (("loss", doubled), ("metrics", {"largest": largest})):
        with pytest.raises(ValueError, match=f"{name}.*step"):
            setattr(trainer, name, value)
