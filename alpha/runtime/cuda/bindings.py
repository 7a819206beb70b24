"""Calls for which pycuda has none, through cuda-bindings: CUDA graphs, and ranges of addresses that grow."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from cuda.bindings import driver as cuda

from alpha.errors import DeviceError
from alpha.runtime.arena.arena import PAGE
from alpha.runtime.cuda.owner import Owner


def _check(call: str, result: tuple[Any, ...]) -> Any:
    """The value of a call's result; `MemoryError` if the device has no room, `DeviceError` for any other error."""
    status, *values = result
    if status == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise MemoryError(f"{call}: {status.name}")
    if status != cuda.CUresult.CUDA_SUCCESS:
        raise DeviceError(f"{call}: {status.name}")
    return values[0] if len(values) == 1 else values


def _into(results: list[tuple[Any, ...]], call: Callable[..., tuple[Any, ...]], *args: Any) -> tuple[Any, ...]:
    """Call the driver and put the result into a list within one call of C code.

    An interrupt comes between two instructions of Python. So the list says for certain whether the driver was called.
    """
    results.extend(map(call, *[(arg,) for arg in args]))
    return results[-1]


def _worked(results: list[tuple[Any, ...]]) -> bool:
    return bool(results) and results[-1][0] == cuda.CUresult.CUDA_SUCCESS


class Graph:
    """An executable CUDA graph.

    Args:
        owner: says whether the driver may be called when the graph dies without `close`, after an interrupt.
    """

    def __init__(self, graph: Any, owner: Owner | None = None) -> None:
        self._made: list[tuple[Any, ...]] = []
        self._destroyed: list[tuple[Any, ...]] = []
        self._owner = owner
        try:
            _check("cuGraphInstantiate", _into(self._made, cuda.cuGraphInstantiate, graph, 0))
        finally:
            cuda.cuGraphDestroy(graph)

    def launch(self, stream: int, done: list[Any]) -> None:
        """Queue a replay; `done` gets an element in the same moment."""
        result = _into(done, cuda.cuGraphLaunch, self._made[0][1], stream)
        if not _worked(done):
            done.clear()
        _check("cuGraphLaunch", result)

    def close(self) -> None:
        """Destroy it; no replay of it may be running. Safe to call twice."""
        if _worked(self._made) and not self._destroyed:
            _check("cuGraphExecDestroy", _into(self._destroyed, cuda.cuGraphExecDestroy, self._made[0][1]))

    def __del__(self) -> None:
        if self._owner is not None and self._owner.usable:
            self.close()


def begin_capture(stream: int) -> None:
    """Record what is given to the stream from here on, in place of running it."""
    # Relaxed: memory may be allocated, and modules loaded, while the stream is being captured.
    mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    _check("cuStreamBeginCapture", cuda.cuStreamBeginCapture(stream, mode))


def end_capture(stream: int, owner: Owner | None = None) -> Graph:
    """End the recording and make a graph of it."""
    return Graph(_check("cuStreamEndCapture", cuda.cuStreamEndCapture(stream)), owner)


def abandon_capture(stream: int) -> None:
    """End the recording and forget it, also if an error has spoilt it."""
    status, graph = cuda.cuStreamEndCapture(stream)
    if status == cuda.CUresult.CUDA_SUCCESS:
        _check("cuGraphDestroy", cuda.cuGraphDestroy(graph))


def order(before: int, after: int) -> None:
    """Let what the stream `after` is given from here on begin after what the stream `before` was given so far.

    They are addresses, or 1 and 2, the two default streams.
    """
    timeless = cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING
    event = _check("cuEventCreate", cuda.cuEventCreate(timeless))
    try:
        _check("cuEventRecord", cuda.cuEventRecord(event, before))
        _check("cuStreamWaitEvent", cuda.cuStreamWaitEvent(after, event, 0))
    finally:
        cuda.cuEventDestroy(event)  # which the driver does once the event has happened


class AddressRange:
    """Device memory at consecutive addresses, which grows and shrinks at its end by pages of 2 MiB.

    Args:
        device: the number of the GPU.
        nbytes: how many addresses to reserve; they cost no memory.

    Raises:
        DeviceError: the driver has no virtual memory management.
    """

    def __init__(self, device: int, nbytes: int) -> None:
        location = cuda.CUmemLocation()
        location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        location.id = device
        self._properties = cuda.CUmemAllocationProp()
        self._properties.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        self._properties.location = location
        self._access = cuda.CUmemAccessDesc()
        self._access.location = location
        self._access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self._size = -(-nbytes // PAGE) * PAGE
        self._start = int(_check("cuMemAddressReserve", cuda.cuMemAddressReserve(self._size, PAGE, 0, 0)))
        self._pieces: dict[int, tuple[int, Any]] = {}  # start -> size, handle of the physical memory

    @property
    def _end(self) -> int:
        """The first address that has no memory."""
        last = next(reversed(self._pieces), None)
        return self._start if last is None else last + self._pieces[last][0]

    def held(self) -> Collection[int]:
        """Addresses that `allocate` has given and `free` has not taken back."""
        return self._pieces.keys()

    def allocate(self, nbytes: int) -> int:
        """Map memory at the end of the range, whole pages, and return its address, or raise `MemoryError`."""
        if nbytes % PAGE:
            raise ValueError(f"{nbytes} bytes are not whole pages of {PAGE}")
        address = self._end
        if address + nbytes > self._start + self._size:
            raise MemoryError(f"{nbytes} bytes: the range of {self._size} bytes is full")
        created: list[tuple[Any, ...]] = []
        mapped: list[tuple[Any, ...]] = []
        try:
            handle = _check("cuMemCreate", _into(created, cuda.cuMemCreate, nbytes, self._properties, 0))
            _check("cuMemMap", _into(mapped, cuda.cuMemMap, address, nbytes, 0, handle, 0))
            _check("cuMemSetAccess", cuda.cuMemSetAccess(address, nbytes, [self._access], 1))
            self._pieces[address] = nbytes, handle
        except BaseException:
            self._pieces.pop(address, None)
            if _worked(mapped):
                cuda.cuMemUnmap(address, nbytes)
            if _worked(created):
                cuda.cuMemRelease(created[0][1])
            raise
        return address

    def free(self, address: int) -> None:
        """Unmap the last piece, which no work may still use."""
        nbytes, handle = self._pieces[address]
        if address + nbytes != self._end:
            raise DeviceError(f"free: {address:#x} is not the last piece of its range")
        unmapped: list[tuple[Any, ...]] = []
        released: list[tuple[Any, ...]] = []
        try:
            _check("cuMemUnmap", _into(unmapped, cuda.cuMemUnmap, address, nbytes))
            del self._pieces[address]
            _check("cuMemRelease", _into(released, cuda.cuMemRelease, handle))
        except BaseException:
            if _worked(unmapped):
                self._pieces.pop(address, None)
                if not released:
                    cuda.cuMemRelease(handle)
            raise

    def close(self) -> None:
        """Give everything back; safe to call twice."""
        for address in reversed(list(self._pieces)):
            self.free(address)
        if self._size:
            _check("cuMemAddressFree", cuda.cuMemAddressFree(self._start, self._size))
            self._size = 0
