"""The variables of launchers: the place of a process, its GPU, and errors that name what is wrong."""

from __future__ import annotations

import re
from typing import Any

import pytest

from alpha.distributed.membership.environment import LAUNCHERS, PORT, Place, choose_gpu, place_of, visible_gpus
from alpha.errors import ConfigError

TORCHRUN = dict(RANK=5, WORLD_SIZE=8, LOCAL_RANK=1, LOCAL_WORLD_SIZE=4, MASTER_ADDR="host0", MASTER_PORT=1234)
OPEN_MPI = dict(zip(LAUNCHERS["Open MPI"], (5, 8, 1, 4), strict=True))
MPICH = dict(zip(LAUNCHERS["MPICH"], (5, 8, 1, 4), strict=True))
SLURM = dict(
    SLURM_PROCID=5,
    SLURM_NTASKS=8,
    SLURM_LOCALID=1,
    SLURM_NTASKS_PER_NODE="4(x2)",
    SLURM_NODEID=1,
    SLURM_STEP_ID=0,
    SLURM_JOB_ID=123456,
    SLURM_STEP_NODELIST="gpu[003-005,9],x1",
)


def place(*given: dict[str, Any], **more: Any) -> Place:
    """The place of variables; those whose value is None are taken out."""
    merged = {name: value for variables in (*given, more) for name, value in variables.items()}
    return place_of({name: str(value) for name, value in merged.items() if value is not None})


def test_a_process_alone() -> None:
    assert place() == place(HOME="/root") == Place(0, 1, 0, 1, "", PORT, "")
    assert place(RANK="", WORLD_SIZE=" ", PMI_RANK="") == Place()


@pytest.mark.parametrize(
    ("variables", "address", "port", "launcher"),
    [
        (TORCHRUN, "host0", 1234, "torchrun"),
        (OPEN_MPI, "", PORT, "Open MPI"),
        (MPICH, "", PORT, "MPICH"),
        (SLURM, "gpu003", 20000 + 123456 % 10000, "Slurm"),
    ],
)
def test_launchers(variables: dict[str, Any], address: str, port: int, launcher: str) -> None:
    assert place(variables) == Place(5, 8, 1, 4, address, port, launcher)
    assert place(variables, MASTER_ADDR="other", MASTER_PORT=77) == Place(5, 8, 1, 4, "other", 77, launcher)


def test_torchruns_variables_win() -> None:
    others = dict.fromkeys([*LAUNCHERS["Open MPI"], *LAUNCHERS["MPICH"], *LAUNCHERS["Slurm"], "SLURM_STEP_ID"], 7)
    assert place(others, TORCHRUN) == place(TORCHRUN)


def test_mpiexec_in_a_step_of_slurm_wins_over_it() -> None:
    assert place(SLURM, MPICH).launcher == "MPICH"


def test_srun_that_sets_variables_of_mpich_too() -> None:
    assert place(SLURM, PMI_RANK=5, PMI_SIZE=8) == place(SLURM)


@pytest.mark.parametrize("step", [None, 0xFFFFFFFA, 0xFFFFFFFB])
def test_the_script_and_the_shell_of_a_job_are_alone(step: int | None) -> None:
    assert place(SLURM, SLURM_STEP_ID=step) == Place()


def test_one_process_needs_no_address() -> None:
    one = dict(RANK=0, WORLD_SIZE=1, LOCAL_RANK=0, LOCAL_WORLD_SIZE=1)
    assert place(one) == Place(launcher="torchrun")
    assert place(SLURM_PROCID=0, SLURM_NTASKS=1, SLURM_LOCALID=0, SLURM_STEP_ID=3) == Place(launcher="Slurm")


@pytest.mark.parametrize(
    ("tasks", "node", "size"),
    [("4", None, 4), ("4", 3, 4), ("2(x3)", None, 2), ("4,2", 0, 4), ("4,2", 1, 2), ("4(x2),2(x2),3", 3, 2)],
)
def test_tasks_of_nodes_of_slurm(tasks: str, node: int | None, size: int) -> None:
    assert place(SLURM, SLURM_NTASKS_PER_NODE=tasks, SLURM_NODEID=node).local_size == size


