"""Datasets, with items or batches of them by index; how any dataset is asked; parts and joins of datasets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from alpha.data.checks import index_of, indices_of
from alpha.data.collate import collate, mapped, merged, wrong_length
from alpha.errors import DataError

Batch = tuple[NDArray[Any], NDArray[Any]]
T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
    """The base of datasets: a subclass has `__len__`, and `__getitem__(index)` or `batch(indices)`, or both.

    `batch(indices)` gives the batch of `indices` (B,) int64 at once: images (B, H, W, C) uint8 and labels (B,) int32,
    or what the model takes; each array and each list in it has B items. Without it the loader stacks items. If a
    subclass overrides only one of them, that one is called. `a + b` is a `ConcatDataset`.

    Attributes:
        in_threads: whether items and batches may be made in other threads than the caller's. If it is False, the loader
            starts no thread.

    Examples:
        >>> from alpha.data import DataLoader, Dataset
        >>> class Squares(Dataset):
        ...     def __len__(self):
        ...         return 4
        ...     def __getitem__(self, index):
        ...         return index, index**2
        ...
        >>> next(iter(DataLoader(Squares(), batch_size=4)))[1].tolist()
        [0, 1, 4, 9]
    """

    in_threads = True

    if TYPE_CHECKING:  # an inherited __len__ would give a length to datasets that have none

        def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> T:
        if not hasattr(self, "batch"):
            raise NotImplementedError(f"{type(self).__name__} needs __getitem__(index) or batch(indices)")
        item: T = _from_batch(self, index)
        return item

    def __add__(self, other: Dataset[Any]) -> ConcatDataset:
        return ConcatDataset([self, other])

    def __repr__(self) -> str:
        facts = []
        with suppress(Exception):  # of a program's own class, which is shown all the same
            facts.append(f"{len(self):,} items")
        with suppress(Exception):
            facts += [f"{count} classes" for count in (len(self.classes),) if count]  # type: ignore[attr-defined]
        return f"{type(self).__name__}({', '.join(facts)})"


class IterableDataset(Dataset[T]):
    """The base of datasets that are read in their own order: a subclass has `__iter__`, and perhaps `__len__`.

    `a + b` is a `ChainDataset`. A loader reads it in one thread, so nothing need be shared out between workers.
    """

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError(f"{type(self).__name__} needs __iter__")

    def __getitem__(self, index: Any) -> T:
        raise TypeError(f"a {type(self).__name__} is read in its own order; it has no item {index!r}")

    def __add__(self, other: Dataset[Any]) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


worker_info: Any = None  # which a worker process sets


def get_worker_info() -> Any:
    """Place of this worker process of a loader: `id`, `num_workers`, `seed` and `dataset`.

    None in a process that is no worker, also in the threads of a loader.
    """
    return worker_info


class Batches(Protocol):
    """Anything with a length that can hand out the samples of given indices."""

    def __len__(self) -> int: ...

    def batch(self, indices: NDArray[np.int64]) -> Any: ...


class Items(Protocol):
    """Anything with a length that has an item for each index: a number, an array, or a structure of them."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def way_of(dataset: Any, ways: tuple[str, ...] = ("batch", "__getitems__", "__getitem__")) -> str:
    """Name of the method that makes batches: "batch", "__getitems__" (a list of items, as in PyTorch) or "__getitem__".

    It is the one of `ways` that is defined nearest to the class of the dataset, so a subclass that overrides
    `__getitem__` is asked for items although its base has `batch`. In one class the first of them counts. An attribute
    `whole_batches` decides for or against `batch` if none of them is defined nearer.
    """
    found = {name: _distance(dataset, name) for name in ways}
    nearest = min(found.values())
    if nearest == _NOWHERE:  # it hands on what it is asked for by __getattr__
        return next((name for name in ways if hasattr(dataset, name)), "__getitem__")
    if "batch" in found and _distance(dataset, "whole_batches") <= nearest:
        if dataset.whole_batches:
            return "batch"
        del found["batch"]
    return min(found, key=found.__getitem__)


def whole_batches(dataset: Any) -> bool:
    """True if a dataset makes the items of a batch at once, by `batch` or `__getitems__`."""
    return way_of(dataset) != "__getitem__"


