"""`python -m alpha.run --gpus 2 PROGRAM`: a program as several processes of one machine, which train together.

Each process of `--gpus` finds the variables of torchrun, and each of `--cpus` those of MPI, through which processes on
CPUs talk. No process outlives the launcher, even if it is killed (on Linux).
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from math import inf
from pathlib import Path

from alpha import config
from alpha.distributed.membership.environment import GPUS, LAUNCHERS, visible_gpus
from alpha.distributed.membership.rank_watch import STOPPED
from alpha.distributed.membership.roll import Roll, name_of
from alpha.distributed.mpi_program import end_with
from alpha.errors import ConfigError
from alpha.runtime.workers import cores
from alpha.train.commands.command_line import Parser, command, positive_int

GRACE_S = 10.0  # from SIGTERM to SIGKILL, after one process has failed
SAVE_S = 30.0  # from SIGINT to SIGKILL, after Ctrl-C
AGAIN_S = 0.5  # a SIGINT sooner after the first is the same Ctrl-C, which a program around this one has passed on
ENDED_AS_ASKED = (0, STOPPED, -signal.SIGINT)


@command("alpha-run")
def main(arguments: list[str] | None = None) -> int:
    parser = Parser(
        prog="alpha-run",
        usage="python -m alpha.run (--gpus N | --cpus N) [-m] PROGRAM [ARGUMENT ...]",
        description="Run a program as N processes on this machine, which train together. When one of them fails, the "
        "others are stopped, and the exit status is that of the one that failed first.",
        allow_abbrev=False,
    )
    many = parser.add_mutually_exclusive_group(required=True)
    many.add_argument("--gpus", type=positive_int, metavar="N", help="one process for each of N GPUs")
    many.add_argument(
        "--cpus", type=positive_int, metavar="N", help="N processes on CPUs by mpiexec (pip install mpi4py mpich)"
    )
    parser.add_argument("-m", action="store_true", dest="module", help="PROGRAM is the name of a module")
    parser.add_argument("program", metavar="PROGRAM", help="a Python program, or with -m a module")
    parser.add_argument("arguments", nargs="...", metavar="ARGUMENT", help="arguments of the program")
    args = parser.parse_args(arguments)
    if os.name != "posix":
        raise ConfigError("several processes need Linux or macOS: run the program itself, in one process")
    if not args.module and not Path(args.program).exists():
        raise ConfigError(f"{args.program}: there is no such program (-m before it runs a module)")
    program = [*(["-m"] if args.module else []), args.program, *args.arguments]
    return run_together(on_gpus(args.gpus, program) if args.gpus else on_cpus(args.cpus, program))


@dataclass(frozen=True)
class Command:
    """A process to start: its name in messages, its command, and all of its variables."""

    name: str
    words: list[str]
    variables: dict[str, str]


def on_gpus(count: int, program: list[str]) -> list[Command]:
    """The processes of a program on GPUs, with torchrun's variables.

    Raises:
        ConfigError: fewer GPUs are visible, as far as that can be known.
    """
    gpus = number_of_gpus(os.environ)
    if gpus is not None and gpus < count:
        shown = f"{GPUS}={os.environ[GPUS]!r} shows" if GPUS in os.environ else "nvidia-smi lists"
        raise ConfigError(f"--gpus {count}: {shown} {gpus}; use {f'--gpus {gpus}' if gpus else f'--cpus {count}'}")
    port = str(free_port())
    return [
        Command(
            f"rank {rank}",
            [sys.executable, *program],
            {
                **os.environ,
                **dict(zip(LAUNCHERS["torchrun"], map(str, (rank, count, rank, count)), strict=True)),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            },
        )
        for rank in range(count)
    ]


def number_of_gpus(variables: Mapping[str, str]) -> int | None:
    """Number of GPUs that CUDA_VISIBLE_DEVICES names or else nvidia-smi lists; None if neither says it."""
    if config.CUDA_DRIVER.get() == "emulated":
        return None  # each process emulates one
    visible = visible_gpus(variables)
    if visible is not None:
        return len(visible)
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return None if listed.returncode else sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def on_cpus(count: int, program: list[str]) -> list[Command]:
    """The command of MPI that starts the processes of a program; each takes its share of the cores.

    Raises:
        ConfigError: MPI or mpi4py is not installed.
    """
    beside = str(Path(sys.executable).parent)
    mpiexec = shutil.which("mpiexec", path=beside) or shutil.which("mpiexec")
    missing = [name for name, there in (("mpiexec", mpiexec), ("mpi4py", find_spec("mpi4py"))) if not there]
    if not mpiexec or missing:
        raise ConfigError(f"--cpus {count} needs {' and '.join(missing)}, not found here: `pip install mpi4py mpich`")
    others = (*LAUNCHERS["torchrun"], "MASTER_ADDR", "MASTER_PORT")  # which would come before those of MPI
    variables = {name: value for name, value in os.environ.items() if name not in others}
    variables[GPUS] = ""  # so that device="auto" is the cpu
    variables.setdefault(config.CPU_THREADS.name, str(max(1, cores() // count)))
    start = [sys.executable, "-m", "alpha.distributed.mpi_program", "--launcher", name_of(os.getpid())]
    words = [mpiexec, "-n", str(count), *start, *program]
    return [Command("mpiexec", words, variables)]


def run_together(commands: list[Command], grace: float = GRACE_S, save: float = SAVE_S) -> int:
    """Start processes, wait for them, and return 0, the status of the first that failed, or 128 + the signal that came.

    Args:
        grace: seconds from SIGTERM to SIGKILL for the others when one has failed.
        save: seconds from SIGINT to SIGKILL for all when Ctrl-C or SIGTERM came.
    """
    group = _Group(grace, save)
    with _signals() as wait:
        try:
            for one in commands:
                group.start(one)
            while group.running:
                for number in wait(group.seconds_left(), group.roll.files):
                    group.heed(number)
                group.roll.look()
                group.collect()
                if group.seconds_left() == 0:
                    group.kill()
        finally:
            group.kill()
            for process in group.running.values():
                process.wait()
            group.roll.close()
    return group.status


@dataclass
class _Group:
    """Processes that end together, each in a session of its own, so that Ctrl-C reaches the launcher alone.

    Attributes:
        running: the processes that have not ended, by their names.
        status: that of the launcher; not 0 as soon as one has failed, or a signal asked for the end.
        deadline: when those that run are killed.
        asked: when a signal asked for the end.
        roll: the ranks of MPI's launcher, which is one process here.
    """

    grace: float
    save: float
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    status: int = 0
    deadline: float = inf
    asked: float = -inf
    roll: Roll = field(default_factory=Roll)

    def start(self, one: Command) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of fork beside threads: BLAS has some, which are idle
            self.running[one.name] = subprocess.Popen(
                one.words,
                env=one.variables,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=partial(end_with, os.getpid()),
            )

    def seconds_left(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    def heed(self, number: int) -> None:
        """Answer a signal that the launcher got: pass it on once as SIGINT; kill all at a Ctrl-C that comes later."""
        now = time.monotonic()
        if number == signal.SIGCHLD:
            return
        if not self.status:
            self.status, self.asked, self.deadline = 128 + number, now, now + self.save
            _say(f"{_named(number)}: waits up to {self.save:g} s for the program to end, a Ctrl-C from now on kills it")
            self._send(signal.SIGINT)
        elif number == signal.SIGINT and now - self.asked > AGAIN_S:
            self.deadline = now

    def collect(self) -> None:
        """Take out the processes that have ended; the first that failed ends the others."""
        for name, process in list(self.running.items()):
            code = process.poll()
            if code is None:
                continue
            del self.running[name]
            if code or self.status:
                _kill_session(process)
            if self.status:
                if self.deadline < inf and self.asked > -inf and code not in ENDED_AS_ASKED:
                    _say(f"{name} {_how(code)} after it was asked to end")
            elif code:
                self.status = self.roll.status or (code if code > 0 else 128 - code)
                self.deadline = time.monotonic() + self.grace
                rest = f"; the others get SIGTERM, and SIGKILL after {self.grace:g} s" if self.running else ""
                _say(f"{name} {_how(code)}{rest}{_gone(self.roll.gone)}")
                self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the processes that run, and those that they have started."""
        self.deadline = inf
        if self.running:
            _say(f"kills {', '.join(self.running)}")
        for process in self.running.values():
            _kill_session(process)

    def _send(self, number: signal.Signals) -> None:
        for process in self.running.values():
            process.send_signal(number)


