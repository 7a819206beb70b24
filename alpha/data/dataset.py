"""What a dataset is: a length, and batches of it by index."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from alpha.errors import DataError

Batch = tuple[NDArray[np.uint8], NDArray[np.int32]]


class Dataset(Protocol):
    """Anything with a length that can hand out the samples of given indices."""

    def __len__(self) -> int: ...

    def batch(self, indices: NDArray[np.int64]) -> Batch:
        """The samples of `indices` (B,): images (B, H, W, C) uint8 and labels (B,) int32."""
        ...


class ArrayDataset:
    """Images (N, H, W, C) uint8 and labels (N,) int32, all in memory.

    `classes` names the labels, in order. Raises DataError when the arrays do not fit each other.
    """

    def __init__(self, images: NDArray[np.uint8], labels: NDArray[np.int32], classes: tuple[str, ...]) -> None:
        if images.ndim != 4 or labels.shape != images.shape[:1]:
            raise DataError(
                f"dataset: expected images (N, H, W, C) and labels (N,)  (images {images.shape}, labels {labels.shape})"
            )
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(classes):
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
