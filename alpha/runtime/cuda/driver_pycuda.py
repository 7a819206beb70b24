"""The driver over pycuda: the GPU's primary context, shared with PyTorch, and one stream.

The context is current in the main thread and only there: a call from another thread is a
`DeviceError`, so that a data loader's thread cannot order work by accident. pycuda aborts a process
(and a thread) that ends while a context is on its stack, so an exit hook is registered before
anything can raise.
"""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from alpha import config
from alpha.errors import DeviceError
from alpha.runtime import fork
from alpha.runtime.arena import Growth
from alpha.runtime.cuda.cache import Compiler, compile_cached, is_cached
from alpha.runtime.cuda.compile import cuda_compiler, target
from alpha.runtime.cuda.driver import DeviceProperties, HostArray, PackedArguments, RawMemory
from alpha.runtime.cuda.owner import Owner
from alpha.runtime.cuda.staging import PinnedRing
from alpha.runtime.cuda.tensor_map import encode_tiled_map

try:
    import pycuda.driver as drv
except ImportError as error:
    fix = "pip install -e '.[cuda]' in Alpha's checkout"
    if "libcuda" in str(error):  # pycuda is there, the driver is not
        fix = "install the NVIDIA driver"
    raise DeviceError(f"no pycuda ({error}): {fix}, or use device='cpu'") from error

try:
    from alpha.runtime.cuda import bindings
except ImportError:
    bindings = None  # type: ignore[assignment]

NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: no implicit order with the default stream; needed for graph capture

REFUSALS = ("invalid argument", "invalid value", "not found")  # of this call, not a kernel's fault

P = ParamSpec("P")
R = TypeVar("R")


def _call(method: Callable[P, R]) -> Callable[P, R]:
    """Check the thread, and turn pycuda's errors into `DeviceError` that names the call."""

    @wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        driver: Any = args[0]
        driver.owner.check(method.__name__)
        try:
            return method(*args, **kwargs)
        except drv.Error as error:
            raise DeviceError(driver._explain(method.__name__, error)) from error

    return guarded


