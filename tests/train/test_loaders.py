"""Trainer and the kinds of data sets and loaders: dtypes of labels, tensors, items, parts, samplers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.data import (
    ArrayDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)
from alpha.errors import CheckpointError, DataError
from alpha.optim import SGD
from alpha.train import Trainer
from alpha.train.batches.feed import HostFeed, ResidentFeed, StreamingFeed
from alpha.train.files.history import Result

COUNT = 20
IMAGES = np.random.default_rng(0).integers(0, 256, (COUNT, 4, 4, 3), np.uint8)
LABELS = (np.arange(COUNT) % 3).astype(np.int32)


class Items(Dataset[Any]):
    def __init__(self, kind: Any, make: Any = np.asarray) -> None:
        self.kind, self.make = kind, make

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.make(IMAGES[index]), self.kind(LABELS[index])


def trainer(device: str, **options: Any) -> Trainer:
    alpha.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 3)).to(device)
    return Trainer(model, SGD(model.parameters(), lr=0.1), device, **options)


def results(device: str, loader: DataLoader, **options: Any) -> tuple[float, float, Any]:
    subject = trainer(device, **options)
    trained: Result = subject.train_epoch(loader)
    tested = subject.evaluate(loader)
    assert (trained.images, tested.images) == (loader.samples, loader.samples)
    return trained.loss, tested.loss, subject.model.state_dict().numpy()["1.weight"].tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("resident", [False, True])
def test_labels_of_any_small_integer(device: str, resident: bool) -> None:
    def run(dtype: Any) -> tuple[float, float, Any]:
        data = ArrayDataset(IMAGES, LABELS.astype(dtype), ("a", "b", "c"))
        return results(device, DataLoader(data, 8, shuffle=True), resident=resident)

    expected = run(np.int32)
    for dtype in (np.int8, np.int16, np.uint16):
        assert run(dtype) == expected
    if not resident or device == "cpu":
        for dtype in (np.uint8, np.int64, np.uint32):
            assert run(dtype) == expected


@pytest.mark.slow
def test_items_and_tensors_give_the_bits_of_arrays(device: str) -> None:
    expected = results(device, DataLoader(ArrayDataset(IMAGES, LABELS), 8), resident=False)
    for data in (
        Items(int),
        Items(np.int16),
        Items(int, alpha.tensor),
        TensorDataset(alpha.tensor(IMAGES), alpha.tensor(LABELS)),
        TensorDataset(IMAGES, LABELS.astype(np.int16)),
        ArrayDataset(alpha.tensor(IMAGES), alpha.tensor(LABELS)),
        Subset(ArrayDataset(IMAGES, LABELS), range(COUNT)),
        Subset(Items(int), range(8)) + Subset(Items(int), range(8, COUNT)),
    ):
        assert results(device, DataLoader(data, 8, num_workers=2), resident=False) == expected


@pytest.mark.slow
def test_parts_of_data_in_memory_lie_on_the_device() -> None:
    data = ArrayDataset(IMAGES, LABELS)
    train, test = random_split(data, [15, 5])
    subject = trainer("cuda")
    assert isinstance(subject.machine.feed(DataLoader(train, 4), None), ResidentFeed)
    assert isinstance(subject.machine.feed(DataLoader(Subset(Subset(data, [1, 2]), [0]), 4), None), ResidentFeed)
    assert isinstance(subject.machine.feed(DataLoader(Subset(Items(int), [1]), 4), None), StreamingFeed)
    assert isinstance(trainer("cpu").machine.feed(DataLoader(train, 4), None), HostFeed)
    for part in (train, test):
        loader = DataLoader(part, 4, shuffle=True)
        assert results("cuda", loader) == results("cuda", DataLoader(part, 4, shuffle=True), resident=False)


@pytest.mark.slow
def test_samplers(device: str) -> None:
    data = ArrayDataset(IMAGES, LABELS)

    def loader(kind: str) -> DataLoader:
        sampler: Any = {
            "order": RandomSampler(data, seed=3),
            "more": RandomSampler(data, num_samples=2 * COUNT + 3, seed=3),
            "fewer": range(5),
            "weighted": WeightedRandomSampler(1.0 + LABELS, COUNT, seed=3),
        }[kind]
        return DataLoader(data, 8, sampler=sampler)

    shuffled = results(device, DataLoader(data, 8, shuffle=True, seed=3))
    assert results(device, loader("order")) == shuffled
    for kind in ("more", "fewer", "weighted"):
        assert results(device, loader(kind)) == results(device, loader(kind), resident=False)


def test_a_run_with_a_sampler_is_resumed() -> None:
    data = ArrayDataset(IMAGES, LABELS)

    def loader(seed: int = 0) -> DataLoader:
        return DataLoader(data, 8, sampler=WeightedRandomSampler(1.0 + LABELS, COUNT, seed=seed))

    whole, first, second = trainer("cpu"), trainer("cpu"), trainer("cpu")
    whole.train_epoch(loader())
    whole.train_epoch(loader())
    first.train_epoch(loader())
    state = first.state_dict()
    second.load_state_dict(state)
    with pytest.raises(CheckpointError, match="sampler_seed is 1, was 0"):
        second.train_epoch(loader(seed=1))
    second.train_epoch(loader())
    for name, values in whole.model.state_dict().numpy().items():
        np.testing.assert_array_equal(second.model.state_dict().numpy()[name], values)


def test_a_collating_function_is_called_for_each_batch() -> None:
    sizes = []

    def collate(items: list[Any]) -> tuple[Any, Any]:
        sizes.append(len(items))
        images, labels = zip(*items, strict=True)
        return np.stack(images), list(labels)

    loader = DataLoader(ArrayDataset(IMAGES, LABELS), 8, collate_fn=collate)
    assert isinstance(trainer("cuda").machine.feed(loader, True), StreamingFeed)
    trainer("cpu").train_epoch(loader)
    assert sizes == [8, 8, 4]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return zip(IMAGES, LABELS, strict=True)


def test_loaders_that_cannot_be_resumed_or_have_no_labels(device: str) -> None:
    data = ArrayDataset(IMAGES, LABELS)
    named = [{"x": image, "y": 0} for image in IMAGES]
    triples = [(image, 0, 1) for image in IMAGES]
    for loader, message in (
        (DataLoader(Stream(), 8), "the loader has an IterableDataset; a Trainer needs a batch_size"),
        (DataLoader(data, batch_sampler=[[1, 2]]), "the loader has a batch_sampler, or batch_size=None"),
        (DataLoader(data, batch_size=None), "the loader has a batch_sampler, or batch_size=None"),
        (DataLoader(named, 8), "a batch of the loader has a dict; expected a pair, inputs and targets"),
        (DataLoader(triples, 8), "a batch of the loader has 3 parts; expected a pair"),
    ):
        for run in (trainer(device).train_epoch, trainer(device).evaluate):
            with pytest.raises(DataError, match=message):
                run(loader)
