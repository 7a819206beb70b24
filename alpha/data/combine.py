"""Datasets made of others: parts, splits, several one after another, and several side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.core import rng
from alpha.core.generators import Generator
from alpha.data.checks import indices_of, seed_of
from alpha.data.collate import collate, merged
from alpha.data.dataset import Dataset, IterableDataset, in_threads, item_of, way_of, whole_batches
from alpha.data.draws import SPLIT, permutation, raw
from alpha.errors import DataError


def batch_of(dataset: Any, indices: NDArray[np.int64]) -> Any:
    """The batch of indices (B,), which a dataset hands out or whose items are stacked."""
    way, places = way_of(dataset), [int(index) for index in indices]
    if way == "batch":
        return dataset.batch(indices)
    items = dataset.__getitems__(places) if way == "__getitems__" else [item_of(dataset, place) for place in places]
    return collate(items, places)


class Subset(Dataset[Any]):
    """The items of `dataset` at `indices` (M,), in this order.

    Raises:
        DataError: an index is out of range, or not a whole number.
    """

    def __init__(self, dataset: Any, indices: Sequence[int] | NDArray[Any]) -> None:
        self.dataset = dataset
        self.indices = indices_of("Subset", indices, len(dataset))

    @property
    def whole_batches(self) -> bool:
        return whole_batches(self.dataset)

    @property
    def in_threads(self) -> bool:  # type: ignore[override]
        return in_threads(self.dataset)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        return item_of(self.dataset, int(self.indices[index]))

    def batch(self, indices: NDArray[np.int64]) -> Any:
        return batch_of(self.dataset, self.indices[indices])


class ConcatDataset(Dataset[Any]):
    """The items of several datasets, one dataset after another.

    Raises:
        DataError: there are none, or one of them has no indices.
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = _indexed("ConcatDataset", datasets)

    @property
    def cumulative_sizes(self) -> list[int]:
        """Where each dataset ends."""
        return list(accumulate(map(len, self.datasets)))

    @property
    def whole_batches(self) -> bool:
        return all(map(whole_batches, self.datasets))

    @property
    def in_threads(self) -> bool:  # type: ignore[override]
        return all(map(in_threads, self.datasets))

    def __len__(self) -> int:
        return sum(map(len, self.datasets))

    def __getitem__(self, index: Any) -> Any:
        which, local = self._locate(np.array([index], np.int64))
        return item_of(self.datasets[which[0]], int(local[0]))

    def batch(self, indices: NDArray[np.int64]) -> Any:
        which, local = self._locate(np.asarray(indices, np.int64))
        used = np.unique(which)
        parts = [batch_of(self.datasets[number], local[which == number]) for number in used]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return batch_of(self.datasets[0], local)
        return merged(parts, np.argsort(np.argsort(which, kind="stable"), kind="stable"))

    def _locate(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The number of the dataset and the index there, for each index."""
        ends = np.array(self.cumulative_sizes)
        count = int(ends[-1])
        if len(indices) and not -count <= indices.min() <= indices.max() < count:
            wrong = indices[(indices < -count) | (indices >= count)][0]
            raise IndexError(f"ConcatDataset: index {wrong} is out of range for {count} items")
        places = np.where(indices < 0, indices + count, indices)
        which = np.searchsorted(ends, places, side="right")
        return which, places - np.concatenate(([0], ends))[which]


class StackDataset(Dataset[Any]):
    """Datasets of one length side by side: an item is the tuple of theirs, or a dict if they are given by name.

    Raises:
        DataError: there are none, they differ in length, or some are given by name and others not.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise DataError("StackDataset: give all datasets by name, or none of them")
        self.datasets: Any = kwargs or args
        lengths = [len(dataset) for dataset in _indexed("StackDataset", self._each())]
        if len(set(lengths)) > 1:
            raise DataError(
                f"StackDataset: the datasets have {', '.join(map(str, lengths))} items, expected one length"
            )

    def _each(self) -> list[Any]:
        return list(self.datasets.values() if isinstance(self.datasets, dict) else self.datasets)

    def _like(self, values: list[Any]) -> Any:
        return dict(zip(self.datasets, values, strict=True)) if isinstance(self.datasets, dict) else tuple(values)

    @property
    def whole_batches(self) -> bool:
        return all(map(whole_batches, self._each()))

    @property
    def in_threads(self) -> bool:  # type: ignore[override]
        return all(map(in_threads, self._each()))

    def __len__(self) -> int:
        return len(self._each()[0])

    def __getitem__(self, index: Any) -> Any:
        return self._like([item_of(dataset, index) for dataset in self._each()])

    def batch(self, indices: NDArray[np.int64]) -> Any:
        return self._like([batch_of(dataset, indices) for dataset in self._each()])


class ChainDataset(IterableDataset[Any]):
    """The items of several datasets that are read in their own order, one dataset after another."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise DataError(f"ChainDataset: a {type(dataset).__name__} is no IterableDataset")

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            yield from dataset

    def __len__(self) -> int:
        return sum(map(len, self.datasets))  # TypeError if one of them has no length


def _indexed(owner: str, datasets: Iterable[Any]) -> list[Any]:
    found = list(datasets)
    if not found:
        raise DataError(f"{owner}: there are no datasets")
    for dataset in found:
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
            raise DataError(
                f"{owner}: a {type(dataset).__name__} has no items by index; ChainDataset joins such datasets"
            )
    return found


def random_split(
    dataset: Any,
    lengths: Sequence[int | float],
    generator: Generator | int | None = None,
    *,
    seed: int | None = None,
    stratify: Any = None,
) -> list[Subset]:
    """Parts of a dataset that have no item in common, in a random order.

    Args:
        lengths: of the parts, which add up to the length of the dataset; or fractions, which add up to 1. A part gets
            its fraction rounded down, and what is left goes to the parts in turn.
        seed: fixes the parts; without it they follow from `alpha.manual_seed` and what was drawn since.
        generator: the seed, under PyTorch's name; of an `alpha.Generator` it is the next draw.
        stratify: labels (N,) of the items, numbers or strings. Each part then has its share of each class, up to one
            item or two.

    Raises:
        DataError: the lengths do not add up, or the labels are not one per item.
    """
    count = len(dataset)
    seed = seed_of("random_split", seed, generator)
    sizes = _sizes(lengths, count)
    order = permutation(raw(rng.fresh_seed() if seed is None else seed, 0, count, SPLIT))
    if stratify is not None:
        order = _balanced(order, _labels(stratify, count))
    return [Subset(dataset, order[begin:end]) for begin, end in pairwise([0, *accumulate(sizes)])]


def _sizes(lengths: Sequence[int | float], count: int) -> list[int]:
    given = list(lengths)
    if any(isinstance(n, bool) or not isinstance(n, (int, float, np.integer, np.floating)) or n < 0 for n in given):
        raise DataError(f"random_split: lengths={given} are not lengths or fractions, 0 or more")
    if math.isclose(sum(given), 1):
        sizes = [math.floor(count * fraction) for fraction in given]
        for place in range(count - sum(sizes)):
            sizes[place % len(sizes)] += 1
        return sizes
    if sum(given) != count or any(n != int(n) for n in given):
        raise DataError(
            f"random_split: lengths={given} add up to {sum(given)}; expected {count}, the length of the dataset, "
            "or fractions that add up to 1"
        )
    return [int(n) for n in given]


def _labels(stratify: Any, count: int) -> NDArray[Any]:
    labels = np.asarray(stratify)
    if labels.shape != (count,):
        raise DataError(f"random_split: stratify has shape {labels.shape}, expected a label per item, ({count},)")
    return labels


def _balanced(order: NDArray[np.int64], labels: NDArray[Any]) -> NDArray[np.int64]:
    """The order with each class spread evenly: any range of it has about the same share of each class."""
    _, classes = np.unique(labels[order], return_inverse=True)
    classes = classes.reshape(-1)
    sizes = np.bincount(classes)
    by_class = np.argsort(classes, kind="stable")
    ranks = np.empty(len(order), np.int64)
    ranks[by_class] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    # the item of rank r of n stands at (r + 1/2) / n of the way
    return order[np.argsort((ranks + 0.5) / sizes[classes], kind="stable")]
