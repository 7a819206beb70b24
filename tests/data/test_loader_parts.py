"""Parts of the data that several processes take: together they are what one process takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alpha
from alpha.data import (
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from alpha.data.loader import Part
from alpha.data.samplers import part_of
from alpha.errors import DataError
from alpha.runtime.ranks import set_ranks

SIZES = st.integers(1, 7)  # processes
COUNTS = st.integers(0, 40)  # items


def flat(lists: Iterable[Iterable[Any]]) -> list[Any]:
    return list(chain.from_iterable(lists))


def padded(order: list[int], size: int) -> list[int]:
    """Order that begins again until it can be shared out equally."""
    whole = list(order)
    while order and len(whole) % size:
        whole += order[: size - len(whole) % size]
    return whole


@given(SIZES, st.lists(st.integers(-5, 1000), max_size=40), st.booleans())
def test_parts_are_dealt_out_like_cards(size: int, items: list[int], even: bool) -> None:
    parts = [part_of(np.array(items, np.int64), rank, size, even).tolist() for rank in range(size)]
    whole = padded(items, size) if even else items
    dealt: list[list[int]] = [[] for _ in range(size)]
    for place, item in enumerate(whole):
        dealt[place % size].append(item)
    assert parts == dealt
    if even:
        assert len({len(part) for part in parts}) == 1
    else:
        assert Counter(flat(parts)) == Counter(items)


# -- DistributedSampler ----------------------------------------------------------------------------


def samplers(count: int, size: int, **options: Any) -> list[DistributedSampler]:
    return [DistributedSampler(range(count), size, rank, **options) for rank in range(size)]


@given(SIZES, COUNTS, st.booleans(), st.booleans(), st.integers(0, 2**31), st.integers(0, 9))
def test_ranks_share_one_order(size: int, more: int, shuffle: bool, drop_last: bool, seed: int, epoch: int) -> None:
    count = size + more
    ranks = samplers(count, size, shuffle=shuffle, seed=seed, drop_last=drop_last)
    for sampler in ranks:
        sampler.set_epoch(epoch)
    order = list(RandomSampler(range(count), seed=seed)) if epoch == 0 and shuffle else None
    order = list(range(count)) if not shuffle else order
    for _ in range(2):  # each `iter()` is the next epoch
        parts = [list(sampler) for sampler in ranks]
        assert {len(part) for part in parts} == {len(sampler) for sampler in ranks}
        assert len(parts[0]) == (count // size if drop_last else -(-count // size))
        dealt = [parts[place % size][place // size] for place in range(size * len(parts[0]))]
        whole = dealt[:count]
        assert len(set(whole)) == len(whole)  # each item once at first
        assert dealt == (padded(whole, size) if not drop_last else whole)
        assert set(dealt) <= set(range(count))
        if order is not None:
            assert whole == order[: len(whole)]
        order = whole if not shuffle else None
    again = samplers(count, size, shuffle=shuffle, seed=seed, drop_last=drop_last)[-1]
    again.set_epoch(epoch + 1)
    assert list(again) == parts[-1]


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        sampler = DistributedSampler(range(50), 1, 0, seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert len({tuple(order(seed, epoch)) for seed in range(4) for epoch in range(4)}) == 16


@pytest.mark.torch
def test_lengths_and_coverage_are_those_of_pytorch() -> None:
    torch_data = pytest.importorskip("torch.utils.data")
    for count in range(1, 24):
        for size in range(1, count + 1):
            for drop_last in (False, True):
                options: dict[str, Any] = {"drop_last": drop_last, "shuffle": False}
                theirs = [torch_data.DistributedSampler(range(count), size, rank, **options) for rank in range(size)]
                ours = samplers(count, size, **options)
                assert list(map(list, ours)) == list(map(list, theirs))
                shuffled = samplers(count, size, drop_last=drop_last)
                theirs = [
                    torch_data.DistributedSampler(range(count), size, rank, drop_last=drop_last) for rank in range(size)
                ]
                assert [len(sampler) for sampler in shuffled] == [len(sampler) for sampler in theirs]
                dealt, expected = (Counter(flat(map(list, each))) for each in (shuffled, theirs))
                assert sorted(dealt.values()) == sorted(expected.values())  # which come twice is a matter of the order


def test_the_ranks_are_those_of_the_group_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = DistributedSampler(range(5))
    assert (alone.num_replicas, alone.rank, sorted(alone)) == (1, 0, [0, 1, 2, 3, 4])
    try:
        set_ranks(2, 3)
        third = DistributedSampler(range(7), shuffle=False)
        assert (third.num_replicas, third.rank, list(third)) == (3, 2, [2, 5, 1])
        assert list(DistributedSampler(range(7), rank=0, shuffle=False)) == [0, 3, 6]
        with pytest.raises(DataError, match="rank 2 of 2 processes"):
            DistributedSampler(range(7), num_replicas=2)
    finally:
        set_ranks(0, 1)


def test_distributed_samplers_that_mean_nothing() -> None:
    for options, message in (
        ({"num_replicas": 0, "rank": 0}, "num_replicas is 0"),
        ({"num_replicas": 3, "rank": 3}, "rank 3 of 3 processes; ranks begin with 0"),
        ({"num_replicas": 3, "rank": -1}, "rank is -1"),
        ({"num_replicas": 6, "rank": 0}, "5 items for 6 processes: one of them would see no data"),
        ({"shuffle": 1}, "shuffle is 1"),
        ({"drop_last": None}, "drop_last is None"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": "a"}, "seed"),
    ):
        with pytest.raises(DataError, match=message):
            DistributedSampler(range(5), **options)  # type: ignore[arg-type]


# -- DataLoader.part -------------------------------------------------------------------------------


class Backwards(Sampler[int]):
    """Every item from the last to the first, and the first ones again."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        yield from range(self.count - 1, -1, -1)
        yield from range(self.count // 2)

    def __len__(self) -> int:
        return self.count + self.count // 2


ORDERS: dict[str, Any] = {
    "in order": lambda count: {},
    "shuffled": lambda count: {"shuffle": True, "seed": 3},
    "shuffled, no seed": lambda count: {"shuffle": True},
    "a sampler": lambda count: {"sampler": Backwards(count), "seed": 3},
    "a list": lambda count: {"sampler": [3 % max(count, 1)] * (count > 0) + list(range(count))},
    "a seeded sampler": lambda count: {"sampler": RandomSampler(range(count), seed=5)},
    "a sampler that draws": lambda count: {"sampler": RandomSampler(range(count)), "seed": 3},
    "a sampler that draws, no seed": lambda count: {"sampler": RandomSampler(range(count))},
    "a subset, no seed": lambda count: {"sampler": SubsetRandomSampler(range(0, count, 2))},
    "by weights, no seed": lambda count: {"sampler": WeightedRandomSampler(np.ones(max(count, 1)), 9)},
}


def loader_of(order: str, count: int, batch_size: int | None, part: Part | None, **options: Any) -> DataLoader:
    """The loader of one process, which begins with the seed that all have."""
    alpha.manual_seed(11)
    items = np.arange(max(count, 1) if "weights" in order else count)
    loader = DataLoader(items, batch_size, **ORDERS[order](count), **options)
    loader.part = part
    return loader


def epoch_of(loader: DataLoader) -> list[list[int]]:
    return [np.atleast_1d(batch).tolist() for batch in loader]


SCENES = st.fixed_dictionaries(
    {
        "size": SIZES,
        "count": COUNTS,
        "batch_size": st.integers(1, 5),
        "drop_last": st.booleans(),
        "first": st.integers(0, 3),
        "epoch": st.integers(0, 2),
        "workers": st.sampled_from([(0, 0), (0, 2), (2, 0), (2, 2)]),
    }
)


@pytest.mark.slow
@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("order", ORDERS)
@settings(max_examples=40, deadline=None)
@given(SCENES)
def test_batches_of_all_ranks_are_those_of_one_loader(order: str, even: bool, scene: dict[str, Any]) -> None:
    """Batch i of all ranks together is batch i of one loader with world_size times the batch size."""
    size, count, batch, drop_last = (scene[name] for name in ("size", "count", "batch_size", "drop_last"))
    first = 0 if "no seed" in order else scene["first"]

    def run(batch_size: int, part: Part | None, **options: Any) -> tuple[DataLoader, list[list[list[int]]]]:
        loader = loader_of(order, count, batch_size, part, **options)
        loader.set_epoch(scene["epoch"], first)
        return loader, [epoch_of(loader), epoch_of(loader)]  # the second one begins with its first batch

    workers, prefetch = scene["workers"]
    one, whole = run(size * batch, None)
    ranks = [
        run(batch, Part(rank, size, even), drop_last=drop_last, num_workers=workers, prefetch=prefetch)
        for rank in range(size)
    ]
    for number, expected in enumerate(whole):
        skipped = first if number == 0 else 0
        every = expected
        if even:  # the order of the epoch begins again at its end
            start, full = loader_of(order, count, size * batch, None), []
            start.set_epoch(scene["epoch"])
            for _ in range(number + 1):
                full = flat(epoch_of(start))
            if drop_last:  # as one loader does
                full = full[: len(full) // (size * batch) * size * batch]
            again = padded(full, size)
            every = [again[i : i + size * batch] for i in range(skipped * size * batch, len(again), size * batch)]
        parts = [epochs[number] for _, epochs in ranks]
        for place, together in enumerate(every):
            given_out = [part[place] if place < len(part) else [] for part in parts]
            wanted = [together[rank::size] for rank in range(size)]
            if drop_last:
                wanted = [each if len(each) == batch else [] for each in wanted]
            assert given_out == wanted
        assert all(len(part) <= len(every) for part in parts)
        if not even and not drop_last and not skipped:  # evaluation
            assert Counter(flat(flat(parts))) == Counter(flat(expected))
        for (loader, _), part in zip(ranks, parts, strict=True):
            assert len(part) == max(0, len(loader) - skipped)
            if even:
                assert len(part) == len(parts[0])
    if not drop_last:
        assert sum(loader.samples for loader, _ in ranks) == (-(-one.samples // size) * size if even else one.samples)


@given(SIZES, COUNTS, st.booleans(), st.booleans())
def test_single_items_are_shared_out_too(size: int, count: int, shuffle: bool, even: bool) -> None:
    def items(part: Part | None) -> list[int]:
        loader = DataLoader(list(range(count)), None, shuffle=shuffle, seed=1, prefetch=0)
        loader.part = part
        found = [int(item) for item in loader]
        assert len(found) == len(loader)
        return found

    order = items(None)
    whole = padded(order, size) if even else order
    for rank in range(size):
        assert items(Part(rank, size, even)) == whole[rank::size]


@settings(max_examples=40, deadline=None)
@given(SIZES, COUNTS, st.integers(1, 4), st.sampled_from(["shuffled", "a seeded sampler", "a sampler that draws"]))
def test_whoever_takes_the_order_gets_the_same_part(size: int, count: int, batch: int, order: str) -> None:
    """A trainer with the data on the GPU takes the order, and makes the batches there."""
    for rank in range(size):
        part = Part(rank, size, True)
        taken, first = loader_of(order, count, batch, part).take_epoch()
        assert (taken.tolist(), first) == (flat(epoch_of(loader_of(order, count, batch, part))), 0)


def test_ranks_draw_their_own_random_numbers_for_items() -> None:
    """Augmentation differs from rank to rank, and that of rank 0 is that of a process alone."""

    class Noise:
        def __len__(self) -> int:
            return 12

        def __getitem__(self, index: int) -> float:
            return float(alpha.rand(()).item())

    def drawn(part: Part | None, sampler: Any = None) -> list[float]:
        loader = DataLoader(Noise(), 2, seed=0, sampler=sampler)
        loader.part = part
        alpha.manual_seed(0)
        return [float(x) for batch in loader for x in batch]

    parts = [drawn(Part(rank, 3, True)) for rank in range(3)]
    assert len(set(flat(parts))) == 12
    assert parts[0] == drawn(None)[:4]
    assert drawn(Part(1, 3, True)) == parts[1]
    sampled = [drawn(None, DistributedSampler(Noise(), 3, rank)) for rank in range(3)]
    assert sampled == parts


def test_what_describes_a_loader_is_the_same_on_all_ranks_and_for_the_whole() -> None:
    whole = DataLoader(range(20), 6, shuffle=True, seed=1)
    for rank in range(3):
        loader = DataLoader(range(20), 2, shuffle=True, seed=1)
        loader.part = Part(rank, 3, True)
        assert loader.describe() == whole.describe()


@given(SIZES, COUNTS, st.integers(1, 9), st.booleans(), st.booleans(), st.booleans())
def test_parts_by_number_have_only_what_a_process_holds(
    size: int, count: int, batch_size: int, shuffle: bool, drop_last: bool, even: bool
) -> None:
    loader = DataLoader(list(range(count)), batch_size, shuffle, drop_last=drop_last, seed=5)
    orders = []
    for rank in range(size if count >= size else 0):
        loader.part = Part(rank, size, even, by_number=True)
        loader.set_epoch(2)
        order, _ = loader.take_epoch()
        assert len(order) == loader.samples
        assert (order % size == rank).all()
        orders.append(order.tolist())
    if even:
        assert len({len(order) for order in orders}) <= 1
        assert all(max(Counter(order).values(), default=0) <= 2 for order in orders)
    elif orders:
        assert sorted(flat(orders)) == list(range(count))
