"""NCCL for arrays of a GPU, through nccl4py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alpha.distributed.engines.exchange import described, nothing
from alpha.errors import DistributedError
from alpha.installation import install
from alpha.runtime import recording
from alpha.runtime.cuda.array import DeviceArray
from alpha.runtime.cuda.cuda_device import CudaDevice

# ncclDataType_t and ncclRedOp_t
DTYPES = {
    "int8": 0,
    "uint8": 1,
    "bool": 1,
    "int32": 2,
    "uint32": 3,
    "int64": 4,
    "uint64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
}
OPERATIONS = {"sum": 0, "max": 2, "min": 3, "mean": 4}


def library() -> tuple[Any, Any]:
    """`nccl.core`, and `nccl.bindings.nccl`, which takes addresses.

    Raises:
        DistributedError: one of them is missing.
    """
    try:
        from nccl import core
        from nccl.bindings import nccl as bindings
    except (ImportError, RuntimeError) as error:
        raise DistributedError(
            f"processes on GPUs talk through NCCL, which is missing ({error}): {install('distributed')}"
        ) from None
    return core, bindings


def unique_id() -> bytes:
    """The id of a new group of processes; all of them need the same."""
    core, _ = library()
    return bytes(core.get_unique_id())


class NcclEngine:
    """The GPUs of all processes. Work is queued on the device's stream, or on one beside it.

    In a captured step the work is a part of the graph; all ranks must capture and replay the same.

    Args:
        identity: the `unique_id` of rank 0.
    """

    name = "nccl"

    def __init__(self, device: CudaDevice, rank: int, world_size: int, identity: bytes) -> None:
        self.begin: Callable[[str], None] = nothing
        core, self._bindings = library()
        self._device = device
        device.synchronize()

        def join(_: int) -> None:
            with _explained("init"):
                self._core = core.Communicator.init(world_size, rank, core.UniqueId.from_bytes(identity))
                self._comm = self._bindings.Comm(self._core.ptr)

        device.driver.hand_over(join, beside=False)  # there this GPU is the current one, which NCCL takes

    def all_reduce(self, arrays: Sequence[DeviceArray], operation: str, beside: bool = False, note: str = "") -> None:
        places, chosen = [_place(array) for array in arrays], OPERATIONS[operation]
        calls = [(address, address, *form, chosen) for address, *form in places]
        self._queue("all_reduce", described(f"all_reduce {operation}", arrays) + note, arrays, calls, beside)

    def reduce(
        self, arrays: Sequence[DeviceArray], owners: Sequence[int], operation: str, beside: bool = False, note: str = ""
    ) -> None:
        places, chosen = [_place(array) for array in arrays], OPERATIONS[operation]
        calls = [
            (address, address, *form, chosen, owner) for (address, *form), owner in zip(places, owners, strict=True)
        ]
        self._queue("reduce", described(f"reduce {operation}", arrays, owners) + note, arrays, calls, beside)

    def join(self) -> None:
        self._device.driver.join()

    def broadcast(self, arrays: Sequence[DeviceArray], sources: Sequence[int]) -> None:
        places = [_place(array) for array in arrays]
        calls = [(address, address, *form, source) for (address, *form), source in zip(places, sources, strict=True)]
        self._queue("broadcast", described("broadcast", arrays, sources), arrays, calls)

    def all_gather(self, target: DeviceArray, source: DeviceArray) -> None:
        address, count, dtype = _place(source)
        what = described("all_gather", [source])
        self._queue("all_gather", what, (source, target), [(address, target.address, count, dtype)])

    def reduce_scatter(self, target: DeviceArray, source: DeviceArray, operation: str) -> None:
        address, count, dtype = _place(target)
        call = source.address, address, count, dtype, OPERATIONS[operation]
        what = described(f"reduce_scatter {operation}", [source])
        self._queue("reduce_scatter", what, (source, target), [call])

    def _queue(
        self,
        name: str,
        what: str,
        arrays: Sequence[DeviceArray],
        calls: Sequence[tuple[int, ...]],
        beside: bool = False,
    ) -> None:
        """Queue calls of a function of NCCL as one group, and note them in the step that is recorded.

        Args:
            what: the exchange in words.
            arrays: what the calls read and write.
            calls: the arguments of each, before the communicator and the stream.
        """
        if not arrays:
            return
        if arrays[0].device is self._device:  # and not that of a dry run, which sends nothing
            self.begin(what)
        noted = recording.state.listener
        if noted is not None:
            noted.note(arrays, name, *calls)
        function, bindings = getattr(self._bindings, name), self._bindings

        def queue(stream: int) -> None:
            with _explained(name):
                bindings.group_start()
                try:
                    for call in calls:
                        function(*call, self._comm, stream)
                finally:
                    bindings.group_end()

        arrays[0].device.driver.hand_over(queue, beside)  # in a dry run another device than ours, which does nothing
        for array in arrays:
            array.magnitude = None

    def close(self) -> None:
        if self._core is not None:
            self._device.driver.synchronize()
            self._device.graphs.close_all()  # NCCL waits for the end of those that it is a part of
            core, self._core, self._comm = self._core, None, None
            core.destroy()

    def abort(self) -> None:
        if self._core is not None:
            core, self._core, self._comm = self._core, None, None
            core.abort()


class _explained:
    """Context that makes a `DistributedError` of NCCL's errors."""

    def __init__(self, call: str) -> None:
        self._call = call

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is not None and type(error).__module__.partition(".")[0] == "nccl":
            raise DistributedError(f"NCCL, {self._call}: {error}; NCCL_DEBUG=INFO says more") from error


def _place(array: DeviceArray) -> tuple[int, int, int]:
    """Address, number of elements and NCCL's dtype of an array.

    Raises:
        DistributedError: NCCL has no such dtype.
    """
    name = np.dtype(array.dtype).name
    if name not in DTYPES:
        raise DistributedError(f"NCCL has no dtype {name}; it has {', '.join(DTYPES)}")
    return array.address, array.size, DTYPES[name]
