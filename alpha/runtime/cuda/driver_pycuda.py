"""The driver over pycuda: the GPU's primary context, shared with PyTorch, and one stream.

The context is current in the main thread, and in the thread that has a turn (owner.py): any other call is a
`DeviceError`, so that a data loader's thread cannot order work by accident. pycuda aborts a process
(and a thread) that ends while a context is on its stack, so an exit hook is registered before
anything can raise.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from alpha import config
from alpha.errors import DeviceError
from alpha.installation import OR_CPU, install
from alpha.runtime import fork
from alpha.runtime.arena.arena import Growth
from alpha.runtime.cuda.cache import Compiler, compile_cached, is_cached
from alpha.runtime.cuda.compile import cuda_compiler, target
from alpha.runtime.cuda.driver import DeviceProperties, PackedArguments, RawMemory, T
from alpha.runtime.cuda.host_copies import Flights, Staging
from alpha.runtime.cuda.owner import Owner
from alpha.runtime.cuda.tensor_map import driver_call, encode_tiled_map
from alpha.runtime.cuda.times.cupti_times import CuptiTimes
from alpha.runtime.cuda.times.timeline import Timeline
from alpha.runtime.device import HostArray

__all__ = ["drv", "explain", "guarded", "of_range", "properties_of"]


try:
    import pycuda.driver as drv
except ImportError as error:
    fix = install("cuda")
    if "libcuda" in str(error):  # pycuda is there, the driver is not
        fix = "install the NVIDIA driver"
    raise DeviceError(f"no pycuda ({error}): {fix}{OR_CPU}") from error


REFUSALS = ("invalid argument", "invalid value", "not found")  # of this call, not a kernel's fault

P = ParamSpec("P")
R = TypeVar("R")


def guarded(method: Callable[P, R]) -> Callable[P, R]:
    """Check the thread, make the context current, and turn pycuda's errors into `DeviceError` that names the call."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        driver: Any = args[0]
        driver.owner.check(method.__name__)
        try:
            if driver.context.is_current:
                return method(*args, **kwargs)
            with driver.context:
                return method(*args, **kwargs)
        except drv.Error as error:
            raise DeviceError(explain(driver.last_kernel, method.__name__, error)) from error

    return call


class OwnContext:
    """Context of a driver, current inside a `with` statement.

    PyTorch, JAX and CuPy make the context of another GPU current when they work there, and leave it so. Most calls of
    the driver then fail, and some, as one that waits for all streams, do their work on the other GPU without a word.
    What was current before is current again behind the statement.

    Attributes:
        lost: whether another context has ever been current.
    """

    lost = False

    def __init__(self, context: Any) -> None:
        self._context = context
        self._find, self._set = driver_call("cuCtxGetCurrent"), driver_call("cuCtxSetCurrent")
        self._found = ctypes.c_void_p()
        self._place = ctypes.byref(self._found)
        self._before: list[ctypes.c_void_p] = []

    @property
    def is_current(self) -> bool:
        """True if the driver's calls in this thread work on this context."""
        self._find(self._place)
        return bool(self._found.value == self._context.handle)

    def __enter__(self) -> None:
        self.lost = True
        before = self._current()
        if before.value is None:  # pycuda takes one from the driver's stack before it puts another one there
            self._set(ctypes.c_void_p(self._context.handle))
        self._context.push()  # onto pycuda's stack, too: what pycuda makes now belongs to this context
        self._before.append(before)

    def __exit__(self, *_: object) -> None:
        drv.Context.pop()
        self._set(self._before.pop())

    def leave(self) -> None:
        """Take the context from pycuda's stack of this thread; another one that is current stays so."""
        current = self._current()
        if current.value is None:
            self._set(ctypes.c_void_p(self._context.handle))
        drv.Context.pop()
        if current.value != self._context.handle:
            self._set(current)

    def _current(self) -> ctypes.c_void_p:
        self._find(self._place)
        return ctypes.c_void_p(self._found.value)


def of_range(driver: Any, call: Callable[[int], Any], wait: bool = False) -> Callable[[int], Any]:
    """A call of an `AddressRange` that checks the thread, and waits for the work that may use what it gives back."""

    def guarded(value: int) -> Any:
        driver.owner.check(call.__name__)
        if wait:
            driver.synchronize()
        with nullcontext() if driver.context.is_current else driver.context:
            return call(value)

    return guarded


