"""Feeds, which bring batches to the device: from the host, one by one, or from a data set that lies there."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from alpha.core.tensor import Tensor, tensor
from alpha.data.collate import leaves, mapped
from alpha.nn import functional as F
from alpha.runtime import Device
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.host_copies import Conveyor
from alpha.runtime.recording import StepValue
from alpha.step.dry_arguments import shaped
from alpha.train.batches.device import is_image, take_batch
from alpha.train.batches.host import HostBatches, pair

Arguments = tuple[Any, ...]


class Feed(Protocol):
    """The batches of a loader.

    `arguments()` gives, for each batch of the next epoch, what the step takes as arguments; `batch(*arguments)` makes
    the batch of them within the step. `examples(count)` has arguments for dry runs of the first `count` steps, by the
    size of the batch.
    """

    def arguments(self) -> Generator[Arguments, None, None]: ...

    def examples(self, count: int) -> dict[int, Arguments]: ...

    @property
    def batch(self) -> Batch: ...


class Batch(Protocol):
    """Makes the batch of the arguments of a step: tensors on the device, in the structure that the loader gives.

    If it is a pair, images of uint8 in its first part are float32 pixels (N, H, W, C) in [-1, 1].
    """

    def __call__(self, *arguments: Any) -> Any: ...


def with_pixels(batch: Any) -> Any:
    """The batch with pixels in place of images of uint8, if it is a pair and they are in its first part."""
    if not isinstance(batch, tuple) or len(batch) != 2:
        return batch
    inputs, targets = batch
    return mapped(inputs, lambda x: F.normalize_pixels(x) if is_image(x) else x), targets


def with_targets(batch: Any) -> tuple[Any, Any]:
    """Inputs, with pixels, and targets of a batch for a prediction; None for the targets of inputs alone."""
    if isinstance(batch, tuple) and len(batch) > 1:
        return pair(batch)
    inputs, _ = with_pixels((batch[0] if isinstance(batch, tuple) else batch, None))
    return inputs, None


def sizes(loader: HostBatches, count: int) -> set[int]:
    """The sizes of the first `count` batches."""
    images, size = len(loader.dataset), loader.batch_size
    return {min(size, images - begin) for begin in (0, (min(count, len(loader)) - 1) * size)}


def example_batches(loader: HostBatches, count: int) -> dict[int, Arguments]:
    """A batch of each size of the first `count`, without memory."""
    sample = loader.batch(np.arange(1))

    def example(values: NDArray[Any], size: int) -> Any:
        return shaped((size, *values.shape[1:]) if values.ndim else (), values.dtype)

    return {size: (mapped(sample, partial(example, size=size)),) for size in sizes(loader, count)}


class HostFeed:
    """Each batch is copied when its step begins."""

    batch = staticmethod(with_pixels)

    def __init__(self, loader: HostBatches, device: Device) -> None:
        self._loader, self._device = loader, device

    def arguments(self) -> Generator[Arguments, None, None]:
        with closing(iter(self._loader)) as batches:
            for batch in batches:
                yield (mapped(batch, partial(tensor, device=self._device)),)

    def examples(self, count: int) -> dict[int, Arguments]:
        return example_batches(self._loader, count)


class StreamingFeed:
    """Each batch is copied through page-locked memory while the step before runs."""

    batch = staticmethod(with_pixels)

    def __init__(self, loader: HostBatches, device: CudaDevice) -> None:
        self._loader, self._device = loader, device
        self._conveyor: Conveyor | None = None

    def arguments(self) -> Generator[Arguments, None, None]:
        try:
            with closing(iter(self._loader)) as batches:
                waiting = self._put(next(batches, None))
                while waiting is not None:
                    if self._conveyor is not None:
                        self._conveyor.wait()
                    yield (waiting,)
                    if self._conveyor is not None:
                        self._conveyor.taken()
                    waiting = self._put(next(batches, None))
        finally:
            if self._conveyor is not None:
                self._conveyor.close()

    def examples(self, count: int) -> dict[int, Arguments]:
        return example_batches(self._loader, count)

    def _put(self, batch: Any) -> Any:
        """The batch on its way to the device; arrays of another shape than in the first batch are copied at once."""
        if batch is None:
            return None
        arrays: list[NDArray[Any]] = [*leaves(batch)]
        if self._conveyor is None and all(values.ndim for values in arrays):
            most = min(self._loader.batch_size, len(self._loader.dataset))
            shapes = [(max(most, len(values)), *values.shape[1:]) for values in arrays]
            self._conveyor = Conveyor(self._device, shapes, [values.dtype for values in arrays])
        if self._conveyor is not None and self._conveyor.takes(arrays):
            on_device = iter([Tensor(array) for array in self._conveyor.put(*arrays)])
        else:
            on_device = iter([tensor(values, device=self._device) for values in arrays])
        return mapped(batch, lambda values: next(on_device))


class Position(StepValue[int]):
    """A number that the host sets before each step."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0
        super().__init__(lambda: self.value)


class Resident:
    """A data set on the device, or this process's share of it, from which a step takes its batch.

    Attributes:
        begin: where the batch of the next step begins in the order of the epoch.
        shares: how many processes have a share: every `shares`-th item.
    """

    def __init__(self, inputs: Tensor, targets: Tensor, shares: int) -> None:
        self.inputs, self.targets, self.shares = inputs, targets, shares
        longest = len(targets) + (shares > 1)  # of an epoch: another share may have one more, and this one repeats one
        self.order = Tensor(inputs.device.zeros((longest,), np.int32))
        self.begin = Position()

    @property
    def nbytes(self) -> int:
        return int(self.inputs.array.nbytes + self.targets.array.nbytes)

    def batch(self, count: int) -> tuple[Tensor, Tensor]:
        """The next `count` inputs, images as pixels, and their targets."""
        return take_batch(self.inputs, self.targets, self.order, self.begin, count)


class ResidentFeed:
    """The data set, or this process's share of it, lies on the device.

    An epoch copies the order of its items, and each step a number.
    """

    def __init__(self, loader: HostBatches, resident: Resident) -> None:
        self._loader, self._resident = loader, resident
        self.batch = resident.batch

    def arguments(self) -> Generator[Arguments, None, None]:
        order, first = self._loader.take_epoch()
        order = order // self._resident.shares
        device: Any = self._resident.order.device
        device.write(self._resident.order.array.slice_rows(0, len(order)), order.astype(np.int32))
        size = self._loader.batch_size
        for begin in range(first * size, len(self._loader) * size, size):
            self._resident.begin.value = begin
            yield (min(size, len(order) - begin),)

    def examples(self, count: int) -> dict[int, Arguments]:
        return {size: (size,) for size in sizes(self._loader, count)}
