"""Group of the processes that train together: how a process joins it and leaves it.

    alpha.distributed.init()                        # from the variables of torchrun, mpirun, srun or `alpha.run`
    print(alpha.distributed.rank(), alpha.distributed.world_size())

A program that was started alone is a group of one.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import math
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha import config
from alpha.autograd.shares import forget_all
from alpha.distributed.engines.exchange import Engine
from alpha.distributed.engines.mpi import MpiEngine
from alpha.distributed.membership.board import Board, Client, own_address
from alpha.distributed.membership.environment import Place, choose_gpu, place_of
from alpha.distributed.membership.meeting import meeting
from alpha.distributed.membership.rank_watch import Judge, Watch, new_judge
from alpha.errors import ConfigError, DistributedError
from alpha.ops.kernel.options import real
from alpha.runtime import Device, get_device, progress
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.ranks import set_ranks
from alpha.runtime.registry import opened

TIMEOUT = 25.0  # seconds
MOST_PORT = 65_535
MPI = ("Open MPI", "MPICH")  # launchers that MPI itself knows the ranks of


@dataclass
class Group:
    """The processes of a training, as this one sees them.

    Attributes:
        engine: moves arrays between them; None in a group of one.
        client: reads what the ranks have put on rank 0's board; None in a group of one.
    """

    place: Place
    device: Device
    timeout: float
    engine: Engine | None = None
    client: Client | None = None
    board: Board | None = None
    judge: Judge | None = None
    watch: Watch | None = None
    checks: int = field(default=0)
    memory: int | None = None  # bytes that were free on every GPU when the ranks met

    def texts(self, what: str, text: str) -> list[str]:
        """The texts that all ranks give, in the order of ranks. `what` says of what, in errors."""
        if self.client is None:
            return [text]
        seconds = self._wait(what)
        key = f"{self.checks}: {what}"
        self.client.post(key, text, seconds)
        return self.client.gather(key, range(self.place.world_size), seconds)

    def told(self, what: str, text: str = "") -> str:
        """The text that rank 0 gives, on all ranks."""
        if self.client is None:
            return text
        seconds = self._wait(what)
        key = f"{self.checks}: {what}"
        if self.place.rank == 0:
            self.client.post(key, text, seconds)
        return self.client.gather(key, range(1), seconds)[0]

    def _wait(self, what: str) -> float:
        """Count an exchange of texts and return the seconds to wait for the others, without end if a watch runs."""
        self.checks += 1
        if self.watch is None:
            return self.timeout
        self.watch.count(f"a comparison of {what}")
        return math.inf

    def compare(self, what: str, text: str) -> None:
        """Compare a text with that of the other ranks.

        Raises:
            DistributedError: it differs; names `what`, the ranks and their texts.
        """
        _compared(what, self.texts(what, text))

    def compare_lines(self, what: str, lines: list[str]) -> None:
        """Compare many lines with those of the other ranks; an error shows the first that differs here."""
        digest = hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()
        told = json.dumps([digest, len(lines), [] if self.place.rank else lines])
        found = [json.loads(text) for text in self.texts(what, told)]
        _compared(f"the number of {what}", [str(count) for _, count, _ in found])
        others = [rank for rank, (other, *_) in enumerate(found) if other != found[0][0]]
        if others:
            first = next((pair for pair in zip(found[0][2], lines, strict=False) if pair[0] != pair[1]), None)
            seen = f": {first[0]} on rank 0, {first[1]} on rank {self.place.rank}" if first else ""
            raise DistributedError(f"the {what} of rank {others[0]} are not those of rank 0{seen}")

    def total(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sums over all ranks of numbers on the host."""
        if self.engine is None:
            return values
        array = self.device.upload(np.array(values, np.float64))
        self.engine.all_reduce([array], "sum")
        return self.device.download(array)

    def close(self) -> None:
        """Take leave of the others; rank 0 waits until they have left, too."""
        if self.watch is not None:
            self.watch.leave(self.judge)
        if self.engine is not None:
            self.engine.close()
        if self.board is not None:
            self.board.close()


def _compared(what: str, texts: Sequence[str]) -> None:
    """Raises DistributedError if the texts of the ranks are not all the same."""
    others = [rank for rank, other in enumerate(texts) if other != texts[0]]
    if others:
        raise DistributedError(
            f"{what} of rank 0 is {_short(texts[0])}, of rank {others[0]} {_short(texts[others[0]])}"
            f"{f' ({len(others)} of {len(texts)} ranks differ from rank 0)' if len(others) > 1 else ''}"
        )


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}.."


_group: Group | None = None
_left: list[Group] = []  # groups of a parent process, kept so that nothing of them is closed here


def current() -> Group | None:
    """The group that `init` has made, or None."""
    return _group


def joined_engine(owner: str) -> Engine:
    """The engine of the group; no object of a step holds it, since it counts what it does. `owner` is for errors.

    Raises:
        DistributedError: the process has left the group.
    """
    if _group is None or _group.engine is None:
        raise DistributedError(f"{owner}: this process has left the group; call alpha.distributed.init() again")
    return _group.engine


