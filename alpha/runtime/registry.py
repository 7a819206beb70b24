"""Registry of the devices: each is made at its first use, and there is one of each name."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from alpha import config
from alpha.errors import DeviceError
from alpha.runtime import fork
from alpha.runtime.device import Device

_devices: dict[str, Device] = {}
_lock = fork.held_across(threading.RLock())


def names_device(spec: Any) -> bool:
    """True if `.to(spec)` means a device, and not a dtype; `TypeError` for a text that is neither."""
    if isinstance(spec, Device) or str(spec).partition(":")[0] in ("cpu", "cuda", "auto"):
        return True
    if isinstance(spec, str):
        try:
            np.dtype(spec)
        except TypeError:
            raise TypeError(f"to: {spec!r} is neither a device (cpu, cuda, auto) nor a dtype, as float32") from None
    return False


def get_device(spec: str | Device) -> Device:
    """The device of that name, made at its first use.

    "cpu"; "cuda" (the GPU, or the emulated driver with ALPHA_CUDA_DRIVER=emulated); "auto" is the
    GPU where it works, else the cpu (the emulated driver must be asked for by "cuda"). "cuda:0" is "cuda",
    for there is only one. `DeviceError` says what is missing and the fix.

    Examples:
        >>> import alpha
        >>> alpha.get_device("cpu").name
        'cpu'
    """
    if isinstance(spec, Device):
        return spec
    if spec != "cpu":
        _refuse_while_spawned(str(spec))
    if spec == "auto":
        return _automatic()
    name, colon, number = str(spec).partition(":")
    if name not in ("cpu", "cuda") or (colon and not number.isdecimal()):
        raise DeviceError(f"no device {spec!r}: use 'cpu', 'cuda' or 'auto'")
    if colon and int(number):
        raise DeviceError(f"no device {spec!r}: use {name!r}, the only one (CUDA_VISIBLE_DEVICES chooses the GPU)")
    with _lock:
        if name not in _devices:
            _devices[name] = _make(name)
        return _devices[name]


def _refuse_while_spawned(name: str) -> None:
    """Raises DeviceError if this process is being spawned, which imports the program that spawns it.

    Without a guard in the program each of its processes would train anew, all on one GPU.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise DeviceError(
            f"the device {name!r} is opened while a spawned process imports the program: what the program does must "
            'stand below `if __name__ == "__main__":`, so that its processes do not do it again'
        )


def device(type: str | Device, index: int | None = None) -> Device:
    """`get_device` under PyTorch's name: `device("cuda")`, `device("cuda:0")` and `device("cuda", 0)` are one."""
    return get_device(type if index is None else f"{type}:{index}")


def opened(name: str) -> Device | None:
    """The device of that name if something has made it."""
    return _devices.get(name)


@contextmanager
def standing_in(device: Device) -> Iterator[None]:
    """Context in which `get_device` gives this device for its name."""
    with _lock:
        before = {name: held for name, held in _devices.items() if held.name == device.name}
        _devices.update(dict.fromkeys([device.name, *before], device))
    try:
        yield
    finally:
        with _lock:
            for name in [name for name, held in _devices.items() if held is device]:
                del _devices[name]
            _devices.update(before)


def _make(name: str) -> Device:
    if name == "cpu":
        from alpha.runtime.cpu import CpuDevice

        return CpuDevice()
    from alpha.runtime.cuda import open_device

    return open_device()


def _automatic() -> Device:
    with _lock:
        if "auto" not in _devices:
            if config.CUDA_DRIVER.choice() == "emulated":
                return get_device("cpu")
            try:
                _devices["auto"] = get_device("cuda")
            except DeviceError:
                _devices["auto"] = get_device("cpu")
        return _devices["auto"]


def _reduce(self: Device) -> tuple[Any, ...]:
    """Pickled by its name: what is loaded in another process is on the device of that name there."""
    return get_device, (self.name,)


Device.__reduce__ = _reduce  # type: ignore[method-assign, assignment]
