"""The compilations of emulated kernels, counted, and a device that begins without any."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver
from alpha.runtime.cuda.emulated.emulated_compiler import EmulatedCompiler
from alpha.runtime.registry import standing_in


class Builds:
    """Units that were compiled, and the threads in which they were."""

    def __init__(self) -> None:
        self.units: list[tuple[str, tuple[str, ...]]] = []
        self.threads: set[str] = set()

    def __len__(self) -> int:
        return len(self.units)


@contextmanager
def counted_builds() -> Iterator[Builds]:
    found, build = Builds(), EmulatedCompiler.build

    def counted(self: EmulatedCompiler, source: Path, options: Sequence[str], output: Path) -> str:
        found.units.append((source.name, tuple(options)))
        found.threads.add(threading.current_thread().name)
        return build(self, source, options, output)

    with patch.object(EmulatedCompiler, "build", counted):
        yield found


@contextmanager
def fresh_device(cache: Path) -> Iterator[CudaDevice]:
    """An emulated device as at the first start of a program; "cuda" is its name, and `cache` has no kernels."""
    variables: dict[str, Any] = {"ALPHA_EMULATED_OPTIMIZE": "0", "ALPHA_CACHE_DIR": str(cache)}
    with patch.dict("os.environ", variables):
        device = CudaDevice(EmulatedDriver())
        with standing_in(device):
            yield device
        device.close()
