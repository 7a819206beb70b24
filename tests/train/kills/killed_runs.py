"""Kills a training at random moments, resumes it each time, and compares the end with a run that was never stopped.

    python tests/train/kills/killed_runs.py --kills 50 --device cpu --seed 0
    ALPHA_CUDA_DRIVER=emulated python tests/train/kills/killed_runs.py --kills 50 --device cuda
    python tests/train/kills/killed_runs.py --files 1              # each moment of writing in the first and last epoch

The training of killed_training.py is killed before or after a step, within the writing of a file, in a callback, in an
evaluation, while it hands tasks or memory to its worker processes, and from outside at any time; or it gets Ctrl-C, or
loses a worker. After each of these every file must be whole, no process and no shared memory may be left, and no more
than one part of each file. A run that was finished must have the files of one that was never stopped, bit for bit;
then the next one begins.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

sys.path += [str(Path(__file__).parents[2] / "support")]
import child
import numpy as np
from killed_training import EPOCHS, PER_EPOCH

from alpha.errors import CheckpointError
from alpha.train import Run, load_metadata, load_weights
from alpha.train.files.state_file import load_state

PROGRAM = "import killed_training; killed_training.main()"
MARK = "ALPHA_KILLED_RUN"  # a variable of all processes of a training
OUTSIDE = "outside"
KINDS = (  # place and how
    *(("file", "SIGKILL"), ("step", "SIGINT"), ("callback", "SIGKILL"), ("worker", "SIGKILL"), ("file", "SIGKILL")),
    *(("item", "SIGKILL"), ("step", "WORKER"), ("file", "SIGKILL"), ("item", "SIGINT"), (OUTSIDE, "SIGKILL")),
    *(("step", "SIGKILL"), ("file", "SIGINT"), (OUTSIDE, "SIGINT"), (OUTSIDE, "SIGKILL"), ("callback", "SIGINT")),
)
TIMES = ("seconds", "images_per_second", "live_mb")  # numbers of a row that are others in each run
PART = ".alpha-part"


class Stop(NamedTuple):
    """A way to stop a training: where, at the moment of which number, and by what."""

    place: str
    number: int
    how: str


class Runs:
    """Trainings in subfolders of one folder, on one device.

    Attributes:
        found: how often a training was stopped in which way.
        faults: texts of what was wrong.
        most_parts: parts of files that were left at most.
    """

    def __init__(self, folder: Path, device: str) -> None:
        self.folder, self.device = folder, device
        self.found: Counter[str] = Counter()
        self.faults: list[str] = []
        self.most_parts = 0
        self._count = 0

    def train(self, folder: Path, stop: Stop | None, epochs: int = EPOCHS, threads: bool = False) -> bool:
        """Begin a run or go on with it, and check what is left; True if so many epochs are done."""
        self._count += 1
        mark, log, errors = f"{os.getpid()}-{self._count}", self.folder / "log", self.folder / "errors"
        log.unlink(missing_ok=True)
        inside = stop is not None and stop.place != OUTSIDE
        command = [sys.executable, "-c", PROGRAM, str(folder), "--device", self.device, "--log", str(log)]
        command += ["--epochs", str(epochs)]
        command += ["--threads"] if threads else []
        if stop is not None and inside:
            command += ["--place", stop.place, "--number", str(stop.number), "--how", stop.how]
        env = child.environment(Path(__file__).parent, **{MARK: mark})
        with errors.open("w") as file:
            process = child.start(command, cwd=self.folder, env=env, stdout=file, stderr=subprocess.STDOUT)
            if stop is not None and not inside:
                time.sleep(stop.number / 1000)
                process.send_signal(getattr(signal, stop.how))
            child.finish(process)
        text = errors.read_text()
        self.found["ended by itself" if process.returncode == 0 else f"{stop.place}, {stop.how}" if stop else "?"] += 1
        before = len(self.faults)
        self._check_status(stop, process.returncode, text)
        self._check_nothing_runs(mark, log)
        self._check_files(folder, finished=process.returncode == 0)
        for number in range(before, len(self.faults)):
            self.faults[number] = f"{folder.name}, {stop}: {self.faults[number]}"
        return process.returncode == 0

    def _check_status(self, stop: Stop | None, status: int, text: str) -> None:
        right = {0}
        if stop is not None:
            right |= {
                "SIGKILL": {-signal.SIGKILL},
                # Python may not have begun, or be at its end, or in code that passes no exception on
                "SIGINT": {130, 1, -signal.SIGINT} if stop.place == OUTSIDE else {130},
                "WORKER": {1},
            }[stop.how]
        stopped = text.startswith("stopped: ") or "\nstopped: " in text
        if status not in right or (stop is not None and stop.how == "WORKER" and status and not stopped):
            self.faults.append(f"exit status {status}, expected one of {right}: {text[-3000:]}")

    def _check_nothing_runs(self, mark: str, log: Path) -> None:
        """Workers end when they notice that their parent is gone; then the last of them takes the memory with it."""
        for _ in range(int(child.HANG_S / 0.02)):
            left = processes(mark)
            if not left:
                break
            time.sleep(0.02)
        else:
            self.faults.append(f"processes are left: {left}")
        names = log.read_text().split() if log.exists() else []
        if names := [name for name in names if Path("/dev/shm", name).exists()]:
            self.faults.append(f"shared memory is left: {names}")

    def _check_files(self, folder: Path, finished: bool) -> None:
        parts: Counter[str] = Counter()
        saved = (folder / "checkpoint.safetensors").exists()
        for path in sorted(folder.rglob("*")) if folder.exists() else []:
            if path.is_dir():
                continue
            if path.name.endswith(PART):
                parts[path.name.partition("-")[0]] += 1
                continue
            if path.name == "run.json" and not saved and not path.stat().st_size:
                continue  # a new run was killed in the moment in which it made it
            if isinstance(found := read(path), Unreadable):
                self.faults.append(f"{path.name} cannot be read: {found.why}")
        if saved:
            try:
                Run.resume(folder).close()
            except CheckpointError as error:
                self.faults.append(f"cannot be resumed: {error}")
        self.most_parts = max(self.most_parts, parts.total())
        if parts and (finished or max(parts.values()) > 1):
            self.faults.append(f"parts of files pile up: {dict(parts)}")

    def compare(self, folder: Path, expected: dict[str, Any]) -> None:
        """Note what differs between a finished run and one that was never stopped."""
        found = contents(folder)
        for name in sorted({*found, *expected}):
            if found.get(name) != expected.get(name):
                self.faults.append(f"{folder.name}: {name} differs from that of a run that was never stopped")


def processes(mark: str) -> list[str]:
    """The processes that have this mark, with their command lines."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(f"{folder.name} {(folder / 'cmdline').read_bytes()!r}")
            except OSError:  # it has ended, or is another user's
                continue
    return found


