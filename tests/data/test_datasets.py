"""Datasets: one's own, of tensors, parts, splits, several together, and those that are read in their own order."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.data import (
    ArrayDataset,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    get_worker_info,
    random_split,
)
from alpha.errors import DataError


class Squares(Dataset[tuple[np.ndarray, int]]):
    """Written as in PyTorch."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Any) -> tuple[np.ndarray, int]:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return np.full(2, index, np.float32), index * index


class Whole(Dataset[Any]):
    """Hands out batches only, and notes for which indices."""

    def __init__(self, first: int, count: int) -> None:
        self.values, self.asked = np.arange(first, first + count), []
        self.asked: list[list[int]] = []

    def __len__(self) -> int:
        return len(self.values)

    def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        assert indices.dtype == np.int64
        self.asked.append(indices.tolist())
        return self.values[indices], -self.values[indices]


class Count(IterableDataset[int]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        assert get_worker_info() is None
        return iter(range(self.count))


def test_a_dataset_with_items() -> None:
    first, second = list(DataLoader(Squares(3), 2))
    assert first[0].tolist() == [[0, 0], [1, 1]]
    assert first[1].tolist() == [0, 1]
    assert second[1].tolist() == [4]


def test_a_dataset_with_batches_has_items() -> None:
    data = Whole(10, 4)
    assert data[2] == (12, -12)
    assert data[-1] == (13, -13)
    assert [len(x) for x, _ in DataLoader(data, 3)] == [3, 1]
    assert data.asked[2:] == [[0, 1, 2], [3]]


def test_a_dataset_with_neither() -> None:
    class Nothing(Dataset[Any]):
        def __len__(self) -> int:
            return 1

    with pytest.raises(DataError, match=r"Nothing needs __getitem__\(index\) or batch\(indices\)"):
        DataLoader(Nothing())
    with pytest.raises(NotImplementedError, match="Nothing needs __getitem__"):
        Nothing()[0]
    with pytest.raises(DataError, match="a Dataset is no dataset: it needs __len__"):
        DataLoader(Dataset())
    with pytest.raises(NotImplementedError, match="IterableDataset needs __iter__"):
        iter(IterableDataset())


def test_array_datasets_have_items_and_take_tensors() -> None:
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(3)
    data = ArrayDataset(alpha.tensor(x), alpha.tensor(y))
    for item in (data[1], data[-2]):
        assert item[0].tolist() == x[1].tolist()
        assert item[1] == 1
    batch = data.batch(np.array([2, 0]))
    assert all(type(values) is np.ndarray for values in batch)
    np.testing.assert_array_equal(batch[0], x[[2, 0]])
    with pytest.raises(DataError, match="labels are on cuda; move them by"):
        ArrayDataset(x, alpha.tensor(y, device="cuda"))
    with pytest.raises(DataError, match="images are no numpy array"):
        ArrayDataset(alpha.tensor(1.0), y)


def test_tensors(device: str) -> None:
    x = alpha.tensor(np.arange(10.0).reshape(5, 2), dtype="float32", device=device, requires_grad=True)
    y = alpha.tensor(np.arange(5), device=device)
    data = TensorDataset(x, y)
    assert len(data) == 5
    assert data[3][0].numpy().tolist() == [6, 7]
    threads = []
    loader = DataLoader(StackDataset(Subset(data, [4, 2, 0, 1, 3]), data), 2, num_workers=2)
    for (images, labels), _ in loader:
        threads += [t.name for t in threading.enumerate() if t.name.startswith(("alpha-worker", "alpha-prefetch"))]
        assert images.device.name == labels.device.name == device
        assert not images.requires_grad
        np.testing.assert_array_equal(images.numpy()[:, 0], labels.numpy() * 2)
    assert bool(threads) == (device == "cpu")  # only the caller may use a GPU
    if device == "cuda":
        with pytest.raises(DataError, match=r"batches on a device cannot be joined; join the tensors by alpha.cat"):
            list(DataLoader(data + data, 10))
    else:
        ((images, _),) = DataLoader(data + data, 10)
        assert isinstance(images, alpha.Tensor)
        assert images.numpy()[:, 0].tolist() == [0, 2, 4, 6, 8] * 2


def test_arrays_and_tensors_of_one_length() -> None:
    arrays = TensorDataset(np.arange(3), np.arange(3))
    assert all(type(values) is np.ndarray for values in arrays.batch(np.array([0, 1])))
    mixed = TensorDataset(np.arange(3, dtype=np.int16), alpha.ones(3))
    assert [values.dtype.name for values in mixed.batch(np.array([0, 1]))] == ["int32", "float32"]
    assert all(isinstance(values, alpha.Tensor) for values in mixed[0])
    for given, message in (
        ((), "there are none"),
        ((np.ones(3), np.ones(2)), r"one length  \(\(3,\), \(2,\)\)"),
        (([1, 2],), "argument 0 is a list"),
        ((np.ones(2), alpha.tensor(1.0)), "argument 1 has no axis"),
    ):
        with pytest.raises(DataError, match=message):
            TensorDataset(*given)  # type: ignore[arg-type]


def test_subsets() -> None:
    part = Subset(Squares(10), [7, -1, 3])
    assert len(part) == 3
    assert [part[i][1] for i in (0, 2, -1)] == [49, 9, 9]
    (batch,) = DataLoader(Subset(Squares(10), [7, 3]), 2)
    assert batch[1].tolist() == [49, 9]
    whole = Whole(0, 10)
    (batch,) = DataLoader(Subset(Subset(whole, range(5, 10)), np.array([4, 0])), 2)
    assert batch[0].tolist() == [9, 5]
    assert whole.asked == [[9, 5]]
    assert len(Subset(whole, [])) == 0
    for indices, message in (
        ([0, 10], "indices run from 0 to 10, the dataset has 10 items"),
        ([-11], "indices run from -11 to -11"),
        ([0.5], r"indices are float64 \(1,\), expected whole numbers"),
        (np.ones(10, bool), r"np.flatnonzero\(mask\)"),
        ([[1]], r"indices are int64 \(1, 1\)"),
    ):
        with pytest.raises(DataError, match=message):
            Subset(whole, indices)  # type: ignore[arg-type]


def test_one_after_another() -> None:
    a, b, c = Whole(0, 3), Whole(3, 2), Whole(5, 4)
    data: ConcatDataset = a + b + c
    assert len(data) == 9
    assert data.cumulative_sizes == [5, 9]
    assert ConcatDataset([a, b, c]).cumulative_sizes == [3, 5, 9]
    assert [int(data[i][0]) for i in (0, 2, 3, 8, -1, -9)] == [0, 2, 3, 8, 8, 0]
    for wrong in (9, -10):
        with pytest.raises(IndexError, match=f"index {wrong} is out of range for 9 items"):
            data[wrong]
    for each in (a, b, c):
        each.asked.clear()
    order = np.array([8, 0, 3, 7, 1, -1])
    x, y = ConcatDataset([a, b, c]).batch(order)
    assert x.tolist() == [8, 0, 3, 7, 1, 8]
    assert y.tolist() == [-8, 0, -3, -7, -1, -8]
    assert (a.asked, b.asked, c.asked) == ([[0, 1]], [[0]], [[3, 2, 3]])  # each is asked once
    (batch,) = DataLoader(Squares(2) + Squares(3), 5)
    assert batch[1].tolist() == [0, 1, 0, 1, 4]
    (batch,) = DataLoader(StackDataset(np.arange(2), Whole(7, 2)) + StackDataset([5], Whole(3, 1)), 3)  # by items
    assert batch[0].tolist() == [0, 1, 5]
    assert batch[1][0].tolist() == [7, 8, 3]


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (("dog", "cat", "owl"), "has 3 classes, data set 0 has 3; class 0 is 'dog' and 'cat'"),
        (("cat", "dog"), "has 2 classes, data set 0 has 3. Labels are the numbers of classes"),
        (("cat", "dog", "owl", "pig"), "has 4 classes, data set 0 has 3. Labels"),
    ],
)
def test_parts_with_other_classes_are_not_joined(second: tuple[str, ...], reason: str) -> None:
    def named(*names: str) -> ArrayDataset:
        return ArrayDataset(np.zeros((2, 2, 2, 3), np.uint8), np.array([0, 1]), names)

    first, other, unnamed = named("cat", "dog", "owl"), named(*second), named()
    for number, parts in (
        (1, [first, other]),
        (1, [first, Subset(other, [0])]),
        (2, [first, unnamed, other]),
        (1, [first + first, other + other]),
    ):
        with pytest.raises(DataError, match=f"ConcatDataset: data set {number} {reason}"):
            ConcatDataset(parts)
    for dataset, label in ((first, 1), (unnamed, 1)):
        assert (first + dataset)[3][1] == label