def explain(last_kernel: str, call: str, error: Exception) -> str:
    """The message of an error in a call, which may be the fault of a kernel that was launched before it."""
    if any(word in str(error) for word in REFUSALS):
        return f"{call}: {error}"
    return (
        f"{call}: {error} (a kernel's fault shows at a later call; the last one launched was "
        f"{last_kernel}; CUDA_LAUNCH_BLOCKING=1 shows which it is)"
    )


def properties_of(device: Any) -> DeviceProperties:
    """Properties of a GPU on which a kernel's choice depends."""
    attribute = drv.device_attribute
    major, minor = device.compute_capability()
    version = drv.get_driver_version()
    return DeviceProperties(
        name=device.name(),
        arch=f"sm_{major}{minor}",
        compute_capability=(major, minor),
        num_sms=device.get_attribute(attribute.MULTIPROCESSOR_COUNT),
        shared_bytes_per_block=device.get_attribute(attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        total_bytes=device.total_memory(),
        driver=f"CUDA {version // 1000}.{version % 1000 // 10}",
    )


try:
    from alpha.runtime.cuda import bindings
except ImportError:
    bindings = None  # type: ignore[assignment]

NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: no implicit order with the default stream; needed for graph capture


class PycudaDriver:
    """GPU number 0 (CUDA_VISIBLE_DEVICES chooses which one that is).

    Attributes:
        last_kernel: the entry that was launched last, for messages.
        context: that of the GPU, which `guarded` makes current.
    """

    name = "pycuda"
    last_kernel = "none"
    encode_tiled_map = staticmethod(encode_tiled_map)

    def __init__(self) -> None:
        self.owner = Owner(self._enter, self._leave)
        self.why_no_capture = "" if bindings else f"cuda-bindings is missing: {install('cuda')}"
        self._context: Any = None
        self.context: Any = None
        self._stream: Any = None
        self._main: Any = None
        self._allocations: dict[int, Any] = {}
        self._shared_limits: dict[tuple[Any, str], int] = {}
        self._ranges: list[Any] = []
        self._uploads: Any = None  # the stream of `begin_upload`
        self._beside: Any = None  # the stream of `hand_over`
        self._side: Any = None  # the stream of `outside_capture`
        self._branch: Any = None  # the stream of `switch`
        self._left_beside = False  # whether there is work on it that `join` has not waited for
        self._times: CuptiTimes | None = None
        self._images: list[bytes] = []  # of modules: the driver may read a kernel when it is first launched
        self._flights = Flights(self._wait_for_all)
        atexit.register(self.close)
        try:
            drv.init()
            device = drv.Device(0)
            context = device.retain_primary_context()
            # A second reference, which is never given back: the process ends with its context. The exit handler of
            # libcudart would destroy it otherwise, and call CUPTI after PyTorch's profiler has gone, which crashes.
            fork.keep_forever(device.retain_primary_context())
            self.context = OwnContext(context)
            context.push()
            self._context = context
            self.properties = properties_of(device)
            self._stream = self._main = drv.Stream(NON_BLOCKING)
        except drv.Error as error:
            self.close()
            raise DeviceError(f"no usable GPU ({error}): see nvidia-smi{OR_CPU}") from error
        self._staging = Staging(self.pinned, self._copy_in, self.record_event)

    def _enter(self) -> None:
        """Make the context current in this thread, too; it stays current in the main thread."""
        self._context.push()

    def _leave(self) -> None:
        """Take the context from the stack of this thread, which may end now."""
        self.context.leave()

    @guarded
    def memory_info(self) -> tuple[int, int]:
        free, total = drv.mem_get_info()
        return int(free), int(total)

    def raw_memory(self, scratch: bool) -> RawMemory:
        if config.ISOLATE.flag():
            return RawMemory(
                self.allocate, self.free, Growth.EXACT if scratch else Growth.ISOLATED, self._allocations.keys
            )
        if bindings is not None:
            try:
                added = bindings.AddressRange(0, self.properties.total_bytes)
            except DeviceError:  # no virtual memory management, in some virtual machines
                return RawMemory(self.allocate, self.free, Growth.EXACT, self._allocations.keys)
            self._ranges.append(added)
            return RawMemory(of_range(self, added.allocate), of_range(self, added.free, True), Growth.RANGE, added.held)
        return RawMemory(self.allocate, self.free, Growth.EXACT, self._allocations.keys)

    @guarded
    def allocate(self, nbytes: int) -> int:
        try:
            allocation = drv.mem_alloc(nbytes)
        except drv.MemoryError as error:
            raise MemoryError(str(error)) from error
        address = int(allocation)
        self._allocations[address] = allocation
        return address

    @guarded
    def free(self, address: int) -> None:
        self._allocations.pop(address).free()

    @guarded
    def upload(self, address: int, source: HostArray) -> None:
        self._staging.upload(address, source)

    @guarded
    def download(self, target: HostArray, address: int) -> None:
        # as bytes: a user dtype (bfloat16) has no buffer of its own
        try:
            drv.memcpy_dtoh_async(target.reshape(-1).view(np.uint8), address, self._stream)
            self._stream.synchronize()
        except BaseException:  # an interrupt: `target` may die now, but not before the copy has ended
            self._stream.synchronize()
            raise

    @guarded
    def pinned(self, nbytes: int) -> HostArray:
        buffer: HostArray = drv.pagelocked_empty(nbytes, "uint8")
        return buffer

    def _wait_for_all(self) -> None:
        for stream in filter(None, (self._main, self._uploads, self._beside)):
            stream.synchronize()

    @guarded
    def begin_download(self, target: HostArray, address: int) -> Any:
        flight = self._flights.begin(target)
        drv.memcpy_dtoh_async(target, address, self._stream)
        flight.event = self.record_event()
        return flight.event

    @guarded
    def is_done(self, event: Any) -> bool:
        return bool(event.query())

    @guarded
    def begin_upload(self, address: int, source: HostArray, after: Any, target: Any = None) -> Any:
        if self._uploads is None:
            self._uploads = drv.Stream(NON_BLOCKING)
        flight = self._flights.begin(source, target)
        if after is not None:
            self._uploads.wait_for_event(after)
        drv.memcpy_htod_async(address, source, self._uploads)
        event = drv.Event()
        event.record(self._uploads)
        flight.event = event
        return event

    @guarded
    def wait_for(self, event: Any) -> None:
        self._stream.wait_for_event(event)

    @guarded
    def wait_until(self, event: Any) -> None:
        event.synchronize()

    @guarded
    def hand_over(self, queue: Callable[[int], None], beside: bool) -> None:
        if not beside:
            queue(self._stream.handle)
            return
        if self._beside is None:
            self._beside = drv.Stream(NON_BLOCKING)
        self._beside.wait_for_event(self.record_event())
        queue(self._beside.handle)
        self._left_beside = True

    @guarded
    def join(self) -> None:
        if self._left_beside:
            event = drv.Event()
            event.record(self._beside)
            self._stream.wait_for_event(event)
            self._left_beside = False

    @guarded
    def let_wait(self, stream: int) -> None:
        if bindings is None:
            self._stream.synchronize()
        else:
            bindings.order(self._stream.handle, stream)

    @guarded
    def wait_for_stream(self, stream: int) -> None:
        if bindings is None:
            drv.Context.synchronize()
        else:
            bindings.order(stream, self._stream.handle)

    @guarded
    def wait_for_all(self) -> None:
        drv.Context.synchronize()

    @guarded
    def copy(self, target: int, source: int, nbytes: int) -> None:
        drv.memcpy_dtod_async(target, source, nbytes, self._stream)

    @guarded
    def fill(self, address: int, byte: int, nbytes: int) -> None:
        drv.memset_d8_async(address, byte, nbytes, self._stream)

    def compile(self, source: Path, options: Sequence[str]) -> Path:
        return compile_cached(self._compiler(), source, options)

    def is_compiled(self, source: Path, options: Sequence[str]) -> bool:
        return is_cached(self._compiler(), source, options)

    def _compiler(self) -> Compiler:
        return cuda_compiler(target(self.properties.compute_capability))

    @guarded
    def load(self, artefact: Path) -> Any:
        image = artefact.read_bytes()
        self._images.append(image)
        return drv.module_from_buffer(image)

    @guarded
    def function(self, module: Any, entry: str, shared_bytes: int) -> Any:
        function = module.get_function(entry)
        # the limit belongs to the function, which launches of several sizes share: it only grows
        if shared_bytes > self._shared_limits.get((module, entry), 0):
            attribute = drv.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
            function.set_attribute(attribute, shared_bytes)
            self._shared_limits[module, entry] = shared_bytes
        return entry, function

    def launch(
        self,
        function: Any,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        arguments: PackedArguments,
    ) -> None:
        self.owner.check("launch")
        entry, kernel = function
        self.last_kernel = entry
        given = grid, block, arguments[0], shared_bytes, self._stream
        try:
            if not self.context.lost:  # which context is current is not asked at each of a step's launches
                try:
                    kernel._launch_kernel(*given)
                    return
                except drv.Error:
                    if self.context.is_current:
                        raise
            with nullcontext() if self.context.is_current else self.context:
                kernel._launch_kernel(*given)
        except drv.Error as error:
            raise DeviceError(explain(self.last_kernel, f"launch of {entry}", error)) from error

    @guarded
    def begin_capture(self) -> None:
        bindings.begin_capture(self._main.handle)

    @guarded
    def end_capture(self) -> Any:
        return bindings.end_capture(self._main.handle, self.owner)

    @guarded
    def abandon_capture(self) -> None:
        self._left_beside = False
        self._stream = self._main
        bindings.abandon_capture(self._main.handle)

    @guarded
    def replay(self, graph: Any, done: list[Any]) -> None:
        self.last_kernel = "a captured step"
        graph.launch(self._main.handle, done)

    @guarded
    def free_graph(self, graph: Any) -> None:
        self._main.synchronize()  # a replay may still be running
        graph.close()

    @guarded
    def switch(self, beside: bool) -> None:
        if beside and self._branch is None:
            self._branch = drv.Stream(NON_BLOCKING)
        self._stream = self._branch if beside else self._main

    @guarded
    def outside_capture(self, function: Callable[[], T]) -> T:
        if self._side is None:  # kept: garbage may be collected on a thread on which pycuda cannot destroy a stream
            self._side = drv.Stream(NON_BLOCKING)
        side, before = self._side, self._stream
        try:
            self._stream = side
            result = function()
            side.synchronize()
            self._stream = before
        except BaseException:
            self._stream = before
            with suppress(drv.Error):
                side.synchronize()
            raise
        return result

    @guarded
    def synchronize(self) -> None:
        self._stream.synchronize()

    @guarded
    def record_event(self) -> Any:
        event = drv.Event()
        event.record(self._stream)
        return event

    @guarded
    def elapsed_ms(self, start: Any, end: Any) -> float:
        end.synchronize()
        return float(start.time_till(end))

    @guarded
    def begin_times(self) -> str:
        self._wait_for_all()
        self._times = CuptiTimes()
        return "by CUPTI"

    @guarded
    def end_times(self) -> Timeline:
        times, self._times = self._times, None
        assert times is not None
        try:
            self._wait_for_all()
        finally:
            timeline = times.finish()
        return timeline

    def close(self) -> None:
        """Free everything, and leave the context to the end of the process."""
        atexit.unregister(self.close)
        if self._context is None or not self.owner.here:
            return
        self.owner.close()
        if self.owner.forked:  # a forked child owns nothing, but may not end with a context on pycuda's stack
            fork.keep_forever(self, self._context)
            self._context.detach()
            return
        here = self.context is None or self.context.is_current
        with suppress(drv.Error), nullcontext() if here else self.context:
            self._give_back()
        self._flights.clear()
        self._shared_limits.clear()  # it holds modules
        self._images.clear()
        self._stream = self._main = self._uploads = self._beside = self._side = self._branch = None
        self._staging = None  # type: ignore[assignment]
        # Not pop(): a primary context that pycuda's destructor detaches ends in a warning.
        self._context.detach()
        self._context = None

    def _give_back(self) -> None:
        """Free all memory of the GPU."""
        with suppress(drv.Error):  # what is still running reads and writes what is freed now
            self._wait_for_all()
        for address in list(self._allocations):
            # after a kernel's fault every call fails, and the process is ending: nothing is left to save
            try:
                self._allocations.pop(address).free()
            except drv.Error:
                break
        for added in self._ranges:
            with suppress(DeviceError):
                added.close()

    def _copy_in(self, address: int, source: HostArray) -> None:
        drv.memcpy_htod_async(address, source, self._stream)
