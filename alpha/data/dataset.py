"""What a dataset is: a length, and batches of it, or items, by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from alpha.errors import DataError

Batch = tuple[NDArray[Any], NDArray[Any]]


class Dataset(Protocol):
    """Anything with a length that can hand out the samples of given indices."""

    def __len__(self) -> int: ...

    def batch(self, indices: NDArray[np.int64]) -> Batch:
        """The samples of `indices` (B,): images (B, H, W, C) uint8 and labels (B,) int32, or what the model takes."""
        ...


class Items(Protocol):
    """Anything with a length that has an item for each index: a number, an array, or a tuple of them."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class ArrayDataset:
    """Features (N, ..) and labels or targets (N, ..), all in memory; a `Trainer` takes images (N, H, W, C) uint8.

    `classes` names the labels, in order; without it, labels of integers have any value. Raises DataError when the
    arrays do not fit each other.
    """

    def __init__(self, images: NDArray[Any], labels: NDArray[Any], classes: tuple[str, ...] = ()) -> None:
        for name, values in (("images", images), ("labels", labels)):
            if not isinstance(values, np.ndarray) or not values.ndim:
                raise DataError(f"dataset: {name} are no numpy array (N, ..) but a {type(values).__name__}")
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

    def batch(self, indices: NDArray[np.int64]) -> Batch:
        return self.images[indices], self.labels[indices]


def collate(items: Sequence[Any], indices: Sequence[int]) -> Any:
    """A batch of items: an array with one more axis, or a tuple of them if the items are tuples or lists.

    Items are numpy arrays, Alpha's tensors on the cpu, or numbers, of one shape. Python's floats become float32 and its
    integers int64, as in `alpha.tensor`.

    Raises:
        DataError: the items differ in length or shape, or have other elements; it names the first one by its index.
    """
    first = items[0]
    if not isinstance(first, (tuple, list)):
        return _stack(items, indices, "")
    for item, index in zip(items, indices, strict=True):
        if not isinstance(item, (tuple, list)) or len(item) != len(first):
            found = f"has {len(item)}" if isinstance(item, (tuple, list)) else f"is of type {type(item).__name__}"
            raise DataError(f"DataLoader: item {index} {found}, item {indices[0]} has {len(first)} elements")
    columns = zip(*items, strict=True)
    return tuple([_stack(column, indices, f", element {place}") for place, column in enumerate(columns)])


def _stack(values: Sequence[Any], indices: Sequence[int], place: str) -> NDArray[Any]:
    if all(type(value) in (bool, int, float) for value in values):
        return np.array(values, np.float32 if float in map(type, values) else None)
    arrays = [_on_host(value, f"item {index}{place}") for value, index in zip(values, indices, strict=True)]
    for array, index in zip(arrays, indices, strict=True):
        if array.shape != arrays[0].shape:
            raise DataError(
                f"DataLoader: item {index}{place} has shape {array.shape}, item {indices[0]} {arrays[0].shape}"
            )
    return np.stack(arrays)


def _on_host(value: Any, name: str) -> NDArray[Any]:
    if isinstance(value, (np.ndarray, np.generic, bool, int, float)):
        return np.asarray(value, np.float32 if type(value) is float else None)
    if not hasattr(value, "numpy"):  # which tensors have
        raise DataError(f"DataLoader: {name} is of type {type(value).__name__}, not an array, a tensor or a number")
    device = getattr(value.device, "name", "cpu")
    if device != "cpu":
        raise DataError(f"DataLoader: {name} is a tensor on {device}; the loader takes those on the cpu")
    return np.asarray(value.numpy())
