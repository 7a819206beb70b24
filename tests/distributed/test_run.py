"""`python -m alpha.run`: the variables of all processes, and how they end. None is left: each would hold the output.

The programs import no Alpha, and write each line in one piece, for they share the output.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import signal
import sys
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen
from typing import Any

import child
import pytest

from alpha import run
from alpha.errors import ConfigError

SHOWS = """
import json, os, sys
names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT PMI_RANK".split()
found = {name: os.environ.get(name) for name in names}
found.update(argv=sys.argv, folder=sys.path[0], input=sys.stdin.read(), name=__name__)
found["leads"] = os.getsid(0) == os.getpid()
os.write(1, (json.dumps(found) + "\\n").encode())
"""
# a process that does what the argument of its rank says
ACTS = """
import os, signal, subprocess, sys, time
rank = int(os.environ.get("RANK", os.environ.get("PMI_RANK")))
say = lambda text: os.write(1, f"{rank} {text}\\n".encode())
act, _, value = sys.argv[1 + rank].partition("=")
def saves(number, frame):
    say(signal.Signals(number).name)
    sys.exit(int(value))
if act == "saves":
    signal.signal(signal.SIGINT, saves)
    signal.signal(signal.SIGTERM, saves)
if act == "stays":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if act == "leaves":  # a process of its own
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000000)"])
say("ready")
if act in ("status", "leaves"):
    sys.exit(int(value))
if act == "after":  # the other one is ready
    while not os.path.exists(value):
        time.sleep(0.01)
    sys.exit(4)
if act == "exits":
    os._exit(int(value))
if act == "dies":
    os.kill(os.getpid(), int(value))
while True:
    time.sleep(1000)
