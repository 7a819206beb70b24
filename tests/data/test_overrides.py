"""Choice of a loader between `batch` and `__getitem__`: it calls the one that a subclass has overridden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.data import (
    ArrayDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    ImageFolder,
    Mnist,
    StackDataset,
    Subset,
    TensorDataset,
)
from alpha.data.dataset import item_of, way_of

VALUES, LABELS = np.arange(6, dtype=np.float32), np.arange(6) % 2


def arrays(kind: type[ArrayDataset]) -> Any:
    return kind(VALUES, LABELS)


class ByItem(ArrayDataset):
    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        value, label = super().__getitem__(index)
        return 100 + value, label


class ByBatch(ArrayDataset):
    def batch(self, indices: Any) -> Any:
        values, labels = super().batch(indices)
        return 100 + values, labels


class ByItemOfBatch(ByBatch):
    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        return 200 + self.images[index], self.labels[index]


class ByBatchOfItem(ByItem):
    def batch(self, indices: Any) -> Any:
        return 200 + self.images[indices], self.labels[indices]


class Both(ArrayDataset):
    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        return 100 + self.images[index], self.labels[index]

    def batch(self, indices: Any) -> Any:
        return np.stack([self[index][0] for index in indices]), self.labels[indices]


class Tensors(TensorDataset):
    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        value, label = super().__getitem__(index)
        return 100 + value, label


class Part(Subset):
    def __getitem__(self, index: Any) -> Any:
        value, label = super().__getitem__(index)
        return 100 + value, label


class PartByBatch(Subset):
    """Subset with `batch` of a data set that has none."""

    def batch(self, indices: Any) -> Any:
        return 100 + self.indices[indices], indices % 2


class OnlyBatches(Dataset[Any]):
    def __len__(self) -> int:
        return 6

    def batch(self, indices: Any) -> Any:
        return VALUES[indices], LABELS[indices]


class Overridden(OnlyBatches):
    def __getitem__(self, index: Any) -> Any:
        value, label = super().__getitem__(index)
        return 100 + value, label


class Proxy:
    """Hands on all but items to another data set."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dataset, name)

    def __getitem__(self, index: int) -> Any:
        value, label = self.dataset[index]
        return 100 + value, label


class Listed(OnlyBatches):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [(100 + VALUES[index], LABELS[index]) for index in indices]


class Declared(ArrayDataset):
    whole_batches = True

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("the class says that batches are made whole")

    def batch(self, indices: Any) -> Any:
        return 100 + self.images[indices], self.labels[indices]


def joined(dataset: Any) -> Any:
    return ConcatDataset([Subset(dataset, [0, 1, 2]), Subset(dataset, [3, 4, 5])])


CASES: dict[str, tuple[Callable[[], Any], int]] = {
    "items": (lambda: arrays(ByItem), 100),
    "batches": (lambda: arrays(ByBatch), 100),
    "items, above a batch": (lambda: arrays(ByItemOfBatch), 200),
    "a batch, above items": (lambda: arrays(ByBatchOfItem), 200),
    "both": (lambda: arrays(Both), 100),
    "tensors": (lambda: Tensors(alpha.tensor(VALUES), alpha.tensor(LABELS)), 100),
    "a part": (lambda: Part(arrays(ArrayDataset), range(6)), 100),
    "a part by batch": (lambda: PartByBatch(list(zip(VALUES, LABELS, strict=True)), range(6)), 100),
    "items of the base": (Overridden, 100),
    "a proxy": (lambda: Proxy(arrays(ArrayDataset)), 100),
    "a list of items": (Listed, 100),
    "declared": (lambda: arrays(Declared), 100),
    "neither": (lambda: arrays(ArrayDataset), 0),
}


def values_of(batch: Any) -> list[float]:
    return [float(value) for value in np.asarray(batch[0].numpy() if hasattr(batch[0], "numpy") else batch[0])]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("case", CASES)
def test_what_a_subclass_overrides_is_called(case: str, workers: int) -> None:
    make, added = CASES[case]
    expected = [added + i for i in range(6)]
    data = make()
    assert [v for batch in DataLoader(data, 4, num_workers=workers) for v in values_of(batch)] == expected
    assert values_of(DataLoader(data, 4).batch(np.arange(6))) == expected


@pytest.mark.parametrize("case", [case for case in CASES if case != "declared"])  # which has no items
def test_data_sets_made_of_others_call_it_too(case: str) -> None:
    make, added = CASES[case]
    expected = [added + i for i in range(6)]
    for data in (Subset(make(), range(6)), joined(make()), Subset(joined(make()), range(6))):
        assert [v for batch in DataLoader(data, 4) for v in values_of(batch)] == expected
    stacked = StackDataset(make(), arrays(ArrayDataset))
    assert [v for one, _ in DataLoader(stacked, 4) for v in values_of(one)] == expected
    mixed = ConcatDataset([Subset(make(), [0, 1]), list(zip(VALUES, LABELS, strict=True))])
    assert values_of(DataLoader(mixed, 3).batch(np.arange(3))) == [*expected[:2], 0]


@pytest.mark.parametrize("case", [case for case in CASES if case != "declared"])
def test_single_items_are_those_of_the_batches(case: str) -> None:
    make, added = CASES[case]
    data = make()
    assert [float(value) for value, _ in DataLoader(data, batch_size=None)] == [added + i for i in range(6)]
    collated = DataLoader(data, 6, collate_fn=lambda items: [float(value) for value, _ in items])
    assert next(iter(collated)) == [added + i for i in range(6)]


def test_the_data_sets_of_files_as_well(tmp_path: Any) -> None:
    images = np.arange(8, dtype=np.uint8).reshape(2, 2, 2)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(
        bytes((0, 0, 8, 3)) + np.array([2, 2, 2], ">u4").tobytes() + images.tobytes()
    )
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(bytes((0, 0, 8, 1)) + np.array([2], ">u4").tobytes() + b"\1\2")

    class Scaled(Mnist):
        def __getitem__(self, index: Any) -> tuple[Any, Any]:
            image, label = super().__getitem__(index)
            return image / np.float32(8), label

    pixels, labels = next(iter(DataLoader(Scaled(tmp_path), 2)))
    np.testing.assert_array_equal(pixels[..., 0], images / np.float32(8))
    assert labels.tolist() == [1, 2]


def test_ways() -> None:
    assert way_of(ImageFolder.__new__(ImageFolder)) == "batch"
    assert way_of([1, 2]) == "__getitem__"
    assert way_of(object()) == "__getitem__"  # so that the error says what is missing
    data = arrays(ByItem)
    data.batch = lambda indices: indices  # of this data set alone
    assert way_of(data) == "batch"
    data.whole_batches = False
    assert way_of(data) == "__getitem__"
    assert item_of(arrays(ByBatch), -1)[0] == 105
