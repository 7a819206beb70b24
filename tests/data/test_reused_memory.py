"""Batches that are made ahead of their consumer, from memory that a dataset uses again, and from fresh memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.data import ArrayDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset
from alpha.data.collate import owned


class Reused(Dataset[Any]):
    """Writes each batch into one buffer; `form` makes the batch of it, once or each time."""

    def __init__(self, form: Callable[[Any], Any], once: bool) -> None:
        self.buffer = np.zeros(4, np.int64)
        self.form, self.kept = form, form(self.buffer) if once else None

    def __len__(self) -> int:
        return 8

    def batch(self, indices: Any) -> Any:
        self.buffer[:] = np.resize(indices, 4)
        return self.form(self.buffer) if self.kept is None else self.kept


FORMS: dict[str, Callable[[Any], Any]] = {
    "array": lambda x: x[:2] if len(x) > 2 else x,
    "two views": lambda x: x.reshape(2, 2)[0].view(),
    "pair": lambda x: (x[:2], x[2:]),
    "tensor": lambda x: alpha.core.tensor.Tensor(x[:2]),
    "dict": lambda x: {"x": (x[:2], {"y": x[2:]})},
    "list": lambda x: [x[:2], x[2:]],
}


def first(batch: Any) -> list[int]:
    while not hasattr(batch, "shape"):
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return list(batch.tolist())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("once", [False, True])
def test_a_buffer_may_be_written_again(form: str, once: bool) -> None:
    expected = [[0, 1], [2, 3], [4, 5], [6, 7]]
    for options in ({}, {"prefetch": 1}, {"prefetch": 7}, {"prefetch": 0, "num_workers": 1}, {"num_workers": 1}):
        for wrap in (lambda data: data, lambda data: Subset(data, range(8))):
            loader = DataLoader(wrap(Reused(FORMS[form], once)), 2, **options)  # type: ignore[arg-type]
            assert [first(batch) for batch in list(loader)] == expected, (options, wrap)


def test_a_collate_fn_may_write_one_array_again() -> None:
    buffer = np.zeros(2, np.int64)

    def collate(items: list[int]) -> Any:
        buffer[:] = items
        return {"x": buffer}

    assert [first(b) for b in list(DataLoader(list(range(6)), 2, collate_fn=collate))] == [[0, 1], [2, 3], [4, 5]]


def test_a_stream_and_items_may_write_one_array_again() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            buffer = np.zeros(1, np.int64)
            for number in range(4):
                buffer[:] = number
                yield buffer

    class Items(Dataset[Any]):
        buffer = np.zeros(1, np.int64)

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            self.buffer[:] = index
            return self.buffer

    for data in (Stream(), Items()):
        for workers in (0, 1):
            loader = DataLoader(data, batch_size=None, num_workers=workers)
            assert [first(batch) for batch in list(loader)] == [[0], [1], [2], [3]]


@pytest.mark.parametrize("workers", [0, 2])
def test_fresh_memory_is_not_copied(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[Any] = []

    class Noted(np.ndarray):
        def copy(self, *arguments: Any) -> Any:
            copied.append(self.shape)
            return super().copy(*arguments)

    images = np.zeros((8, 2, 2, 3), np.uint8).view(Noted)

    class Fresh(ArrayDataset):
        def batch(self, indices: Any) -> Any:
            return self.images[indices], {"y": self.images[indices][:, 0], "z": [self.labels[indices].view(Noted)]}

    for data in (ArrayDataset(images, images), Fresh(images, images)):
        assert len(list(DataLoader(data, 2, num_workers=workers))) == 4
    assert copied == [] or workers  # with threads a reference may live a moment longer
    x = alpha.zeros(4)
    batches = [x, (x,), TensorDataset(x).batch(np.arange(2))]
    del x
    assert owned([batches.pop()], 0)[0].shape == (2,)


def test_what_is_alone_is_given_as_it_is() -> None:
    for make in (lambda: np.zeros(3), lambda: (np.zeros(3), "x"), lambda: {"a": [np.zeros(2)]}, lambda: alpha.zeros(2)):
        box = [make()]
        known = id(box[0])
        assert id(owned(box, 0)) == known
    pair = (np.zeros(2), np.zeros(3))
    found = owned([pair], 0)
    assert not any(np.shares_memory(a, b) for a, b in zip(found, pair, strict=True))
