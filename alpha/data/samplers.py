"""Samplers: the order in which a loader takes the items of a dataset.

Random ones draw from a seed and the number of the epoch alone, so their orders are the same everywhere. If a sampler
has no seed, each epoch takes one of the program's random numbers for it, so `alpha.manual_seed` fixes the orders.

numpy promises the raw bits of its Philox, not what its Generator makes of them, to stay the same from version to
version. So the draws are made of raw bits by whole numbers, comparisons, sums and products of float64.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from alpha.core import rng
from alpha.core.generators import Generator
from alpha.data.checks import flag, indices_of, seed_of, whole_number
from alpha.errors import DataError
from alpha.runtime.ranks import rank as own_rank
from alpha.runtime.ranks import world_size

SPLIT = 1  # the use of random_split; an order of a loader or a sampler is use 0


def raw(seed: int, epoch: int, count: int, use: int = 0) -> NDArray[np.uint64]:
    """Random words (count,)"""
    # a 0 behind the other numbers changes nothing, so orders need no number of their own
    numbers = (seed, epoch, use) if use else (seed, epoch)
    return np.random.Philox(np.random.SeedSequence(numbers)).random_raw(count)


def permutation(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """An order of as many things as there are words: a stable sort of them."""
    return np.argsort(words, kind="stable").astype(np.int64, copy=False)


def below(words: NDArray[np.uint64], limit: int) -> NDArray[np.int64]:
    """Whole numbers from 0 to limit - 1, each as likely up to limit / 2^64."""
    return (words % np.uint64(limit)).astype(np.int64)


def weighted(words: NDArray[np.uint64], weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Places of `weights` (N,), one for each word, each as likely as its share of the sum."""
    sums = np.cumsum(weights)
    unit = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53  # in [0, 1)
    places = np.searchsorted(sums, unit * sums[-1], side="right")
    last = np.flatnonzero(weights)[-1]  # a product of tiny weights may round up to the sum
    return np.asarray(np.minimum(places, last), np.int64)


