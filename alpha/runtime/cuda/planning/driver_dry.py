"""The dry driver: a GPU that computes nothing and has no memory. It notes what is launched.

What an operator launches depends on shapes, dtypes and the GPU's properties alone. So a step that runs on this driver
launches what it would launch on the GPU, in the same order, within a moment.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from alpha.errors import DeviceError
from alpha.runtime import recording
from alpha.runtime.arena.arena import Growth
from alpha.runtime.cuda.cache import source_root
from alpha.runtime.cuda.compile import Unit, properties_of
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.driver import DeviceProperties, PackedArguments, RawMemory, T
from alpha.runtime.cuda.emulated.emulated_tensor_map import encode_tiled_map
from alpha.runtime.cuda.owner import Owner
from alpha.runtime.cuda.times.timeline import Timeline
from alpha.runtime.device import HostArray

TOTAL_BYTES = 1 << 50
FIRST_ADDRESS = 1 << 32


@dataclass(frozen=True, order=True)
class Launch:
    """A launch of `entry` of `cuda/<source>`, compiled with `options`."""

    source: str
    entry: str
    options: tuple[str, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int  # dynamic

    @property
    def unit(self) -> Unit:
        """Source and options that the compiler is given."""
        return self.source, self.options

    @property
    def threads(self) -> int:
        """Threads per block."""
        x, y, z = self.block
        return x * y * z

    @property
    def macros(self) -> dict[str, str]:
        """The macros of the options, without their ALPHA_ prefix."""
        pairs = (option.removeprefix("-DALPHA_").split("=", 1) for option in self.options)
        return {name: value for name, value in pairs}

    def __str__(self) -> str:
        macros = "".join(f" {name}={value}" for name, value in self.macros.items())
        grid, block = (_size(dim) for dim in (self.grid, self.block))
        return f"{self.source}:{self.entry}{macros}  grid {grid} block {block} shared {self.shared_bytes:,} bytes"


def _size(dim: tuple[int, int, int]) -> str:
    x, y, z = dim
    return f"{x}x{y}x{z}" if z > 1 else f"{x}x{y}" if y > 1 else f"{x}"


def dry_properties(arch: str) -> DeviceProperties:
    """Properties of a GPU of `arch`, one of ARCHITECTURES, with more memory than any step needs."""
    return properties_of(arch, DryDriver.name, TOTAL_BYTES)


class DryDriver:
    """A GPU without memory: an array of any size is a range of addresses that were never used before.

    Args:
        readable: whether arrays may be read on the host, as zeros. Otherwise that is a `DeviceError`.
        misaligned_by: bytes between an address and a multiple of 512.

    Attributes:
        launches: what was launched, in its order; see `noting`.
        readable: see above.
    """

    name = "dry"
    why_no_capture = "it computes nothing"
    encode_tiled_map = staticmethod(encode_tiled_map)

    def __init__(self, properties: DeviceProperties, readable: bool = True, misaligned_by: int = 0) -> None:
        self.owner = Owner()
        self.properties = properties
        self.launches: list[Launch] = []
        self.readable = readable
        self._next = FIRST_ADDRESS + misaligned_by

    @contextmanager
    def noting(self) -> Iterator[list[Launch]]:
        """The launches within."""
        before, self.launches = self.launches, []
        try:
            yield self.launches
        finally:
            self.launches = before

    def memory_info(self) -> tuple[int, int]:
        return self.properties.total_bytes, self.properties.total_bytes

    def raw_memory(self, scratch: bool) -> RawMemory:
        return RawMemory(self.allocate, self.free, Growth.ISOLATED)

    def allocate(self, nbytes: int) -> int:
        address = self._next
        self._next += (nbytes // 512 + 1) * 512
        return address

    def free(self, address: int) -> None: ...

    def upload(self, address: int, source: HostArray) -> None: ...

    def download(self, target: HostArray, address: int) -> None:
        if not self.readable:
            raise DeviceError(f"values are read on the host, at {recording.place()}, but nothing is computed")
        target.fill(0)

    def pinned(self, nbytes: int) -> HostArray:
        return np.zeros(nbytes, np.uint8)

    def begin_download(self, target: HostArray, address: int) -> float:
        self.download(target, address)
        return 0.0

    def is_done(self, event: Any) -> bool:
        return True

    def begin_upload(self, address: int, source: HostArray, after: Any, target: Any = None) -> float:
        return 0.0

    def wait_for(self, event: Any) -> None: ...

    def wait_until(self, event: Any) -> None: ...

    def hand_over(self, queue: Callable[[int], None], beside: bool) -> None: ...

    def join(self) -> None: ...

    def let_wait(self, stream: int) -> None: ...

    def wait_for_stream(self, stream: int) -> None: ...

    def wait_for_all(self) -> None: ...

    def copy(self, target: int, source: int, nbytes: int) -> None: ...

    def fill(self, address: int, byte: int, nbytes: int) -> None: ...

    def compile(self, source: Path, options: Sequence[str]) -> Any:
        return source.relative_to(source_root()).as_posix(), tuple(options)

    def is_compiled(self, source: Path, options: Sequence[str]) -> bool:
        return True

    def load(self, artefact: Any) -> Any:
        return artefact

    def function(self, module: Any, entry: str, shared_bytes: int) -> Any:
        return *module, entry

    def launch(
        self,
        function: Any,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        arguments: PackedArguments,
    ) -> None:
        source, options, entry = function
        self.launches.append(Launch(source, entry, options, grid, block, shared_bytes))

    def _no_capture(self, *_: Any) -> Any:
        raise DeviceError(f"no step is captured: {self.why_no_capture}")

    begin_capture = end_capture = abandon_capture = replay = free_graph = _no_capture

    def switch(self, beside: bool) -> None: ...

    def outside_capture(self, function: Callable[[], T]) -> T:
        return function()

    def synchronize(self) -> None: ...

    def record_event(self) -> float:
        return 0.0

    def elapsed_ms(self, start: float, end: float) -> float:
        return 0.0

    def begin_times(self) -> str:
        raise DeviceError(f"nothing takes any time: {self.why_no_capture}")

    def end_times(self) -> Timeline:
        return Timeline(0, 0, [])

    def close(self) -> None: ...


class DryDevice(CudaDevice):
    """The cuda device of a dry driver; `driver.launches` is what was launched."""

    driver: DryDriver

    def __init__(self, driver: DryDriver) -> None:
        super().__init__(driver)

    @classmethod
    def of(cls, arch: str, misaligned_by: int = 0) -> DryDevice:
        """A GPU of `arch`, one of ARCHITECTURES, whose arrays are read as zeros."""
        return cls(DryDriver(dry_properties(arch), misaligned_by=misaligned_by))

    @classmethod
    @functools.cache
    def double(cls, properties: DeviceProperties) -> DryDevice:
        """A GPU of these properties whose arrays cannot be read; one for all that ask."""
        return cls(DryDriver(properties, readable=False))
