"""A driver over host memory that runs no kernel: it notes launches, and can be short of memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from alpha.errors import DeviceError
from alpha.runtime.arena.arena import Growth
from alpha.runtime.cuda.driver import DeviceProperties, PackedArguments, RawMemory
from alpha.runtime.cuda.owner import Owner
from alpha.runtime.device import MIB, HostArray

BASE = 0x7000_0000_0000


class FakeDriver:
    name = "fake"
    why_no_capture = ""
    properties = DeviceProperties("Fake", "sm_90", (9, 0), 4, 232448, 512 * MIB)

    def __init__(self, total: int = 512 * MIB, gap: int = 4096) -> None:
        """gap: bytes between one segment and the next; with 0 their addresses touch."""
        self.owner = Owner()
        self.total = total
        self.gap = gap
        self.segments: dict[int, HostArray] = {}
        self.compiled: list[tuple[str, tuple[str, ...]]] = []
        self.launches: list[tuple[Any, ...]] = []
        self.closed = 0
        self._next = BASE

    def memory_info(self) -> tuple[int, int]:
        return self.total - sum(s.nbytes for s in self.segments.values()), self.total

    def raw_memory(self, scratch: bool) -> RawMemory:
        return RawMemory(self.allocate, self.free, Growth.DOUBLE)

    def allocate(self, nbytes: int) -> int:
        if nbytes > self.memory_info()[0]:
            raise MemoryError("fake device is full")
        address, self._next = self._next, self._next + nbytes + self.gap
        self._next = -(-self._next // 512) * 512
        self.segments[address] = np.full(nbytes, 0xCD, np.uint8)
        return address

    def free(self, address: int) -> None:
        del self.segments[address]

    def at(self, address: int, nbytes: int) -> HostArray:
        for start, memory in self.segments.items():
            if start <= address and address + nbytes <= start + memory.nbytes:
                return memory[address - start : address - start + nbytes]
        raise DeviceError(f"{address:#x} + {nbytes} is outside every allocation")

    def upload(self, address: int, source: HostArray) -> None:
        self.at(address, source.nbytes)[:] = np.frombuffer(source.tobytes(), np.uint8)

    def download(self, target: HostArray, address: int) -> None:
        target.reshape(-1).view(np.uint8)[:] = self.at(address, target.nbytes)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self.at(target, nbytes)[:] = self.at(source, nbytes)

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        self.at(address, nbytes)[:] = byte

    def compile(self, source: Path, options: Sequence[str]) -> Path:
        self.compiled.append((source.name, tuple(options)))
        return Path(f"/fake/{source.name}/{'/'.join(options)}")

    def load(self, artefact: Path) -> Any:
        return artefact

    def function(self, module: Any, entry: str, shared_bytes: int) -> Any:
        return module, entry

    def launch(
        self,
        function: Any,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        arguments: PackedArguments,
    ) -> None:
        if shared_bytes > self.properties.shared_bytes_per_block:
            raise DeviceError("invalid argument")
        self.launches.append((function[1], grid, block, shared_bytes, arguments))

    def synchronize(self) -> None: ...

    def record_event(self) -> Any:
        return len(self.launches)

    def elapsed_ms(self, start: Any, end: Any) -> float:
        return float(end - start)

    def close(self) -> None:
        self.closed += 1
