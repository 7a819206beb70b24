"""Indices that samplers give, and the number of items that a dataset gives for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.data import ArrayDataset, ConcatDataset, DataLoader, Dataset, StackDataset, Subset, TensorDataset
from alpha.data.loader import Part
from alpha.errors import DataError

VALUES = np.arange(6)


class ByItem(Dataset[Any]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: Any) -> Any:
        return VALUES[index]


class ByItems(ByItem):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [VALUES[index] for index in indices]


class ByBatch(Dataset[Any]):
    def __len__(self) -> int:
        return 6

    def batch(self, indices: Any) -> Any:
        return VALUES[indices]


DATA: dict[str, Callable[[], Any]] = {
    "items": ByItem,
    "lists of items": ByItems,
    "batches": ByBatch,
    "list": lambda: list(range(6)),
    "arrays": lambda: ArrayDataset(VALUES, VALUES),
    "tensors": lambda: TensorDataset(alpha.arange(6), alpha.arange(6)),
    "subset": lambda: Subset(ByBatch(), range(6)),
    "both": lambda: ConcatDataset([ByBatch(), ByItem()]),
    "beside": lambda: StackDataset(ByBatch(), ByItem()),
}
WRONG = [1.0, 1.7, True, np.float32(1), np.bool_(True), np.array(1.0), 1j, alpha.tensor(1.0)]


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("workers", [0, 2])
def test_no_index_is_rounded_or_a_mask(name: str, workers: int) -> None:
    data = DATA[name]()
    for wrong in WRONG:
        for options in (
            {"sampler": [0, wrong], "batch_size": 2},
            {"sampler": [wrong], "batch_size": 1},
            {"sampler": [0, wrong], "batch_size": None},
            {"batch_sampler": [[0, wrong]]},
            {"batch_sampler": [[wrong, 0]], "collate_fn": list},
        ):
            if name == "batches" and ("collate_fn" in options or options.get("batch_size", 0) is None):
                continue
            with pytest.raises(DataError, match=r"(an index is .*|indices are .*)expected (a )?whole number"):
                list(DataLoader(data, num_workers=workers, **options))  # type: ignore[arg-type]
    for mask in (np.array([False, True, True]), np.array([0.0, 1.0])):
        with pytest.raises(DataError, match=r"expected (a )?whole number"):
            list(DataLoader(data, batch_sampler=[mask]))


@pytest.mark.parametrize("name", DATA)
def test_whole_numbers_of_any_kind_are_indices(name: str) -> None:
    batches = [[1, np.int8(2)], np.array([3, 4], np.uint8), (np.array(5), 0), range(2)]
    found = [batch for batch in DataLoader(DATA[name](), batch_sampler=batches)]
    first = [batch[0] if isinstance(batch, tuple) else batch for batch in found]
    assert [np.asarray(values).tolist() for values in first] == [[1, 2], [3, 4], [5, 0], [0, 1]]


@pytest.mark.parametrize("batches", [[0, 1], np.arange(3), ["ab"], [None]])
def test_a_batch_sampler_gives_lists(batches: Any) -> None:
    for make in DATA.values():
        with pytest.raises(
            DataError, match=r"DataLoader: batch_sampler gives .*, expected the indices of a batch, as a list"
        ):
            list(DataLoader(make(), batch_sampler=batches))


def test_texts_are_keys() -> None:
    class Named(dict[str, int]): ...

    keys = ["a", np.str_("b")]
    (batch,) = DataLoader(Named(a=3, b=4), 2, sampler=keys)  # type: ignore[arg-type]
    assert batch.tolist() == [3, 4]


def test_the_order_that_processes_share_has_whole_numbers() -> None:
    loader = DataLoader(ArrayDataset(VALUES, VALUES), 2, sampler=[0, 1.7])
    loader.part = Part(0, 2, True)
    with pytest.raises(DataError, match=r"DataLoader: indices are float64 \(2,\), expected whole numbers"):
        list(loader)


@pytest.mark.parametrize("index", [1.5, True, slice(0, 2), None, [1], "a"])
def test_one_index_of_a_joined_data_set(index: Any) -> None:
    for name in ("batches", "subset", "both"):
        with pytest.raises(DataError, match=r"an index is .*, expected a whole number"):
            DATA[name]()[index]


@pytest.mark.parametrize("indices", [slice(0, 2), 3, [True, 2], [0, 1.5], np.array([True])])
def test_indices_of_a_subset(indices: Any) -> None:
    with pytest.raises(DataError, match=r"Subset: indices are .*, expected whole numbers"):
        Subset(ByItem(), indices)


@pytest.mark.parametrize(("epoch", "batch"), [(1.5, 0), (True, 0), ("1", 0), (-1, 0), (0, 1.5), (0, -1), (0, None)])
def test_the_number_of_an_epoch_is_whole(epoch: Any, batch: Any) -> None:
    loader = DataLoader(ByItem(), 2, seed=1)
    with pytest.raises(DataError, match=r"DataLoader: (epoch|batch) is .*, expected a whole number, 0 or more"):
        loader.set_epoch(epoch, batch)
    loader.set_epoch(np.int64(2), np.int32(1))
    assert loader.next_epoch == (2, 1)


def others(count: int) -> Iterator[tuple[Any, str]]:
    """Batches in which one part has another number of items than the rest, and what messages call it."""
    right, wrong = np.zeros((2, 3)), np.zeros((count, 3))
    yield wrong, "the batch"
    yield (right, wrong), "the batch, element 1"
    yield (alpha.zeros(2), alpha.zeros(count)), "the batch, element 1"
    yield {"x": right, "y": (right, wrong)}, "the batch, 'y', element 1"
    yield (right, ["a"] * count), "the batch, element 1"
    yield ["a"] * count, "the batch"


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_batch_has_an_item_for_each_index(count: int) -> None:
    for given, place in others(count):

        class Short(ByBatch):
            def batch(self, indices: Any, given: Any = given) -> Any:
                return given

        reason = f"Short.batch: {place} has {count} items for 2 indices; it must have one for each"
        for data in (Short(), Subset(Short(), range(6)), Short() + ByBatch(), StackDataset(Short(), ByBatch())):
            with pytest.raises(DataError, match=reason):
                next(iter(DataLoader(data, 2)))


def test_what_is_no_part_of_items_has_any_form() -> None:
    batch = (np.zeros((2, 3)), [np.zeros(1), np.zeros(5)], {"mean": np.float32(2), "scale": np.array(3.0), "name": "x"})
    data = type("Mixed", (ByBatch,), {"batch": lambda self, indices: batch})()
    assert next(iter(DataLoader(data, 2, prefetch=0))) is batch
    pair = [np.zeros(4), np.ones(4)]
    data = type("Mixed", (ByBatch,), {"batch": lambda self, indices: pair})()
    assert next(iter(DataLoader(data, 4, prefetch=0))) is pair


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_list_of_items_has_one_for_each_index(count: int) -> None:
    class Short(ByItem):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return list(range(count))

    for data in (Short(), Subset(Short(), range(6)), Short() + ByItems()):
        for options in ({}, {"collate_fn": list}):
            if options and data.__class__ is not Short:
                continue
            with pytest.raises(DataError, match=rf"Short.__getitems__: it gives {count} items for \d ind"):
                next(iter(DataLoader(data, 2, **options)))  # type: ignore[arg-type]
