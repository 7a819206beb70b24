"""The cuda device: arrays in the arena, copies and launches through one driver, on one stream."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from alpha.errors import DeviceError
from alpha.runtime import fork
from alpha.runtime.arena import Arena
from alpha.runtime.cuda.array import DeviceArray
from alpha.runtime.cuda.driver import Driver
from alpha.runtime.cuda.kernel import Define, Dim, Kernel, KernelTable
from alpha.runtime.device import Device, HostArray, MemoryStats, Shape, as_shape, native

# dtype name, address, dims, strides in bytes, box: the arguments of Driver.encode_tiled_map
TensorMap = tuple[str, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
MAX_TENSOR_MAPS = 4096

FILL_THREADS = 256
FILL_BLOCKS = 4096  # a grid-stride loop: more blocks than this only cost launch time


class CudaDevice(Device):
    """A GPU, or the emulated one; used from the main thread of the process that made it (see owner.py).

    `driver`, `properties` (name, architecture, multiprocessors, ...) and `arena` are open to
    launchers.
    """

    name = "cuda"

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.properties = driver.properties
        self.arena = Arena(
            driver.allocate, driver.free, lambda: driver.memory_info()[0], isolated=driver.isolated_allocations
        )
        self._kernels = KernelTable(driver)
        self._maps: dict[Hashable, DeviceArray] = {}
        self._older_maps: dict[Hashable, DeviceArray] = {}
        atexit.register(self.close)  # after the driver's own hook, hence run before it

    def empty(self, shape: Shape | int, dtype: npt.DTypeLike) -> DeviceArray:
        sizes, kind = as_shape(shape), np.dtype(dtype)
        if kind.hasobject:
            raise DeviceError(f"{kind} arrays hold Python objects, which stay on the host")
        block = self.arena.allocate(prod(sizes) * kind.itemsize)
        return DeviceArray(self, block, block.address, sizes, kind)

    def zeros(self, shape: Shape | int, dtype: npt.DTypeLike) -> DeviceArray:
        array = self.empty(shape, dtype)
        if array.nbytes:
            self.driver.fill(array.address, 0, array.nbytes)
        return array

    def upload(self, source: HostArray) -> DeviceArray:
        source = native(source)
        array = self.empty(np.shape(source), source.dtype)
        self.write(array, source)
        return array

    def write(self, target: DeviceArray, source: HostArray) -> None:
        """Copy a host array of the same shape and dtype into an existing array."""
        source = native(source)
        if target.shape != np.shape(source) or target.dtype != source.dtype:
            raise DeviceError(f"write: {source.dtype} {np.shape(source)} does not fit {target.dtype} {target.shape}")
        if target.nbytes:
            self.driver.upload(target.address, np.ascontiguousarray(source))

    def download(self, array: DeviceArray) -> HostArray:
        target = np.empty(array.shape, array.dtype)
        if array.nbytes:
            self.driver.download(target, array.address)
        return target

    def copy(self, array: DeviceArray) -> DeviceArray:
        target = self.empty(array.shape, array.dtype)
        if array.nbytes:
            self.driver.copy(target.address, array.address, array.nbytes)
        return target

    def fill(self, array: DeviceArray, value: float) -> None:
        if not array.size:
            return
        pattern = np.asarray(value).astype(array.dtype).tobytes()
        if pattern == pattern[:1] * len(pattern):
            self.driver.fill(array.address, pattern[0], array.nbytes)
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
    ) -> None:
        """Compile (once) and launch `entry` of `cuda/<source>`.

        defines: macros without their ALPHA_ prefix. args: `DeviceArray` -> its address, int ->
        int32, float -> float32, numpy scalar -> as it is, aligned structured `np.void` -> by value,
        None -> null pointer. `CompileError` or `DeviceError` name the kernel and its launch.
        """
        self.kernel(source, entry, defines, shared_bytes).launch(grid, block, args)

    def kernel(
        self, source: str, entry: str, defines: Mapping[str, Define] | None = None, shared_bytes: int = 0
    ) -> Kernel:
        """The compiled and loaded entry point, for a launcher that keeps it."""
        return self._kernels.get(source, entry, defines, shared_bytes)

    def tensor_maps(self, key: Hashable, maps: Callable[[], Iterable[TensorMap]]) -> DeviceArray:
        """Tensor maps of the copy engine, one after the other in device memory, made once a key.

        A map holds an address and no array: it says how to read whatever lies there at the launch. So the key names
        the layout, the address, the dtype, the shape and the box.

        The copy engine caches maps by where they lie, and no kernel tells it that another lies there now. So the memory
        of a map goes back only after MAX_TENSOR_MAPS others have been used since it was, more than any cache has.
        """
        held = self._maps.get(key)
        if held is None:
            held = self._older_maps.get(key)
            if held is None:
                encoded = b"".join(self.driver.encode_tiled_map(*map_) for map_ in maps())
                held = self.upload(np.frombuffer(encoded, np.uint8))
            if len(self._maps) >= MAX_TENSOR_MAPS:
                self._older_maps, self._maps = self._maps, {}
            self._maps[key] = held
        return held

    def synchronize(self) -> None:
        self.driver.synchronize()

    def record_event(self) -> Any:
        """A time stamp in the stream, for `elapsed_ms`."""
        return self.driver.record_event()

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Milliseconds of the stream between two events; waits for the second."""
        return self.driver.elapsed_ms(start, end)

    def memory_stats(self) -> MemoryStats:
        self.driver.owner.check("memory_stats")
        return self.arena.stats()

    def set_memory_limit(self, nbytes: int | None) -> None:
        self.driver.owner.check("set_memory_limit")
        self.arena.set_limit(nbytes)

    def close(self) -> None:
        """Give everything back; arrays of this device are dead afterwards. Safe to call twice."""
        owner = self.driver.owner
        if not (owner.here or owner.forked):
            owner.check("close")
        atexit.unregister(self.close)
        if owner.forked:  # a child has only copies of what its parent holds
            fork.keep_forever(self, self._kernels)
            self.arena.close(free=False)
        else:
            self._maps.clear()
            self._older_maps.clear()
            self.arena.close()
            self._kernels.clear()
        self.driver.close()
