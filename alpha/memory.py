"""The memory and the work of a device, as a user asks for them."""

from __future__ import annotations

from alpha.runtime import Device, MemoryStats, get_device


def memory_stats(device: str | Device = "auto") -> MemoryStats:
    """Bytes live, peak and reserved on a device, and its limit."""
    return get_device(device).memory_stats()


def set_memory_limit(nbytes: int | None, device: str | Device = "auto") -> None:
    """Never hold more than `nbytes` of the device's memory; None lifts the limit."""
    get_device(device).set_memory_limit(nbytes)


def synchronize(device: str | Device = "auto") -> None:
    """Wait until all work given to the device is done; raises what went wrong in it."""
    get_device(device).synchronize()