def test_what_has_no_items_by_index_has_no_parts() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter([0, 1])

    class Counted(Stream):
        def __len__(self) -> int:
            return 2

    for data in (Stream(), Counted(), iter([0, 1]), 5):
        for owner, take in (("Subset", lambda d: Subset(d, [0])), ("random_split", lambda d: random_split(d, [1, 1]))):
            with pytest.raises(DataError, match=f"{owner}: a {type(data).__name__} has no items by index"):
                take(data)


def test_streams_with_other_classes_are_not_joined() -> None:
    class Stream(IterableDataset[int]):
        def __init__(self, *classes: str) -> None:
            self.classes = classes

        def __iter__(self) -> Iterator[int]:
            return iter([0, 1])

    assert list(Stream("a", "b") + Stream("a", "b") + Stream()) == [0, 1] * 3
    with pytest.raises(DataError, match=r"ChainDataset: data set 1 has 2 classes, .* class 0 is 'b' and 'a'"):
        Stream("a", "b") + Stream("b", "a")


def test_side_by_side() -> None:
    pair, named = StackDataset(Whole(0, 3), Squares(3)), StackDataset(x=Whole(0, 3), y=Whole(5, 3))
    assert pair[1][1][1] == 1
    assert named[2] == {"x": (2, -2), "y": (7, -7)}
    (batch,) = DataLoader(pair, 3)
    assert batch[0][0].tolist() == [0, 1, 2]
    assert batch[1][1].tolist() == [0, 1, 4]
    (batch,) = DataLoader(named, 3)
    assert batch["y"][0].tolist() == [5, 6, 7]
    assert named.datasets["x"].asked[-1] == [0, 1, 2]
    for args, kwargs, message in (
        ((), {}, "there are no datasets"),
        ((Squares(1), Squares(2)), {}, "have 1, 2 items, expected one length"),
        ((Squares(1),), {"x": Squares(1)}, "by name, or none"),
        ((Count(3),), {}, "a Count has no items by index"),
    ):
        with pytest.raises(DataError, match=message):
            StackDataset(*args, **kwargs)


