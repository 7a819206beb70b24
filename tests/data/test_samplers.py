"""Samplers: what they draw, that it is fixed by the seed and the epoch, and how a loader uses them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from alpha.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from alpha.errors import DataError

MAKERS = {
    "random": lambda **seed: RandomSampler(range(20), **seed),
    "replaced": lambda **seed: RandomSampler(range(20), True, **seed),
    "subset": lambda **seed: SubsetRandomSampler(range(40, 60), **seed),
    "weighted": lambda **seed: WeightedRandomSampler(range(1, 21), 20, **seed),
    "distinct": lambda **seed: WeightedRandomSampler(range(1, 21), 20, False, **seed),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_seed_and_epoch_fix_what_is_drawn(make: Any) -> None:
    sampler = make(seed=3)
    first, second = list(sampler), list(sampler)
    assert len(first) == len(second) == len(sampler) == 20
    assert all(type(index) is int for index in first)
    assert first != second
    sampler.set_epoch(1)
    assert list(sampler) == second
    assert list(make(generator=3)) == first
    assert list(make(seed=4)) != first
    assert list(make(seed=0)) != first
    with pytest.raises(DataError, match="epoch is -1"):
        sampler.set_epoch(-1)
    with pytest.raises(DataError, match=r"generator=str is not offered; give a whole number, seed="):
        make(generator="3")


def test_what_is_drawn_is_the_same_on_every_platform() -> None:
    drawn = {name: list(make(seed=0)) for name, make in MAKERS.items()}
    assert drawn == DRAWN


DRAWN = {
    "random": [0, 8, 19, 9, 3, 18, 14, 7, 15, 5, 1, 17, 11, 2, 16, 10, 6, 13, 12, 4],
    "replaced": [17, 5, 16, 9, 2, 3, 17, 11, 7, 8, 2, 9, 16, 10, 6, 11, 10, 8, 16, 7],
    "subset": [40, 48, 59, 49, 43, 58, 54, 47, 55, 45, 41, 57, 51, 42, 56, 50, 46, 53, 52, 44],
    "weighted": [1, 9, 13, 5, 19, 9, 19, 8, 3, 4, 17, 13, 19, 19, 7, 8, 16, 10, 6, 3],
    "distinct": [1, 9, 13, 5, 19, 8, 3, 4, 17, 7, 16, 10, 6, 18, 14, 15, 0, 12, 11, 2],
}


def test_a_random_order() -> None:
    assert list(SequentialSampler(range(4))) == [0, 1, 2, 3]
    assert len(SequentialSampler(range(4))) == 4
    order = list(RandomSampler(range(20), seed=3))
    shuffled = [int(i) for batch in DataLoader(range(20), 6, shuffle=True, seed=3) for i in batch]
    assert order == shuffled
    for count in (5, 20, 47):
        indices = list(RandomSampler(range(20), num_samples=count))
        assert len(indices) == len(RandomSampler(range(20), num_samples=count)) == count
        for begin in range(0, count, 20):  # each round has every index at most once
            part = indices[begin : begin + 20]
            assert len(set(part)) == len(part)
    assert indices[:20] != indices[20:40]
    assert list(RandomSampler([])) == []


def test_frequencies() -> None:
    counts = np.bincount(list(RandomSampler(range(4), True, 40_000)), minlength=4)
    assert np.abs(counts - 10_000).max() < 500
    weights = [0.0, 1.0, 3.0, 0.0, 6.0, 0.0]
    counts = np.bincount(list(WeightedRandomSampler(weights, 50_000)), minlength=6)
    assert counts[[0, 3, 5]].tolist() == [0, 0, 0]
    assert np.abs(counts - np.array(weights) * 5_000).max() < 600
    assert set(WeightedRandomSampler([5e-324, 0.0], 20)) == {0}  # any product with it rounds to it or to 0


@pytest.mark.slow
def test_distinct_indices_are_drawn_from_what_is_left() -> None:
    """P(a first, b second) = w_a / W * w_b / (W - w_a)"""
    weights = np.array([0.0, 1.0, 2.0, 5.0])
    sampler = WeightedRandomSampler(weights, 2, replacement=False)
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(8_000):
        pair = tuple(sampler)
        counts[pair] = counts.get(pair, 0) + 1
    for a in (1, 2, 3):
        for b in {1, 2, 3} - {a}:
            expected = 8_000 * weights[a] / 8 * weights[b] / (8 - weights[a])
            assert abs(counts[a, b] - expected) < 5 * np.sqrt(expected)
    assert sum(counts.values()) == 8_000


def test_batches_of_indices() -> None:
    for drop_last, expected in ((False, [[0, 1, 2], [3, 4, 5], [6]]), (True, [[0, 1, 2], [3, 4, 5]])):
        sampler = BatchSampler(SequentialSampler(range(7)), 3, drop_last)
        assert list(sampler) == expected
        assert len(sampler) == len(expected)
    random = BatchSampler(RandomSampler(range(7), seed=0), 3, False)
    first = list(random)
    random.set_epoch(0)
    assert list(random) == first
    BatchSampler(range(3), 2, False).set_epoch(1)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_loader_takes_what_a_sampler_gives(prefetch: int) -> None:
    sampler = RandomSampler(range(10), num_samples=7, seed=1)
    expected = [list(sampler), list(sampler)]
    loader = DataLoader(np.arange(10), 3, sampler=RandomSampler(range(10), num_samples=7, seed=1), prefetch=prefetch)
    assert (len(loader), loader.samples) == (3, 7)
    for epoch in expected:
        assert np.concatenate(list(loader)).tolist() == epoch
    loader.set_epoch(0, 1)
    assert np.concatenate(list(loader)).tolist() == expected[0][3:]
    assert np.concatenate(list(loader)).tolist() == expected[1]
    loader.set_epoch(0)
    loader.prepare_epoch()
    order, first = loader.take_epoch()
    assert (order.tolist(), first) == (expected[0], 0)
    dropping = DataLoader(np.arange(10), 3, sampler=[5, 4, 3, 2], drop_last=True, prefetch=prefetch)
    assert [batch.tolist() for batch in dropping] == [[5, 4, 3]]
    assert len(dropping) == 1
    assert [int(item) for item in DataLoader(np.arange(10), None, sampler=[5, 4])] == [5, 4]
    for other in (
        RandomSampler(range(10), num_samples=7, seed=2),
        RandomSampler(range(10), num_samples=8, seed=1),
        WeightedRandomSampler([1.0] * 10, 7, seed=1),
        None,
    ):
        assert DataLoader(np.arange(10), 3, sampler=other).describe() != loader.describe()
    assert DataLoader(np.arange(10), 3, sampler=sampler).describe() == loader.describe()


def test_a_loader_takes_the_batches_of_a_sampler() -> None:
    batches = BatchSampler(RandomSampler(range(10), seed=1), 4, True)
    expected = [list(batches), list(batches)]
    loader = DataLoader(np.arange(10), batch_sampler=BatchSampler(RandomSampler(range(10), seed=1), 4, True))
    assert loader.batch_size is None
    assert len(loader) == 2
    for epoch in expected:
        assert [batch.tolist() for batch in loader] == epoch
    loader.set_epoch(1, 1)
    assert [batch.tolist() for batch in loader] == expected[1][1:]
    uneven = DataLoader(np.arange(10), batch_sampler=[[1], [2, 3, 4], (5, 6)])
    assert [batch.tolist() for batch in uneven] == [[1], [2, 3, 4], [5, 6]]


def test_samplers_of_ones_own() -> None:
    class Downwards(Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            yield from range(4, -1, -1)

    class Endless:
        def __iter__(self) -> Iterator[np.int64]:
            while True:
                yield np.int64(1)

    loader = DataLoader(np.arange(5), 2, sampler=Downwards())
    assert [batch.tolist() for batch in loader] == [[4, 3], [2, 1], [0]]
    with pytest.raises(TypeError):
        len(loader)
    batches = iter(DataLoader(np.arange(5), 2, sampler=Endless()))
    assert [next(batches).tolist() for _ in range(3)] == [[1, 1]] * 3
    batches.close()
    with pytest.raises(NotImplementedError, match="Sampler needs __iter__"):
        iter(Sampler())
    keys = DataLoader({"a": 1, "b": 2}, 2, sampler=["b", "a"])  # type: ignore[arg-type]
    assert next(iter(keys)).tolist() == [2, 1]


def test_samplers_that_mean_nothing() -> None:
    for make, message in (
        (lambda: RandomSampler(range(3), num_samples=0), "RandomSampler: num_samples is 0"),
        (lambda: RandomSampler(range(3), 3), "replacement is 3, expected True or False"),  # type: ignore[arg-type]
        (lambda: RandomSampler([], num_samples=2), "num_samples is 2, and the dataset has no items"),
        (lambda: RandomSampler(range(3), seed=-1), "RandomSampler: seed is -1"),
        (lambda: SubsetRandomSampler([0.5]), "SubsetRandomSampler: indices are float64"),
        (lambda: WeightedRandomSampler([1, -1], 1), "finite, 0 or more, and not all 0"),
        (lambda: WeightedRandomSampler([0, 0], 1), "finite, 0 or more, and not all 0"),
        (lambda: WeightedRandomSampler([], 1), "finite, 0 or more, and not all 0"),
        (lambda: WeightedRandomSampler([1, np.nan], 1), "finite, 0 or more, and not all 0"),
        (lambda: WeightedRandomSampler([1e308, 1e308], 1), "finite, 0 or more, and not all 0"),
        (lambda: WeightedRandomSampler([[1]], 1), r"weights have shape \(1, 1\)"),  # type: ignore[list-item]
        (lambda: WeightedRandomSampler([1, 0, 1], 3, False), "num_samples is 3 without replacement, and only 2"),
        (lambda: WeightedRandomSampler([1], 0), "num_samples is 0"),
        (lambda: BatchSampler(3, 2, False), "a int is no sampler"),  # type: ignore[arg-type]
        (lambda: BatchSampler([1], 0, False), "batch_size is 0"),
        (lambda: BatchSampler([1], 1, 0), "drop_last is 0, expected True or False"),  # type: ignore[arg-type]
    ):
        with pytest.raises(DataError, match=message):
            make()


@pytest.mark.parametrize("count", [1, 9, 11, 100])
def test_weights_that_are_not_those_of_the_items(count: int) -> None:
    """Three weights of three classes would draw the first three items alone."""
    data = np.arange(10)
    DataLoader(data, 3, sampler=WeightedRandomSampler(np.ones(10), 20))
    with pytest.raises(DataError, match=rf"{count} weights for 10 items; .* weights\[labels\]"):
        DataLoader(data, 3, sampler=WeightedRandomSampler(np.ones(count), 20))

    class OfClasses(WeightedRandomSampler):
        """A subclass may make items of classes by itself."""

    DataLoader(data, 3, sampler=OfClasses(np.ones(count), 20))
