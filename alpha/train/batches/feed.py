"""Feeds, which bring batches to the device: from the host, one by one, or from a data set that lies there."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from alpha.core.tensor import Tensor, tensor
from alpha.data import DataLoader
from alpha.data.dataset import ArrayDataset
from alpha.nn import functional as F
from alpha.runtime import Device
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.host_copies import Conveyor
from alpha.runtime.recording import StepValue
from alpha.step.dry import shaped
from alpha.train.batches.device import LABELS, take_batch
from alpha.train.batches.pairs import is_plain, whole

Arguments = tuple[Any, ...]


class Feed(Protocol):
    """The batches of a loader.

    `arguments()` gives, for each batch of the next epoch, what the step takes as arguments; `batch(*arguments)` makes
    pixels and labels of them within the step. `examples(count)` has arguments for dry runs of the first `count` steps,
    by the size of the batch.
    """

    def arguments(self) -> Generator[Arguments, None, None]: ...

    def examples(self, count: int) -> dict[int, Arguments]: ...

    @property
    def batch(self) -> Batch: ...


class Batch(Protocol):
    """Makes float32 pixels (N, H, W, C) in [-1, 1] and labels (N,), on the device, of the arguments of a step."""

    def __call__(self, *arguments: Any) -> tuple[Tensor, Tensor]: ...


def pixels_of(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The pixels and the labels of uint8 images."""
    return F.normalize_pixels(images), labels


def sizes(loader: DataLoader, count: int) -> set[int]:
    """The sizes of the first `count` batches."""
    images, size = len(loader.dataset), loader.batch_size
    return {min(size, images - begin) for begin in (0, (min(count, len(loader)) - 1) * size)}


def example_batches(loader: DataLoader, count: int) -> dict[int, Arguments]:
    """A batch of each size of the first `count`, without memory."""
    sample = loader.batch(np.arange(1))
    return {
        size: tuple([shaped((size, *values.shape[1:]), values.dtype) for values in sample])
        for size in sizes(loader, count)
    }


class HostFeed:
    """Each batch is copied when its step begins."""

    batch = staticmethod(pixels_of)

    def __init__(self, loader: DataLoader, device: Device) -> None:
        self._loader, self._device = loader, device

    def arguments(self) -> Generator[Arguments, None, None]:
        with closing(iter(self._loader)) as batches:
            for images, labels in batches:
                yield tensor(images, device=self._device), tensor(labels, device=self._device)

    def examples(self, count: int) -> dict[int, Arguments]:
        return example_batches(self._loader, count)


class StreamingFeed:
    """Each batch is copied through page-locked memory while the step before runs."""

    batch = staticmethod(pixels_of)

    def __init__(self, loader: DataLoader, device: CudaDevice) -> None:
        self._loader, self._device = loader, device
        self._conveyor: Conveyor | None = None

    def arguments(self) -> Generator[Arguments, None, None]:
        try:
            with closing(iter(self._loader)) as batches:
                waiting = self._put(next(batches, None))
                while waiting is not None:
                    assert self._conveyor is not None
                    self._conveyor.wait()
                    yield tuple(map(Tensor, waiting))
                    self._conveyor.taken()
                    waiting = self._put(next(batches, None))
        finally:
            if self._conveyor is not None:
                self._conveyor.close()

    def examples(self, count: int) -> dict[int, Arguments]:
        return example_batches(self._loader, count)

    def _put(self, batch: tuple[NDArray[np.uint8], NDArray[np.int32]] | None) -> list[Any] | None:
        if batch is None:
            return None
        images, labels = batch
        if self._conveyor is None:
            most = min(self._loader.batch_size, len(self._loader.dataset))
            shapes = (most, *images.shape[1:]), (most,)
            self._conveyor = Conveyor(self._device, shapes, (images.dtype, labels.dtype))
        return list(self._conveyor.put(images, labels))


class Position(StepValue[int]):
    """A number that the host sets before each step."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0
        super().__init__(lambda: self.value)


class Resident:
    """A data set on the device, from which a step takes its batch.

    Attributes:
        begin: where the batch of the next step begins in the order of the epoch.
    """

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels
        self.order = Tensor(images.device.zeros((len(labels),), np.int32))
        self.begin = Position()

    def batch(self, count: int) -> tuple[Tensor, Tensor]:
        """The pixels and the labels of the next `count` images."""
        return take_batch(self.images, self.labels, self.order, self.begin, count)


class ResidentFeed:
    """The whole data set lies on the device; an epoch copies the order of its images, and each step a number."""

    def __init__(self, loader: DataLoader, resident: Resident) -> None:
        self._loader, self._resident = loader, resident
        self.batch = resident.batch

    def arguments(self) -> Generator[Arguments, None, None]:
        order, first = self._loader.take_epoch()
        device: Any = self._resident.order.device
        device.write(self._resident.order.array, order.astype(np.int32))
        size = self._loader.batch_size
        for begin in range(first * size, len(self._loader) * size, size):
            self._resident.begin.value = begin
            yield (min(size, len(order) - begin),)

    def examples(self, count: int) -> dict[int, Arguments]:
        return {size: (size,) for size in sizes(self._loader, count)}


class Residents:
    """The data sets that lie on a device, each for as long as the program keeps it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._held: list[tuple[Callable[[], Any], Resident]] = []

    def find(self, dataset: Any) -> Resident | None:
        """Resident that a data set has on the device, or None."""
        return next((resident for kept, resident in self._held if kept() is dataset), None)

    def put(self, dataset: Any, images: NDArray[Any], labels: NDArray[Any]) -> Resident:
        """Copy the images and labels of a data set to the device."""
        resident = Resident(tensor(images, device=self._device), tensor(labels, device=self._device))
        try:
            kept: Callable[[], Any] = weakref.ref(dataset)
        except TypeError:  # a list, for example: it is kept here
            kept = partial(_same, dataset)
        self._held.append((kept, resident))
        return resident

    def drop(self) -> list[Resident]:
        """Forget those whose data sets are no more, and return them."""
        dropped = [resident for kept, resident in self._held if kept() is None]
        self._held = [(kept, resident) for kept, resident in self._held if kept() is not None]
        return dropped

    def fits(self, dataset: Any) -> bool:
        """True if a data set lies in host memory, gives the same items in each epoch, and is small enough.

        With those that are on the device it takes at most a quarter of the memory that would be left without them.
        """
        dataset = whole(dataset)
        if not is_plain(dataset, ArrayDataset) or not isinstance(self._device, CudaDevice):
            return False
        if dataset.images.dtype != np.uint8 or dataset.labels.dtype not in LABELS:
            return False  # what cannot be trained on is refused where batches come from the host
        held = sum(resident.images.array.nbytes for _, resident in self._held)
        return bool(4 * (held + dataset.images.nbytes) <= self._device.driver.memory_info()[0] + held)


def _same(value: Any) -> Any:
    return value