@pytest.mark.parametrize("workers", [0, 3])
def test_what_is_read_in_its_own_order(workers: int) -> None:
    loader = DataLoader(Count(7), 3, num_workers=workers)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [batch.tolist() for batch in DataLoader(Count(7), 3, drop_last=True)] == [[0, 1, 2], [3, 4, 5]]
    loader.set_epoch(0, 2)
    assert [batch.tolist() for batch in loader] == [[6]]
    assert [len(batch) for batch in loader] == [3, 3, 1]
    assert list(DataLoader(Count(3), batch_size=None)) == [0, 1, 2]
    assert list(DataLoader(Count(3), 2, collate_fn=sum)) == [1, 2]
    with pytest.raises(TypeError):
        len(loader)
    with pytest.raises(TypeError, match="a Count is read in its own order; it has no item 0"):
        Count(3)[0]


def test_a_chain() -> None:
    chain = Count(2) + Count(3)
    assert isinstance(chain, ChainDataset)
    assert list(chain) == [0, 1, 0, 1, 2]
    (batch,) = DataLoader(chain, 5)
    assert batch.tolist() == [0, 1, 0, 1, 2]
    with pytest.raises(TypeError):
        len(chain)
    with pytest.raises(DataError, match="a Squares is no IterableDataset"):
        ChainDataset([Squares(1)])


