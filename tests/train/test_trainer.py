"""Trainer: what it counts, when it stops, and that it learns."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.data import ArrayDataset, DataLoader
from alpha.errors import DataError, TrainingError
from alpha.nn import functional as F
from alpha.optim import SGD
from alpha.runtime import Device, get_device
from alpha.tensor import Tensor
from alpha.train import Row, Trainer


def two_classes(count: int) -> ArrayDataset:
    """Dark images of class 0 and light ones of class 1, in turn."""
    generator = np.random.default_rng(0)
    labels = (np.arange(count) % 2).astype(np.int32)
    light = (labels * 128).astype(np.uint8)[:, None, None, None]
    images = generator.integers(0, 128, (count, 4, 4, 3), np.uint8) + light
    return ArrayDataset(images, labels, ("dark", "light"))


def trainer(device: str | Device = "cpu", lr: float = 0.1) -> Trainer:
    alpha.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    model.to(device)
    return Trainer(model, SGD(model.parameters(), lr=lr), get_device(device))


@pytest.fixture(autouse=True)
def _usual_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_it_learns(device: str) -> None:
    subject = trainer(device)
    loader = DataLoader(two_classes(50), 8, shuffle=True)
    first = subject.train_epoch(loader)
    second = subject.train_epoch(loader)
    assert (first.images, second.images) == (50, 50)
    assert second.loss < first.loss
    assert subject.evaluate(loader).accuracy == 1.0
    assert (subject.epoch, subject.step) == (2, 7)
    assert second.seconds > 0
    assert second.images_per_second == pytest.approx(50 / second.seconds)


def test_a_limit_of_steps() -> None:
    subject = trainer()
    assert subject.train_epoch(DataLoader(two_classes(50), 8), steps=3).images == 24
    assert subject.step == 3
    assert subject.train_epoch(DataLoader(two_classes(50), 8), steps=100).images == 50


@pytest.mark.parametrize("batch_size", [1, 7, 32, 100])
def test_evaluation_counts_every_image_once(batch_size: int) -> None:
    data = two_classes(33)
    subject = trainer()
    result = subject.evaluate(DataLoader(data, batch_size))
    with alpha.no_grad():
        logits = subject.model(F.normalize_pixels(alpha.tensor(data.images))).numpy()
    logits = logits.astype(np.float64)
    largest = logits.max(axis=1)
    total = np.log(np.exp(logits - largest[:, None]).sum(axis=1)) + largest
    losses = total - logits[np.arange(33), data.labels]
    assert result.images == 33
    assert result.accuracy == np.mean(logits.argmax(axis=1) == data.labels)
    assert result.loss == pytest.approx(losses.mean(), rel=1e-5)


def test_train_and_evaluate_set_the_mode() -> None:
    subject = trainer()
    subject.train_epoch(DataLoader(two_classes(8), 8))
    assert subject.model.training
    subject.evaluate(DataLoader(two_classes(8), 8))
    assert not subject.model.training


def test_a_loss_that_is_not_finite_names_its_step() -> None:
    subject = trainer()
    usual = subject.loss

    def breaks(logits: Tensor, labels: Tensor) -> Tensor:
        loss = usual(logits, labels)
        return loss * float("nan") if subject.step == 3 else loss

    subject.loss = breaks
    with pytest.raises(TrainingError, match="epoch 1: the loss is nan at step 4; a lower --lr"):
        subject.train_epoch(DataLoader(two_classes(50), 2))


def test_ctrl_c_ends_after_a_whole_step() -> None:
    subject = trainer()
    usual = subject.loss

    def interrupted(logits: Tensor, labels: Tensor) -> Tensor:
        if subject.step == 2:
            signal.raise_signal(signal.SIGINT)
        return usual(logits, labels)

    subject.loss = interrupted
    with pytest.raises(KeyboardInterrupt):
        subject.train_epoch(DataLoader(two_classes(50), 2))
    assert (subject.epoch, subject.step) == (1, 3)


def test_a_loader_without_batches() -> None:
    with pytest.raises(DataError, match="epoch 1: no batches of 64 in 10 images"):
        trainer().train_epoch(DataLoader(two_classes(10), 64, drop_last=True))


def test_two_runs_with_one_seed_agree_bit_for_bit() -> None:
    runs = []
    for _ in range(2):
        subject = trainer()
        subject.train_epoch(DataLoader(two_classes(50), 8, shuffle=True, seed=1))
        runs.append(subject.model.state_dict())
    for name, values in runs[0].items():
        np.testing.assert_array_equal(values, runs[1][name])


def test_precision_holds_inside_and_is_reported() -> None:
    seen: list[str] = []

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        seen.append(alpha.get_precision())
        return F.cross_entropy(logits, labels)

    subject = trainer()
    loader = DataLoader(two_classes(16), 8)
    for asked, used in ((None, "float32"), ("tf32", "tf32"), ("bf16", "bf16")):
        run = Trainer(subject.model, subject.optimizer, subject.device, loss, precision=asked)
        results = run.train_epoch(loader), run.evaluate(loader)
        assert {result.precision for result in results} == {used}
        assert str(Row.of(1, *results)).endswith(used)
        assert set(seen) == {used}
        assert alpha.get_precision() == "float32"
        seen.clear()
    with alpha.precision("tf32"):
        assert trainer().precision == "tf32"


def test_an_unknown_precision_is_named_at_once() -> None:
    with pytest.raises(ValueError, match="precision 'fp8' is not one of float32, tf32, bf16"):
        Trainer(None, None, None, precision="fp8")  # type: ignore[arg-type]
