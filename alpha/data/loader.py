"""Batches of a dataset, in a reproducible order."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.data.dataset import Dataset, Items, collate
from alpha.data.prefetch import prefetched
from alpha.errors import DataError


class DataLoader:
    """Iterates over `dataset` in batches of numpy arrays, as images (B, H, W, C) uint8 and labels (B,) int32.

    Args:
        dataset: has a length and `batch(indices)`, or a length and an item by each index, `dataset[i]`: a tuple of
            numpy arrays, Alpha's tensors on the cpu and numbers, or one of them. Items are stacked, and Python's
            numbers become float32 or int64.
        batch_size: images per batch; the last one is shorter unless `drop_last`.
        shuffle: a new order every epoch, drawn from `seed` and the epoch's number alone.
        drop_last: leave out a last batch that is not full.
        prefetch: batches a background thread keeps ready; 0 makes them when asked for.

    Each `iter()` is one epoch; `set_epoch` picks the next one's number and place, to resume a run.
    Raises DataError if an argument means nothing.
    """

    def __init__(
        self,
        dataset: Dataset | Items,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        prefetch: int = 2,
    ) -> None:
        for name, value, least in (("batch_size", batch_size, 1), ("seed", seed, 0), ("prefetch", prefetch, 0)):
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
                raise DataError(f"DataLoader: {name} is {value!r}, expected a whole number, {least} or more")
        if not hasattr(dataset, "__len__") or not (hasattr(dataset, "batch") or hasattr(dataset, "__getitem__")):
            raise DataError(
                f"DataLoader: a {type(dataset).__name__} is no dataset: it needs __len__ and either batch(indices) "
                "or __getitem__"
            )
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.prefetch = prefetch
        self._epoch = 0
        self._first = 0
        self._prepared: tuple[tuple[int, ...], NDArray[np.int64]] | None = None  # what an order depends on, the order

    def __len__(self) -> int:
        """Batches per epoch."""
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full if self.drop_last or not rest else full + 1

    def set_epoch(self, epoch: int, batch: int = 0) -> None:
        """Gives the next `iter()` this number (the first is 0), and lets it begin with that batch."""
        for name, value in (("epoch", epoch), ("batch", batch)):
            if value < 0:
                raise DataError(f"DataLoader: {name} is {value}, expected 0 or more")
        self._epoch, self._first = epoch, batch

    def describe(self) -> dict[str, int]:
        """What the batches of every epoch depend on, apart from the images themselves."""
        return {
            "images": len(self.dataset),
            "batch_size": int(self.batch_size),
            "shuffle": bool(self.shuffle),
            "seed": int(self.seed),
            "drop_last": bool(self.drop_last),
        }

    def __iter__(self) -> Generator[Any, None, None]:
        return prefetched(self._batches(*self.take_epoch()), self.prefetch)

    def take_epoch(self) -> tuple[NDArray[np.int64], int]:
        """(the order of the images in the next epoch, its first batch), for whoever makes the batches by himself.

        The epoch counts as begun, as by `iter()`.
        """
        self.prepare_epoch()
        assert self._prepared is not None
        order, first = self._prepared[1], self._first
        self._epoch, self._first, self._prepared = self._epoch + 1, 0, None
        return order, first

    def prepare_epoch(self) -> None:
        """Draw the order of the next epoch now, for instance while a device still works on the last one."""
        key = self._epoch, int(self.seed), int(self.shuffle), len(self.dataset)
        if self._prepared is None or self._prepared[0] != key:
            self._prepared = key, self._order(self._epoch)

    def batch(self, indices: NDArray[np.int64]) -> Any:
        """The samples of `indices` (B,), which the dataset hands out or whose items are stacked."""
        dataset: Any = self.dataset
        if hasattr(dataset, "batch"):
            return dataset.batch(indices)
        places = [int(index) for index in indices]
        return collate([dataset[place] for place in places], places)

    def _batches(self, order: NDArray[np.int64], first: int) -> Iterator[Any]:
        for start in range(first * self.batch_size, len(self) * self.batch_size, self.batch_size):
            yield self.batch(order[start : start + self.batch_size])

    def _order(self, epoch: int) -> NDArray[np.int64]:
        count = len(self.dataset)
        if not self.shuffle:
            return np.arange(count, dtype=np.int64)
        # numpy promises its raw bits, not Generator.permutation, to stay the same from version to
        # version; a stable sort of raw keys is the same permutation everywhere.
        bits = np.random.Philox(np.random.SeedSequence((self.seed, epoch)))
        return np.argsort(bits.random_raw(count), kind="stable").astype(np.int64, copy=False)
