"""Datasets whose items lie in memory, as numpy arrays or tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.autograd.versions import array_of
from alpha.core.host_values import MASKED, is_masked
from alpha.core.tensor import Tensor
from alpha.data.collate import mapped, with_tensors
from alpha.data.dataset import Batch, Dataset
from alpha.errors import DataError


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
        """Images and labels of these indices   indices (B,) -> (B, H, W, C), (B,)"""
        return self.images[indices], self.labels[indices]


def _array(name: str, values: Any) -> NDArray[Any]:
    if isinstance(values, Tensor):
        if not isinstance(values.array, np.ndarray):
            raise DataError(f"dataset: {name} are on {values.device.name}; move them by .to('cpu')")
        values = array_of(values)
    if not isinstance(values, np.ndarray) or not values.ndim:
        raise DataError(f"dataset: {name} are no numpy array (N, ..) but a {type(values).__name__}")
    if is_masked(values):
        raise DataError(f"dataset: the array of {name} {MASKED}")
    return values


class TensorDataset(Dataset[tuple[Any, ...]]):
    """Tensors or numpy arrays (N, ..) of one length; an item is the tuple of their parts at an index.

    If one of them is a tensor, all are. Tensors may be on any device; batches are made there, without a thread. No
    gradients flow to them.

    Raises:
        DataError: there are none, they differ in length, or one of them has a dtype that no tensor has beside tensors.

    Examples:
        >>> import alpha
        >>> from alpha.data import TensorDataset
        >>> data = TensorDataset(alpha.ones(10, 3), alpha.arange(10))
        >>> len(data), data[4][1].item()
        (10, 4)
    """

    def __init__(self, *tensors: Tensor | NDArray[Any]) -> None:
        for number, values in enumerate(tensors):
            if not isinstance(values, (Tensor, np.ndarray)) or not values.ndim:
                found = "has no axis" if isinstance(values, (Tensor, np.ndarray)) else f"is a {type(values).__name__}"
                raise DataError(f"TensorDataset: argument {number} {found}; expected a tensor or an array (N, ..)")
            if is_masked(values):
                raise DataError(f"TensorDataset: argument {number} {MASKED}")
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
        """Rows of each tensor or array at these indices   indices (B,) -> (B, ..) each"""
        return tuple([_rows(values, indices) for values in self.tensors])


def _tensor_of(values: Any) -> Any:
    return values.detach() if isinstance(values, Tensor) else with_tensors(values)


def _rows(values: Any, indices: NDArray[np.int64]) -> Any:
    if isinstance(values, Tensor) and isinstance(values.array, np.ndarray):
        return Tensor(array_of(values)[indices])  # no operator: a thread of the loader may do this
    return values[indices]
