"""A driver that runs nothing and notes what is launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alpha.runtime.arena import Growth
from alpha.runtime.cuda.cache import source_root
from alpha.runtime.cuda.driver import DeviceProperties, HostArray, PackedArguments, RawMemory
from alpha.runtime.cuda.driver_emulated import ARCHITECTURES
from alpha.runtime.cuda.emulated_tensor_map import encode_tiled_map
from alpha.runtime.cuda.owner import Owner


@dataclass(frozen=True, order=True)
class Launch:
    """A kernel and what decides, besides its code, whether it fits a GPU."""

    source: str  # "conv2d/conv_v2/sm80.cu"
    entry: str
    options: tuple[str, ...]  # of the compiler
    threads: int  # of a block
    shared_bytes: int  # dynamic

    @property
    def unit(self) -> tuple[str, tuple[str, ...]]:
        """What is compiled."""
        return self.source, self.options


class RecordingDriver:
    """A GPU of any architecture, without memory: an array of any size is a number that was never used before."""

    name = "recording"
    why_no_capture = "it only records"
    encode_tiled_map = staticmethod(encode_tiled_map)

    def __init__(self, arch: str, misaligned_by: int = 0) -> None:
        self.owner = Owner()
        plain = arch.removesuffix("a")
        num_sms, shared_bytes = ARCHITECTURES[arch]
        capability = divmod(int(plain.removeprefix("sm_")), 10)
        self.properties = DeviceProperties(f"recorded {arch}", plain, capability, num_sms, shared_bytes, 1 << 50)
        self.launches: set[Launch] = set()
        self._next = (1 << 32) + misaligned_by

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
        target.fill(0)

    def copy(self, target: int, source: int, nbytes: int) -> None: ...

    def fill(self, address: int, byte: int, nbytes: int) -> None: ...

    def compile(self, source: Path, options: Sequence[str]) -> Any:
        return source.relative_to(source_root()).as_posix(), tuple(options)

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
        threads = block[0] * block[1] * block[2]
        self.launches.add(Launch(source, entry, options, threads, shared_bytes))

    def synchronize(self) -> None: ...

    def record_event(self) -> float:
        return 0.0

    def elapsed_ms(self, start: float, end: float) -> float:
        return end - start

    def close(self) -> None: ...