def test_splits() -> None:
    data = Squares(10)
    parts = random_split(data, [7, 3], seed=0)
    assert [len(part) for part in parts] == [7, 3]
    together = np.concatenate([part.indices for part in parts])
    assert sorted(together) == list(range(10))
    # the same on every platform
    assert together.tolist() == TOGETHER
    for same in (random_split(data, [7, 3], 0), random_split(data, (0.7, 0.3), seed=0)):
        assert np.concatenate([part.indices for part in same]).tolist() == TOGETHER
    other = random_split(data, [7, 3], 5)
    assert np.concatenate([part.indices for part in other]).tolist() != TOGETHER
    assert [part.indices.tolist() for part in other] == [
        part.indices.tolist() for part in random_split(data, [7, 3], seed=5)
    ]


TOGETHER = [4, 7, 8, 6, 1, 2, 9, 0, 5, 3]


@pytest.mark.torch
def test_fractions_are_rounded_as_in_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for count in (1, 2, 10, 11, 100):
        for fractions in ([0.5, 0.5], [0.7, 0.2, 0.1], [0.29, 0.71], [1], [0.25] * 4):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of empty parts
                expected = [len(part) for part in torch.utils.data.random_split(range(count), fractions)]
            assert [len(part) for part in random_split(range(count), fractions)] == expected


def test_splits_with_all_classes_in_each() -> None:
    labels = np.repeat([0, 1, 2, 3], [600, 300, 90, 10])[np.random.default_rng(0).permutation(1000)]
    for given in (labels, [f"class {n}" for n in labels], alpha.tensor(labels)):
        parts = random_split(range(1000), [0.8, 0.1, 0.1], seed=3, stratify=given)
        assert [len(part) for part in parts] == [800, 100, 100]
        assert len({index for part in parts for index in part.indices.tolist()}) == 1000
        for part, share in zip(parts, (0.8, 0.1, 0.1), strict=True):
            counts = np.bincount(labels[part.indices], minlength=4)
            assert (np.abs(counts - share * np.array([600, 300, 90, 10])) <= 1).all(), counts
    # of a class with one item, the larger part has it
    for lengths, counts in (([60, 41], [1, 0]), ([41, 60], [0, 1])):
        halves = random_split(range(101), lengths, stratify=[0] * 100 + [1])
        assert [int((part.indices == 100).sum()) for part in halves] == counts
    again = random_split(range(1000), [0.8, 0.1, 0.1], seed=4, stratify=labels)
    assert again[0].indices.tolist() != parts[0].indices.tolist()


def test_the_error_of_a_balanced_split_is_at_most_two(rng: np.random.Generator) -> None:
    for _ in range(50):
        count = int(rng.integers(1, 200))
        labels = rng.integers(0, int(rng.integers(1, 12)), count)
        cut = int(rng.integers(0, count + 1))
        for part in random_split(range(count), [cut, count - cut], stratify=labels):
            share = np.bincount(labels) * (len(part) / count)
            assert np.abs(np.bincount(labels[part.indices], minlength=len(share)) - share).max() <= 2


def test_splits_that_mean_nothing() -> None:
    for lengths, options, message in (
        ([5, 6], {}, r"lengths=\[5, 6\] add up to 11; expected 10"),
        ([0.5, 0.4], {}, "add up to 0.9; expected 10"),
        ([12, -2], {}, "are not lengths or fractions, 0 or more"),
        ([True, 9], {}, "are not lengths or fractions"),
        ([9.5, 0.5], {}, "expected 10"),
        ([5, 5], {"stratify": [1, 2]}, r"stratify has shape \(2,\), expected a label per item, \(10,\)"),
        ([5, 5], {"seed": -1}, "random_split: seed is -1"),
        ([5, 5], {"seed": 1, "generator": 2}, "seed=1 and generator=2 are both given"),
        ([5, 5], {"generator": object()}, "generator=object is not offered; give a whole number, seed="),
    ):
        with pytest.raises(DataError, match=message):
            random_split(range(10), lengths, **options)  # type: ignore[arg-type]


def test_no_indices_of_a_chain_of_sets_are_a_batch_of_the_first() -> None:
    first, second = TensorDataset(np.zeros((4, 3), np.uint8)), TensorDataset(np.zeros((4, 5), np.float32))
    (found,) = ConcatDataset([first, second]).batch(np.array([], np.int64))
    assert (found.shape, found.dtype) == ((0, 3), np.uint8)
    assert len(ConcatDataset([first]).batch(np.array([], np.int64))) == 1