def check_indexed(owner: str, dataset: Any, single: bool) -> None:
    """Raises DataError unless a dataset has a length, and items or batches by index; `single`: items are needed."""
    by_item, name = hasattr(dataset, "__getitem__"), type(dataset).__name__
    if not hasattr(dataset, "__len__") or not (hasattr(dataset, "batch") or by_item):
        raise DataError(f"{owner}: a {name} is no dataset: it needs __len__ and either batch(indices) or __getitem__")
    own = not isinstance(dataset, Dataset) or type(dataset).__getitem__ is not Dataset.__getitem__
    if not (by_item and own) and not whole_batches(dataset):
        raise DataError(f"{owner}: {name} needs __getitem__(index) or batch(indices)")
    if not by_item and single:
        raise DataError(f"{owner}: collate_fn and batch_size=None take single items; {name} has only batch(indices)")


def item_of(dataset: Any, index: Any) -> Any:
    """The item of an index; from a batch of one if what makes batches is overridden and `__getitem__` is not."""
    found = {name: _distance(dataset, name) for name in ("__getitem__", "__getitems__", "batch")}
    way = min(found, key=found.__getitem__)
    if way == "batch":
        return _from_batch(dataset, index)
    return items_from(dataset, [index])[0] if way == "__getitems__" else dataset[index]


_NOWHERE = 1 << 30


def _distance(dataset: Any, name: str) -> int:
    """0 if a dataset itself has an attribute, 1 if its class defines it, 2 if the next class does that, and so on."""
    if not name.startswith("__") and name in getattr(dataset, "__dict__", {}):
        return 0
    for distance, kind in enumerate(type(dataset).__mro__, 1):
        if name in vars(kind) and kind is not Dataset:  # whose __getitem__ asks for a batch
            return distance
    return _NOWHERE


def _from_batch(dataset: Any, index: Any) -> Any:
    place = index_of(type(dataset).__name__, index)
    return mapped(batch_from(dataset, np.array([place], np.int64)), lambda values: values[0])


def batch_from(dataset: Any, indices: NDArray[np.int64]) -> Any:
    """The batch that a dataset hands out; DataError unless each part of it has an item for each of the indices (B,)."""
    batch = dataset.batch(indices)
    if wrong := wrong_length(batch, len(indices)):
        raise DataError(
            f"{type(dataset).__name__}.batch: {wrong} for {len(indices)} indices; it must have one for each"
        )
    return batch


def items_from(dataset: Any, places: list[Any]) -> list[Any]:
    """The items that a dataset hands out by `__getitems__`; DataError unless there is one for each of the places."""
    found = list(dataset.__getitems__(places))
    if len(found) != len(places):
        raise DataError(
            f"{type(dataset).__name__}.__getitems__: it gives {len(found)} items for {len(places)} indices; it must "
            "give one for each"
        )
    return found


def in_threads(dataset: Any) -> bool:
    """True if the items of a dataset may be made in other threads than the caller's."""
    return bool(getattr(dataset, "in_threads", True))


def batch_of(dataset: Any, indices: NDArray[np.int64]) -> Any:
    """The batch of indices (B,), which a dataset hands out or whose items are stacked."""
    way, places = way_of(dataset), [int(index) for index in indices]
    if way == "batch":
        return batch_from(dataset, indices)
    items = items_from(dataset, places) if way == "__getitems__" else [item_of(dataset, place) for place in places]
    return collate(items, places)


def length_of(owner: str, dataset: Any) -> int:
    """The number of items of a dataset; DataError if it has none by index."""
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise DataError(
            f"{owner}: a {type(dataset).__name__} has no items by index, of which some could be taken; a dataset with "
            "__len__, and with __getitem__ or batch, is needed"
        )
    return len(dataset)


class Subset(Dataset[Any]):
    """The items of `dataset` at `indices` (M,), in this order.

    Raises:
        DataError: an index is out of range, or not a whole number, or the dataset has no items by index.
    """

    def __init__(self, dataset: Any, indices: Sequence[int] | NDArray[Any]) -> None:
        self.dataset = dataset
        self.indices = indices_of("Subset", indices, length_of("Subset", dataset))

    @property
    def whole_batches(self) -> bool:
        """True if the dataset within makes whole batches."""
        return whole_batches(self.dataset)

    @property
    def in_threads(self) -> bool:  # type: ignore[override]
        return in_threads(self.dataset)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        return item_of(self.dataset, int(self.indices[index_of("Subset", index)]))

    def batch(self, indices: NDArray[np.int64]) -> Any:
        """The batch of `indices` (B,), which count in the subset."""
        return batch_of(self.dataset, self.indices[indices])