class Unreadable(NamedTuple):
    """A file that is not whole."""

    why: str


def read(path: Path) -> Any:
    """The content of a file of a run, without what depends on time."""
    try:
        return facts_of(path)
    except (CheckpointError, ValueError, KeyError, csv.Error) as error:
        return Unreadable(repr(error))


def facts_of(path: Path) -> Any:
    """See `read`. Raises an error if the file is not whole."""
    if path.name == "checkpoint.safetensors":
        state = load_state(path)
        state["history"] = [timeless(row) for row in state["history"]]
        return flat(state)
    if path.suffix == ".safetensors":
        return flat([dict(load_weights(path)), load_metadata(path)])
    text = path.read_text()
    if path.suffix == ".csv":
        rows = [*csv.DictReader(text.splitlines(), strict=True)]
        return [timeless({name: value for name, value in row.items() if value or name}) for row in rows]
    if path.suffix == ".jsonl":
        return [timeless(json.loads(line)) for line in text.splitlines()]
    return json.loads(text)


def timeless(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in TIMES}


def flat(value: Any) -> Any:
    """The value with the dtype, the shape and the bytes of each array in its place."""
    if isinstance(value, dict):
        return {name: flat(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [flat(part) for part in value]
    return (str(value.dtype), value.shape, value.tobytes()) if isinstance(value, np.ndarray) else repr(value)


def contents(folder: Path) -> dict[str, Any]:
    """The content of each file of a run, by its place in the folder."""
    return {str(path.relative_to(folder)): read(path) for path in folder.rglob("*") if path.is_file()}


def stop_of(number: int, seed: int, milliseconds: int) -> Stop:
    """The way in which the stop of this number is done."""
    draw = random.Random(f"{seed} {number}")
    place, how = KINDS[number % len(KINDS)]
    most = milliseconds if place == OUTSIDE else round(1.6 * PER_EPOCH[place])
    return Stop(place, draw.randint(1, most), how)


def kill(folder: Path, kills: int, device: str, seed: int) -> Runs:
    """Stop trainings so often, and compare each with one that was never stopped."""
    runs = Runs(folder, device)
    if not runs.train(folder / "whole", None, threads=True) or runs.faults:
        return runs
    expected = contents(folder / "whole")
    number = done = tries = 0
    milliseconds = 2000 if device == "cpu" else 3500
    while done < kills:
        number += 1
        place = folder / f"run-{number}"
        finished = False
        while not finished:
            stop = stop_of(tries, seed, milliseconds) if done < kills else None
            finished = runs.train(place, stop)
            tries += 1
            done += not finished  # it may have come too late
        runs.compare(place, expected)
    runs.found["runs"] = number
    return runs


def kill_at_files(folder: Path, device: str, every: int) -> Runs:
    """Kill at every so many-th moment of writing in the only epoch of a run, and in the last one of another."""
    runs = Runs(folder, device)
    for epochs in (1, EPOCHS):
        name = f"{epochs}-epochs"
        begun, whole = folder / f"{name}-begun", folder / f"{name}-whole"
        runs.train(whole, None, epochs, threads=True)
        expected, number, finished = contents(whole), 1, False
        if epochs > 1:
            runs.train(begun, None, epochs - 1, threads=True)
        while not finished:
            place = folder / f"{name}-{number}"
            if begun.exists():
                shutil.copytree(begun, place)
            finished = runs.train(place, Stop("file", number, "SIGKILL"), epochs, threads=True)
            runs.train(place, None, epochs, threads=True)
            runs.compare(place, expected)
            number += every
    return runs


def main() -> int:
    """Kill, and print what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", type=int, help="in place of random moments: each n-th moment of writing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.files:
            runs = kill_at_files(Path(folder), options.device, options.files)
            what = f"moments of writing, 1 of {options.files}"
        else:
            runs = kill(Path(folder), options.kills, options.device, options.seed)
            what = f"{options.kills} stops, seed {options.seed}"
    print(f"{what}, on {options.device}: {dict(sorted(runs.found.items()))}")
    print(f"parts of files at most: {runs.most_parts}; faults: {len(runs.faults)}", *runs.faults, sep="\n")
    return int(bool(runs.faults))


if __name__ == "__main__":
    sys.exit(main())
