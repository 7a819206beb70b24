"""The driver interface: all that the CUDA runtime asks of a GPU, small enough for a second, emulated driver.

`driver_pycuda` and `driver_emulated` implement it. Everything is ordered on one stream, but for what `switch` says.
Device memory is a plain integer address, so that the arena can split it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy.typing as npt

from alpha.runtime.arena.arena import Growth
from alpha.runtime.cuda.owner import Owner
from alpha.runtime.cuda.times.timeline import Timeline

HostArray = npt.NDArray[Any]
T = TypeVar("T")


@dataclass(frozen=True)
class DeviceProperties:
    """Properties of a GPU on which a kernel's choice depends."""

    name: str
    arch: str  # "sm_90"; what `compute_capability` says
    compute_capability: tuple[int, int]
    num_sms: int
    shared_bytes_per_block: int  # the largest dynamic + static shared memory a block may opt in to
    total_bytes: int
    driver: str = ""  # the version of what runs the kernels, e.g. "CUDA 13.0"


PackedArguments: TypeAlias = tuple[bytes, Sequence[int]]  # a kernel's arguments as it reads them, where each begins


class RawMemory(NamedTuple):
    """Source of an arena's memory: see `Arena`."""

    allocate: Callable[[int], int]
    free: Callable[[int], None]
    growth: Growth
    held: Callable[[], Collection[int]] | None = None


class Driver(Protocol):
    """One device, one stream. Errors are `DeviceError` naming the call (for a launch: the kernel, grid, block)."""

    name: str
    properties: DeviceProperties
    why_no_capture: str  # why steps cannot be captured, and what to do; empty if they can
    owner: Owner  # the thread and process whose calls it takes; those of others are refused

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes of the device."""

    def raw_memory(self, scratch: bool) -> RawMemory:
        """The memory of the arena, or (`scratch`) of the arrays that captured steps make and drop."""

    def allocate(self, nbytes: int) -> int:
        """A 512-byte aligned address, or `MemoryError` when the device has no room."""

    def free(self, address: int) -> None: ...

    def upload(self, address: int, source: HostArray) -> None:
        """Copy a contiguous host array in; `source` may be overwritten as soon as this returns."""

    def download(self, target: HostArray, address: int) -> None:
        """Copy out into a contiguous host array; waits for the stream."""

    def pinned(self, nbytes: int) -> HostArray:
        """Page-locked host memory, as bytes."""

    def begin_download(self, target: HostArray, address: int) -> Any:
        """Copy out into page-locked memory, behind the work so far, without waiting; return an event for `is_done`.

        The driver holds `target` until the copy has ended.
        """

    def is_done(self, event: Any) -> bool:
        """True if the work before an event has ended."""

    def begin_upload(self, address: int, source: HostArray, after: Any, target: Any = None) -> Any:
        """Copy page-locked memory in, beside the work on the stream, and return an event for `wait_for`.

        after: an event on the stream that must come first, or None. target: what has the memory at `address`; the
        driver holds it and `source` until the copy has ended.
        """

    def wait_for(self, event: Any) -> None:
        """Let the work that is queued from here on begin after the event, which the host does not wait for."""

    def wait_until(self, event: Any) -> None:
        """Let the host wait for the event."""

    def hand_over(self, queue: Callable[[int], None], beside: bool) -> None:
        """Call `queue(stream)`, with which another library queues work of its own, on the stream of all work.

        beside: it is a stream of its own, on which the work begins after all that was queued so far.
        """

    def join(self) -> None:
        """Let the work that is queued from here on begin after that of `hand_over(.., beside=True)`."""

    def let_wait(self, stream: int) -> None:
        """Let the work that a stream of another library is given from here on begin after the work so far."""

    def wait_for_stream(self, stream: int) -> None:
        """Let the work that is queued from here on begin after what a stream of another library was given so far."""

    def wait_for_all(self) -> None:
        """Let the host wait for the work of all streams, those of other libraries among them."""

    def copy(self, target: int, source: int, nbytes: int) -> None: ...

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """Set every byte."""

    def compile(self, source: Path, options: Sequence[str]) -> Path:
        """The loadable artefact of one `.cu` file, from the disk cache or the compiler (see compile.py)."""

    def is_compiled(self, source: Path, options: Sequence[str]) -> bool:
        """True if the disk cache has what `compile` would return; any thread may call both."""

    def load(self, artefact: Path) -> Any:
        """A module of the compiled file."""

    def function(self, module: Any, entry: str, shared_bytes: int) -> Any:
        """An entry point, allowed `shared_bytes` of dynamic shared memory."""

    def launch(
        self,
        function: Any,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        arguments: PackedArguments,
    ) -> None: ...

    def encode_tiled_map(
        self,
        dtype: npt.DTypeLike,
        address: int,
        dims: Sequence[int],
        strides_bytes: Sequence[int],
        box: Sequence[int],
        swizzle: int = 128,
    ) -> bytes:
        """A tensor map for TMA (sm_90), see tensor_map.py."""

    def begin_capture(self) -> None:
        """Record launches, copies and fills from here on, in place of running them."""

    def end_capture(self) -> Any:
        """End the recording and return what was recorded, for `replay`."""

    def abandon_capture(self) -> None:
        """End the recording and forget it, also after an error."""

    def replay(self, graph: Any, done: list[Any]) -> None:
        """Queue all that was recorded.

        done: gets an element in the moment in which it is queued, so that whoever catches an interrupt knows.
        """

    def free_graph(self, graph: Any) -> None:
        """Forget a recording that will not be replayed any more."""

    def switch(self, beside: bool) -> None:
        """Record what follows on the stream beside that of a captured step, or on that of the step again.

        `record_event` and `wait_for` order the two.
        """

    def outside_capture(self, function: Callable[[], T]) -> T:
        """Call `function`: what it asks for runs at once, though a step is being captured, and has ended then."""

    def synchronize(self) -> None:
        """Wait until the stream is empty; raises what a kernel before it did wrong."""

    def record_event(self) -> Any:
        """A time stamp in the stream."""

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Milliseconds between two recorded events; waits for the second."""

    def begin_times(self) -> str:
        """Note from here on when the device does what, and return in words how the times are found.

        The device must be idle. `DeviceError` says what is missing; nothing has changed then.
        """

    def end_times(self) -> Timeline:
        """Wait for the device and return what it has done since `begin_times`.

        Nothing is noted any more, also after an error.
        """

    def close(self) -> None:
        """Release everything; safe to call twice and at interpreter exit."""