"""
START = """
import signal, sys
from alpha import run
signal.signal(signal.SIGINT, signal.default_int_handler)  # not ignored, as in the background of a script
run.AGAIN_S = 0
sys.exit(run.main())
"""
TOGETHER = """
import os, sys
from alpha import run
rank = lambda number: {**os.environ, "RANK": str(number)}
commands = [run.Command(f"rank {n}", [sys.executable, *sys.argv[2:]], rank(n)) for n in range(2)]
sys.exit(run.run_together(commands, **eval(sys.argv[1])))
"""
MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
HAS_MPI = MPIEXEC is not None and importlib.util.find_spec("mpi4py") is not None
needs_mpi = pytest.mark.skipif(not HAS_MPI, reason="needs MPI: pip install mpi4py mpich")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends processes with their parent")


@pytest.fixture
def acts(tmp_path: Path) -> Path:
    path = tmp_path / "acts.py"
    path.write_text(ACTS)
    return path


@pytest.fixture
def shows(tmp_path: Path) -> Path:
    path = tmp_path / "programs" / "shows.py"
    path.parent.mkdir()
    path.write_text(SHOWS)
    return path


def environment(**variables: str) -> dict[str, str]:
    """Variables of a machine on which four GPUs are visible."""
    return child.environment(CUDA_VISIBLE_DEVICES="0,1,2,3", **variables)


def launched(*words: str | Path, **options: Any) -> CompletedProcess[str]:
    command = [sys.executable, "-m", "alpha.run", *map(str, words)]
    return child.run(command, **{"env": environment(), **options})


def started(*words: str | Path, code: str = START, env: dict[str, str] | None = None) -> Popen[str]:
    command = [sys.executable, "-c", code, *map(str, words)]
    return child.start(command, env=env or environment(), stdout=PIPE, stderr=PIPE)


def wait_until_ready(process: Popen[str], count: int = 2) -> None:
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(count)]
    assert sorted(lines) == [f"{rank} ready\n" for rank in range(count)]


def together(options: dict[str, float], program: Path, *acts: str) -> CompletedProcess[str]:
    """Two processes with other waits than those of the command."""
    return child.run([sys.executable, "-c", TOGETHER, repr(options), program, *acts])


@pytest.mark.slow
def test_variables_of_all_ranks(shows: Path, tmp_path: Path) -> None:
    arguments = ["a b", "--gpus", "9", "-m", "--help", "--", "-x=1"]
    done = launched("--gpus", "3", shows, *arguments, env=environment(RANK="7", WORLD_SIZE="9"), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    found = sorted(map(json.loads, done.stdout.splitlines()), key=lambda one: one["RANK"])
    assert [(one["RANK"], one["LOCAL_RANK"]) for one in found] == [("0", "0"), ("1", "1"), ("2", "2")]
    (port,) = {one.pop("MASTER_PORT") for one in found}
    assert 1024 <= int(port) < 65536
    for one in found:
        assert (one["WORLD_SIZE"], one["LOCAL_WORLD_SIZE"], one["MASTER_ADDR"]) == ("3", "3", "127.0.0.1")
        assert one["argv"] == [str(shows), *arguments]
        assert (one["folder"], one["name"]) == (str(shows.parent), "__main__")
        assert (one["input"], one["leads"]) == ("", True)


@pytest.mark.slow
def test_a_module(shows: Path) -> None:
    done = launched("--gpus", "2", "-m", "programs.shows", "--top", "1", cwd=shows.parents[1])
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["argv"] for one in found] == [[str(shows), "--top", "1"]] * 2, done.stderr
    assert {one["folder"] for one in found} == {str(shows.parents[1])}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "status", "text"),
    [
        ("status=3", 3, "rank 1 ended with status 3"),
        (f"dies={signal.SIGSEGV:d}", 128 + signal.SIGSEGV, "rank 1 was ended by SIGSEGV"),
        (f"dies={signal.SIGKILL:d}", 128 + signal.SIGKILL, "rank 1 was ended by SIGKILL"),
        ("leaves=5", 5, "rank 1 ended with status 5"),
    ],
)
def test_a_rank_that_fails_ends_those_that_wait_for_it(acts: Path, how: str, status: int, text: str) -> None:
    done = launched("--gpus", "3", acts, "waits", how, "waits")
    assert done.returncode == status
    assert done.stderr == f"alpha-run: {text}; the others get SIGTERM, and SIGKILL after 10 s\n"


@pytest.mark.slow
def test_the_last_rank_fails_alone(acts: Path) -> None:
    done = launched("--gpus", "1", acts, "status=3")
    assert (done.returncode, done.stderr) == (3, "alpha-run: rank 0 ended with status 3\n")


@pytest.mark.slow
def test_the_others_can_save_when_a_rank_fails(acts: Path, tmp_path: Path) -> None:
    process = started("--gpus", "2", acts, "saves=7", f"after={tmp_path / 'go'}")
    wait_until_ready(process)
    (tmp_path / "go").touch()
    out, _ = child.finish(process)
    assert (process.returncode, out) == (4, "0 SIGTERM\n")


@pytest.mark.slow
def test_a_rank_that_does_not_end_is_killed(acts: Path, tmp_path: Path) -> None:
    process = started({"grace": 0.05}, acts, "stays", f"after={tmp_path / 'go'}", code=TOGETHER)
    wait_until_ready(process)
    (tmp_path / "go").touch()
    _, errors = child.finish(process)
    assert process.returncode == 4
    assert errors.splitlines() == [
        "alpha-run: rank 1 ended with status 4; the others get SIGTERM, and SIGKILL after 0.05 s",
        "alpha-run: kills rank 0",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_asks_for_the_end_reaches_all_once(acts: Path, number: signal.Signals) -> None:
    process = started("--gpus", "2", acts, "saves=0", "saves=130")
    wait_until_ready(process)
    process.send_signal(number)
    out, errors = child.finish(process)
    assert process.returncode == 128 + number
    assert sorted(out.splitlines()) == ["0 SIGINT", "1 SIGINT"]
    (line,) = errors.splitlines()
    assert line.startswith(f"alpha-run: {number.name}: waits up to 30 s")


@pytest.mark.slow
def test_a_rank_that_fails_while_it_saves_is_named(acts: Path) -> None:
    process = started("--gpus", "2", acts, "saves=0", "saves=5")
    wait_until_ready(process)
    process.send_signal(signal.SIGINT)
    _, errors = child.finish(process)
    assert process.returncode == 130
    assert errors.splitlines()[1:] == ["alpha-run: rank 1 ended with status 5 after it was asked to end"]


@pytest.mark.slow
def test_a_second_ctrl_c_kills(acts: Path) -> None:
    process = started("--gpus", "2", acts, "stays", "stays")
    wait_until_ready(process)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert "SIGINT: waits up to 30 s" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, errors = child.finish(process)
    assert (process.returncode, errors) == (130, "alpha-run: kills rank 0, rank 1\n")


def test_one_request_that_comes_twice_does_not_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler may send SIGTERM again, and a program around the launcher may pass on the Ctrl-C that it got, too."""
    group = run._Group(grace=10, save=1e6)
    group.heed(signal.SIGTERM)
    deadline = group.deadline
    monkeypatch.setattr(run, "AGAIN_S", 1e6)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        group.heed(number)
    assert (group.status, group.deadline) == (143, deadline)
    monkeypatch.setattr(run, "AGAIN_S", -1)
    group.heed(signal.SIGINT)
    assert (group.status, group.seconds_left()) == (143, 0)
    group.roll.close()


