"""A worker process of a loader: it gets the dataset once, and then makes a batch for each task."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any, NamedTuple

import numpy as np
import threadpoolctl

from alpha import config
from alpha.autograd.versions import array_of
from alpha.core import rng
from alpha.core.tensor import Tensor
from alpha.data import dataset as datasets
from alpha.data.batch_threads import Draws, Recipe, batch_of_calls, recipe_of
from alpha.data.checks import say_where
from alpha.errors import DeviceError

ALIGNMENT = 64  # bytes, of each part of a batch in shared memory
_MOST_TEXT = 1 << 14  # characters of a traceback, so that no message fills the pipe
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", config.CPU_THREADS.name)


class Job(NamedTuple):
    """Things that a worker needs for all its tasks."""

    dataset: Any
    collate_fn: Callable[[Any], Any] | None
    worker_init_fn: Callable[[int], Any] | None


class Task(NamedTuple):
    """A batch that is to be made: its number in the epoch, its indices, and what tells the epoch from others.

    `single` means that the indices are one index, whose item is handed out as it is.
    """

    number: int
    indices: Any
    single: bool
    epoch: tuple[int | None, ...]


class Slot(NamedTuple):
    """Shared memory in which a worker may put batches: the place in its list of slots, and the name."""

    place: int
    name: str


class Ready(NamedTuple):
    """The worker has its dataset."""


class Grow(NamedTuple):
    """The worker needs a slot of this many bytes at a place of its list."""

    place: int
    size: int


class Done(NamedTuple):
    """A batch lies in a slot: the sizes of its parts (parts,) int64, then these, of which the first is a pickle."""

    number: int
    place: int
    parts: int


class Failed(NamedTuple):
    """An exception took the place of a batch, or of the dataset if the number is -1; its pickle may be missing."""

    number: int
    kind: str
    pickled: bytes | None
    text: str


class WorkerInfo(NamedTuple):
    """Place of a worker process, as in PyTorch: its number, how many there are, a seed of its own, and its dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if type(value) is Tensor and isinstance(value.array, np.ndarray) and not value.requires_grad:
            return Tensor, (array_of(value),)
        return NotImplemented


def work(channel: Connection, number: int, count: int, depth: int, seed: int) -> None:
    """Make batches until the other end of the channel is closed; the body of worker `number` of `count`.

    The first message is a pickled `Job`. There are never more than `depth` tasks whose batches were not taken.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_parent, name="alpha-parent", daemon=True).start()
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"), CUDA_VISIBLE_DEVICES="")
    with suppress(EOFError, BrokenPipeError, ConnectionResetError), threadpoolctl.threadpool_limits(1):
        rng.manual_seed(seed)
        try:
            job: Job = pickle.loads(channel.recv_bytes())
        except EOFError:
            return
        except Exception as error:
            channel.send(_failure(-1, error))
            return
        try:
            datasets.worker_info = WorkerInfo(number, count, seed, job.dataset)
            if job.worker_init_fn is not None:
                job.worker_init_fn(number)
        except Exception as error:
            say_where(error, f"DataLoader: worker_init_fn({number})")
            channel.send(_failure(-2, error))
            return
        channel.send(Ready())
        _Batches(channel, job, depth).make()


def _end_with_parent() -> None:
    """End this process when its parent has ended, also one that was killed and while an item is being made."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class _Batches:
    """Batches for the tasks that come by a channel."""

    def __init__(self, channel: Connection, job: Job, depth: int) -> None:
        self._channel, self._job, self._depth = channel, job, depth
        self._recipes: dict[bool, Recipe] = {}
        self._tasks: deque[Task] = deque()
        self._slots: dict[int, SharedMemory] = {}
        self._turn = 0

    def make(self) -> None:
        while True:
            task = self._tasks.popleft() if self._tasks else self._channel.recv()
            try:
                parts = self._parts(task)
            except Exception as error:
                if isinstance(error, DeviceError):
                    say_where(error, "a worker process of a DataLoader has no GPU; it makes batches on the host")
                self._channel.send(_failure(task.number, error))
                continue
            self._put(task.number, parts)

    def _parts(self, task: Task) -> list[Any]:
        """The bytes of a batch: its pickle, and then the contents of its arrays."""
        if task.single not in self._recipes:
            self._recipes[task.single] = recipe_of(self._job.dataset, self._job.collate_fn, task.single)
        batch = batch_of_calls(self._recipes[task.single], task.number, task.indices, Draws(task.epoch))
        buffers: list[pickle.PickleBuffer] = []
        file = io.BytesIO()
        _Pickler(file, protocol=5, buffer_callback=buffers.append).dump(batch)
        return [file.getbuffer(), *[buffer.raw() for buffer in buffers]]

    def _put(self, number: int, parts: list[Any]) -> None:
        sizes = np.array([len(part) for part in parts], np.int64)
        begins = places_of(sizes)
        place, self._turn = self._turn, (self._turn + 1) % self._depth  # the slot that was taken first
        memory: Any = self._slot(place, int(begins[-1])).buf
        memory[: sizes.nbytes] = sizes.tobytes()
        for begin, part in zip(begins.tolist(), parts, strict=False):
            memory[begin : begin + len(part)] = part
        self._channel.send(Done(number, place, len(parts)))

    def _slot(self, place: int, size: int) -> SharedMemory:
        """A slot, which is made anew if it is too small. Tasks that come meanwhile wait."""
        held = self._slots.get(place)
        if held is not None and held.size >= size:
            return held
        if held is not None:
            self._slots.pop(place).close()
        self._channel.send(Grow(place, size))
        while not isinstance(message := self._channel.recv(), Slot):
            self._tasks.append(message)
        self._slots[place] = SharedMemory(message.name)
        return self._slots[place]


def places_of(sizes: Any) -> Any:
    """The places (count + 1,) at which the parts of a batch of these sizes (count,) begin, and that of the end."""
    steps = -(-np.concatenate(([sizes.nbytes], sizes)) // ALIGNMENT) * ALIGNMENT
    return np.cumsum(steps)


def _failure(number: int, error: Exception) -> Failed:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        data: bytes | None = pickle.dumps(error)
        pickle.loads(data or b"")
    except Exception:
        data = None
    if data is not None and len(data) > _MOST_TEXT:
        data = None
    return Failed(number, f"{type(error).__name__}: {str(error)[:_MOST_TEXT]}", data, text[-_MOST_TEXT:])
