"""The driver without a GPU: the same kernels compiled by the C++ compiler, a fiber a CUDA thread.

It finds what a GPU forgives: fresh device and shared memory are NaN, an access outside an allocation stops the launch,
blocks and threads run in an order that ALPHA_EMULATED_SEED shuffles (ALPHA_EMULATED_BLOCKS: that of the blocks alone),
and a barrier that not all threads reach is reported. See docs/debugging_kernels.md.
"""

from __future__ import annotations

import ctypes
import itertools
import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from alpha import config
from alpha.errors import DeviceError
from alpha.runtime.arena.arena import Growth
from alpha.runtime.cuda.cache import compile_cached, is_cached
from alpha.runtime.cuda.compile import ARCHITECTURES, properties_of
from alpha.runtime.cuda.driver import PackedArguments, RawMemory, T
from alpha.runtime.cuda.emulated.emulated_capture import BESIDE, ORDERS, STEP, Capture, Mark
from alpha.runtime.cuda.emulated.emulated_compiler import EmulatedCompiler, kernel_line
from alpha.runtime.cuda.emulated.emulated_memory import (
    MAX_THREADS,
    TOTAL_BYTES,
    GuardedMemory,
    fill,
    move,
    stacks_of_thread,
)
from alpha.runtime.cuda.emulated.emulated_tensor_map import encode_tiled_map
from alpha.runtime.cuda.owner import Owner
from alpha.runtime.cuda.times.timeline import ON_DEVICE, TO_DEVICE, TO_HOST, Activity, Timeline
from alpha.runtime.device import HostArray


