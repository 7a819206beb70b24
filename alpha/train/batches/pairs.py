"""Pairs of images and labels that a Trainer reads of a loader."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.autograd.versions import array_of
from alpha.core.rng import fresh_seed
from alpha.core.tensor import Tensor
from alpha.data import DataLoader, IterableDataset, Subset
from alpha.data.collate import widened
from alpha.errors import CheckpointError, DataError

EPOCH_SEED = "epoch_seed"  # beside what describes a loader: that of its last epoch, None if the loader has a seed

Pair = tuple[NDArray[Any], NDArray[Any]]


class Pairs:
    """The batches of a loader as arrays: images, and labels of a dtype that tensors have.

    Attributes:
        dataset: something as long as an epoch, before `drop_last`.
    """

    def __init__(self, loader: DataLoader) -> None:
        check_loader(loader)
        self._loader = loader
        self.dataset, self.batch_size = range(loader.samples), loader.batch_size

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Generator[Pair, None, None]:
        with closing(iter(self._loader)) as batches:
            yield from map(_pair, batches)

    def batch(self, indices: NDArray[np.int64]) -> Pair:
        return _pair(self._loader.batch(indices))

    def take_epoch(self) -> tuple[NDArray[np.int64], int]:
        return self._loader.take_epoch()


def check_loader(loader: DataLoader) -> None:
    """Raises DataError if a Trainer cannot count and resume the batches of a loader."""
    iterable = isinstance(loader.dataset, IterableDataset)
    if iterable or loader.batch_size is None:
        found = "an IterableDataset" if iterable else "a batch_sampler, or batch_size=None"
        raise DataError(
            f"Trainer: the loader has {found}; a Trainer needs a batch_size and a dataset with indices, so that it can "
            "resume a run"
        )


@contextmanager
def at_epoch(loader: DataLoader, epoch: int) -> Iterator[None]:
    """Context in which a loader gives this epoch, also in a resumed run; afterwards it goes on as before.

    Nothing is drawn for it, so the numbers of a training do not depend on its evaluations.
    """
    before, seed = loader.next_epoch, loader.epoch_seed
    loader.set_epoch(epoch)
    loader.epoch_seed = 0
    try:
        yield
    finally:
        loader.set_epoch(*before)
        loader.epoch_seed = seed


def seed_of_epoch(loader: DataLoader, begun: Mapping[str, Any] | None) -> int | None:
    """The seed of an epoch: None if the loader has one, else a fresh draw, or that with which the epoch was `begun`."""
    if loader.seed is not None:
        return None
    seed = fresh_seed() if begun is None else begun.get(EPOCH_SEED)
    if type(seed) is not int:
        raise CheckpointError(f"Trainer: the state of the loader has {EPOCH_SEED}={seed!r}, expected a whole number")
    return seed


def difference(loader: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """Difference between two descriptions of a loader, in words; empty if there is none."""
    names = dict.fromkeys([name for name in (*before, *loader) if name != EPOCH_SEED])
    if ("sampler" in loader) != ("sampler" in before):  # what else is known of a sampler says no more
        names = {name: None for name in names if name not in ("samples", "sampler_seed")}
    changed = [name for name in names if loader.get(name) != before.get(name)]
    return ", ".join(f"{name} is {loader.get(name, 'none')}, was {before.get(name, 'none')}" for name in changed)


def can_be_resident(loader: DataLoader) -> bool:
    """True if an epoch is an order of the whole data set, of which batches are made as usual."""
    return loader.collate_fn is None and is_plain(loader, DataLoader) and loader.samples == len(loader.dataset)


def whole(dataset: Any) -> Any:
    """The data set that a subset is a part of, or the data set itself."""
    while is_plain(dataset, Subset):
        dataset = dataset.dataset
    return dataset


def is_plain(value: Any, kind: type) -> bool:
    """True if a data set or a loader makes items and batches as the class `kind` does, not in a way of its own."""
    makes = ("batch", "take_epoch", "__getitem__", "__getitems__", "__iter__")
    own = getattr(value, "__dict__", {})
    return isinstance(value, kind) and all(
        name not in own and getattr(type(value), name, None) is getattr(kind, name, None) for name in makes
    )


def _pair(batch: Any) -> Pair:
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        found = f"{len(batch)} parts" if isinstance(batch, (tuple, list)) else f"a {type(batch).__name__}"
        raise DataError(f"Trainer: a batch of the loader has {found}; expected a pair, images and labels")
    images, labels = map(_array, batch)
    return images, widened(labels)


def _array(values: Any) -> NDArray[Any]:
    if isinstance(values, Tensor):
        return array_of(values) if isinstance(values.array, np.ndarray) else values.numpy()
    return np.asarray(values)
