"""What a dataset is: a length, and batches of it, or items, by index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from alpha.autograd.versions import array_of
from alpha.core.tensor import Tensor
from alpha.data.collate import mapped, with_tensors
from alpha.errors import DataError

if TYPE_CHECKING:
    from alpha.data.combine import ChainDataset, ConcatDataset

Batch = tuple[NDArray[Any], NDArray[Any]]
T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
    """The base of datasets: a subclass has `__len__`, and `__getitem__(index)` or `batch(indices)`, or both.

    `batch(indices)` gives the batch of `indices` (B,) int64 at once: images (B, H, W, C) uint8 and labels (B,) int32,
    or what the model takes. Without it the loader stacks items. If a subclass overrides only one of them,
    that one is called. `a + b` is a `ConcatDataset`.

    Attributes:
        in_threads: whether items and batches may be made in other threads than the caller's. If it is False, the loader
            starts no thread.
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
        from alpha.data.combine import ConcatDataset

        return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
    """The base of datasets that are read in their own order: a subclass has `__iter__`, and perhaps `__len__`.

    `a + b` is a `ChainDataset`. A loader reads it in one thread, so nothing need be shared out between workers.
    """

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError(f"{type(self).__name__} needs __iter__")

    def __getitem__(self, index: Any) -> T:
        raise TypeError(f"a {type(self).__name__} is read in its own order; it has no item {index!r}")

    def __add__(self, other: Dataset[Any]) -> ChainDataset:  # type: ignore[override]
        from alpha.data.combine import ChainDataset

        return ChainDataset([self, other])


def get_worker_info() -> Any:
    """None, as PyTorch's in a process that is no worker: a loader reads an `IterableDataset` in one thread."""
    return None


class Batches(Protocol):
    """Anything with a length that can hand out the samples of given indices."""

    def __len__(self) -> int: ...

    def batch(self, indices: NDArray[np.int64]) -> Any: ...


class Items(Protocol):
    """Anything with a length that has an item for each index: a number, an array, or a structure of them."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def way_of(dataset: Any, ways: tuple[str, ...] = ("batch", "__getitems__", "__getitem__")) -> str:
    """What makes the batches of a dataset: "batch", "__getitems__" (a list of items, as in PyTorch) or "__getitem__".

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
    """Whether a dataset makes the items of a batch at once, by `batch` or `__getitems__`."""
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
    return dataset.__getitems__([index])[0] if way == "__getitems__" else dataset[index]


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
    return mapped(dataset.batch(np.array([index], np.int64)), lambda values: values[0])


def in_threads(dataset: Any) -> bool:
    """Whether the items of a dataset may be made in other threads than the caller's."""
    return bool(getattr(dataset, "in_threads", True))


class ArrayDataset(Dataset[tuple[Any, Any]]):
    """Features (N, ..) and labels or targets (N, ..), all in memory; a `Trainer` takes images (N, H, W, C) uint8.

    Both are numpy arrays, or Alpha's tensors on the cpu, whose arrays are taken. Batches are numpy arrays; see
    `TensorDataset` for batches of tensors.

    `classes` names the labels, in order; without it, labels of integers have any value. Raises DataError when the
    arrays do not fit each other.
    """

    def __init__(
        self, images: NDArray[Any] | Tensor, labels: NDArray[Any] | Tensor, classes: tuple[str, ...] = ()
    ) -> None:
        images, labels = _array("images", images), _array("labels", labels)
        if len(labels) != len(images):
            raise DataError(
                f"dataset: expected as many images as labels  (images {images.shape}, labels {labels.shape})"
            )
        if classes and (labels.ndim != 1 or labels.dtype.kind not in "iu"):
            raise DataError(
                f"dataset: expected integer labels (N,) for {len(classes)} classes, not {labels.dtype} {labels.shape}"
            )
        if classes and len(labels) and not 0 <= labels.min() <= labels.max() < len(classes):
            raise DataError(
                f"dataset: labels run from {labels.min()} to {labels.max()}, "
                f"expected 0 to {len(classes) - 1} for {len(classes)} classes"
            )
        self.images = images
        self.labels = labels
        self.classes = classes

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        return self.images[index], self.labels[index]

    def batch(self, indices: NDArray[np.int64]) -> Batch:
        return self.images[indices], self.labels[indices]


def _array(name: str, values: Any) -> NDArray[Any]:
    if isinstance(values, Tensor):
        if not isinstance(values.array, np.ndarray):
            raise DataError(f"dataset: {name} are on {values.device.name}; move them by .to('cpu')")
        values = array_of(values)
    if not isinstance(values, np.ndarray) or not values.ndim:
        raise DataError(f"dataset: {name} are no numpy array (N, ..) but a {type(values).__name__}")
    return values


class TensorDataset(Dataset[tuple[Any, ...]]):
    """Tensors or numpy arrays (N, ..) of one length; an item is the tuple of their parts at an index.

    If one of them is a tensor, all are. Tensors may be on any device; batches are made there, without a thread. No
    gradients flow to them.

    Raises:
        DataError: there are none, or they differ in length.
    """

    def __init__(self, *tensors: Tensor | NDArray[Any]) -> None:
        for number, values in enumerate(tensors):
            if not isinstance(values, (Tensor, np.ndarray)) or not values.ndim:
                found = "has no axis" if isinstance(values, (Tensor, np.ndarray)) else f"is a {type(values).__name__}"
                raise DataError(f"TensorDataset: argument {number} {found}; expected a tensor or an array (N, ..)")
        if not tensors or any(len(values) != len(tensors[0]) for values in tensors):
            shapes = ", ".join(str(values.shape) for values in tensors)
            raise DataError(f"TensorDataset: expected tensors of one length  ({shapes or 'there are none'})")
        mixed: Any = any(isinstance(values, Tensor) for values in tensors)
        self.tensors: tuple[Any, ...] = mapped(tensors, _tensor_of) if mixed else tensors

    @property
    def in_threads(self) -> bool:  # type: ignore[override]
        return all(isinstance(getattr(values, "array", values), np.ndarray) for values in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple([values[index] for values in self.tensors])

    def batch(self, indices: NDArray[np.int64]) -> tuple[Any, ...]:
        return tuple([_rows(values, indices) for values in self.tensors])


def _tensor_of(values: Any) -> Any:
    return values.detach() if isinstance(values, Tensor) else with_tensors(values)


def _rows(values: Any, indices: NDArray[np.int64]) -> Any:
    if isinstance(values, Tensor) and isinstance(values.array, np.ndarray):
        return Tensor(array_of(values)[indices])  # no operator: a thread of the loader may do this
    return values[indices]
