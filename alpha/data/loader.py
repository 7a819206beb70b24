"""Batches of a dataset, in a reproducible order."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np
from numpy.typing import NDArray

from alpha.data.dataset import Batch, Dataset
from alpha.data.prefetch import prefetched
from alpha.errors import DataError


class DataLoader:
    """Iterates over `dataset` in batches: images (B, H, W, C) uint8 and labels (B,) int32.

    Args:
        batch_size: images a batch; the last one is shorter unless `drop_last`.
        shuffle: a new order every epoch, drawn from `seed` and the epoch's number alone.
        drop_last: leave out a last batch that is not full.
        prefetch: batches a background thread keeps ready; 0 makes them when asked for.

    Each `iter()` is one epoch; `set_epoch` picks the next one's number, e.g. to resume a run.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        prefetch: int = 2,
    ) -> None:
        for name, value, least in (("batch_size", batch_size, 1), ("seed", seed, 0), ("prefetch", prefetch, 0)):
            if value < least:
                raise DataError(f"DataLoader: {name} is {value}, expected {least} or more")
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.prefetch = prefetch
        self._epoch = 0

    def __len__(self) -> int:
        """Batches an epoch."""
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full if self.drop_last or not rest else full + 1

    def set_epoch(self, epoch: int) -> None:
        """Gives the next `iter()` this number (the first is 0)."""
        if epoch < 0:
            raise DataError(f"DataLoader: epoch is {epoch}, expected 0 or more")
        self._epoch = epoch

    def __iter__(self) -> Generator[Batch, None, None]:
        order = self._order(self._epoch)
        self._epoch += 1
        return prefetched(self._batches(order), self.prefetch)

    def _batches(self, order: NDArray[np.int64]) -> Iterator[Batch]:
        for start in range(0, len(self) * self.batch_size, self.batch_size):
            yield self.dataset.batch(order[start : start + self.batch_size])

    def _order(self, epoch: int) -> NDArray[np.int64]:
        count = len(self.dataset)
        if not self.shuffle:
            return np.arange(count, dtype=np.int64)
        # numpy promises its raw bits, not Generator.permutation, to stay the same from version to
        # version; a stable sort of raw keys is the same permutation everywhere.
        bits = np.random.Philox(np.random.SeedSequence((self.seed, epoch)))
        return np.argsort(bits.random_raw(count), kind="stable").astype(np.int64, copy=False)
