"""The GPU under PyTorch's names: `alpha.cuda.is_available()`, `alpha.cuda.max_memory_allocated()`.

`device` is the GPU in any of PyTorch's forms, which all mean the only one that Alpha uses: None, 0, "cuda", "cuda:0" or
the device itself. Without a GPU, all but `is_available`, `device_count` and the seeds raise `DeviceError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.core.rng import manual_seed
from alpha.cuda import amp
from alpha.runtime import Device, get_device, recording
from alpha.runtime.registry import opened

if TYPE_CHECKING:
    from alpha.runtime.cuda.cuda_device import CudaDevice

__all__ = [
    "Event",
    "amp",
    "current_device",
    "device_count",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "is_available",
    "lend",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "reset_peak_memory_stats",
    "synchronize",
    "turn",
]

DeviceLike: TypeAlias = "int | str | Device | None"

manual_seed_all = manual_seed


def is_available() -> bool:
    """True if a GPU works, so that "auto" means "cuda"; the emulated driver, which is slow, does not count."""
    return get_device("auto").name == "cuda"


def device_count() -> int:
    """The number of GPUs that Alpha uses: 1, or 0 if none works."""
    return int(is_available())


def current_device() -> int:
    """0, the number of the GPU among those that Alpha uses."""
    _the_gpu(None)
    return 0


def synchronize(device: DeviceLike = None) -> None:
    """Wait until all work given to the cuda device is done; raises what went wrong in it."""
    _the_gpu(device).synchronize()


def get_device_name(device: DeviceLike = None) -> str:
    """The name of the GPU, as "NVIDIA H200"."""
    return _the_gpu(device).properties.name


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """Compute capability of the GPU, as (9, 0)."""
    return _the_gpu(device).properties.compute_capability


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes of the arrays that are alive."""
    return _now(device).memory_stats().live


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most bytes of arrays that were alive at once, since the last `reset_peak_memory_stats`."""
    return _now(device).memory_stats().peak


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes that Alpha holds of the GPU's memory."""
    return _now(device).memory_stats().reserved


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Let `max_memory_allocated` start again from what is alive now."""
    _now(device).reset_peak()


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """(bytes that are free on the GPU, bytes that it has)"""
    return _now(device).driver.memory_info()


def empty_cache() -> None:
    """Give memory that no array uses back to the GPU, if there is one, so that other programs can have it."""
    if opened("cuda") is not None:
        _the_gpu(None).trim()


@contextmanager
def lend(device: DeviceLike = None) -> Iterator[None]:
    """Context in which all threads may use the GPU, one after the other: each in its `turn`.

    The GPU belongs to the main thread, which alone may lend it, and which needs turns, too, until the context ends:

        with alpha.cuda.lend(), ThreadPoolExecutor() as pool:
            results = list(pool.map(work, items))  # work() uses the GPU inside of `with alpha.cuda.turn():`

    Raises `DeviceError` in another thread. An `alpha.serve.Predictor` lends the GPU by itself.
    """
    gpu = _the_gpu(device)
    gpu.lend()
    try:
        yield
    finally:
        gpu.take_back()


def turn(device: DeviceLike = None) -> AbstractContextManager[None]:
    """Context in which this thread may use the GPU; it begins when the turns of other threads have ended.

    Work of one turn runs after that of the turns before it, so tensors may go from one thread to the next. Turns may
    stand within each other. In the main thread, a GPU that is not lent needs no turn, and none does harm. The random
    streams belong to all threads, the precision and the grad mode to each.

    Raises `DeviceError` in another thread if the main thread has not lent the GPU.
    """
    return _the_gpu(device).turn()


class Event:
    """A mark in the work of the GPU, to measure the time between two of them.

        start, end = alpha.cuda.Event(enable_timing=True), alpha.cuda.Event(enable_timing=True)
        start.record()
        y = model(x)
        end.record()
        end.synchronize()
        print(start.elapsed_time(end), "ms")

    Args:
        enable_timing: needed for `elapsed_time`.
        blocking: taken for PyTorch's sake; whether the host sleeps while it waits is left to the driver.
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False) -> None:
        self.enable_timing, self.blocking = enable_timing, blocking
        self._mark: Any = None

    def record(self) -> None:
        """Set the mark behind all work that has been given to the GPU so far; an earlier mark is forgotten."""
        self._mark = _the_gpu(None).record_event()

    def query(self) -> bool:
        """True if the work before the mark has ended; also True before `record`."""
        return self._mark is None or _now(None).driver.is_done(self._mark)

    def synchronize(self) -> None:
        """Wait until the work before the mark has ended."""
        if self._mark is not None:
            _now(None).driver.wait_until(self._mark)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds of the GPU from this mark to that of `end_event`, for which the host waits.

        Raises `ValueError` if one of them has no mark, or was made without `enable_timing`.
        """
        for name, event in (("this event", self), ("end_event", end_event)):
            if not event.enable_timing:
                raise ValueError(f"elapsed_time: {name} was made without enable_timing=True")
            if event._mark is None:
                raise ValueError(f"elapsed_time: {name} was not recorded")
        return _now(None).elapsed_ms(self._mark, end_event._mark)


def _now(place: DeviceLike) -> CudaDevice:
    """The cuda device, to be asked for what changes from step to step: a captured step would keep the first answer."""
    recording.refuse("the GPU is asked for its state of this moment")
    return _the_gpu(place)


def _the_gpu(place: DeviceLike) -> CudaDevice:
    """The cuda device; `DeviceError` if there is none or another one is meant."""
    from alpha.runtime.cuda.cuda_device import CudaDevice

    spec = "cuda" if place is None else f"cuda:{place}" if isinstance(place, int) else place
    device = get_device(spec)
    if not isinstance(device, CudaDevice):
        raise ValueError(f"a cuda device is needed, not {device.name!r}")
    return device


_tell_instead(__name__)