def init(device: str = "auto", timeout: float = TIMEOUT) -> None:
    """Join the processes that a launcher has started: torchrun, mpirun, srun or `python -m alpha.run`.

    Each process gets one GPU of its machine, by its local rank. So call it before anything else uses the GPU. On a CPU
    the processes talk through MPI. A process that was started alone becomes a group of one.

    Args:
        device: "cuda", "cpu", or "auto", which is the GPU where it works.
        timeout: seconds to wait for the other processes, here and where ranks are compared; and seconds after which a
            rank hangs that has not begun an exchange in which the others wait. Then all ranks end, and say which it
            was. So do they if a rank dies or raises an error. A process that MPI lets wait here for longer ends with
            status 1.

    Raises:
        ConfigError: the variables of the launcher do not fit together; the message names them.
        DistributedError: a rank is missing, or the ranks have another version of Alpha or another kind of device;
            NCCL or MPI is missing; or `init` was called before.
        DeviceError: there is no such device, or the GPU was used before.
        TypeError, ValueError: timeout is no number above 0, or it is above `threading.TIMEOUT_MAX`, 292 years.
    """
    global _group
    if not 0 < real("init", "timeout", timeout) <= threading.TIMEOUT_MAX:
        raise ValueError(f"init: timeout={timeout} is not above 0, or above {threading.TIMEOUT_MAX:.3g} seconds")
    if _group is not None:
        raise DistributedError("init: this process has joined a group already; call shutdown() before")
    place = place_of()
    if place.world_size > 1 and device != "cpu" and config.CUDA_DRIVER.choice() != "emulated":
        if opened("cuda") is not None and place.local_size > 1:
            raise DistributedError("init: the GPU is in use already; call alpha.distributed.init() first of all")
        os.environ["CUDA_VISIBLE_DEVICES"] = choose_gpu(place, os.environ)
    group = Group(place, get_device(device), timeout)
    if place.world_size > 1:
        _connect(group)
    _group = group
    set_ranks(place.rank, place.world_size)
    progress.silence(place.rank > 0)
    atexit.register(shutdown)


def _connect(group: Group) -> None:
    """Find the other ranks, compare with them what must be equal, and make the engine."""
    place, device = group.place, group.device
    engine: Engine | None = None
    with meeting(place, group.timeout, "alpha.distributed.init()"):
        if not isinstance(device, CudaDevice):
            engine = MpiEngine(place.rank, place.world_size)  # first: without it nobody finds the others
        address, port, job = _meeting_point(group)
    group.client = Client(address, port, job, place.rank)
    group.compare("Alpha's version", config.VERSION)
    group.compare("the device", device.name)
    group.compare("numpy's version", np.__version__)
    if isinstance(device, CudaDevice):
        sizes = group.texts("the memory of the GPU", str(device.driver.memory_info()[0]))
        group.memory = min(map(int, sizes))
        engine = _nccl(group, device)
    assert engine is not None
    group.engine = engine
    group.watch = Watch(group.client, place.rank, place.world_size, engine.abort, group.timeout)
    engine.begin = group.watch.count


def _nccl(group: Group, device: CudaDevice) -> Engine:
    """The engine of GPUs, with the unique id of rank 0."""
    from alpha.distributed.engines import nccl

    client, place = group.client, group.place
    assert client is not None
    if place.rank == 0:
        client.post("nccl", nccl.unique_id().hex())
    identity = bytes.fromhex(client.gather("nccl", range(1), group.timeout)[0])
    return nccl.NcclEngine(device, place.rank, place.world_size, identity)


def _meeting_point(group: Group) -> tuple[str, int, str]:
    """Address, port and name of rank 0's board, which rank 0 begins to serve."""
    place = group.place
    if place.rank == 0:
        group.judge = new_judge(place.world_size, group.timeout)
    functions = {} if group.judge is None else group.judge.functions
    if place.launcher in MPI and not place.address:
        from alpha.distributed.engines.mpi import library

        where: Any = None
        if place.rank == 0:
            group.board = Board(job := os.urandom(8).hex())
            where = own_address(), group.board.serve(0, functions), job
        found: tuple[str, int, str] = library().COMM_WORLD.bcast(where)
        return found
    names = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
    job = next((os.environ[name] for name in names if os.environ.get(name)), "alpha")
    port = place.port
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        port += 1  # torchrun itself listens on MASTER_PORT
    if port > MOST_PORT:
        raise ConfigError(f"MASTER_PORT={place.port}: there is no port {port}, which Alpha needs beside torchrun's")
    address = place.address or "127.0.0.1"
    if place.rank == 0:
        group.board = Board(job)
        group.board.serve(port, functions)
    return address, port, job


def shutdown() -> None:
    """Leave the group; all ranks call it, or end. Safe to call twice."""
    global _group
    group, _group = _group, None
    atexit.unregister(shutdown)
    set_ranks(0, 1)
    forget_all()
    progress.silence(False)
    if group is not None:
        group.close()


def _leave_to_parent() -> None:
    """Forget the group in a process that was forked: the parent is the rank."""
    global _group
    if _group is not None:
        _left.append(_group)
        if _group.watch is not None:
            _group.watch.give_back_hook()
        _group = None
    atexit.unregister(shutdown)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_leave_to_parent)


def fail(error: BaseException, status: int) -> None:
    """End this process and all other ranks because of an error that was answered; alone, nothing happens."""
    if _group is not None and _group.watch is not None:
        _group.watch.fail(f"{type(error).__name__}: {error}", status)


def is_initialized() -> bool:
    """True after `init`."""
    return _group is not None


def local_rank() -> int:
    """The number of this process on its machine; 0 before `init`."""
    return 0 if _group is None else _group.place.local_rank