@contextmanager
def _signals() -> Iterator[Callable[[float, list[int]], list[int]]]:
    """Function that waits, at most some seconds, for signals that ask for the end or tell that a child has ended.

    It waits no longer if one of the files that it is given can be read.

    Signals that this process ignores stay ignored, as SIGHUP under nohup; its children get a SIGINT of their own.
    """
    ignored = {n for n in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT) if signal.getsignal(n) == signal.SIG_IGN}
    numbers = {signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD} - ignored | {signal.SIGINT}  # a handler is not inherited
    reads, writes = socket.socketpair()
    reads.setblocking(False)
    writes.setblocking(False)

    def wait(seconds: float, files: list[int]) -> list[int]:
        own = reads.fileno()
        if own not in select.select([own, *files], [], [], None if seconds == inf else seconds)[0]:
            return []
        return [number for number in reads.recv(4096) if number not in ignored]  # a byte for each signal

    wakeup = signal.set_wakeup_fd(writes.fileno(), warn_on_full_buffer=False)
    before = {number: signal.signal(number, _nothing) for number in numbers}
    try:
        yield wait
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        signal.set_wakeup_fd(wakeup)
        reads.close()
        writes.close()


def _nothing(*_: object) -> None:
    """Let a signal do nothing but wake what waits."""


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):  # it is empty, or a zombie (macOS)
        os.killpg(process.pid, signal.SIGKILL)


def _say(text: str) -> None:
    with suppress(OSError):  # a terminal that is gone must not keep the processes from being stopped
        print(f"alpha-run: {text}", file=sys.stderr, flush=True)


def _named(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _gone(rank: int | None) -> str:
    """Name the rank of MPI that was gone first, if one was."""
    if rank is None:
        return ""
    return f"; rank {rank} was gone first, without an error: killed, crashed in C, or ended by os._exit"


def _how(code: int) -> str:
    return f"ended with status {code}" if code >= 0 else f"was ended by {_named(-code)}"


if __name__ == "__main__":
    sys.exit(main())
