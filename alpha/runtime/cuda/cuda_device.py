"""The cuda device: arrays in the arena, copies and launches through one driver, on one stream."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from alpha.errors import DeviceError
from alpha.runtime import fork, recording
from alpha.runtime.arena.arena import Arena
from alpha.runtime.cuda.array import ArrayForm, DeviceArray, form_of, side_by_side
from alpha.runtime.cuda.driver import Driver, T
from alpha.runtime.cuda.graphs import VALUE_BYTES, CudaRecording
from alpha.runtime.cuda.host_copies import CudaReadback
from alpha.runtime.cuda.kernel import Define, Dim, Kernel, KernelTable
from alpha.runtime.cuda.memory import CudaMemory
from alpha.runtime.cuda.scratch import SmallWorkspaces
from alpha.runtime.cuda.tensor_map import TensorMapCache
from alpha.runtime.device import Device, HostArray, MemoryStats, Readback, Shape, as_shape, native
from alpha.runtime.recording import StepValue

MAX_PREPARED = 10_000

FILL_THREADS = 256
LISTED, LISTED_BYTES = 256, 2**16  # how many lists of numbers of captured steps are kept, and the largest one
FILL_BLOCKS = 4096  # a grid-stride loop: more blocks than this only cost launch time


class CudaDevice(Device):
    """A GPU, or the emulated one; used from the main thread of the process that made it, or in turns (see owner.py).

    `driver`, `properties` (name, architecture, num_sms, ...) and `arena` are open to launchers.
    """

    name = "cuda"

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.properties = driver.properties
        self.memory = memory = CudaMemory(driver)
        self.arena, self.scratch, self.graphs = memory.arena, memory.scratch, memory.graphs
        self._pool: Arena = self.arena  # what new arrays come from
        self._step_block: DeviceArray | None = None
        self._kernels = KernelTable(driver)
        self.tensor_maps = TensorMapCache(self)
        self.small_workspaces = SmallWorkspaces(self)
        self._tables: WeakKeyDictionary[Any, DeviceArray] = WeakKeyDictionary()
        self._listed: dict[Any, DeviceArray] = {}  # the last used last
        self.prepared: dict[Any, Any] = {}  # the `PreparedPlan` of each plan that has run, see alpha/ops/kernel/plan.py
        atexit.register(self.close)  # after the driver's own hook, hence run before it

    def empty(self, shape: Shape | int, dtype: npt.DTypeLike) -> DeviceArray:
        sizes = shape if isinstance(shape, tuple) else as_shape(shape)
        return self.make(form_of(sizes, dtype if isinstance(dtype, np.dtype) else np.dtype(dtype)))

    def make(self, form: ArrayForm) -> DeviceArray:
        """An array of that form, whose values are whatever lies there."""
        return DeviceArray(self, self._pool.allocate(form.nbytes), 0, form)

    def make_together(self, forms: tuple[ArrayForm, ...]) -> list[DeviceArray]:
        """Arrays of these forms in one block, which goes back when the last of them dies."""
        if self._pool.is_isolated:
            return [self.make(form) for form in forms]
        offsets, nbytes = side_by_side(forms)
        block = self._pool.allocate(nbytes)
        return [DeviceArray(self, block, offset, form) for offset, form in zip(offsets, forms, strict=True)]

    def zeros(self, shape: Shape | int, dtype: npt.DTypeLike) -> DeviceArray:
        array = self.empty(shape, dtype)
        self._set_bytes(array, 0)
        return array

    def upload(self, source: HostArray) -> DeviceArray:
        source = native(source)
        array = self.empty(np.shape(source), source.dtype)
        self.write(array, source)
        return array

    def constant(self, source: HostArray) -> DeviceArray:
        """An array for a table that an operator keeps and never writes again: a captured step does not make it anew."""
        return self.outside_capture(lambda: self.upload(source))

    def table(self, key: Any, make: Callable[[], HostArray]) -> DeviceArray:
        """A `constant` that is made once and kept as long as `key` lives."""
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = self.constant(make())
        return found

    def listed(self, source: HostArray) -> DeviceArray:
        """See `Device.listed`; in a captured step equal numbers are one `constant`, so that captures agree."""
        if recording.active() is None or source.nbytes > LISTED_BYTES:
            return self.upload(source)
        key = source.shape, source.dtype, source.tobytes()
        found = self._listed.pop(key, None)
        self._listed[key] = found = self.constant(source) if found is None else found
        if len(self._listed) > LISTED:
            del self._listed[next(iter(self._listed))]  # a graph that reads it holds it
        return found

    def own_blocks(self) -> set[int]:
        """The ids of blocks that the device keeps for itself: tables, workspaces, and the block of step values."""
        arrays = [*self._tables.values(), *self._listed.values(), self._step_block]
        arrays += [*self.tensor_maps.arrays(), self.small_workspaces.memory]
        return {id(array.block) for array in arrays if array is not None}

    def outside_capture(self, function: Callable[[], T]) -> T:
        """Call `function`: what it does belongs to no captured step, happens at once, in memory that no step reuses."""
        noted = recording.active()
        if noted is None and self._pool is self.arena:
            return function()
        if noted is None or not noted.capturing:
            return self.within(self.arena, None, function)
        return self.driver.outside_capture(lambda: self.within(self.arena, None, function))

    @property
    def pool(self) -> Arena:
        """The arena in which arrays are made now: the scratch arena within a captured step, else `arena`."""
        return self._pool

    def within(self, arena: Arena, notes: recording.Recording | None, function: Callable[[], T]) -> T:
        """Call `function`. Arrays that it makes lie in `arena`, and what it does is noted in `notes`.

        No context manager: an interrupt that comes in its own code would leave the arena or the notes as they are.
        """
        pool, state = self._pool, recording.state
        before = state.recording
        try:
            self._pool = arena
            state.record(notes)
            result = function()
            self._pool = pool
            state.record(before)
        except BaseException:
            self._pool = pool
            state.record(before)
            raise
        return result

    def write(self, target: DeviceArray, source: HostArray) -> None:
        """Copy a host array of the same shape and dtype into an existing array."""
        recording.refuse("host values are copied to the device: pass them to the step as a tensor")
        source = native(source)
        if target.shape != np.shape(source) or target.dtype != source.dtype:
            raise DeviceError(f"write: {source.dtype} {np.shape(source)} does not fit {target.dtype} {target.shape}")
        if target.nbytes:
            self.driver.upload(target.address, np.ascontiguousarray(source))

    def download(self, array: DeviceArray) -> HostArray:
        recording.refuse("values are read on the host")
        target = np.empty(array.shape, array.dtype)
        if array.nbytes:
            self.driver.download(target, array.address)
        return target

    def copy(self, array: DeviceArray) -> DeviceArray:
        target = self.empty(array.shape, array.dtype)
        self.copy_into(target, array)
        return target

    def copy_into(self, target: DeviceArray, source: DeviceArray) -> None:
        """Copy the content of `source` into an array of as many bytes."""
        if target.nbytes != source.nbytes:
            raise DeviceError(f"copy_into: {source.nbytes} bytes do not fit {target.nbytes}")
        if source.nbytes:
            self._note("copy", (target, source), target.address, source.address, source.nbytes)
            self.driver.copy(target.address, source.address, source.nbytes)

    def _set_bytes(self, array: DeviceArray, byte: int) -> None:
        if array.nbytes:
            self._note("fill", (array,), array.address, byte, array.nbytes)
            self.driver.fill(array.address, byte, array.nbytes)

    def use(self, *arrays: DeviceArray) -> None:
        """Say that the next launch uses these arrays, though it is not given them but a table of their addresses."""
        noted = recording.state.listener
        if noted is not None:
            noted.use(arrays)

    def _note(self, call: str, arrays: Iterable[DeviceArray], *detail: int) -> None:
        """Tell a copy or a fill to whoever listens."""
        noted = recording.state.listener
        if noted is not None:
            noted.note(arrays, call, *detail)

    def fill(self, array: DeviceArray, value: float) -> None:
        if not array.size:
            return
        pattern = np.asarray(value).astype(array.dtype).tobytes()
        if pattern == pattern[:1] * len(pattern):
            self._set_bytes(array, pattern[0])
            return
        word = np.frombuffer(pattern, f"u{len(pattern)}")[0]
        blocks = min(-(-array.size // FILL_THREADS), FILL_BLOCKS)
        self.launch(
            "runtime/fill.cu", f"fill_{8 * len(pattern)}", blocks, FILL_THREADS, (array, word, np.int64(array.size))
        )

    def launch(
        self,
        source: str,
        entry: str,
        grid: Dim,
        block: Dim,
        args: Sequence[Any],
        defines: Mapping[str, Define] | None = None,
        shared_bytes: int = 0,
        read: int | None = None,
    ) -> None:
        """Compile (once) and launch `entry` of `cuda/<source>`.

        defines: macros without their ALPHA_ prefix. args: `DeviceArray` -> its address, int ->
        int32, float -> float32, numpy scalar -> as it is, aligned structured `np.void` -> by value,
        None -> null pointer. `CompileError` or `DeviceError` name the kernel and its launch.
        read: bytes that it reads, for profiles, of a kernel that reads only parts of its arrays. By default the first
        array is what it writes, and the others are read.
        """
        self._kernels.get(source, entry, defines, shared_bytes).launch(grid, block, args, read)

    def kernel(
        self, source: str, entry: str, defines: Mapping[str, Define] | None = None, shared_bytes: int = 0
    ) -> Kernel:
        """The compiled and loaded entry point, for a launcher that keeps it."""
        return self._kernels.get(source, entry, defines, shared_bytes)

    def keep_prepared(self, plan: Hashable, prepared: Any) -> None:
        """Keep what was prepared for a plan, as long as there is not too much of it."""
        if len(self.prepared) >= MAX_PREPARED:
            self.prepared.clear()
        self.prepared[plan] = prepared

    def synchronize(self) -> None:
        recording.refuse("the host waits for the device")
        self.driver.synchronize()

    def record_event(self) -> Any:
        """A time stamp in the stream, for `elapsed_ms`."""
        recording.refuse("an event is recorded")
        return self.driver.record_event()

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Milliseconds of the stream between two events; waits for the second."""
        return self.driver.elapsed_ms(start, end)

    def step_value(self, value: StepValue[Any], pack: Callable[[Any], Any]) -> tuple[Any, DeviceArray | None]:
        """Value that changes from step to step, as a kernel takes it: by value, and as an address that replaces it.

        Args:
            pack: makes of `value.now()` the numpy scalar that the kernel takes.

        Returns:
            The scalar and None. In a captured step: zeros, and the place in device memory from which the kernel must
            read the value, because each replay writes it there.
        """
        packed = pack(value.now())
        noted = recording.active()
        if not isinstance(noted, CudaRecording) or noted.values is None:
            return packed, None
        return np.zeros((), packed.dtype)[()], noted.values.slot(value, pack)

    def step_block(self) -> DeviceArray:
        """The memory from which kernels of captured steps read what changes from step to step."""
        if self._step_block is None:
            self._step_block = self.constant(np.zeros(VALUE_BYTES, np.uint8))
        return self._step_block

    def readback(self, array: DeviceArray) -> Readback:
        return CudaReadback(self, array)

    def memory_stats(self) -> MemoryStats:
        return self.memory.stats()

    def reset_peak(self) -> None:
        self.memory.reset_peak()

    def trim(self) -> None:
        self.memory.trim()

    def mark_step(self) -> None:
        self.memory.leases.settle()
        self.arena.mark_step()

    def set_memory_limit(self, nbytes: int | None) -> None:
        self.memory.set_limit(nbytes)

    def lend(self) -> None:
        self.driver.owner.lend()

    def take_back(self) -> None:
        self.driver.owner.take_back()

    def turn(self) -> AbstractContextManager[None]:
        return self.driver.owner.turn()

    def close(self) -> None:
        """Give everything back; arrays of this device are dead afterwards. Safe to call twice."""
        owner = self.driver.owner
        owner.end_loans()
        if not (owner.here or owner.forked):
            owner.check("close")
        atexit.unregister(self.close)
        if owner.forked:  # a child has only copies of what its parent holds
            fork.keep_forever(self, self._kernels)
            self.memory.close(free=False)
        else:
            self.graphs.close_all()
            self.tensor_maps.clear()
            self._tables.clear()
            self._listed.clear()
            self.prepared.clear()
            self.small_workspaces.clear()
            self.memory.close()
            self._kernels.clear()
        self.driver.close()
