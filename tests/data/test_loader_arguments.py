"""DataLoader's arguments that PyTorch has: what they do, what changes nothing, and what is refused."""

from __future__ import annotations

import inspect
import multiprocessing
import threading
import time
from collections.abc import Iterator
from typing import Any

import child
import numpy as np
import pytest

from alpha.data import ArrayDataset, DataLoader, Dataset, IterableDataset
from alpha.errors import DataError


class Slow(Dataset[Any]):
    """Items that note the threads that make them and how many do so at once; the first `together` are made at once."""

    def __init__(self, whole: bool = False, together: int = 1) -> None:
        self.threads: set[str] = set()
        self.now = self.most = self.begun = 0
        self.together, self.barrier = together, threading.Barrier(together)
        self.lock = threading.Lock()
        if whole:
            self.batch = lambda indices: np.array([self[int(index)] for index in indices])

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: Any) -> int:
        with self.lock:
            self.threads.add(threading.current_thread().name.split("_")[0])
            self.now += 1
            self.most = max(self.most, self.now)
            self.begun += 1
            first = self.begun <= self.together
        if first:
            self.barrier.wait(child.HANG_S)
        with self.lock:
            self.now -= 1
        if index == 17:
            raise DataError("item 17 is broken")
        return int(index)


def workers() -> list[str]:
    return [
        thread.name for thread in threading.enumerate() if thread.name.startswith(("alpha-worker", "alpha-prefetch"))
    ]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_workers_make_items_at_once_and_in_order(whole: bool, count: int, prefetch: int) -> None:
    data = Slow(whole, max(1, count))
    loader = DataLoader(data, 4, num_workers=count, prefetch=prefetch)
    seen = []
    with pytest.raises(DataError, match="item 17 is broken"):  # noqa: PT012
        for batch in loader:
            seen.append(batch.tolist())
    assert seen == np.arange(16).reshape(4, 4).tolist()  # all before the broken one
    assert data.most == max(1, count)
    names = {"alpha-worker"} if count else {"alpha-prefetch"} if prefetch else {"MainThread"}
    assert data.threads == names
    assert not workers()
    for _ in loader:
        break
    assert not workers()


@pytest.mark.parametrize(("whole", "most"), [(False, 8), (True, 12)])
def test_workers_are_not_far_ahead(whole: bool, most: int) -> None:
    """One batch ahead if a batch is many calls, one for each worker if it is one call."""
    asked = []

    class Noted(Dataset[Any]):
        whole_batches = whole

        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: Any) -> int:
            asked.append(index)
            return int(index)

        def batch(self, indices: Any) -> Any:
            asked.extend(indices)
            return indices

    batches = iter(DataLoader(Noted(), 4, num_workers=2, prefetch=0))
    next(batches)
    while len(asked) < most:
        time.sleep(0.005)
    time.sleep(0.05)
    assert len(asked) == most
    batches.close()


def test_workers_of_single_items() -> None:
    data = Slow(together=3)
    batches = iter(DataLoader(data, None, num_workers=3))
    assert [next(batches) for _ in range(17)] == list(range(17))
    assert data.most == 3
    batches.close()
    assert not workers()


def test_no_thread_where_none_is_allowed() -> None:
    data = Slow()
    data.in_threads = False
    next(iter(DataLoader(data, 4, num_workers=3)))
    assert data.threads == {"MainThread"}


def test_a_function_that_collates() -> None:
    data = ArrayDataset(np.arange(5), np.arange(5) * 2)
    batches = list(DataLoader(data, 2, collate_fn=lambda items: [int(x + y) for x, y in items]))
    assert batches == [[0, 3], [6, 9], [12]]
    assert DataLoader(data, 2, collate_fn=len).batch(np.arange(3)) == 3
    assert list(DataLoader(data, None, collate_fn=lambda item: int(item[1]))) == [0, 2, 4, 6, 8]


def test_items_as_they_are() -> None:
    items: list[Any] = [object(), "b", None]
    loader = DataLoader(items, batch_size=None)
    assert list(loader) == items
    assert len(loader) == 3
    loader.set_epoch(0, 2)
    assert list(loader) == [None]
    shuffled = list(DataLoader(range(10), None, shuffle=True, seed=0))
    assert shuffled == [0, 8, 9, 3, 7, 5, 1, 2, 6, 4]


def test_a_list_of_items_at_once() -> None:
    class Listed:
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> int:
            raise AssertionError("not one by one")

        def __getitems__(self, indices: list[int]) -> list[int]:
            assert all(type(index) is int for index in indices)
            return [10 * index for index in indices]

    for count in (0, 2):
        assert [batch.tolist() for batch in DataLoader(Listed(), 3, num_workers=count)] == [[0, 10, 20], [30, 40]]