class ConcatDataset(Dataset[Any]):
    """The items of several datasets, one dataset after another.

    Raises:
        DataError: there are none, one of them has no indices, or two of them name other `classes`.
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = _indexed("ConcatDataset", datasets)
        classes_of(self)

    @property
    def cumulative_sizes(self) -> list[int]:
        """Ends of the datasets: the number of items up to the end of each."""
        return list(accumulate(map(len, self.datasets)))

    @property
    def whole_batches(self) -> bool:
        """True if each of the datasets makes whole batches."""
        return all(map(whole_batches, self.datasets))

    @property
    def in_threads(self) -> bool:  # type: ignore[override]
        return all(map(in_threads, self.datasets))

    def __len__(self) -> int:
        return sum(map(len, self.datasets))

    def __getitem__(self, index: Any) -> Any:
        which, local = self._locate(np.array([index_of("ConcatDataset", index)], np.int64))
        return item_of(self.datasets[which[0]], int(local[0]))

    def batch(self, indices: NDArray[np.int64]) -> Any:
        """One batch of the batches that the datasets make of their parts of the indices   indices (B,)"""
        which, local = self._locate(indices_of("ConcatDataset", indices))
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
        """True if each of the datasets makes whole batches."""
        return all(map(whole_batches, self._each()))

    @property
    def in_threads(self) -> bool:  # type: ignore[override]
        return all(map(in_threads, self._each()))

    def __len__(self) -> int:
        return len(self._each()[0])

    def __getitem__(self, index: Any) -> Any:
        return self._like([item_of(dataset, index) for dataset in self._each()])

    def batch(self, indices: NDArray[np.int64]) -> Any:
        """A tuple, or a dict, with the batch of each dataset   indices (B,)"""
        return self._like([batch_of(dataset, indices) for dataset in self._each()])


class ChainDataset(IterableDataset[Any]):
    """The items of several datasets that are read in their own order, one dataset after another."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise DataError(f"ChainDataset: a {type(dataset).__name__} is no IterableDataset")
        classes_of(self)

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


def classes_of(dataset: Any) -> tuple[str, ...]:
    """The names of the classes of a data set, in order; empty if it has none.

    They are its list or tuple `classes` of different texts, or those of what a Subset or a ConcatDataset is made of,
    also PyTorch's.

    Raises:
        DataError: parts of a ConcatDataset name other classes, so that one label means one class or another.
    """
    names: Any = None
    with suppress(Exception):  # of a program's own class
        names = dataset.classes
    if names is None and hasattr(dataset, "indices") and getattr(dataset, "dataset", dataset) is not dataset:
        return classes_of(dataset.dataset)
    if names is None and isinstance(getattr(dataset, "datasets", None), list):
        found = [classes_of(part) for part in dataset.datasets]
        if isinstance(dataset, (ConcatDataset, ChainDataset)) or hasattr(dataset, "cumulative_sizes"):
            _check_same_classes(type(dataset).__name__, found)
        return found[0] if len(set(found)) == 1 else ()
    named = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
    return tuple(names) if named and len(set(names)) == len(names) else ()


def _check_same_classes(owner: str, classes: list[tuple[str, ...]]) -> None:
    named = [(number, names) for number, names in enumerate(classes) if names]
    for number, names in named:
        first, wanted = named[0]
        if names != wanted:
            place = next((i for i, pair in enumerate(zip(names, wanted, strict=False)) if len(set(pair)) > 1), None)
            differ = "" if place is None else f"; class {place} is {names[place]!r} and {wanted[place]!r}"
            raise DataError(
                f"{owner}: data set {number} has {len(names)} classes, data set {first} has {len(wanted)}{differ}. "
                "Labels are the numbers of classes, so all parts need the same ones in the same order; if only the "
                "names differ, give them the same `classes`"
            )