def test_tasks_of_the_step_come_before_those_of_the_job() -> None:
    assert place(SLURM, SLURM_NTASKS_PER_NODE=8, SLURM_STEP_TASKS_PER_NODE="6,2").local_size == 2
    assert place(SLURM, SLURM_NTASKS_PER_NODE=None, SLURM_TASKS_PER_NODE="6,2").local_size == 2


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("gpu[003-005,9],x1", "gpu003"),
        ("gpu[9,003-005]", "gpu9"),
        ("node-a.cluster.org,b", "node-a.cluster.org"),
        ("x1", "x1"),
        ("rack[1-2]node[07,9]-ib,y", "rack1node07-ib"),
    ],
)
def test_the_first_host_of_slurm(hosts: str, first: str) -> None:
    assert place(SLURM, SLURM_STEP_NODELIST=hosts).address == first
    assert place(SLURM, SLURM_STEP_NODELIST=None, SLURM_JOB_NODELIST=hosts).address == first


def test_ports_of_slurm() -> None:
    """Ports below those that the system gives to anybody; steps that run at once have different ones."""
    jobs = [place(SLURM, SLURM_JOB_ID=job).port for job in (1, 9_999, 10_000, 987_654_321)]
    assert jobs == [20_001, 29_999, 20_000, 24_321]
    steps = {place(SLURM, SLURM_STEP_ID=step).port for step in range(50)}
    assert len(steps) == 50
    assert min(steps) >= 20_000
    assert max(steps) < 30_000


FIRST = {"torchrun": TORCHRUN, "Open MPI": OPEN_MPI, "MPICH": MPICH, "Slurm": SLURM}


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("index", range(4))
def test_a_variable_that_is_missing(launcher: str, index: int) -> None:
    name = LAUNCHERS[launcher][index]
    other = LAUNCHERS[launcher][index == 0]
    message = f"^{launcher}: .*{name}.* is not set beside .*{other}={FIRST[launcher][other]}"
    with pytest.raises(ConfigError, match=message):
        place(FIRST[launcher], {name: None})


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("value", ["two", "1.5", "-1", "0x1", "1_0", "²", "9" * 5000])
def test_a_value_that_is_no_number_of_its_range(launcher: str, index: int, value: str) -> None:
    name = LAUNCHERS[launcher][index]
    with pytest.raises(ConfigError, match=f"^{launcher}: {name}='?{re.escape(value)}'? is n.*unset"):
        place(FIRST[launcher], {name: value})


