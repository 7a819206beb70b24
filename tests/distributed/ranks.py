"""Programs that run as several processes under MPI, and what each of them tells."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import child
import pytest

HERE = Path(__file__).parent
RESULTS = "RANKS_RESULTS"  # the folder in which each rank writes what it tells
DEVICE = "RANKS_DEVICE"  # of the ranks


@dataclass(frozen=True)
class Ran:
    """Processes that have ended: what each told, in the order of ranks, and what all of them printed."""

    told: list[Any]
    status: int
    output: str
    errors: str


def mpiexec() -> str:
    """The program that starts processes; without it or mpi4py the test is skipped."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("no MPI: pip install mpi4py mpich")
    return found


def ran(
    count: int, program: str, *arguments: object, emulated: bool = False, launcher: str = "", **variables: str
) -> Ran:
    """A program of tests/distributed/programs, or a path, as `count` processes.

    Args:
        emulated: on emulated GPUs, in place of CPUs.
        launcher: "" for mpiexec, "alone" for no launcher, "cpus" for `alpha.run --cpus`, "gpus" for
            `alpha.run --gpus`, on real GPUs.
        variables: of the environment, besides.
    """
    command = [] if launcher else [mpiexec(), "-n", str(count)]
    path = HERE / "programs" / program if not Path(program).is_absolute() else Path(program)
    started: list[Any] = [*command, sys.executable, path, *map(str, arguments)]
    if launcher in ("cpus", "gpus"):
        started = [sys.executable, "-m", "alpha.run", f"--{launcher}", str(count), path, *map(str, arguments)]
    variables = {"ALPHA_CUDA_DRIVER": "emulated" if emulated else "", **variables}
    variables.setdefault(DEVICE, "cuda" if emulated or launcher == "gpus" else "cpu")
    with tempfile.TemporaryDirectory() as folder:
        env = child.environment(HERE, HERE.parent / "support", **variables, **{RESULTS: folder})
        done = child.run(started, env=env)
        files = [Path(folder) / f"{rank}.json" for rank in range(count)]
        told = [json.loads(file.read_text()) if file.exists() else None for file in files]
    return Ran(told, done.returncode, done.stdout, done.stderr)


def run_ranks(count: int, program: str, *arguments: object, emulated: bool = False, launcher: str = "") -> list[Any]:
    """Values that the ranks of a program told; it must end without an error."""
    found = ran(count, program, *arguments, emulated=emulated, launcher=launcher)
    assert found.status == 0, found.errors[-4000:]
    return found.told


# -- in the programs -------------------------------------------------------------------------------


def joined(timeout: float = 60.0) -> str:
    """Join the other ranks, also those that are later here than the timeout; the name of the device."""
    import alpha
    from alpha.distributed.engines.mpi import library

    if os.environ.get("PMI_SIZE"):
        library().COMM_WORLD.Barrier()

    if os.environ.get("ALPHA_CUDA_DRIVER") == "emulated":
        import nccl_stand_in

        nccl_stand_in.put()
    device = os.environ[DEVICE]
    alpha.distributed.init(device, timeout)
    return device


def tell(value: Any) -> None:
    """Hand a value of JSON to the test."""
    import alpha

    (Path(os.environ[RESULTS]) / f"{alpha.distributed.rank()}.json").write_text(json.dumps(value))
