"""A program as a process of MPI: `mpiexec -n 2 python -m alpha.distributed.mpi_program [-m] PROGRAM [ARGUMENT ...]`.

`--launcher NAME` before the program names the socket of `alpha.run`, which is told of this process.

A process that ends with an error ends the others, too. By itself MPI lets them wait for ever for one that is gone.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path

from alpha.distributed.engines.mpi import library
from alpha.distributed.membership.environment import place_of
from alpha.distributed.membership.meeting import meeting
from alpha.distributed.membership.rank_watch import STOPPED
from alpha.distributed.membership.roll import answer, explain
from alpha.distributed.process_group import TIMEOUT, fail
from alpha.errors import AlphaError

PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Let the system kill this process when its parent, whose id is given, is gone; Linux alone can."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it was gone before
        os.kill(os.getpid(), signal.SIGKILL)


def run_program(arguments: list[str]) -> None:
    """Run a program, or with "-m" a module, as Python does: arguments, `__main__` and the first folder of the path."""
    is_module = arguments[0] == "-m"
    sys.argv = arguments[is_module:]
    if not getattr(sys.flags, "safe_path", False):  # else Python puts no folder there
        sys.path[0] = str(Path.cwd() if is_module else Path(sys.argv[0]).resolve().parent)
    if is_module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


def status_of(error: BaseException) -> int:
    """The status with which Python ends after an exception."""
    if isinstance(error, KeyboardInterrupt):
        return STOPPED
    code = error.code if isinstance(error, SystemExit) else 1
    return code if isinstance(code, int) else int(code is not None)


def _print_reason(error: SystemExit) -> None:
    """Print what `sys.exit` was given in place of a status, as Python does."""
    if error.code is not None and not isinstance(error.code, int):
        print(error.code, file=sys.stderr, flush=True)


def _end_child(status: int, error: BaseException | None = None) -> None:
    """End a process that the program has forked; MPI, which knows nothing of it, would not let it end."""
    if isinstance(error, SystemExit):
        _print_reason(error)
    elif error is not None:
        traceback.print_exception(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def start() -> None:
    """Run the program that the command line names, and tell MPI if it fails."""
    end_with(os.getppid())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # as on GPUs; the input that mpiexec gives has no end
    try:
        place, arguments = place_of(), sys.argv[1:]
        if arguments[0] == "--launcher":
            answer(arguments[1], place.rank)
            arguments = arguments[2:]
        with meeting(place, TIMEOUT, "alpha.run"):
            mpi = library()  # before the program, whose first line may fail
        size = mpi.COMM_WORLD.Get_size()
    except AlphaError as error:
        sys.exit(f"alpha-run: {error}")
    if size != place.world_size:
        sys.exit(
            f"alpha-run: mpiexec has started {place.world_size} processes, but mpi4py finds {size}: they belong to "
            f"different libraries ({mpi.get_vendor()[0]} is that of mpi4py); `pip install mpi4py mpich` has both"
        )
    process = os.getpid()
    try:
        run_program(arguments)
        if os.getpid() != process:
            _end_child(0)
        explain(fails=False)
    except BaseException as error:
        status = status_of(error)
        if os.getpid() != process:
            _end_child(status, error)
        explain(status not in (0, STOPPED), status)
        if status not in (0, STOPPED):
            print(f"alpha-run: rank {place.rank} ended with status {status}", file=sys.stderr, flush=True)
            if isinstance(error, SystemExit):  # of which no hook hears, and rank 0 would wait for the others
                _print_reason(error)
                fail(error, status)
            importlib.import_module("mpi4py.run").set_abort_status(status)  # when it ends, after its traceback
        raise


if __name__ == "__main__":
    start()
