"""Place of this process among the processes of a training, as its launcher says it in environment variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from alpha.errors import ConfigError

PORT = 29500  # torchrun's, where no launcher names one
GPUS = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Place:
    """The number of this process, and how many there are.

    Attributes:
        rank: 0 to world_size - 1; rank 0 prints and saves.
        world_size: processes in all, on all machines.
        local_rank: 0 to local_size - 1, the number among the processes of this machine, and of its GPU.
        local_size: processes on this machine.
        address, port: where rank 0 listens; an empty address if the launcher does not say it.
        launcher: "torchrun", "Open MPI", "MPICH", "Slurm", or "" for a process that was started alone.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_size: int = 1
    address: str = ""
    port: int = PORT
    launcher: str = ""


# launcher: the names of rank, world size, local rank and local size; the first launcher whose variables are there
LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "Open MPI": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "Slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
}
# tasks of each node: the first is of the step; an option of the job, the second one, may be of another step
TASKS_PER_NODE = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
NODES = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")
FIRST_PORT, PORTS = 20_000, 10_000  # of jobs of Slurm; below 32768, where the system takes ports for anybody
FIRST_SPECIAL_STEP = 0xFFFFFFF0  # of the script of a job (batch) and of the shell that salloc opens


def place_of(variables: Mapping[str, str] = os.environ) -> Place:
    """The place that the variables of a launcher say; that of a process alone if there are none.

    A variable that is empty counts as missing. Variables of torchrun come before those of the others, and
    MASTER_ADDR and MASTER_PORT, where they are set, before an address that follows from those of Slurm.

    Raises:
        ConfigError: a variable is missing beside the others of its launcher, or is no number in its range.
    """
    for launcher, names in LAUNCHERS.items():
        found = _Found(launcher, variables)
        if not any(found.has(name) for name in names[:2]):
            continue
        if launcher == "Slurm" and not _is_step(found):
            continue
        if launcher == "MPICH" and not found.has(names[2]) and _is_step(_Found("Slurm", variables)):
            continue  # srun, which sets MPICH's variables of the whole world alone
        return _place(found, names)
    return Place()


def visible_gpus(variables: Mapping[str, str] = os.environ) -> list[str] | None:
    """The entries of CUDA_VISIBLE_DEVICES (numbers or UUIDs), or None if it is not set, which shows all GPUs.

    CUDA does not look behind an entry that names no GPU.
    """
    if GPUS not in variables:
        return None
    entries = []
    for entry in map(str.strip, variables[GPUS].split(",")):
        if entry in ("", "-1", "NoDevFiles"):
            break
        entries.append(entry)
    return entries


def choose_gpu(place: Place, variables: Mapping[str, str] = os.environ) -> str:
    """The value of CUDA_VISIBLE_DEVICES with which a process sees its own GPU alone.

    It is the entry of the local rank in the list of visible GPUs. If that list has one entry, as in a job that gives
    each of its processes a GPU, all processes keep it; if it has none, no process sees a GPU.

    Raises:
        ConfigError: the list has several entries, but not one for each process of this machine.
    """
    visible = visible_gpus(variables)
    if visible is None:
        return str(place.local_rank)
    if len(visible) <= 1:
        return visible[0] if visible else variables[GPUS]
    processes = max(place.local_size, place.local_rank + 1)
    if len(visible) < processes:
        raise ConfigError(
            f"{GPUS}={variables[GPUS]!r} shows {len(visible)} GPUs, but {processes} processes run on this machine: "
            f"start {len(visible)} on each machine, or let {GPUS} name {processes}"
        )
    return visible[place.local_rank]