def weighted_distinct(seed: int, epoch: int, weights: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Distinct places, each drawn as by `weighted` from those that are left.

    Draws that repeat a place are passed over, which gives this distribution; a round draws several places and then
    takes their weights away. At least `count` places must have a weight.
    """
    left, found, use = weights.copy(), np.zeros(0, np.int64), 0
    while len(found) < count:
        places = weighted(raw(seed, epoch, count - len(found), use), left)
        _, firsts = np.unique(places, return_index=True)
        fresh = places[np.sort(firsts)]
        found, use = np.concatenate((found, fresh)), use + 1
        left[fresh] = 0.0
    return found


T = TypeVar("T", covariant=True)


class Sampler(Generic[T]):
    """The base of samplers: a subclass has `__iter__`, which gives the indices of an epoch, and perhaps `__len__`.

    If it has `set_epoch(epoch)`, `DataLoader.set_epoch` calls that, too.
    """

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError(f"{type(self).__name__} needs __iter__")

    def __repr__(self) -> str:
        count = f"{len(self):,}" if isinstance(self, Sized) else ""
        return f"{type(self).__name__}({count})"


class SequentialSampler(Sampler[int]):
    """The indices 0, 1, .. of a dataset."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class _Seeded(Sampler[int]):
    """Each `iter()` is an epoch, with indices of its own; `set_epoch` picks the number of the next one.

    Attributes:
        seed: None takes a fresh draw of the program for each epoch.
    """

    def __init__(self, seed: int | None, generator: Generator | int | None) -> None:
        self.seed = seed_of(type(self).__name__, seed, generator)
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Give the next `iter()` this number; the first is 0."""
        self._epoch = whole_number(type(self).__name__, "epoch", epoch, 0)

    def __iter__(self) -> Iterator[int]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        seed = rng.fresh_seed() if self.seed is None else self.seed
        return iter(self._draw(seed, epoch).tolist())

    def _draw(self, seed: int, epoch: int) -> NDArray[np.int64]:
        raise NotImplementedError


class RandomSampler(_Seeded):
    """Indices of a dataset in a random order; the order of a loader with shuffle=True and the same seed.

    Args:
        replacement: draw each index from all of them.
        num_samples: indices per epoch, by default as many as there are items. Without replacement, more of them than
            items are several orders, one after another.
        seed: fixes the orders; without it they follow from `alpha.manual_seed` and what was drawn since.
        generator: the seed, under PyTorch's name; of an `alpha.Generator` it is the next draw.

    Raises:
        DataError: an argument means nothing, or there is nothing to draw from.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | int | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed, generator)
        self.data_source = data_source
        self.replacement = flag("RandomSampler", "replacement", replacement)
        self._count = None if num_samples is None else whole_number("RandomSampler", "num_samples", num_samples, 1)
        if self._count and not len(data_source):
            raise DataError(f"RandomSampler: num_samples is {num_samples}, and the dataset has no items")

    @property
    def num_samples(self) -> int:
        """Indices of an epoch, by default as many as the dataset has items."""
        return len(self.data_source) if self._count is None else self._count

    def __len__(self) -> int:
        return self.num_samples

    def _draw(self, seed: int, epoch: int) -> NDArray[np.int64]:
        items, count = len(self.data_source), self.num_samples
        if not items:
            return np.zeros(0, np.int64)
        if self.replacement:
            return below(raw(seed, epoch, count), items)
        rounds = -(-count // items)
        words = raw(seed, epoch, rounds * items).reshape(rounds, items)
        return np.concatenate([permutation(row) for row in words])[:count]


class SubsetRandomSampler(_Seeded):
    """The given indices (M,) in a random order.

    Args:
        seed: fixes the orders; without it they follow from `alpha.manual_seed` and what was drawn since.
        generator: the seed, under PyTorch's name; of an `alpha.Generator` it is the next draw.

    Raises:
        DataError: the indices are not whole numbers.
    """

    def __init__(
        self,
        indices: Sequence[int] | NDArray[Any],
        generator: Generator | int | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed, generator)
        self.indices = indices_of("SubsetRandomSampler", indices)

    def __len__(self) -> int:
        return len(self.indices)

    def _draw(self, seed: int, epoch: int) -> NDArray[np.int64]:
        return self.indices[permutation(raw(seed, epoch, len(self.indices)))]


class WeightedRandomSampler(_Seeded):
    """Indices 0, 1, .., each drawn with a probability in proportion to its weight.

    Args:
        weights: (N,), finite and 0 or more; they need not add up to 1.
        num_samples: indices per epoch.
        replacement: False draws no index twice.
        seed: fixes the orders; without it they follow from `alpha.manual_seed` and what was drawn since.
        generator: the seed, under PyTorch's name; of an `alpha.Generator` it is the next draw.

    Raises:
        DataError: a weight is negative or not finite, all are 0, or there are fewer of them above 0 than distinct
            indices are asked for.
    """

    def __init__(
        self,
        weights: Sequence[float] | NDArray[Any],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | int | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed, generator)
        self.weights = np.asarray(weights, np.float64)
        self.num_samples = whole_number("WeightedRandomSampler", "num_samples", num_samples, 1)
        self.replacement = flag("WeightedRandomSampler", "replacement", replacement)
        if self.weights.ndim != 1:
            raise DataError(f"WeightedRandomSampler: weights have shape {self.weights.shape}, expected (N,)")
        with np.errstate(over="ignore"):
            total = self.weights.sum()
        if not 0 < total < np.inf or (self.weights < 0).any():
            raise DataError("WeightedRandomSampler: weights must be finite, 0 or more, and not all 0")
        above = int(np.count_nonzero(self.weights))
        if not self.replacement and self.num_samples > above:
            raise DataError(
                f"WeightedRandomSampler: num_samples is {num_samples} without replacement, and only {above} weights "
                "are above 0"
            )

    def __len__(self) -> int:
        return self.num_samples

    def _draw(self, seed: int, epoch: int) -> NDArray[np.int64]:
        if self.replacement:
            return weighted(raw(seed, epoch, self.num_samples), self.weights)
        return weighted_distinct(seed, epoch, self.weights, self.num_samples)


def part_of(order: NDArray[np.int64], rank: int, world_size: int, even: bool) -> NDArray[np.int64]:
    """Part of an order that one of several processes takes: every world_size-th index.

    So the batches of all processes together are the batches of one process that takes world_size times as many.

    Args:
        even: True begins again with the first indices until all parts are of one length.
    """
    if even and len(order):
        order = np.resize(order, -(-len(order) // world_size) * world_size)
    return order[rank::world_size]


class DistributedSampler(_Seeded):
    """Indices of one process of several that train together, of one order in which each gets its part.

    All parts are of one length: the first indices of the order come again at its end, or with `drop_last` the last ones
    are left out. `DataLoader.set_epoch`, or the sampler's own, picks the order; each `iter()` takes the next one.

    Args:
        dataset: anything with a length.
        num_replicas: how many processes there are, by default `alpha.distributed.world_size()`.
        rank: which one this is, by default `alpha.distributed.rank()`.
        shuffle: False takes 0, 1, .. in place of a random order.
        seed: fixes the orders; all processes must have the same.
        drop_last: leave out the indices that cannot be shared out.

    Raises:
        DataError: an argument means nothing, or a process would get no data.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        super().__init__(seed, None)
        name = "DistributedSampler"
        self.dataset = dataset
        replicas = world_size() if num_replicas is None else num_replicas
        self.num_replicas = whole_number(name, "num_replicas", replicas, 1)
        self.rank = whole_number(name, "rank", own_rank() if rank is None else rank, 0)
        self.shuffle, self.drop_last = flag(name, "shuffle", shuffle), flag(name, "drop_last", drop_last)
        if self.rank >= self.num_replicas:
            raise DataError(f"{name}: rank {self.rank} of {self.num_replicas} processes; ranks begin with 0")
        if len(dataset) < self.num_replicas:
            raise DataError(
                f"{name}: {len(dataset)} items for {self.num_replicas} processes: one of them would see no data"
            )

    def __len__(self) -> int:
        full, rest = divmod(len(self.dataset), self.num_replicas)
        return full if self.drop_last or not rest else full + 1

    def _draw(self, seed: int, epoch: int) -> NDArray[np.int64]:
        count = len(self.dataset)
        order = permutation(raw(seed, epoch, count)) if self.shuffle else np.arange(count, dtype=np.int64)
        if self.drop_last:
            order = order[: count // self.num_replicas * self.num_replicas]
        return part_of(order, self.rank, self.num_replicas, even=True)


class BatchSampler(Sampler[list[int]]):
    """The indices of a sampler in lists of `batch_size`; the last one is shorter unless `drop_last`.

    Args:
        sampler: anything that gives the indices of an epoch at each `iter()`.

    Raises:
        DataError: an argument means nothing.
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        if not hasattr(sampler, "__iter__"):
            raise DataError(f"BatchSampler: a {type(sampler).__name__} is no sampler: it has no __iter__")
        self.sampler: Any = sampler
        self.batch_size = whole_number("BatchSampler", "batch_size", batch_size, 1)
        self.drop_last = flag("BatchSampler", "drop_last", drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Give the next epoch of the sampler this number, if it has `set_epoch`."""
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[list[int]]:
        return chunks(self.sampler, self.batch_size, self.drop_last)

    def __len__(self) -> int:
        full, rest = divmod(len(self.sampler), self.batch_size)
        return full if self.drop_last or not rest else full + 1


def may_draw(sampler: Any) -> bool:
    """False if the indices of an epoch follow from the sampler and the number of the epoch alone."""
    if isinstance(sampler, BatchSampler):
        return may_draw(sampler.sampler)
    if isinstance(sampler, (SequentialSampler, Sequence, np.ndarray)):
        return False
    return getattr(sampler, "seed", None) is None


def chunks(items: Iterable[Any], size: int, drop_last: bool) -> Iterator[list[Any]]:
    """The items in lists of `size`; the last one is shorter unless `drop_last`."""
    source = iter(items)
    while chunk := list(islice(source, size)):
        if len(chunk) == size or not drop_last:
            yield chunk
