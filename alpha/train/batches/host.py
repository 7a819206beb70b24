"""Batches of the host that a Trainer reads of a loader, whatever their structure."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.autograd.versions import array_of
from alpha.core.host_values import DTYPES, MASKED, host_array, is_masked, is_torch
from alpha.core.numerics import is_floating
from alpha.core.rng import fresh_seed
from alpha.core.tensor import Tensor
from alpha.data import ArrayDataset, DataLoader, IterableDataset, Subset
from alpha.data.collate import leaves, mapped, widened
from alpha.errors import CheckpointError, DataError, type_name

CLASSES = "classes"  # in what describes a loader
EPOCH_SEED = "epoch_seed"  # beside what describes a loader: that of its last epoch, None if the loader has a seed


class HostBatches:
    """The batches of a loader with arrays of dtypes that tensors have, in the structure that the loader gives them.

    Attributes:
        dataset: something as long as an epoch, before `drop_last`.
    """

    def __init__(self, loader: DataLoader) -> None:
        check_loader(loader)
        self._loader = loader
        self.dataset, self.batch_size = range(loader.samples), loader.batch_size

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Generator[Any, None, None]:
        with closing(iter(self._loader)) as batches:
            yield from map(as_arrays, batches)

    def batch(self, indices: NDArray[np.int64]) -> Any:
        return as_arrays(self._loader.batch(indices))

    def take_epoch(self) -> tuple[NDArray[np.int64], int]:
        return self._loader.take_epoch()


def check_loader(loader: DataLoader) -> None:
    """Raises DataError if a Trainer cannot count and resume the batches of a loader, TypeError if it is none."""
    if not isinstance(loader, DataLoader):
        raise TypeError(
            f"Trainer: a {type_name(loader)} is no loader; make one by alpha.data.DataLoader(dataset, batch_size=..)"
        )
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
    # what older states have not is not compared, and classes have a message of their own
    names = dict.fromkeys([name for name in (*before, *loader) if name not in (EPOCH_SEED, CLASSES)])
    if ("sampler" in loader) != ("sampler" in before):  # what else is known of a sampler says no more
        names = {name: None for name in names if name not in ("samples", "sampler_seed")}
    changed = [name for name in names if loader.get(name) != before.get(name)]
    return ", ".join(f"{name} is {loader.get(name, 'none')}, was {before.get(name, 'none')}" for name in changed)


def fault_of(loader: DataLoader, epoch: int, seed: int | None, step: int, classes: bool) -> str:
    """The reason why a batch can have no finite loss, in words; empty if its numbers and labels show none.

    Args:
        epoch: its number, from 0.
        seed: of the epoch; see `seed_of_epoch`.
        step: the number of the batch, from 1.
        classes: whether integers among the targets are labels of classes.
    """
    loader.set_epoch(epoch)
    loader.epoch_seed = seed
    size = loader.batch_size or 1
    items = loader.take_epoch()[0][(step - 1) * size : step * size]
    parts = as_arrays(loader.batch(items))
    parts = parts if isinstance(parts, tuple) and len(parts) == 2 else (parts,)
    for name, part in zip(("inputs", "targets"), parts, strict=False):
        for array in leaves(part):
            if not is_floating(array.dtype) or len(array) != len(items):
                continue
            rows = array.reshape(len(items), -1)
            rows = rows if rows.dtype.kind == "f" else rows.astype(np.float32)  # bfloat16
            for place in np.flatnonzero(~np.isfinite(rows).all(axis=1))[:1]:
                found = rows[place][~np.isfinite(rows[place])][0]
                why = f"its {name} have {found} in item {items[place]} of the data set"
                return why if np.isnan(found) else f"{why}; if that is meant, a lower learning rate usually helps"
    labels = parts[1] if len(parts) == 2 and classes else None
    if isinstance(labels, np.ndarray) and labels.dtype.kind == "i" and labels.size and (labels < 0).all():
        return f"the batch has no label of a class: all are below 0, the first is {labels.reshape(-1)[0]}"
    return ""


def can_be_resident(loader: DataLoader) -> bool:
    """True if an epoch is an order of the whole data set, of which batches are made as usual."""
    return loader.collate_fn is None and is_plain(loader, DataLoader) and loader.all_samples == len(loader.dataset)


def is_pair(loader: DataLoader) -> bool:
    """True if the data set of a loader gives two arrays for each batch."""
    if is_plain(whole(loader.dataset), ArrayDataset):
        return True
    batch = loader.batch(np.arange(1))
    return isinstance(batch, (tuple, list)) and len(batch) == 2 and not any(map(is_structure, batch))


def is_structure(values: Any) -> bool:
    """True for a tuple or a dict of arrays."""
    return isinstance(values, (tuple, Mapping))


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


def as_arrays(batch: Any) -> Any:
    """The structure of a batch with an array of a dtype that tensors have in each place; a list of two is a pair."""
    return mapped(tuple(batch) if isinstance(batch, list) else batch, _array)


def pair(batch: Any) -> tuple[Any, Any]:
    """The inputs and the targets of a batch; DataError if it has not two parts."""
    if not isinstance(batch, tuple) or len(batch) != 2:
        found = f"{len(batch)} parts" if isinstance(batch, tuple) else f"a {type(batch).__name__}"
        raise DataError(
            f"Trainer: a batch of the loader has {found}; expected a pair, inputs and targets: make it one by a "
            "collate_fn, or give the Trainer a step= that takes the whole batch"
        )
    return batch[0], batch[1]


def samples_of(batch: Any) -> int:
    """The number of samples of a batch: the length of its first array."""
    length = next((len(values) for values in leaves(batch) if values.ndim), None)
    if length is None:
        raise DataError("Trainer: a batch of the loader has no array (N, ..) whose length is the number of samples")
    return length


def parts_of(batch: Any, count: int) -> list[Any]:
    """A batch cut into at most `count` parts of equal length, the last one perhaps shorter."""
    samples = samples_of(batch)
    length = -(-samples // max(1, min(count, samples)))

    def part(begin: int) -> Any:
        def rows(values: Any) -> Any:
            if not values.ndim or len(values) != samples:
                raise DataError(
                    f"Trainer: accumulate cuts a batch into parts, so all its arrays need one length  "
                    f"({samples} and {values.shape})"
                )
            return values[begin : begin + length]

        return mapped(batch, rows)

    return [part(begin) for begin in range(0, samples, length)]


def _array(values: Any) -> NDArray[Any]:
    if isinstance(values, Tensor):
        return array_of(values) if isinstance(values.array, np.ndarray) else values.numpy()
    array = widened(host_array(values) if is_torch(values) else np.asarray(values))
    if is_masked(values):
        raise DataError(f"Trainer: an array in a batch of the loader {MASKED}")
    if array.dtype.name not in DTYPES:
        found = f"{array.dtype.name}, {values!r}" if array.dtype.kind in "biufc" else repr(values)
        raise DataError(
            f"Trainer: a batch of the loader holds a {type(values).__name__}, {found[:40]}{'..' * (len(found) > 40)}, "
            "which is no array of numbers; leave it out by a collate_fn"
        )
    return array
