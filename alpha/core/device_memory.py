"""The memory and the work of a device, as a user asks for them.

If no device is named, it is the cuda device: the GPU, or the emulated one if ALPHA_CUDA_DRIVER asks for it. Without
either it is the cpu.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha import config
from alpha.runtime import Device, MemoryStats, get_device, recording

__all__ = ["empty_cache", "memory_stats", "reset_peak_memory_stats", "set_memory_limit", "synchronize"]


def _chosen(device: str | Device | None) -> Device:
    """The device of that name, or else cuda if there is a GPU or the emulated driver is asked for, or else cpu."""
    if device is None:
        device = "cuda" if config.CUDA_DRIVER.choice() == "emulated" else "auto"
    return get_device(device)


def memory_stats(device: str | Device | None = None) -> MemoryStats:
    """Bytes live, peak and reserved on a device, and its limit.

    Examples:
        >>> import alpha
        >>> x = alpha.zeros(1000, 1000)
        >>> alpha.memory_stats("cpu").live >= 4_000_000
        True
    """
    recording.refuse("the counts of memory are read")
    return _chosen(device).memory_stats()


def reset_peak_memory_stats(device: str | Device | None = None) -> None:
    """The peak of `memory_stats` starts again from the bytes that are live now."""
    recording.refuse("the peak of memory starts again")
    _chosen(device).reset_peak()


def empty_cache(device: str | Device | None = None) -> None:
    """Give memory that no array uses back to the system, so that other programs can have it."""
    _chosen(device).trim()


def set_memory_limit(nbytes: int | None, device: str | Device | None = None) -> None:
    """Never hold more than `nbytes` of the device's memory; None lifts the limit.

    Args:
        device: by default the cuda device, also the emulated one if ALPHA_CUDA_DRIVER asks for it; without either the
            cpu.

    Raises:
        TypeError, ValueError: it is no whole number of bytes of at least 0.
        OutOfMemoryError: what is in use needs more; the old limit stays.
    """
    _chosen(device).set_memory_limit(None if nbytes is None else _bytes(nbytes))


def _bytes(nbytes: Any) -> int:
    """A whole number of bytes, which may be a float, as 2e9, or numpy's."""
    plain = nbytes.item() if isinstance(nbytes, (np.integer, np.floating)) else nbytes
    if not isinstance(plain, (int, float)) or isinstance(plain, bool):
        raise TypeError(
            f"set_memory_limit: nbytes={nbytes!r} is a {type(nbytes).__name__}; give a number of bytes, such as "
            "2 * 2**30 for 2 GiB, or None for no limit"
        )
    if isinstance(plain, float) and not plain.is_integer():  # nor NaN, nor infinity
        raise ValueError(f"set_memory_limit: nbytes={nbytes!r} is no whole number of bytes; None is for no limit")
    if plain < 0:
        raise ValueError(f"set_memory_limit: nbytes={nbytes!r} is negative")
    return int(plain)


def synchronize(device: str | Device | None = None) -> None:
    """Wait until all work given to the device is done; raises what went wrong in it."""
    _chosen(device).synchronize()