class PycudaDriver:
    """GPU number 0 (CUDA_VISIBLE_DEVICES chooses which one that is)."""

    name = "pycuda"
    encode_tiled_map = staticmethod(encode_tiled_map)

    def __init__(self) -> None:
        self.owner = Owner()
        self.why_no_capture = (
            "" if bindings else "cuda-bindings is missing: pip install -e '.[cuda]' in Alpha's checkout"
        )
        self._context: Any = None
        self._last_kernel = "none"
        self._allocations: dict[int, Any] = {}
        self._shared_limits: dict[tuple[Any, str], int] = {}
        self._ranges: list[Any] = []
        self._uploads: Any = None  # the stream of `begin_upload`
        atexit.register(self.close)
        try:
            drv.init()
            device = drv.Device(0)
            context = device.retain_primary_context()
            context.push()
            self._context = context
            self.properties = _properties(device)
            self._stream = self._main = drv.Stream(NON_BLOCKING)
        except drv.Error as error:
            self.close()
            raise DeviceError(f"no usable GPU ({error}): see nvidia-smi, or use device='cpu'") from error
        self._ring = PinnedRing(self.pinned, self._copy_in, self.record_event)

    @_call
    def memory_info(self) -> tuple[int, int]:
        free, total = drv.mem_get_info()
        return int(free), int(total)

    def raw_memory(self, scratch: bool) -> RawMemory:
        if config.ISOLATE.flag():
            return RawMemory(self.allocate, self.free, Growth.EXACT if scratch else Growth.ISOLATED)
        if bindings is not None:
            try:
                added = bindings.AddressRange(0, self.properties.total_bytes)
            except DeviceError:  # no virtual memory management, in some virtual machines
                return RawMemory(self.allocate, self.free, Growth.EXACT)
            self._ranges.append(added)
            return RawMemory(self._guarded(added.allocate), self._guarded(added.free, wait=True), Growth.RANGE)
        return RawMemory(self.allocate, self.free, Growth.EXACT)

    def _guarded(self, call: Callable[[int], Any], wait: bool = False) -> Callable[[int], Any]:
        """A call of a range that checks the thread, and waits for the work that may use what it gives back."""

        def guarded(value: int) -> Any:
            self.owner.check(call.__name__)
            if wait:
                self.synchronize()
            return call(value)

        return guarded

    def allocate(self, nbytes: int) -> int:
        self.owner.check("allocate")
        try:
            allocation = drv.mem_alloc(nbytes)
        except drv.MemoryError as error:
            raise MemoryError(str(error)) from error
        except drv.Error as error:
            raise DeviceError(self._explain("allocate", error)) from error
        address = int(allocation)
        self._allocations[address] = allocation
        return address

    @_call
    def free(self, address: int) -> None:
        self._allocations.pop(address).free()

    @_call
    def upload(self, address: int, source: HostArray) -> None:
        self._ring.upload(address, source)

    @_call
    def download(self, target: HostArray, address: int) -> None:
        # as bytes: a user dtype (bfloat16) has no buffer of its own
        drv.memcpy_dtoh_async(target.reshape(-1).view(np.uint8), address, self._stream)
        self._stream.synchronize()

    @_call
    def pinned(self, nbytes: int) -> HostArray:
        buffer: HostArray = drv.pagelocked_empty(nbytes, "uint8")
        return buffer

    @_call
    def begin_download(self, target: HostArray, address: int) -> Any:
        drv.memcpy_dtoh_async(target, address, self._stream)
        return self.record_event()

    @_call
    def is_done(self, event: Any) -> bool:
        return bool(event.query())

    @_call
    def begin_upload(self, address: int, source: HostArray, after: Any) -> Any:
        if self._uploads is None:
            self._uploads = drv.Stream(NON_BLOCKING)
        if after is not None:
            self._uploads.wait_for_event(after)
        drv.memcpy_htod_async(address, source, self._uploads)
        event = drv.Event()
        event.record(self._uploads)
        return event

    @_call
    def wait_for(self, event: Any) -> None:
        self._stream.wait_for_event(event)

    @_call
    def wait_until(self, event: Any) -> None:
        event.synchronize()

    @_call
    def copy(self, target: int, source: int, nbytes: int) -> None:
        drv.memcpy_dtod_async(target, source, nbytes, self._stream)

    @_call
    def fill(self, address: int, byte: int, nbytes: int) -> None:
        drv.memset_d8_async(address, byte, nbytes, self._stream)

    def compile(self, source: Path, options: Sequence[str]) -> Path:
        return compile_cached(self._compiler(), source, options)

    def is_compiled(self, source: Path, options: Sequence[str]) -> bool:
        return is_cached(self._compiler(), source, options)

    def _compiler(self) -> Compiler:
        return cuda_compiler(target(self.properties.compute_capability))

    @_call
    def load(self, artefact: Path) -> Any:
        return drv.module_from_buffer(artefact.read_bytes())

    @_call
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
        self._last_kernel = entry
        try:
            kernel._launch_kernel(grid, block, arguments[0], shared_bytes, self._stream)
        except drv.Error as error:
            raise DeviceError(self._explain(f"launch of {entry}", error)) from error

    @_call
    def begin_capture(self) -> None:
        bindings.begin_capture(self._main.handle)

    @_call
    def end_capture(self) -> Any:
        return bindings.end_capture(self._main.handle)

    @_call
    def abandon_capture(self) -> None:
        bindings.abandon_capture(self._main.handle)

    @_call
    def replay(self, graph: Any) -> None:
        self._last_kernel = "a captured step"
        graph.launch(self._main.handle)

    @_call
    def free_graph(self, graph: Any) -> None:
        self._main.synchronize()  # a replay may still be running
        graph.close()

    @contextlib.contextmanager
    def outside_capture(self) -> Iterator[None]:
        side = drv.Stream(NON_BLOCKING)
        self._stream = side
        try:
            yield
            side.synchronize()
        finally:
            self._stream = self._main

    @_call
    def synchronize(self) -> None:
        self._stream.synchronize()

    @_call
    def record_event(self) -> Any:
        event = drv.Event()
        event.record(self._stream)
        return event

    @_call
    def elapsed_ms(self, start: Any, end: Any) -> float:
        end.synchronize()
        return float(start.time_till(end))

    def close(self) -> None:
        """Free everything and release the context."""
        atexit.unregister(self.close)
        if self._context is None or not self.owner.here:
            return
        self.owner.close()
        if self.owner.forked:  # a forked child owns nothing, but may not end with a context on pycuda's stack
            fork.keep_forever(self, self._context)
            self._context.detach()
            return
        for address in list(self._allocations):
            # After a kernel's fault every call fails, and the process is ending: nothing is left
            # to save.
            try:
                self._allocations.pop(address).free()
            except drv.Error:
                break
        for added in self._ranges:
            with contextlib.suppress(DeviceError):
                added.close()
        self._shared_limits.clear()  # it holds modules
        self._ring = self._stream = self._main = self._uploads = None  # type: ignore[assignment]
        # Not pop(): a primary context that pycuda's destructor detaches ends in a warning.
        self._context.detach()
        self._context = None

    def _explain(self, call: str, error: Exception) -> str:
        if any(word in str(error) for word in REFUSALS):
            return f"{call}: {error}"
        return (
            f"{call}: {error} (a kernel's fault shows at a later call; the last one launched was "
            f"{self._last_kernel}; CUDA_LAUNCH_BLOCKING=1 shows which it is)"
        )

    def _copy_in(self, address: int, source: HostArray) -> None:
        drv.memcpy_htod_async(address, source, self._stream)


def _properties(device: Any) -> DeviceProperties:
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