@pytest.mark.slow
def test_ranks_that_do_not_save_in_time_are_killed(acts: Path) -> None:
    process = started({"save": 0.05}, acts, "stays", "saves=130", code=TOGETHER)
    wait_until_ready(process)
    process.send_signal(signal.SIGTERM)
    out, errors = child.finish(process)
    assert (process.returncode, out) == (143, "1 SIGINT\n")
    assert errors.splitlines()[-1].startswith("alpha-run: kills rank 0")


@pytest.mark.slow
def test_a_launcher_in_the_background_ignores_ctrl_c_but_its_ranks_do_not(acts: Path) -> None:
    process = started("--gpus", "2", acts, "saves=0", "saves=0", code=START.replace("default_int_handler", "SIG_IGN"))
    wait_until_ready(process)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    out, _ = child.finish(process)
    assert process.returncode == 143
    assert sorted(out.splitlines()) == ["0 SIGINT", "1 SIGINT"]


@pytest.mark.slow
@on_linux
def test_no_rank_outlives_a_launcher_that_is_killed(acts: Path) -> None:
    process = started("--gpus", "2", acts, "stays", "stays")
    wait_until_ready(process)
    process.kill()
    child.finish(process)  # which reads until nobody can write
    assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_a_command_that_cannot_be_started_ends_those_that_have(acts: Path) -> None:
    code = TOGETHER.replace("sys.exit", "commands[1].words[0] = '/nowhere/python'; sys.exit")
    done = child.run([sys.executable, "-c", code, "{}", acts, "stays", "stays"])
    assert "FileNotFoundError" in done.stderr


def test_signals_are_left_as_they_were() -> None:
    numbers = signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD
    before = [signal.getsignal(number) for number in numbers]
    words = [sys.executable, "-c", ""]
    assert run.run_together([run.Command("rank 0", words, child.environment())]) == 0
    assert [signal.getsignal(number) for number in numbers] == before
    wakeup = signal.set_wakeup_fd(-1)
    assert wakeup == -1


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, the only one of PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ALPHA_CUDA_DRIVER", "pycuda")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("script", "gpus"),
    [
        ("echo 'GPU 0: NVIDIA A (UUID: GPU-a)'; echo '  MIG 1g Device 0: (UUID: MIG-b)'; echo 'GPU 1: NVIDIA A'", 2),
        ("echo 'No devices found.'", 0),
        ("echo 'NVIDIA-SMI has failed'; exit 9", None),
        (None, None),
    ],
)
def test_gpus_of_the_machine(on_path: Path, script: str | None, gpus: int | None) -> None:
    if script is not None:
        (on_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (on_path / "nvidia-smi").chmod(0o755)
    assert run.number_of_gpus({}) == gpus
    assert run.number_of_gpus({"CUDA_VISIBLE_DEVICES": "5"}) == 1
    if gpus is None:
        assert len(run.on_gpus(5, ["program.py"])) == 5
        return
    advice = "--gpus 2" if gpus else "--cpus 3"
    with pytest.raises(ConfigError, match=f"^--gpus 3: nvidia-smi lists {gpus}; use {advice}$"):
        run.on_gpus(3, ["program.py"])


def test_the_emulated_driver_needs_no_gpu(on_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHA_CUDA_DRIVER", "emulated")
    assert run.number_of_gpus({"CUDA_VISIBLE_DEVICES": ""}) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--gpus", "5"], "--gpus 5: CUDA_VISIBLE_DEVICES='0,1,2,3' shows 4; use --gpus 4"),
        (["--gpus", "0"], "argument --gpus: 0 is not 1 or more (--help lists the options)"),
        (
            ["--gpus", "2", "--cpus", "2"],
            "argument --cpus: not allowed with argument --gpus (--help lists the options)",
        ),
        ([], "one of the arguments --gpus --cpus is required (--help lists the options)"),
    ],
)
def test_wrong_numbers(shows: Path, words: list[str], text: str) -> None:
    done = launched(*words, shows, env=environment(ALPHA_CUDA_DRIVER="pycuda"))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"alpha-run: {text}\n")


def test_a_program_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--gpus", "2", "nowhere.py"]) == 2
    assert capsys.readouterr().err == "alpha-run: nowhere.py: there is no such program (-m before it runs a module)\n"


def test_the_help_fits_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        run.main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("usage: python -m alpha.run ")
    assert max(map(len, lines)) < 80


def test_cpus_without_mpi(on_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(on_path / "python"))
    monkeypatch.setattr(run, "find_spec", lambda name: None)
    text = "^--cpus 2 needs {}, not found here: `pip install mpi4py mpich`$"
    with pytest.raises(ConfigError, match=text.format("mpiexec and mpi4py")):
        run.on_cpus(2, ["program.py"])
    (on_path / "mpiexec").write_text("#!/bin/sh\n")
    (on_path / "mpiexec").chmod(0o755)
    with pytest.raises(ConfigError, match=text.format("mpi4py")):
        run.on_cpus(2, ["program.py"])