@pytest.mark.torch
def test_the_order_of_arguments_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    theirs = inspect.signature(torch.utils.data.DataLoader).parameters
    ours = inspect.signature(DataLoader).parameters
    assert [name for name in ours if name in theirs] == list(theirs)
    for name, parameter in theirs.items():
        assert parameter.kind == ours[name].kind
        assert parameter.default == ours[name].default or name == "shuffle"


def test_arguments_by_position() -> None:
    loader = DataLoader(range(6), 4, True, None, None, 0, None, False, True)
    assert (loader.batch_size, loader.shuffle, loader.drop_last) == (4, True, True)
    assert [len(batch) for batch in loader] == [4]
    assert [len(batch) for batch in DataLoader(range(2))] == [1, 1]


def test_the_seed_by_another_name() -> None:
    assert DataLoader(range(6), generator=np.int64(5)).describe() == DataLoader(range(6), seed=5).describe()


def test_what_changes_nothing() -> None:
    loader = DataLoader(
        range(6),
        4,
        None,
        pin_memory=True,
        persistent_workers=True,
        pin_memory_device="cuda",
        num_workers=1,
        timeout=0.0,
    )
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5]]
    assert DataLoader(range(6), num_workers=2, prefetch_factor=3).prefetch == 6


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


STREAM, FORK = Stream(), multiprocessing.get_context("fork")


class OnlyBatches:
    def __len__(self) -> int:
        return 3

    def batch(self, indices: Any) -> Any:
        return indices


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 3}, "timeout=3 is for worker processes; give multiprocessing_context='spawn'"),
        ({"timeout": -1}, "timeout is -1, expected seconds, 0 or more"),
        ({"worker_init_fn": print}, "worker_init_fn=.* is for worker processes"),
        (
            {"worker_init_fn": 3, "multiprocessing_context": "spawn", "num_workers": 1},
            "worker_init_fn is 3, expected a",
        ),
        ({"multiprocessing_context": "spawn"}, "multiprocessing_context='spawn' needs num_workers above 0"),
        ({"multiprocessing_context": "fork", "num_workers": 1}, "multiprocessing_context='fork' is not offered; only"),
        ({"multiprocessing_context": FORK, "num_workers": 1}, "multiprocessing_context='fork' is not offered; only"),
        ({"multiprocessing_context": 3, "num_workers": 1}, "multiprocessing_context=3 is not offered; only 'spawn'"),
        (
            {"dataset": STREAM, "multiprocessing_context": "spawn", "num_workers": 1},
            "an IterableDataset is read in one",
        ),
        ({"in_order": False}, "in_order=False is not offered; only True"),
        ({"generator": object()}, "generator=object is not offered; give a whole number, seed=, which alone"),
        ({"generator": True}, "generator=bool is not offered"),
        ({"generator": -1}, "generator is -1"),
        ({"generator": 1, "seed": 2}, "seed=2 and generator=1 are both given"),
        ({"num_workers": -1}, "num_workers is -1, expected a whole number, 0 or more"),
        ({"prefetch_factor": 2}, "prefetch_factor=2 needs num_workers above 0"),
        ({"prefetch_factor": 0, "num_workers": 1}, "prefetch_factor is 0"),
        ({"pin_memory": 1}, "pin_memory is 1, expected True or False"),
        ({"persistent_workers": "no"}, "persistent_workers is 'no'"),
        ({"shuffle": "yes"}, "shuffle is 'yes', expected True or False"),
        ({"drop_last": 3}, "drop_last is 3"),
        ({"batch_size": None, "drop_last": True}, "drop_last has no meaning with batch_size=None"),
        ({"sampler": 3}, "sampler is a int, which has no __iter__"),
        ({"sampler": [1], "shuffle": True}, "sampler and shuffle=True are both given"),
        ({"batch_sampler": [[1]], "batch_size": 2}, "batch_sampler takes the place of batch_size"),
        ({"batch_sampler": [[1]], "shuffle": True}, "batch_sampler takes the place of"),
        ({"batch_sampler": [[1]], "sampler": [1]}, "batch_sampler takes the place of"),
        ({"batch_sampler": [[1]], "drop_last": True}, "batch_sampler takes the place of"),
        ({"dataset": STREAM, "shuffle": True}, "shuffle is for datasets with indices; an IterableDataset"),
        ({"dataset": STREAM, "sampler": np.arange(3)}, "sampler is for datasets with indices"),
        ({"dataset": STREAM, "batch_sampler": [[1]]}, "batch_sampler is for datasets with indices"),
        ({"dataset": OnlyBatches(), "collate_fn": len}, "take single items; OnlyBatches has only batch"),
        ({"dataset": OnlyBatches(), "batch_size": None}, "take single items; OnlyBatches has only batch"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        DataLoader(**{"dataset": range(6), **options})
