"""What pycuda has no call for, through cuda-bindings: CUDA graphs, and ranges of addresses that grow."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as cuda

from alpha.errors import DeviceError
from alpha.runtime.arena import PAGE


def _check(call: str, result: tuple[Any, ...]) -> Any:
    """The value of a call's result; `MemoryError` if the device has no room, `DeviceError` for any other error."""
    status, *values = result
    if status == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise MemoryError(f"{call}: {status.name}")
    if status != cuda.CUresult.CUDA_SUCCESS:
        raise DeviceError(f"{call}: {status.name}")
    return values[0] if len(values) == 1 else values


class Graph:
    """An executable CUDA graph."""

    def __init__(self, graph: Any) -> None:
        self._exec = _check("cuGraphInstantiate", cuda.cuGraphInstantiate(graph, 0))
        _check("cuGraphDestroy", cuda.cuGraphDestroy(graph))

    def launch(self, stream: int) -> None:
        """Queue a replay."""
        _check("cuGraphLaunch", cuda.cuGraphLaunch(self._exec, stream))

    def close(self) -> None:
        """Destroy it; no replay of it may be running. Safe to call twice."""
        if self._exec is not None:
            held, self._exec = self._exec, None
            _check("cuGraphExecDestroy", cuda.cuGraphExecDestroy(held))


def begin_capture(stream: int) -> None:
    """Record what is given to the stream from here on, in place of running it."""
    # Relaxed: memory may be allocated, and modules loaded, while the stream is being captured.
    mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    _check("cuStreamBeginCapture", cuda.cuStreamBeginCapture(stream, mode))


def end_capture(stream: int) -> Graph:
    """End the recording and make a graph of it."""
    return Graph(_check("cuStreamEndCapture", cuda.cuStreamEndCapture(stream)))


def abandon_capture(stream: int) -> None:
    """End the recording and forget it, also if an error has spoilt it."""
    status, graph = cuda.cuStreamEndCapture(stream)
    if status == cuda.CUresult.CUDA_SUCCESS:
        _check("cuGraphDestroy", cuda.cuGraphDestroy(graph))


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
        self._end = self._start
        self._pieces: dict[int, tuple[int, Any]] = {}  # start -> size, handle of the physical memory

    def allocate(self, nbytes: int) -> int:
        """Map memory at the end of the range, whole pages; its address, or `MemoryError`."""
        if nbytes % PAGE:
            raise ValueError(f"{nbytes} bytes are not whole pages of {PAGE}")
        if self._end + nbytes > self._start + self._size:
            raise MemoryError(f"{nbytes} bytes: the range of {self._size} bytes is full")
        handle = _check("cuMemCreate", cuda.cuMemCreate(nbytes, self._properties, 0))
        address = self._end
        try:
            _check("cuMemMap", cuda.cuMemMap(address, nbytes, 0, handle, 0))
        except BaseException:
            cuda.cuMemRelease(handle)
            raise
        self._pieces[address] = nbytes, handle
        self._end += nbytes
        try:
            _check("cuMemSetAccess", cuda.cuMemSetAccess(address, nbytes, [self._access], 1))
        except BaseException:
            self.free(address)
            raise
        return address

    def free(self, address: int) -> None:
        """Unmap the last piece, which no work may still use."""
        nbytes, handle = self._pieces[address]
        if address + nbytes != self._end:
            raise DeviceError(f"free: {address:#x} is not the last piece of its range")
        _check("cuMemUnmap", cuda.cuMemUnmap(address, nbytes))
        del self._pieces[address]
        self._end = address
        _check("cuMemRelease", cuda.cuMemRelease(handle))

    def close(self) -> None:
        """Give everything back; safe to call twice."""
        for address in reversed(list(self._pieces)):
            self.free(address)
        if self._size:
            _check("cuMemAddressFree", cuda.cuMemAddressFree(self._start, self._size))
            self._size = 0