class LaunchRequest(ctypes.Structure):
    """`alpha_emulation::LaunchRequest` of cuda/common/emulation/launch.h."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("seed", ctypes.c_uint32),
        ("block_order", ctypes.c_uint32),
        ("argument_count", ctypes.c_uint32),
        ("argument_bytes", ctypes.c_uint32),
        ("zone_count", ctypes.c_uint32),
        ("arguments", ctypes.c_char_p),
        ("offsets", ctypes.c_void_p),
        ("zones", ctypes.c_void_p),
        ("stacks", ctypes.c_void_p),
        ("stack_bytes", ctypes.c_uint64),
        ("fault_address", ctypes.c_uint64),
        ("fault_instruction", ctypes.c_uint64),
    )


Work: TypeAlias = tuple[partial[Any], Callable[[bytes], str]]  # a call that returns None or a fault; its message
Prepare: TypeAlias = Callable[[], Work]
Named: TypeAlias = tuple[str, str, int]  # kind, name and bytes of an `Activity`
Captured: TypeAlias = list[tuple[int, tuple[Prepare, Named]]]  # each with its place among all that was recorded


@dataclass(frozen=True)
class EmulatedFunction:
    """One entry point of a loaded library."""

    entry: str
    artefact: Path
    call: Any


def run(works: Sequence[Work], done: list[Any]) -> None:
    """Do one work after the other, up to the first fault, in one call of C code: as on a GPU, no interrupt cuts it off.

    `done` gets an element then. `DeviceError` for a fault.
    """
    faults: Any = enumerate(map(partial.__call__, [call for call, _ in works]))
    done.extend(itertools.islice(itertools.chain(filter(operator.itemgetter(1), faults), [None]), 1))
    if done[-1] is not None:
        number, fault = done.pop()
        raise DeviceError(works[number][1](fault))


def title(function: EmulatedFunction, grid: Sequence[int], block: Sequence[int], shared_bytes: int) -> str:
    return f"{function.entry}<<<{tuple(grid)}, {tuple(block)}, {shared_bytes}>>>"


DEFAULT_ARCH = "sm_80"


class EmulatedDriver:
    """Driver of this CPU as a GPU of architecture ALPHA_ARCH, with its order of threads by ALPHA_EMULATED_SEED."""

    name = "emulated"
    why_no_capture = ""
    encode_tiled_map = staticmethod(encode_tiled_map)

    def __init__(self) -> None:
        self.owner = Owner()
        arch = config.ARCH.choice(ARCHITECTURES) or DEFAULT_ARCH
        self.properties = properties_of(arch, self.name, TOTAL_BYTES)
        self.seed = config.EMULATED_SEED.integer()
        self.block_order = config.EMULATED_BLOCKS.choice()
        self._compiler = EmulatedCompiler(arch)
        self._memory = GuardedMemory()
        self._launches = 0
        # which stream of a captured step goes on first, see `Capture.ordered`
        self.preferred = ORDERS[self.seed % len(ORDERS)]
        self._captured: Capture[tuple[Prepare, Named]] | None = None
        self._timeline: Timeline | None = None  # of a profile
        self._calls = 0  # that it has timed

    def raw_memory(self, scratch: bool) -> RawMemory:
        """Each array is an allocation of its own, so that each has its guards; scratch is reused within a step."""
        growth = Growth.EXACT if scratch else Growth.ISOLATED
        return RawMemory(self.allocate, self.free, growth, self._memory.addresses)

    def memory_info(self) -> tuple[int, int]:
        self.owner.check("memory_info")
        return TOTAL_BYTES - self._memory.used, TOTAL_BYTES

    def allocate(self, nbytes: int) -> int:
        self.owner.check("allocate")
        if nbytes <= 0:  # as cuMemCreate and cuMemAlloc
            raise DeviceError(f"allocate: {nbytes} bytes; CUDA allocates at least one")
        return self._memory.allocate(nbytes)

    def free(self, address: int) -> None:
        self.owner.check("free")
        self._memory.free(address)

    def upload(self, address: int, source: HostArray) -> None:
        self.owner.check("upload")
        self._refuse_in_capture("upload")
        self._memory.check("upload", address, source.nbytes)
        copy = partial(ctypes.memmove, address, source.ctypes.data, source.nbytes)
        self._timed(copy, ("copy", TO_DEVICE, source.nbytes))

    def download(self, target: HostArray, address: int) -> None:
        self.owner.check("download")
        self._refuse_in_capture("download")
        self._memory.check("download", address, target.nbytes)
        copy = partial(ctypes.memmove, target.ctypes.data, address, target.nbytes)
        self._timed(copy, ("copy", TO_HOST, target.nbytes))

    def pinned(self, nbytes: int) -> HostArray:
        return np.empty(nbytes, np.uint8)

    def begin_download(self, target: HostArray, address: int) -> float | Mark:
        self.download(target, address)
        return self.record_event()

    def is_done(self, event: float) -> bool:
        return True

    def begin_upload(self, address: int, source: HostArray, after: Any, target: Any = None) -> float | Mark:
        self.upload(address, source)
        return self.record_event()

    def wait_for(self, event: float | Mark) -> None:
        self.owner.check("wait_for")
        if self._captured is not None and isinstance(event, Mark):
            self._captured.wait(event)

    def wait_until(self, event: float) -> None:
        self.owner.check("wait_until")

    def hand_over(self, queue: Callable[[int], None], beside: bool) -> None:
        """Let the work run at once, or record it; a fault comes from the other library itself."""
        self.owner.check("hand_over")
        work: tuple[Prepare, Named] = (lambda: (partial(queue, 0), str)), ("kernel", "nccl", 0)
        if self._captured is not None and beside:
            self._captured.hand_over(work)
        else:
            self._do(*work)

    def join(self) -> None:
        self.owner.check("join")
        if self._captured is not None:
            self._captured.join()

    def let_wait(self, stream: int) -> None:
        """Nothing is left to wait for: work has ended when its call returns; so for the two methods below."""
        self.owner.check("let_wait")
        self._refuse_in_capture("let_wait")

    def wait_for_stream(self, stream: int) -> None:
        self.owner.check("wait_for_stream")
        self._refuse_in_capture("wait_for_stream")

    def wait_for_all(self) -> None:
        self.owner.check("wait_for_all")
        self._refuse_in_capture("wait_for_all")

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self.owner.check("copy")

        def prepare() -> Work:
            self._memory.check("copy", source, nbytes)
            self._memory.check("copy", target, nbytes)
            return partial(move, target, source, nbytes), str

        self._do(prepare, ("copy", ON_DEVICE, nbytes))

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        self.owner.check("fill")

        def prepare() -> Work:
            self._memory.check("fill", address, nbytes)
            return partial(fill, address, byte, nbytes), str

        self._do(prepare, ("fill", "fill", nbytes))

    def compile(self, source: Path, options: Sequence[str]) -> Path:
        return compile_cached(self._compiler, source, options)

    def is_compiled(self, source: Path, options: Sequence[str]) -> bool:
        return is_cached(self._compiler, source, options)

    def load(self, artefact: Path) -> ctypes.CDLL:
        try:
            return ctypes.CDLL(str(artefact))
        except OSError as error:
            raise DeviceError(f"{artefact} does not load: {error}") from error

    def function(self, module: ctypes.CDLL, entry: str, shared_bytes: int) -> EmulatedFunction:
        limit = self.properties.shared_bytes_per_block
        if shared_bytes > limit:
            raise DeviceError(f"{entry}: {shared_bytes} bytes of dynamic shared memory; the limit is {limit}")
        try:
            call = getattr(module, f"alpha_launch_{entry}")
        except AttributeError:
            raise DeviceError(f'{module._name} has no extern "C" __global__ function {entry!r}') from None
        call.restype = ctypes.c_char_p
        call.argtypes = [ctypes.POINTER(LaunchRequest)]
        return EmulatedFunction(entry, Path(module._name), call)

    def launch(
        self,
        function: EmulatedFunction,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        arguments: PackedArguments,
    ) -> None:
        """Run the kernel to its end; `DeviceError`: what it did wrong, with block and thread."""
        self.owner.check("launch")
        threads = block[0] * block[1] * block[2]
        if max(grid[1:]) > 65535 or block[2] > 64 or not 1 <= threads <= MAX_THREADS:
            raise DeviceError(f"{title(function, grid, block, shared_bytes)}: the grid or the block is too large")
        prepare = partial(self._prepared, function, grid, block, shared_bytes, arguments)
        self._do(prepare, ("kernel", function.entry, 0))

    def _prepared(
        self,
        function: EmulatedFunction,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        arguments: PackedArguments,
    ) -> Work:
        """The launch, as a call of C code, and what makes a message of the fault that it returns."""
        self._launches += 1
        data, starts = arguments
        offsets = (ctypes.c_uint32 * len(starts))(*starts)
        stacks = stacks_of_thread(self._compiler.stack_bytes)
        request = LaunchRequest(
            grid=grid,
            block=block,
            shared_bytes=shared_bytes,
            seed=self._launch_seed(self.seed),
            block_order=self._block_order(),
            argument_count=len(starts),
            argument_bytes=len(data),
            zone_count=self._memory.zone_count,
            arguments=data,
            offsets=ctypes.addressof(offsets),
            zones=self._memory.zones.ctypes.data,
            stacks=stacks.address,
            stack_bytes=stacks.each,
        )

        def explain(fault: bytes, _: Any = offsets) -> str:
            text = fault.decode()
            line = kernel_line(function.artefact, request.fault_instruction)
            if line is not None:
                text += f", {line}"
            if request.fault_address:
                text += f": {self._memory.describe(request.fault_address)}"
            return f"{title(function, grid, block, shared_bytes)}: {text}"

        return partial(function.call, ctypes.byref(request)), explain

    def _do(self, prepare: Prepare, named: Named) -> None:
        """Do something on the device, or record it."""
        if self._captured is not None:
            self._captured.add((prepare, named))
        else:
            self._timed(partial(run, [prepare()], []), named)

    def _timed(self, call: Callable[[], object], named: Named, in_graph: bool = False, node: int = 0) -> None:
        """Do something at once, and note when, if a profile asks."""
        start = time.perf_counter_ns()
        call()
        if self._timeline is not None:
            kind, name, nbytes = named
            self._calls += not in_graph
            end = time.perf_counter_ns()
            self._timeline.activities.append(Activity(kind, name, start, end, self._calls, in_graph, nbytes, 0, node))

    def begin_capture(self) -> None:
        self.owner.check("begin_capture")
        self._refuse_in_capture("begin_capture")
        self._captured = Capture()

    def end_capture(self) -> Captured:
        self.owner.check("end_capture")
        if self._captured is None:
            raise DeviceError("end_capture: no capture has begun")
        if not self._captured.has_joined:
            raise DeviceError("end_capture: work on the stream beside has not joined")
        captured, self._captured = self._captured, None
        return captured.ordered(self.preferred)

    def abandon_capture(self) -> None:
        self._captured = None

    def replay(self, graph: Captured, done: list[Any]) -> None:
        self.owner.check("replay")
        self._refuse_in_capture("replay")
        works = [prepare() for _, (prepare, _) in graph]
        if self._timeline is None:
            run(works, done)
            return
        self._calls += 1
        for work, (node, (_, named)) in zip(works, graph, strict=True):  # one by one, which an interrupt may cut off
            self._timed(partial(run, [work], []), named, in_graph=True, node=node)
        done.append(None)

    def free_graph(self, graph: Captured) -> None:
        graph.clear()

    def switch(self, beside: bool) -> None:
        self.owner.check("switch")
        if self._captured is None:
            raise DeviceError("switch: no capture has begun")
        self._captured.stream = BESIDE if beside else STEP

    def outside_capture(self, function: Callable[[], T]) -> T:
        captured = self._captured
        try:
            self._captured = None
            result = function()
            self._captured = captured
        except BaseException:
            self._captured = captured
            raise
        return result

    def _refuse_in_capture(self, call: str) -> None:
        """A GPU refuses these calls during a capture, or would wait for ever."""
        if self._captured is not None:
            raise DeviceError(f"{call}: a step is being captured")

    def synchronize(self) -> None:
        """Nothing is left to wait for: a launch returns when the kernel has ended."""
        self.owner.check("synchronize")
        self._refuse_in_capture("synchronize")

    def record_event(self) -> float | Mark:
        self.owner.check("record_event")
        return time.perf_counter() if self._captured is None else self._captured.mark()

    def elapsed_ms(self, start: float, end: float) -> float:
        return (end - start) * 1e3

    def begin_times(self) -> str:
        now = time.perf_counter_ns()
        self._timeline = Timeline(now, now, [])
        return "by the host's clock"

    def end_times(self) -> Timeline:
        timeline, self._timeline = self._timeline, None
        assert timeline is not None
        return timeline._replace(end=time.perf_counter_ns())

    def close(self) -> None:
        """Unmap everything."""
        if not self.owner.here:
            return
        self.owner.close()
        self._memory.close()

    def _launch_seed(self, seed: int) -> int:
        """Another order for each launch, the same in every run; 0 keeps the ascending order."""
        if seed == 0:
            return 0
        return (seed * 0x9E3779B1 + self._launches * 0x85EBCA6B) % (2**32 - 2) + 2

    def _block_order(self) -> int:
        """`LaunchRequest.block_order`: 0 is ascending, 1 descending, any other number a permutation of its own."""
        if self.block_order == "shuffled":
            return self._launch_seed(self.seed or 1)
        return {"": self._launch_seed(self.seed), "ascending": 0, "descending": 1}[self.block_order]