@pytest.mark.parametrize(
    ("base", "changed", "message"),
    [
        (TORCHRUN, dict(RANK=8), "torchrun: RANK=8 is not below WORLD_SIZE=8 (start the processes by torchrun, or "),
        (TORCHRUN, dict(WORLD_SIZE=0), "WORLD_SIZE=0 is not 1 or more"),
        (TORCHRUN, dict(LOCAL_RANK=4), "LOCAL_RANK=4 is not below LOCAL_WORLD_SIZE=4"),
        (TORCHRUN, dict(LOCAL_WORLD_SIZE=9), "LOCAL_WORLD_SIZE=9 is more than WORLD_SIZE=8"),
        (TORCHRUN, dict(MASTER_ADDR=None), "MASTER_ADDR is not set beside RANK=5, WORLD_SIZE=8"),
        (TORCHRUN, dict(MASTER_PORT=None), "MASTER_PORT is not set beside RANK=5"),
        (TORCHRUN, dict(MASTER_PORT="http"), "MASTER_PORT='http' is not a whole number"),
        (TORCHRUN, dict(MASTER_PORT=65536), "MASTER_PORT=65536 is not below 65536"),
        (TORCHRUN, dict(MASTER_PORT=0), "MASTER_PORT=0 is not 1 or more"),
        (OPEN_MPI, dict(OMPI_COMM_WORLD_RANK=9), "Open MPI: OMPI_COMM_WORLD_RANK=9 is not below"),
        (MPICH, dict(MPI_LOCALRANKID=4), "MPICH: MPI_LOCALRANKID=4 is not below MPI_LOCALNRANKS=4"),
        (SLURM, dict(SLURM_LOCALID=4), "Slurm: SLURM_LOCALID=4 is not below SLURM_NTASKS_PER_NODE=4(x2)"),
        (SLURM, dict(SLURM_NTASKS_PER_NODE="2(3x)"), "SLURM_NTASKS_PER_NODE='2(3x)' is no list of tasks"),
        (SLURM, dict(SLURM_NTASKS_PER_NODE="4,0"), "SLURM_NTASKS_PER_NODE='4,0' is no list of tasks"),
        (SLURM, dict(SLURM_NTASKS_PER_NODE="4,2", SLURM_NODEID=None), "SLURM_NODEID is not set beside"),
        (SLURM, dict(SLURM_NTASKS_PER_NODE="4,2", SLURM_NODEID=2), "SLURM_NODEID=2 is not below SLURM_NTASKS_PER"),
        (SLURM, dict(SLURM_STEP_ID="x"), "SLURM_STEP_ID='x' is not a whole number"),
        (SLURM, dict(SLURM_JOB_ID=None), "SLURM_JOB_ID is not set beside SLURM_PROCID=5"),
        (SLURM, dict(SLURM_STEP_NODELIST=None), "SLURM_STEP_NODELIST or SLURM_JOB_NODELIST is not set"),
        (SLURM, dict(SLURM_STEP_NODELIST="gpu[1-"), "SLURM_STEP_NODELIST='gpu[1-' is no list of hosts"),
        (SLURM, dict(SLURM_STEP_NODELIST=",a"), "SLURM_STEP_NODELIST=',a' is no list of hosts"),
    ],
)
def test_errors_name_the_variable_its_value_and_the_launcher(base: Any, changed: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        place(base, changed)


@pytest.mark.parametrize(
    ("value", "entries"),
    [("", []), ("-1", []), ("NoDevFiles", []), ("3", ["3"]), (" 1, GPU-ab ", ["1", "GPU-ab"]), ("2,-1,0", ["2"])],
)
def test_visible_gpus(value: str, entries: list[str]) -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": value}) == entries
    assert visible_gpus({}) is None


@pytest.mark.parametrize(
    ("value", "chosen"),
    [
        (None, ["0", "1", "2"]),
        ("4,5,6", ["4", "5", "6"]),
        ("6, 5, 4, 7", ["6", "5", "4"]),
        ("GPU-aa,MIG-bb,GPU-cc", ["GPU-aa", "MIG-bb", "GPU-cc"]),
        ("0", ["0", "0", "0"]),
        ("GPU-aa", ["GPU-aa"] * 3),
        ("", [""] * 3),
        ("-1", ["-1"] * 3),
    ],
)
def test_a_gpu_for_each_process(value: str | None, chosen: list[str]) -> None:
    variables = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    places = [Place(rank + 3, 6, rank, 3, "host", 1, "torchrun") for rank in range(3)]
    assert [choose_gpu(place, variables) for place in places] == chosen
    once = [choose_gpu(place, {"CUDA_VISIBLE_DEVICES": gpu}) for place, gpu in zip(places, chosen, strict=True)]
    assert once == chosen, "a choice that is made again stays"


def test_fewer_gpus_than_processes() -> None:
    message = "CUDA_VISIBLE_DEVICES='4,5' shows 2 GPUs, but 3 processes run on this machine: start 2"
    for rank in range(3):
        with pytest.raises(ConfigError, match=message):
            choose_gpu(Place(rank, 3, rank, 3), {"CUDA_VISIBLE_DEVICES": "4,5"})