def test_processes_share_the_cores(on_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "find_spec", lambda name: True)
    monkeypatch.setattr(run, "cores", lambda: 8)
    for name in ("RANK", "MASTER_ADDR"):
        monkeypatch.setenv(name, "5")
    monkeypatch.delenv("ALPHA_CPU_THREADS", raising=False)
    (on_path / "mpiexec").write_text("#!/bin/sh\n")
    (on_path / "mpiexec").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(on_path / "python"))
    for count, threads in ((1, "8"), (3, "2"), (9, "1")):
        (one,) = run.on_cpus(count, ["-m", "program"])
        assert one.words[:3] == [str(on_path / "mpiexec"), "-n", str(count)]
        assert one.words[-2:] == ["-m", "program"]
        assert one.variables["ALPHA_CPU_THREADS"] == threads
        assert not {"RANK", "MASTER_ADDR"} & set(one.variables), "of another launcher, and before those of MPI"
    monkeypatch.setenv("ALPHA_CPU_THREADS", "4")
    assert run.on_cpus(2, ["program.py"])[0].variables["ALPHA_CPU_THREADS"] == "4"


@pytest.mark.slow
@needs_mpi
def test_cpus(shows: Path, tmp_path: Path) -> None:
    done = launched("--cpus", "2", shows, "--gpus", "-m", env=environment(RANK="7", WORLD_SIZE="9"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = sorted(map(json.loads, done.stdout.splitlines()), key=lambda one: str(one["PMI_RANK"]))
    assert len(found) == 2
    for one in found:
        assert (one["RANK"], one["argv"]) == (None, [str(shows), "--gpus", "-m"])
        assert (one["folder"], one["name"], one["input"]) == (str(shows.parent), "__main__", "")


@pytest.mark.slow
@needs_mpi
def test_a_module_on_cpus(shows: Path) -> None:
    done = launched("--cpus", "2", "-m", "programs.shows", "x", cwd=shows.parents[1])
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["argv"] for one in found] == [[str(shows), "x"]] * 2, done.stderr
    assert {(one["folder"], one["name"]) for one in found} == {(str(shows.parents[1]), "__main__")}


@pytest.mark.slow
@needs_mpi
def test_a_rank_that_fails_on_cpus(acts: Path) -> None:
    done = launched("--cpus", "2", acts, "stays", "status=3")
    assert done.returncode == 3
    assert "alpha-run: rank 1 ended with status 3\n" in done.stderr
    assert "alpha-run: mpiexec ended with status 3\n" in done.stderr, "it has told its rank itself"


@pytest.mark.slow
@needs_mpi
@on_linux
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("how", [f"dies={signal.SIGKILL:d}", f"dies={signal.SIGSEGV:d}", "exits=7"])
def test_a_rank_that_dies_on_cpus_is_named(acts: Path, how: str, rank: int) -> None:
    others = ["stays", "stays"]
    done = launched("--cpus", "3", acts, *others[:rank], how, *others[rank:])
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("alpha-run: mpiexec ")]
    assert line.endswith(f"; rank {rank} was gone first, without an error: killed, crashed in C, or ended by os._exit")


@pytest.mark.slow
@needs_mpi
@pytest.mark.parametrize("statuses", [(0, 0), (130, 0)])
def test_ctrl_c_on_cpus(acts: Path, statuses: tuple[int, int]) -> None:
    if "HYDRA" not in child.run([str(MPIEXEC), "--version"]).stdout:
        pytest.skip("the mpiexec of MPICH alone passes SIGINT on")
    process = started("--cpus", "2", acts, *(f"saves={status}" for status in statuses))
    wait_until_ready(process)
    process.send_signal(signal.SIGINT)
    out, errors = child.finish(process)
    assert process.returncode == 130, errors
    assert sorted(line for line in out.splitlines() if "SIGINT" in line) == ["0 SIGINT", "1 SIGINT"]


@pytest.mark.slow
@needs_mpi
@on_linux
def test_no_rank_on_cpus_outlives_a_launcher_that_is_killed(acts: Path) -> None:
    process = started("--cpus", "2", acts, "stays", "stays")
    wait_until_ready(process)
    process.kill()
    child.finish(process)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
@needs_mpi
def test_another_mpi_than_that_of_mpi4py(shows: Path) -> None:
    variables = {f"OMPI_COMM_WORLD_{name}": value for name, value in zip(("RANK", "SIZE"), "02", strict=True)}
    local = {"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    command = [sys.executable, "-m", "alpha.distributed.mpi_program", shows]
    done = child.run(command, env=child.environment(**variables, **local))
    assert (done.returncode, done.stdout) == (1, "")
    assert "mpiexec has started 2 processes, but mpi4py finds 1: they belong to different libraries" in done.stderr