@dataclass(frozen=True)
class _Found:
    """Variables of a launcher, whose errors name it."""

    launcher: str
    variables: Mapping[str, str]

    def has(self, name: str) -> bool:
        return bool(self.text(name))

    def text(self, name: str) -> str:
        return self.variables.get(name, "").strip()

    def fail(self, fact: str) -> NoReturn:
        names = LAUNCHERS[self.launcher]
        raise ConfigError(
            f"{self.launcher}: {fact} (start the processes by {self.launcher}, or unset {names[0]} and {names[1]} "
            "to train in one process)"
        )

    def needed(self, *names: str) -> str:
        """Name of the first of some variables that is set."""
        found = [name for name in names if self.has(name)]
        if not found:
            there = [f"{name}={self.text(name)}" for name in LAUNCHERS[self.launcher] if self.has(name)]
            self.fail(f"{' or '.join(names)} is not set beside {', '.join(there)}")
        return found[0]

    def number(self, name: str, least: int = 0) -> int:
        """A whole number of at least `least`."""
        text = self.text(self.needed(name))
        if not re.fullmatch(r"-?[0-9]{1,18}", text):
            self.fail(f"{name}={text!r} is not a whole number")
        if int(text) < least:
            self.fail(f"{name}={text} is not {least} or more")
        return int(text)

    def below(self, name: str, size: int, size_name: str) -> int:
        """A whole number from 0 to `size` - 1."""
        value = self.number(name)
        if value >= size:
            self.fail(f"{name}={value} is not below {size_name}={self.text(size_name)}")
        return value


def _place(found: _Found, names: tuple[str, str, str, str]) -> Place:
    rank_name, world_name, local_rank_name, local_name = names
    found.needed(rank_name)
    world_size = found.number(world_name, 1)
    rank = found.below(rank_name, world_size, world_name)
    found.needed(local_rank_name)
    if found.launcher == "Slurm":
        local_size, local_name = _tasks_of_node(found, world_size)
    else:
        local_size = found.number(local_name, 1)
    local_rank = found.below(local_rank_name, local_size, local_name)
    if local_size > world_size:
        found.fail(f"{local_name}={found.text(local_name)} is more than {world_name}={world_size}")
    address, port = _address(found, world_size)
    return Place(rank, world_size, local_rank, local_size, address, port, found.launcher)


def _is_step(found: _Found) -> bool:
    """True in a process that srun has started, and not in the script or the shell of a job."""
    return found.has("SLURM_STEP_ID") and found.number("SLURM_STEP_ID") < FIRST_SPECIAL_STEP


def _tasks_of_node(found: _Found, world_size: int) -> tuple[int, str]:
    """Number of tasks on the node of this process, and the name of the variable that says it.

    A list is one of the nodes, in their order: "2(x3)" is 2 on each of three, "4,2" are 4 and 2. A single number is one
    of every node.
    """
    if world_size == 1:
        return 1, LAUNCHERS["Slurm"][1]
    name = found.needed(*TASKS_PER_NODE)
    text = found.text(name)
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:\(x([0-9]{1,6})\))?", part.strip())
        if not match or 0 in map(int, filter(None, match.groups())):
            found.fail(f"{name}={text!r} is no list of tasks such as '4', '2(x3)' or '4,2'")
        counts += [int(match[1])] * int(match[2] or 1)
    if len(set(counts)) == 1:
        return counts[0], name
    return counts[found.below("SLURM_NODEID", len(counts), name)], name


def _address(found: _Found, world_size: int) -> tuple[str, int]:
    """Host and port at which rank 0 listens; an empty host where MPI finds the processes, or if there is one alone."""
    address, port = found.text("MASTER_ADDR"), PORT
    if found.has("MASTER_PORT"):
        port = found.number("MASTER_PORT", 1)
        if port >= 2**16:
            found.fail(f"MASTER_PORT={port} is not below {2**16}")
    if world_size > 1 and found.launcher == "torchrun":
        found.needed("MASTER_ADDR")
        found.needed("MASTER_PORT")
    if world_size > 1 and found.launcher == "Slurm":
        address = address or _first_host(found)
        if not found.has("MASTER_PORT"):
            job, step = found.number("SLURM_JOB_ID"), found.number("SLURM_STEP_ID")
            port = FIRST_PORT + (job + 1009 * step) % PORTS  # steps of one job may run at the same time
    return address, port


def _first_host(found: _Found) -> str:
    """The first host of a list of Slurm: "gpu003" of "gpu[003-005,9],x1"."""
    name = found.needed(*NODES)
    text = found.text(name)
    first = re.match(r"(?:[\w.-]|\[[\w,-]+\])+(?=,|$)", text)
    if not first:
        found.fail(f"{name}={text!r} is no list of hosts such as 'gpu[003-005,9],x1'")
    return re.sub(r"\[(\w*)[^\]]*\]", r"\1", first[0])
