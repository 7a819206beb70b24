"""MPI for arrays of numpy, through mpi4py."""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.distributed.engines.exchange import described, nothing
from alpha.errors import DistributedError

INSTALL = "pip install mpi4py mpich (or an MPI of the system)"


def library() -> Any:
    """`mpi4py.MPI`, which has joined the processes of mpirun.

    Raises:
        DistributedError: it is missing, or finds no MPI.
    """
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:
            mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise DistributedError(f"processes on a CPU talk through MPI, which is missing ({error}): {INSTALL}") from None
    if not MPI.Is_initialized():
        _initialize(MPI)
    return MPI


def _initialize(mpi: Any) -> None:
    """Join the other processes. Other threads run while it waits for them, which mpi4py's own call does not allow."""
    try:
        call = ctypes.CDLL(mpi.__file__).MPI_Init_thread
    except (OSError, AttributeError):  # a library within which the function cannot be found
        mpi.Init_thread()
        return
    call(None, None, mpi.THREAD_MULTIPLE, ctypes.byref(ctypes.c_int()))
    for comm in (mpi.COMM_SELF, mpi.COMM_WORLD):
        comm.Set_errhandler(mpi.ERRORS_RETURN)  # so that mpi4py raises them


class MpiEngine:
    """The processes that mpirun or srun has started, on host memory.

    Raises:
        DistributedError: MPI sees another number of processes than the launcher has said.
    """

    name = "mpi"

    def __init__(self, rank: int, world_size: int) -> None:
        self.begin: Callable[[str], None] = nothing
        self._mpi = library()
        self._comm = self._mpi.COMM_WORLD.Dup()
        self._rank, self._size = self._comm.Get_rank(), self._comm.Get_size()
        found = self._rank, self._size
        if found != (rank, world_size):
            raise DistributedError(
                f"MPI sees rank {found[0]} of {found[1]} processes, the launcher rank {rank} of {world_size}: on a CPU "
                f"start them by `mpirun -n {world_size}` or `python -m alpha.run --cpus {world_size}`"
            )
        self._operations = {"sum": self._mpi.SUM, "mean": self._mpi.SUM, "min": self._mpi.MIN, "max": self._mpi.MAX}

    def all_reduce(self, arrays: Sequence[NDArray[Any]], operation: str, beside: bool = False, note: str = "") -> None:
        self._begin(described(f"all_reduce {operation}", arrays) + note)
        for array in arrays:
            wide = _wide(array)
            self._reduce_all(wide, operation)
            self._take(array, wide, operation)

    def reduce(
        self,
        arrays: Sequence[NDArray[Any]],
        owners: Sequence[int],
        operation: str,
        beside: bool = False,
        note: str = "",
    ) -> None:
        self._begin(described(f"reduce {operation}", arrays, owners) + note)
        for array, owner in zip(arrays, owners, strict=True):
            wide = _wide(array)
            if owner == self._rank:
                self._comm.Reduce(self._mpi.IN_PLACE, wide, self._operations[operation], owner)
                self._take(array, wide, operation)
            else:
                self._comm.Reduce(wide, None, self._operations[operation], owner)

    def join(self) -> None: ...

    def broadcast(self, arrays: Sequence[NDArray[Any]], sources: Sequence[int]) -> None:
        self._begin(described("broadcast", arrays, sources))
        for array, source in zip(arrays, sources, strict=True):
            self._comm.Bcast(_bytes(array), source)

    def all_gather(self, target: NDArray[Any], source: NDArray[Any]) -> None:
        self._begin(described("all_gather", [source]))
        self._comm.Allgather(_bytes(source), _bytes(target))

    def reduce_scatter(self, target: NDArray[Any], source: NDArray[Any], operation: str) -> None:
        self._begin(described(f"reduce_scatter {operation}", [source]))
        wide, part = _wide(source), _wide(target)
        if operation in ("min", "max"):
            wide = wide.copy()
            self._reduce_all(wide, operation)
            part[...] = wide.reshape(self._size, *part.shape)[self._rank]
        else:
            self._comm.Reduce_scatter_block(wide, part, self._operations[operation])
        self._take(target, part, operation)

    def _reduce_all(self, wide: NDArray[Any], operation: str) -> None:
        """Reduce an array in place. A NaN of one rank is the result of all; to MPI's min and max it is any number."""
        missing = np.asarray(np.isnan(wide)) if operation in ("min", "max") and wide.dtype.kind == "f" else None
        if missing is not None:
            wide[missing] = np.inf if operation == "min" else -np.inf
            self._comm.Allreduce(self._mpi.IN_PLACE, missing.view(np.uint8), self._mpi.MAX)
        self._comm.Allreduce(self._mpi.IN_PLACE, wide, self._operations[operation])
        if missing is not None:
            wide[missing] = np.nan

    def _begin(self, what: str) -> None:
        """Begin an exchange, and look whether it is that of the other ranks; MPI may wait for ever if it is not.

        Raises:
            DistributedError: it is not; names a rank and both exchanges.
        """
        self.begin(what)
        digest = int.from_bytes(hashlib.blake2b(what.encode(), digest_size=7).digest(), "big")
        bounds = np.array([digest, -digest])
        self._comm.Allreduce(self._mpi.IN_PLACE, bounds, self._mpi.MAX)
        if bounds[0] == -bounds[1]:
            return
        found = self._comm.allgather(what)
        other = next(rank for rank, text in enumerate(found) if text != found[0])
        raise DistributedError(
            f"the ranks do not make the same exchange: rank 0 begins {found[0]}, rank {other} {found[other]}"
        )

    def _take(self, array: NDArray[Any], reduced: NDArray[Any], operation: str) -> None:
        """Put what was reduced into the array."""
        if operation == "mean":
            np.divide(reduced, self._size, out=reduced)
        if reduced is not array:
            array[...] = reduced

    def close(self) -> None:
        if self._comm != self._mpi.COMM_NULL:
            self._comm.Free()

    def abort(self) -> None:
        self._mpi.COMM_WORLD.Abort(1)


def _wide(array: NDArray[Any]) -> NDArray[Any]:
    """The array itself, or a copy in a dtype that MPI can add up: float32 of 16-bit numbers, uint8 of bool."""
    if array.dtype == np.bool_:
        return array.view(np.uint8)
    return array.astype(np.float32) if array.dtype.itemsize == 2 and array.dtype.kind in "fV" else array


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)
