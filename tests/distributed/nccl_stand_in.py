"""Stand-in of nccl4py for emulated GPUs: the same calls on the same addresses, through MPI.

`put()` makes it what `import nccl` finds. As NCCL's, calls within a group run at its end, in their order; a
communicator that was destroyed takes no calls; and an error is one of a class of `nccl`. What NCCL never notices, such
as ranks with different counts, MPI refuses here.
"""

from __future__ import annotations

import ctypes
import os
import sys
import types
from typing import Any

import ml_dtypes
import numpy as np

DTYPES = {
    0: np.int8,
    1: np.uint8,
    2: np.int32,
    3: np.uint32,
    4: np.int64,
    5: np.uint64,
    6: np.float16,
    7: np.float32,
    8: np.float64,
    9: ml_dtypes.bfloat16,
}
SUM, MAX, MIN, AVG = 0, 2, 3, 4


class NcclError(RuntimeError):
    """An error of the library."""


NcclError.__module__ = "nccl.core"
calls: list[str] = []  # the names of all calls, in their order
_group: list[Any] = []
_depth = 0
_alive: set[int] = set()


def _world() -> Any:
    from mpi4py import MPI

    return MPI.COMM_WORLD


def _array(address: int, count: int, dtype: int) -> Any:
    kind = np.dtype(DTYPES[dtype])
    return np.frombuffer((ctypes.c_char * (count * kind.itemsize)).from_address(address), kind)


def _do(name: str, comm: int, work: Any) -> None:
    if comm not in _alive:
        raise NcclError(f"{name}: invalid usage: the communicator was destroyed")
    calls.append(name)
    if str(len(calls)) == os.environ.get("STAND_IN_FAILS_AT"):
        raise NcclError(f"{name}: remote process exited or there was a network error")
    if _depth:
        _group.append(work)
    else:
        work()


def _gathered(array: Any) -> Any:
    """The arrays of all ranks, (world_size, count), as float64 if they are numbers of 16 bits."""
    wide = array.astype(np.float64) if array.dtype.itemsize == 2 else array
    found = np.empty((_world().Get_size(), len(wide)), wide.dtype)
    _world().Allgather(wide, found)
    return found


def _reduced(array: Any, op: int) -> Any:
    found = _gathered(array)
    return {SUM: found.sum(0), MAX: found.max(0), MIN: found.min(0), AVG: found.sum(0) / len(found)}[op]


def all_reduce(source: int, target: int, count: int, dtype: int, op: int, comm: int, stream: int) -> None:
    def work() -> None:
        _array(target, count, dtype)[:] = _reduced(_array(source, count, dtype), op)

    _do("all_reduce", comm, work)


def reduce(source: int, target: int, count: int, dtype: int, op: int, root: int, comm: int, stream: int) -> None:
    def work() -> None:
        found = _reduced(_array(source, count, dtype), op)
        if _world().Get_rank() == root:
            _array(target, count, dtype)[:] = found

    _do("reduce", comm, work)


def broadcast(source: int, target: int, count: int, dtype: int, root: int, comm: int, stream: int) -> None:
    def work() -> None:
        _array(target, count, dtype)[:] = _gathered(_array(source, count, dtype))[root]

    _do("broadcast", comm, work)


def all_gather(source: int, target: int, count: int, dtype: int, comm: int, stream: int) -> None:
    def work() -> None:
        size = _world().Get_size()
        _array(target, count * size, dtype)[:] = _gathered(_array(source, count, dtype)).reshape(-1)

    _do("all_gather", comm, work)


def reduce_scatter(source: int, target: int, count: int, dtype: int, op: int, comm: int, stream: int) -> None:
    def work() -> None:
        size, rank = _world().Get_size(), _world().Get_rank()
        whole = _reduced(_array(source, count * size, dtype), op)
        _array(target, count, dtype)[:] = whole[rank * count : (rank + 1) * count]

    _do("reduce_scatter", comm, work)


def group_start() -> None:
    global _depth
    _depth += 1


def group_end() -> None:
    global _depth
    _depth -= 1
    if not _depth:
        works = list(_group)
        _group.clear()
        for work in works:
            work()


class UniqueId:
    def __init__(self, value: bytes) -> None:
        self.value = value

    def __bytes__(self) -> bytes:
        return self.value

    @classmethod
    def from_bytes(cls, value: bytes) -> UniqueId:
        return cls(value)


class Communicator:
    """`nccl.core.Communicator`; `ptr` is its address."""

    def __init__(self, nranks: int, rank: int) -> None:
        assert (nranks, rank) == (_world().Get_size(), _world().Get_rank())
        self.ptr = id(self)
        _alive.add(self.ptr)

    @classmethod
    def init(cls, nranks: int, rank: int, unique_id: UniqueId) -> Communicator:
        found = set(_world().allgather(bytes(unique_id)))
        assert len(found) == 1, "ranks with different ids wait for ever"
        return cls(nranks, rank)

    def destroy(self) -> None:
        _alive.discard(self.ptr)

    abort = destroy


def put() -> None:
    """Let `import nccl` find this stand-in."""
    core, bindings, root = types.ModuleType("nccl.core"), types.ModuleType("nccl.bindings"), types.ModuleType("nccl")
    here: Any = sys.modules[__name__]
    core.Communicator, core.UniqueId = Communicator, UniqueId  # type: ignore[attr-defined]
    core.get_unique_id = lambda: UniqueId(os.urandom(128))  # type: ignore[attr-defined]
    here.Comm = int
    globals()["__name__"] = "nccl.bindings.nccl"  # for what looks at who is called in a step
    bindings.nccl = here  # type: ignore[attr-defined]
    root.core, root.bindings = core, bindings  # type: ignore[attr-defined]
    sys.modules |= {"nccl": root, "nccl.core": core, "nccl.bindings": bindings, "nccl.bindings.nccl": here}
