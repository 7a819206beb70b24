"""Devices: a device makes arrays, moves them to and from the host, and counts its memory."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from alpha.errors import ShapeError

HostArray: TypeAlias = npt.NDArray[Any]
Array: TypeAlias = Any  # np.ndarray on the cpu, DeviceArray on cuda: code is written for one of them
Shape: TypeAlias = tuple[int, ...]

MIB = 2**20


@dataclass(frozen=True)
class MemoryStats:
    """Bytes of one device: in use now, most ever in use, held from the system, and the limit."""

    live: int
    peak: int
    reserved: int
    limit: int | None
    allocations: int  # how many arrays' blocks are live (0 where the device does not count them)


class Readback:
    """Values of an array on the host, some time after they were asked for; here: at once.

    `request()` asks for the values of this moment; `latest()` gives those of the last request that has been answered,
    or None.
    """

    def __init__(self, device: Device, array: Array) -> None:
        self._device, self._array = device, array
        self._values: HostArray | None = None

    def request(self) -> None:
        """Ask for the values of this moment; nothing happens while an answer is still under way."""
        self._values = self._device.download(self._array)

    def forget(self) -> None:
        """Drop the answers so far, and the one that is under way."""
        self._values = None

    def latest(self) -> HostArray | None:
        """A copy of the values of the last request that has been answered."""
        return self._values


class Device(ABC):
    """A place where arrays live and primitives run; every array is contiguous, in C order.

    Work is ordered: a call sees the results of all calls before it, and a host array that was given
    may be overwritten as soon as the call returns.
    """

    name: str

    @abstractmethod
    def empty(self, shape: Shape | int, dtype: npt.DTypeLike) -> Array:
        """An array of unspecified content."""

    @abstractmethod
    def zeros(self, shape: Shape | int, dtype: npt.DTypeLike) -> Array:
        """An array of zeros."""

    @abstractmethod
    def upload(self, source: HostArray) -> Array:
        """A new array on this device with the host array's content, whatever its strides and its byte order."""

    def table(self, key: Any, make: Callable[[], HostArray]) -> Array:
        """Numbers that an operator keeps as long as `key` lives and never writes; they may be made anew each time."""
        return self.upload(make())

    def listed(self, source: HostArray) -> Array:
        """Numbers that the code of a program lists, as an index; nobody writes them. A captured step may hold them."""
        return self.upload(source)

    @abstractmethod
    def download(self, array: Array) -> HostArray:
        """A new host array with the array's content; waits for the work before it."""

    @abstractmethod
    def copy(self, array: Array) -> Array:
        """A new array with the same content."""

    @abstractmethod
    def fill(self, array: Array, value: float) -> None:
        """Set every element."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all work; raises `DeviceError` for what went wrong in it."""

    def readback(self, array: Array) -> Readback:
        """Reads an array again and again, without making the device wait."""
        return Readback(self, array)

    def lend(self) -> None:  # noqa: B027
        """Let all threads take turns, until `take_back` was called as often; any thread may use the cpu without that.

        Raises DeviceError in a thread to which the device does not belong.
        """

    def take_back(self) -> None:  # noqa: B027
        """End a loan, once the turn that goes on has ended."""

    def turn(self) -> AbstractContextManager[None]:
        """Context in which this thread may use the device, after the turns of other threads.

        Raises DeviceError if the device belongs to another thread, which has not lent it.
        """
        return nullcontext()

    @abstractmethod
    def memory_stats(self) -> MemoryStats:
        """Bytes in use, the most so far, and held from the system, with the limit."""

    @abstractmethod
    def reset_peak(self) -> None:
        """The peak of `memory_stats` starts again from what is in use."""

    @abstractmethod
    def trim(self) -> None:
        """Give memory that no array uses back to the system."""

    @abstractmethod
    def set_memory_limit(self, nbytes: int | None) -> None:
        """Never hold more than this from the system; None lifts the limit."""

    def mark_step(self) -> None:
        """Mark the end of a step of training and the start of the next one, which may ask for the same memory again.

        The end of each backward pass calls it. A device that makes no use of it does nothing.
        """
        return

    def memory_summary(self) -> str:
        """`memory_stats` as one line, in MiB."""
        stats = self.memory_stats()
        limit = "none" if stats.limit is None else f"{stats.limit / MIB:.1f} MiB"
        return (
            f"{self.name}: in use {stats.live / MIB:.1f} MiB, peak {stats.peak / MIB:.1f} MiB, "
            f"reserved {stats.reserved / MIB:.1f} MiB, limit {limit}"
        )

    @property
    def type(self) -> str:
        """The name, under which PyTorch's programs ask for it."""
        return self.name

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Device:
        """The device itself, on which the copies of a model's arrays lie, too."""
        return self


def native(source: HostArray) -> HostArray:
    """The array in this machine's byte order, in which every array of a device is."""
    return source if source.dtype.isnative else source.astype(source.dtype.newbyteorder("="))


@functools.lru_cache(maxsize=4096)  # a training step asks for the same shapes again and again
def as_shape(shape: Shape | int) -> Shape:
    """A tuple of plain, non-negative integers."""
    plain = tuple(int(size) for size in ((shape,) if isinstance(shape, (int, np.integer)) else shape))
    if any(size < 0 for size in plain):
        raise ShapeError(f"a shape has no negative size: {plain}")
    return plain
