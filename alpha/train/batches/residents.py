"""Data sets that lie on a device, and the feed of a loader that follows from that."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.core.tensor import Tensor, tensor
from alpha.data import DataLoader
from alpha.data.array_datasets import ArrayDataset
from alpha.data.collate import widened
from alpha.runtime import Device
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.device import MIB
from alpha.train.batches.feed import Feed, HostFeed, Resident, ResidentFeed, StreamingFeed
from alpha.train.batches.host import HostBatches, can_be_resident, is_pair, is_plain, whole

PIECE_BYTES = 256 * MIB  # of a data set that is copied to the device at once


class Residents:
    """The data sets that lie on a device, each for as long as the program keeps it, and the feeds of its loaders.

    Args:
        memory: bytes that are there for them and all else, on every device of the processes that train together; None
            counts those that are free.
    """

    def __init__(self, device: Device, memory: int | None) -> None:
        self._device, self._memory = device, memory
        self._held: list[tuple[Callable[[], Any], Resident]] = []

    def find(self, dataset: Any) -> Resident | None:
        """Resident that a data set has on the device, or None."""
        return next((resident for kept, resident in self._held if kept() is dataset), None)

    def put(self, dataset: Any, inputs: NDArray[Any], targets: NDArray[Any], shares: int = 1) -> Resident:
        """Copy the inputs and targets of a data set, or of this process's one of `shares`, to the device."""
        resident = Resident(self._copied(inputs), self._copied(targets), shares)
        self.take(dataset, resident)
        return resident

    def take(self, dataset: Any, resident: Resident) -> None:
        """Remember that a data set lies on the device."""
        try:
            kept: Callable[[], Any] = weakref.ref(dataset)
        except TypeError:  # a list, for example: it is kept here
            kept = partial(_same, dataset)
        self._held.append((kept, resident))

    def _copied(self, values: NDArray[Any]) -> Tensor:
        """Copy of an array on the device, made piece by piece, since a file may hold more than the host's memory."""
        rows = max(1, PIECE_BYTES // max(1, values[:1].nbytes))
        first = widened(values[:rows])
        if len(values) <= rows:
            return tensor(first, device=self._device)
        array: Any = self._device.empty(values.shape, first.dtype)
        device: Any = self._device
        for begin in range(0, len(values), rows):
            piece = np.ascontiguousarray(widened(values[begin : begin + rows]))
            device.write(array.slice_rows(begin, begin + len(piece)), piece)
        return Tensor(array)

    def drop(self) -> list[Resident]:
        """Forget those whose data sets are no more, and return them."""
        dropped = [resident for kept, resident in self._held if kept() is None]
        self._held = [(kept, resident) for kept, resident in self._held if kept() is not None]
        return dropped

    def fits(self, dataset: Any, shares: int = 1) -> bool:
        """True if a data set lies in host memory, gives the same items in each epoch, and a share is small enough.

        With those that are on the device it takes at most a quarter of the memory that would be left without them.
        """
        dataset = whole(dataset)
        if not is_plain(dataset, ArrayDataset) or not isinstance(self._device, CudaDevice):
            return False
        kinds = {values.dtype.kind for values in (dataset.images, dataset.labels)}
        if not kinds <= set("biuf") or not len(dataset):
            return False  # what cannot be trained on is refused where batches come from the host
        held = sum(resident.nbytes for _, resident in self._held)
        wanted = (dataset.images.nbytes + dataset.labels.nbytes) // shares
        room = self._device.driver.memory_info()[0] + held if self._memory is None else self._memory
        return bool(4 * (held + wanted) <= room)

    def feed(self, loader: DataLoader, wanted: bool | None) -> Feed:
        """Feed that brings the batches of a loader to the device.

        Args:
            wanted: whether the data set is copied there as a whole, if that can be; None: if it is small enough.
        """
        data = loader.dataset
        batches = HostBatches(loader)
        if not isinstance(self._device, CudaDevice):
            return HostFeed(batches, self._device)
        resident = self.find(data)
        by_number = loader.part is not None and loader.part.by_number
        if wanted is None:
            wanted = by_number or resident is not None or self.fits(data)
        if not wanted or not can_be_resident(loader) or not is_pair(loader):
            return StreamingFeed(batches, self._device)
        if resident is None:
            rank, shares = (loader.part.rank, loader.part.world_size) if by_number and loader.part else (0, 1)
            if is_plain(data, ArrayDataset):
                arrays = data.images[rank::shares], data.labels[rank::shares]
            else:
                arrays = batches.batch(np.arange(rank, len(data), shares))
            resident = self.put(data, *arrays, shares)
        if resident.shares > 1 and not by_number:
            return StreamingFeed(batches, self._device)
        return ResidentFeed(batches, resident)

    def in_shares(self, loader: DataLoader, wanted: bool | None, shares: int) -> bool:
        """True if each of `shares` ranks is to hold only its share of a data set, as a device has no room for all."""
        data = loader.dataset
        if shares == 1 or wanted is not None or loader.sampler is not None or not can_be_resident(loader):
            return False
        if (resident := self.find(data)) is not None:
            return resident.shares > 1
        return len(data) >= shares and not self.fits(data) and self.fits(data, shares)


def _same(value: Any) -> Any:
    return value
