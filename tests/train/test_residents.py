"""Data sets that a Trainer copies to the device, and the time that they stay there."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.data import ArrayDataset, DataLoader, Subset
from alpha.optim import SGD
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.train import Trainer
from alpha.train.batches.feed import ResidentFeed, StreamingFeed

COUNT = 20
LABELS = (np.arange(COUNT) % 3).astype(np.int32)


def images(count: int = COUNT, side: int = 4) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 3), np.uint8)


def trainer(**options: Any) -> Trainer:
    alpha.manual_seed(0)
    model = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 3)).to("cuda")
    return Trainer(model, SGD(model.parameters(), lr=0.1), "cuda", **options)


class ByItem(ArrayDataset):
    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        return self.images[index], self.labels[index]


class ByBatch(ArrayDataset):
    def batch(self, indices: Any) -> Any:
        return super().batch(indices)


class Part(Subset):
    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index)


class ArrayArg(ArrayDataset):
    """Data set whose items are made as usual."""

    name = "named"


class Loader(DataLoader):
    def __iter__(self) -> Any:
        return super().__iter__()


def test_only_known_batches_lie_on_the_device() -> None:
    subject = trainer()
    own = ArrayDataset(images(), LABELS)
    own.batch = lambda indices: ArrayDataset.batch(own, indices)  # type: ignore[method-assign]
    for data in (ByItem(images(), LABELS), ByBatch(images(), LABELS), own):
        for part in (data, Subset(data, range(9)), Subset(Subset(data, range(9)), [1])):
            assert isinstance(subject.machine.feed(DataLoader(part, 4), None), StreamingFeed)
    plain = ArrayArg(images(), LABELS)
    assert isinstance(subject.machine.feed(DataLoader(Part(plain, range(9)), 4), None), StreamingFeed)
    assert isinstance(subject.machine.feed(Loader(plain, 4), None), StreamingFeed)
    assert isinstance(subject.machine.feed(DataLoader(Subset(plain, range(9)), 4), None), ResidentFeed)
    assert isinstance(subject.machine.feed(DataLoader(plain, 4), None), ResidentFeed)
    trusted = DataLoader(ByItem(images(), LABELS), 4)  # the program says that items stay the same
    assert isinstance(subject.machine.feed(trusted, True), ResidentFeed)


def test_an_augmentation_of_batches_is_made_anew_in_each_epoch() -> None:
    class Noted(ArrayDataset):
        made = 0

        def batch(self, indices: Any) -> Any:
            self.made += len(indices)
            return super().batch(indices)

    data, subject = Noted(images(), LABELS), trainer()
    for epoch in (1, 2, 3):
        before = data.made
        subject.train_epoch(DataLoader(data, 8))
        assert data.made - before >= COUNT, f"epoch {epoch}"


@pytest.mark.slow
@pytest.mark.parametrize("capture", [False, True])
def test_what_a_program_has_dropped_leaves_the_device(capture: bool) -> None:
    subject = trainer(capture=capture)
    lives: list[int] = []
    for _ in range(5):
        data = ArrayDataset(images(side=32), LABELS)
        for _ in range(4 if capture else 1):  # as many as a capture needs
            subject.evaluate(DataLoader(data, COUNT))
        del data
        gc.collect()
        lives.append(subject.device.memory_stats().live)
    assert len(subject.machine.residents._held) == 1
    assert len(subject.machine.steps) == 1
    assert max(lives) - min(lives) < COUNT * 32 * 32 * 3  # the bytes of one data set


@pytest.mark.slow
def test_a_data_set_that_is_kept_stays_and_its_step_too() -> None:
    subject, data = trainer(), ArrayDataset(images(), LABELS)
    resident = None
    for _ in range(3):
        other = ArrayDataset(images(), LABELS)
        subject.train_epoch(DataLoader(data, 8))
        subject.evaluate(DataLoader(other, 8))
        found = subject.machine.residents.find(data)
        assert found is not None
        assert resident in (None, found)
        resident = found
    assert sorted(key[0] for key in subject.machine.steps) == ["evaluate", "train"]


def test_an_object_without_weak_references_is_kept() -> None:
    subject = trainer(resident=True)
    items = list(zip(images(), LABELS, strict=True))
    for _ in range(2):
        assert subject.evaluate(DataLoader(items, 8)).images == COUNT
    assert len(subject.machine.residents._held) == 1


def test_together_they_take_a_quarter_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = trainer()
    assert isinstance(subject.device, CudaDevice)
    size = COUNT * 4 * 4 * 3
    held = 0
    monkeypatch.setattr(type(subject.device.driver), "memory_info", lambda self: (9 * size - held, 10**9))
    feeds, kept = [], [ArrayDataset(images(), LABELS) for _ in range(3)]
    for data in kept:
        feeds.append(type(subject.machine.feed(DataLoader(data, 4), None)))
        held = size * feeds.count(ResidentFeed)
    assert feeds == [ResidentFeed, ResidentFeed, StreamingFeed]
    kept.pop(0)
    del data
    held = size
    gc.collect()
    assert isinstance(subject.machine.feed(DataLoader(kept[-1], 4), None), ResidentFeed)
