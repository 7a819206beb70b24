"""What decides the bits of a run beside its options and its program: libraries, processor and GPU."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import numpy as np
import threadpoolctl

from alpha import config
from alpha.runtime import Device
from alpha.runtime.cuda.device import CudaDevice


def environment(device: Device) -> dict[str, str]:
    """The versions and kinds of what computes on a device, by name; a run of other ones may have other bits."""
    found = {"Alpha": config.VERSION, "numpy": np.__version__, "device": device.name}
    if isinstance(device, CudaDevice):
        properties = device.properties
        return {**found, "GPU": f"{properties.name}, {properties.arch}", "driver": properties.driver}
    return {**found, "BLAS": blas(), "processor": f"{platform.machine()} with {', '.join(_extensions()) or 'no more'}"}


def blas() -> str:
    """The library that multiplies numpy's matrices, with the processor that its kernels are for."""
    libraries = [library for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]
    own = [library for library in libraries if "numpy" in str(library.get("filepath"))]  # beside those of PyTorch, say
    names = [
        f"{library['internal_api']} {library.get('version') or ''} ({library.get('architecture') or 'unknown'})"
        for library in own or libraries
    ]
    return ", ".join(sorted(set(names))) or "unknown"


def _extensions() -> list[str]:
    """The vector extensions that numpy uses here, beyond those for which it was built."""
    build: Any = np.show_config(mode="dicts")
    return [str(name) for name in build.get("SIMD Extensions", {}).get("found", [])]


def changed(now: Mapping[str, str], before: Mapping[str, str]) -> str:
    """What differs between two environments, in words; empty if nothing does."""
    names = [name for name in dict.fromkeys([*before, *now]) if now.get(name) != before.get(name)]
    return ", ".join(f"{name} is {now.get(name, 'none')}, was {before.get(name, 'none')}" for name in names)
