"""DataLoader and prefetched: order, lengths, and a thread that never outlives its consumer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import child
import numpy as np
import pytest

import alpha
from alpha.data import ArrayDataset, DataLoader
from alpha.data.batch_threads import prefetched
from alpha.errors import DataError


def dataset(count: int) -> ArrayDataset:
    """Image i is filled with i and has label i % 10."""
    numbers = np.arange(count)
    images = np.broadcast_to(numbers[:, None, None, None], (count, 2, 2, 3)).astype(np.uint8)
    return ArrayDataset(images, (numbers % 10).astype(np.int32), tuple("abcdefghij"))


def order(loader: DataLoader) -> list[int]:
    return [int(i) for images, _ in loader for i in images[:, 0, 0, 0]]


def prefetch_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "alpha-prefetch"]


@pytest.mark.parametrize("prefetch", [0, 1, 2])
@pytest.mark.parametrize(
    ("count", "batch_size", "drop_last", "sizes"),
    [
        (10, 4, False, [4, 4, 2]),
        (10, 4, True, [4, 4]),
        (8, 4, False, [4, 4]),
        (8, 4, True, [4, 4]),
        (4, 4, True, [4]),
        (3, 4, False, [3]),
        (3, 4, True, []),
        (0, 4, False, []),
    ],
)
def test_batches(prefetch: int, count: int, batch_size: int, drop_last: bool, sizes: list[int]) -> None:
    loader = DataLoader(dataset(count), batch_size, drop_last=drop_last, prefetch=prefetch)
    batches = list(loader)
    assert [len(labels) for _, labels in batches] == sizes
    assert len(loader) == len(sizes)
    for images, labels in batches:
        assert images.dtype == np.uint8
        assert images.shape[1:] == (2, 2, 3)
        assert labels.dtype == np.int32
        assert (images[:, 0, 0, 0] % 10 == labels).all()
    assert not prefetch_threads()


def test_unshuffled_order_is_the_datasets() -> None:
    assert order(DataLoader(dataset(10), 3)) == list(range(10))


def test_an_epoch_is_a_permutation_fixed_by_seed_and_epoch() -> None:
    loader = DataLoader(dataset(50), 8, shuffle=True, seed=3)
    first, second = order(loader), order(loader)
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    loader.set_epoch(1)
    assert order(loader) == second
    assert order(DataLoader(dataset(50), 8, shuffle=True, seed=3)) == first
    assert order(DataLoader(dataset(50), 8, shuffle=True, seed=4)) != first


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_an_epoch_begins_at_the_batch_that_is_set_and_the_next_one_at_its_start(prefetch: int, drop_last: bool) -> None:
    loader = DataLoader(dataset(50), 8, shuffle=True, seed=3, drop_last=drop_last, prefetch=prefetch)
    first, second = order(loader), order(loader)
    for batch in range(len(loader) + 1):
        loader.set_epoch(0, batch)
        assert order(loader) == first[8 * batch :]
        assert order(loader) == second


def test_seeds_that_are_near_and_large_give_other_orders() -> None:
    seeds = (0, 1, 2, 2**32, 2**32 + 1, 2**63)
    orders = {tuple(order(DataLoader(dataset(20), 20, shuffle=True, seed=seed))) for seed in seeds}
    assert len(orders) == len(seeds)


def test_what_describes_the_batches() -> None:
    loader = DataLoader(dataset(10), 4, shuffle=True, seed=np.int64(3), drop_last=True)
    about = {
        "images": 10,
        "batch_size": 4,
        "shuffle": True,
        "seed": 3,
        "drop_last": True,
        "classes": list("abcdefghij"),
    }
    assert loader.describe() == about
    for change in ({"batch_size": 5}, {"shuffle": False}, {"seed": 4}, {"drop_last": False}):
        arguments = {"batch_size": 4, "shuffle": True, "seed": 3, "drop_last": True, **change}
        assert DataLoader(dataset(10), **arguments).describe() != loader.describe()  # type: ignore[arg-type]


def test_the_order_is_the_same_on_every_platform() -> None:
    assert order(DataLoader(dataset(10), 4, shuffle=True, seed=0)) == [0, 8, 9, 3, 7, 5, 1, 2, 6, 4]


def test_an_order_that_is_prepared_is_that_of_the_next_epoch_whatever_changes() -> None:
    def fresh(seed: int = 0, epoch: int = 0, shuffle: bool = True) -> list[int]:
        loader = DataLoader(dataset(10), 4, shuffle=shuffle, seed=seed)
        loader.set_epoch(epoch)
        return order(loader)

    loader = DataLoader(dataset(10), 4, shuffle=True, seed=0)
    loader.prepare_epoch()
    prepared = loader._prepared
    assert prepared is not None
    assert loader.take_epoch()[0] is prepared[1]
    assert order(loader) == fresh(epoch=1)
    loader.prepare_epoch()
    loader.set_epoch(7)
    assert order(loader) == fresh(epoch=7)
    loader.prepare_epoch()
    loader.seed = 3
    assert order(loader) == fresh(seed=3, epoch=8)
    loader.prepare_epoch()
    loader.shuffle = False
    assert order(loader) == fresh(shuffle=False)
    loader.prepare_epoch()
    loader.dataset = dataset(5)
    assert sorted(order(loader)) == list(range(5))


class Pairs:
    """Item i is features full of i, their sum and whether it is even, in kinds that are given."""

    def __init__(self, count: int, make: Any = np.asarray) -> None:
        self.count, self.make = count, make

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Any, float, int, bool]:
        assert type(index) is int
        return self.make(np.full((2, 3), index, np.float32)), 0.5 + index, index, index % 2 == 0


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("make", [np.asarray, alpha.tensor])
def test_items_are_stacked(prefetch: int, make: Any) -> None:
    data = Pairs(5, make)
    for given in (data, [data[i] for i in range(5)], [list(data[i]) for i in range(5)]):
        loader = DataLoader(given, 2, prefetch=prefetch)
        batches = list(loader)
        assert loader.dataset is given
        assert [len(batch) for batch in batches] == [4, 4, 4]
        for batch, indices in zip(batches, ([0, 1], [2, 3], [4]), strict=True):
            assert isinstance(batch, tuple)
            assert [values.dtype.name for values in batch] == ["float32", "float32", "int64", "bool"]
            assert [values.shape for values in batch] == [(len(indices), 2, 3), *[(len(indices),)] * 3]
            np.testing.assert_array_equal(batch[0][:, 0, 0], indices)
            np.testing.assert_array_equal(batch[1], np.array(indices) + 0.5)
            np.testing.assert_array_equal(batch[2], indices)
    shuffled = DataLoader(data, 5, shuffle=True, seed=0)
    assert sorted(next(iter(shuffled))[2]) == list(range(5))
    assert next(iter(DataLoader(np.arange(6).reshape(3, 2), 2))).tolist() == [[0, 1], [2, 3]]
    assert next(iter(DataLoader([1, 2.5], 2))).dtype == np.float32
    assert next(iter(DataLoader([(np.uint8(1),), (np.uint8(2),)], 2)))[0].dtype == np.uint8


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([(1, 2), (1,)], "item 1 has 1, item 0 has 2 elements"),
        ([(1, 2), 3], "item 1 is of type int, item 0 has 2 elements"),
        ([(np.ones(2), 1), (np.ones(3), 1)], r"item 1, element 0 has shape \(3,\), item 0 \(2,\)"),
        ([np.ones(2), 1], r"item 1 has shape \(\), item 0 \(2,\)"),
        ([(1, None)], "item 0, element 1 is of type NoneType, not an array, a tensor, a number or a string"),
        ([({"x": {1}},)], "item 0, element 0, 'x' is of type set"),
        ([{"x": 1}, {"y": 1}], r"item 1 has the keys \['y'\], item 0 \['x'\]"),
        ([{"x": 1}, 2], "item 1 is of type int, item 0 is a dict"),
        (["a", 2], "item 1 is of type int, item 0 is a string"),
        ([(1, (2, 3)), (1, (2,))], "item 1, element 1 has 1, item 0 has 2 elements"),
    ],
)
def test_items_that_cannot_be_stacked(prefetch: int, items: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(DataLoader(items, 2, prefetch=prefetch))


def test_items_on_another_device() -> None:
    items = [(alpha.ones(2, device="cuda"), 1)]
    with pytest.raises(DataError, match="item 0, element 0 is a tensor on cuda; the loader takes those on the cpu"):
        list(DataLoader(items, 1))


@pytest.mark.parametrize("given", [3, iter([1]), object(), {1, 2}])
def test_what_is_no_dataset_is_refused_at_once(given: Any) -> None:
    with pytest.raises(DataError, match=r"is no dataset: it needs __len__ and either batch\(indices\) or __getitem__"):
        DataLoader(given, 1)


def test_arrays_of_any_shape_and_targets_of_any_dtype() -> None:
    for features, targets in (((7, 4), (7,)), ((7, 3, 5), (7, 2)), ((7,), (7, 1))):
        x, y = np.random.default_rng(0).standard_normal(features), np.arange(np.prod(targets)).reshape(targets) / 2
        batches = list(DataLoader(ArrayDataset(x, y), 4))
        np.testing.assert_array_equal(np.concatenate([x for x, _ in batches]), x)
        np.testing.assert_array_equal(np.concatenate([y for _, y in batches]), y)
    assert len(ArrayDataset(np.zeros((2, 4)), np.array([-1, 70]))) == 2
    zeros = np.zeros((2, 4))
    for images, labels, classes, message in (
        ([1, 2], np.zeros(2), (), "images are no numpy array .* but a list"),
        (zeros, np.zeros(()), (), "labels are no numpy array"),
        (zeros, np.zeros(3), (), r"as many images as labels  \(images \(2, 4\), labels \(3,\)\)"),
        (zeros, np.zeros(2), ("a",), r"expected integer labels \(N,\) for 1 classes, not float64 \(2,\)"),
        (zeros, np.zeros((2, 1), int), ("a",), r"expected integer labels .* not int64 \(2, 1\)"),
        (zeros, np.array([0, 1]), ("a",), "labels run from 0 to 1, expected 0 to 0 for 1 classes"),
    ):
        with pytest.raises(DataError, match=message):
            ArrayDataset(images, labels, classes)


def test_wrong_numbers_name_themselves() -> None:
    with pytest.raises(DataError, match="batch_size is 0, expected a whole number, 1 or more"):
        DataLoader(dataset(4), 0)
    for wrong in (2.5, "4", True):
        with pytest.raises(DataError, match=f"batch_size is {wrong!r}, expected a whole number"):
            DataLoader(dataset(4), wrong)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="batch is -1"):
        DataLoader(dataset(4), 1).set_epoch(0, -1)
    with pytest.raises(DataError, match="seed is -1"):
        DataLoader(dataset(4), 1, seed=-1)
    with pytest.raises(DataError, match="epoch is -1"):
        DataLoader(dataset(4), 1).set_epoch(-1)


def test_arrays_that_do_not_fit() -> None:
    images = np.zeros((3, 2, 2, 3), np.uint8)
    with pytest.raises(DataError, match=r"labels \(2,\)"):
        ArrayDataset(images, np.zeros(2, np.int32), ("a",))
    with pytest.raises(DataError, match="labels run from 0 to 1, expected 0 to 0 for 1 classes"):
        ArrayDataset(images, np.array([0, 1, 0], np.int32), ("a",))


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_an_abandoned_iteration_ends_its_thread(taken: int) -> None:
    batches = iter(DataLoader(dataset(1000 % 256), 1, prefetch=1))
    for _ in range(taken):
        next(batches)
    batches.close()
    assert not prefetch_threads()


def test_break_ends_the_thread() -> None:
    for _ in DataLoader(dataset(100), 1):
        break
    assert not prefetch_threads()


def test_an_error_of_the_producer_reaches_the_consumer_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise DataError("record 3 is broken")

    seen = []
    with pytest.raises(DataError, match="record 3 is broken"):  # noqa: PT012
        for item in prefetched(items(), 2):
            seen.append(item)
    assert seen == [0, 1, 2]
    assert not prefetch_threads()


def test_at_most_depth_items_are_made_ahead() -> None:
    made = []
    ahead = threading.Event()

    def items() -> Iterator[int]:
        for item in range(10):
            made.append(item)
            if item == 3:
                ahead.set()
            yield item

    stream = prefetched(items(), 2)
    assert next(stream) == 0
    # One is with the consumer, two wait in the queue, one is in the producer's hands.
    assert ahead.wait(child.HANG_S)
    time.sleep(0.05)
    assert made == [0, 1, 2, 3]
    stream.close()
