"""A training that ends itself at a chosen moment, and goes on when it is started again; see killed_runs.py.

python -c "import killed_training; killed_training.main()" FOLDER --place file --number 30 --how SIGKILL
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import alpha
from alpha import nn, transforms
from alpha.data import DataLoader, Dataset
from alpha.data.processes import pool
from alpha.errors import DataError
from alpha.train import Callback, EarlyStopping, JsonLines, KeepWeights, Run, Trainer

EPOCHS, STEPS, BATCH = 4, 5, 4  # the last batch of an epoch has 2 images
IMAGES = STEPS * BATCH - 2
PLACES = ("step", "file", "callback", "item", "worker")
PER_EPOCH = {"step": STEPS, "file": 140, "callback": 7, "item": 6, "worker": 10}  # moments of each place, about
HOW = ("SIGKILL", "SIGINT", "WORKER")  # the last one kills a worker process, as a system without memory does


class Killer:
    """Sends this process, or a worker, a signal when the moment of this number, of those at one place, has come."""

    def __init__(self, place: str, number: int, how: str) -> None:
        self.place, self.left, self.how = place, number, how
        self._lock = threading.Lock()

    def __call__(self, place: str) -> None:
        if place != self.place:
            return
        with self._lock:
            self.left -= 1
            if self.left == 0:
                self._act()

    def _act(self) -> None:
        if self.how == "WORKER":
            for worker in multiprocessing.active_children()[:1]:
                worker.kill()
        else:
            os.kill(os.getpid(), getattr(signal, self.how))


class Images(Dataset[Any]):
    """Images of two classes whose noise is drawn from Alpha's random numbers."""

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> tuple[Any, int]:
        noise = alpha.rand(8, 8, 3).numpy() * 160
        noise[:, :, index % 2] += 60
        return noise.astype(np.uint8), index % 2


class Watched(Images):
    """The same images, of which each is a moment."""

    def __init__(self, moment: Callable[[str], None]) -> None:
        self._moment = moment

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[Any, int]:
        self._moment("item")
        return super().__getitem__(index)


class Schedule(alpha.optim.CosineAnnealingLR):
    """A cosine, of which each step is a moment."""

    moment: Callable[[str], None] = staticmethod(lambda place: None)

    def step(self, *arguments: Any) -> None:
        self.moment("step")
        super().step(*arguments)


class Moments(Callback):
    """A callback of which each call is a moment."""

    def __init__(self, name: str, moment: Callable[[str], None]) -> None:
        self.name = name
        self._moment = moment

    def on_start(self, fit: Any) -> None:
        self._moment("callback")

    def on_steps(self, fit: Any, step: int, loss: float) -> None:
        self._moment("callback")

    def on_epoch(self, fit: Any) -> None:
        self._moment("callback")

    def on_end(self, fit: Any) -> None:
        self._moment("callback")

    def state_dict(self) -> dict[str, Any]:
        self._moment("callback")
        return {}


class _File(io.FileIO):
    """A file that is written in two halves."""

    moment: Callable[[str], None] = staticmethod(lambda place: None)

    def write(self, data: Any) -> int:
        whole = memoryview(data).cast("B")
        for part in (whole[: len(whole) // 2], whole[len(whole) // 2 :]):
            while len(part):
                part = part[super().write(part) :]
            self.moment("file")
        return len(whole)


def watch_files(folder: Path, moment: Callable[[str], None]) -> None:
    """Make each call of the system for a file in the folder, and each half of what is written, a moment."""
    fsync, write, fdopen = os.fsync, os.write, os.fdopen

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("os.truncate", "fcntl.flock") or (
            event in ("open", "os.rename", "os.remove", "os.mkdir", "os.scandir")
            and str(arguments[0]).startswith(str(folder))
        ):
            moment("file")

    def synced(descriptor: int) -> None:
        moment("file")
        fsync(descriptor)

    def written(descriptor: int, data: Any) -> int:
        moment("file")
        return write(descriptor, data)

    def opened(descriptor: int, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        return _File(descriptor, "w") if mode == "wb" else fdopen(descriptor, mode, *arguments, **options)

    _File.moment = staticmethod(moment)
    os.fsync, os.write, os.fdopen = synced, written, opened  # type: ignore[assignment]
    sys.addaudithook(audit)


def watch_workers(log: Path, moment: Callable[[str], None]) -> None:
    """Make each message to a worker, and each piece of shared memory, a moment; note the names of the latter."""
    make, send = pool._shared, pool._Worker.send
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    write = os.write

    def made(size: int) -> Any:
        memory = make(size)
        write(descriptor, f"{memory.name}\n".encode())
        moment("worker")
        return memory

    def sent(worker: Any, message: Any) -> None:
        moment("worker")
        send(worker, message)

    pool._shared, pool._Worker.send = made, sent  # type: ignore[method-assign]


def build(device: str) -> Trainer:
    """A trainer of everything that a run has to save."""
    alpha.manual_seed(3)
    head = [nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(144, 2)]
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), *head).to(device)
    optimizer = alpha.optim.AdamW(model.parameters(), lr=0.02)
    options: dict[str, Any] = {"ema": 0.8, "accumulate": 2, "clip_norm": 1.0}
    schedule = Schedule(optimizer, EPOCHS * STEPS)
    trainer = Trainer(model, optimizer, device, schedule=schedule, capture=device == "cuda", **options)
    mix = [transforms.RandomCrop(8, padding=1), transforms.RandomHorizontalFlip(), transforms.MixUp(num_classes=2)]
    trainer.augment = transforms.Compose(mix)
    return trainer


def train(folder: Path, device: str, processes: bool, epochs: int, moment: Callable[[str], None]) -> None:
    """Begin the run in the folder, or go on with it, until so many epochs are done."""
    resumed = (folder / "checkpoint.safetensors").exists()
    run = Run.resume(folder) if resumed else Run.start({"device": device}, folder, folder, overwrite=True)
    trainer = build(device)
    Schedule.moment = staticmethod(moment)
    if resumed:
        run.restore(trainer)
    options: dict[str, Any] = {"multiprocessing_context": "spawn", "persistent_workers": True} if processes else {}
    train_loader = DataLoader(Images(), BATCH, shuffle=True, num_workers=2, **options)
    callbacks: Sequence[Callback] = [
        Moments("first", moment),
        EarlyStopping(patience=2 * EPOCHS),
        KeepWeights(best=1, last=1),
        JsonLines(folder / "history.jsonl"),
        Moments("last", moment),
    ]
    trainer.fit(train_loader, DataLoader(Watched(moment), 4), epochs, run=run, callbacks=callbacks, show=None)
    run.close()


def main() -> None:
    """Train, and end at the moment that the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", action="store_true", help="instead of worker processes")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--place", choices=PLACES, default="step")
    parser.add_argument("--number", type=int, default=0, help="of the moment at that place; 0 is none")
    parser.add_argument("--how", choices=HOW, default="SIGKILL")
    parser.add_argument("--log", type=Path, required=True, help="gets the names of shared memory")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background may ignore it
    moment = Killer(options.place, options.number, options.how)
    watch_workers(options.log, moment)
    watch_files(options.folder, moment)
    try:
        train(options.folder, options.device, not options.threads, options.epochs, moment)
    except KeyboardInterrupt:
        sys.exit(130)
    except DataError as error:
        sys.exit(f"stopped: {error}" if options.how == "WORKER" else f"a fault: {error}")
