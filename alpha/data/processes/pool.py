"""Worker processes of a loader, as their parent sees them: their tasks, what they hand over, and how they end."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np

from alpha.data.batch_threads import named
from alpha.data.dataset import get_worker_info
from alpha.data.processes.worker import Done, Failed, Grow, Job, Ready, Slot, Task, places_of, work
from alpha.errors import DataError

GRACE_S = 5.0  # for a process that was told to end
_MEMORY = Path("/dev/shm")  # where Linux has shared memory
_THREADS = ", or use threads: leave multiprocessing_context out"
_GUARD = (
    'a spawned process imports the program, so what the program does must stand below `if __name__ == "__main__":`, '
    "and its classes and functions above"
)
_HINTS = {
    "SIGKILL": "; perhaps the system ran out of memory",
    "SIGBUS": "; perhaps the shared memory, /dev/shm, is full (docker run --shm-size sets its size)",
}


class WorkerTraceback(Exception):
    """The traceback, as text, of an exception in a worker process; the cause of the exception that is raised here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"in a worker process\n\n{self.text}"


class _Worker:
    """A worker process, its channel and its slots of shared memory.

    Attributes:
        tasks: that it has and whose batches were not taken yet, in order.
        made: how many of these are done.
        ready: True when it has its dataset.
    """

    def __init__(self, number: int, count: int, seed: int, depth: int) -> None:
        self.number, self.ready, self.made = number, False, 0
        self.tasks: deque[Task] = deque()
        self.slots: list[SharedMemory | None] = [None] * depth
        self._named: dict[int, SharedMemory] = {}  # slots that still have a name, by which the worker opens them
        self.channel, other = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        name, arguments = f"alpha-worker-{number}", (other, number, count, depth, seed)
        self.process: BaseProcess = context.Process(target=work, args=arguments, name=name, daemon=True)
        try:
            with _no_interrupt():
                self.process.start()
        except BaseException:
            self.channel.close()
            raise
        finally:
            other.close()  # so that the channel ends with the process

    def send(self, message: Any) -> None:
        """Send a message, or the bytes of one that was pickled."""
        try:
            self.channel.send_bytes(message) if isinstance(message, bytes) else self.channel.send(message)
        except OSError as error:
            raise self.death() from error

    def __str__(self) -> str:
        return f"worker process {self.number} (pid {self.process.pid})"

    @property
    def doing(self) -> str:
        """The batch that it makes, in words; empty if it makes none."""
        return named(self.tasks[self.made].indices) if self.ready and len(self.tasks) > self.made else ""

    def death(self) -> DataError:
        """The error that says how the process ended."""
        self.process.join(GRACE_S)
        code = self.process.exitcode
        if code is None:
            how = "does not answer"
        elif code < 0:
            name = next((each.name for each in signal.Signals if each == -code), "unknown")
            how = f"was ended by signal {-code} ({name}){_HINTS.get(name, '')}"
        else:
            how = f"ended with exit code {code}"
        if not self.ready:
            how += f", before it had the dataset; what it printed is above; {_GUARD}{_THREADS}"
        elif self.doing:
            how += f", while it made {self.doing}"
        return DataError(f"DataLoader: {self} {how}")

    def grow(self, place: int, size: int) -> None:
        """Give the worker a slot of at least this size."""
        held, self.slots[place] = self.slots[place], None
        if held is not None:
            held.close()
        memory = _shared(size + size // 4)
        self.slots[place] = self._named[place] = memory
        self.send(Slot(place, memory.name))

    def opened(self, place: int) -> None:
        """Take the name of a slot, which the worker has opened: nothing then stays behind, however the program ends."""
        memory = self._named.pop(place, None)
        if memory is not None:
            memory.unlink()

    def taken(self, done: Done) -> Any:
        """The batch that lies in a slot, copied."""
        memory: Any = self.slots[done.place]
        sizes = np.frombuffer(memory.buf, np.int64, done.parts).copy()
        parts: list[Any] = [
            np.frombuffer(memory.buf, np.uint8, size, begin).copy()
            for begin, size in zip(places_of(sizes).tolist(), sizes.tolist(), strict=False)
        ]
        return pickle.loads(parts[0], buffers=parts[1:])

    def tell_to_end(self) -> None:
        """Close the channel, at which an idle worker ends by itself, and end a busy one."""
        with suppress(OSError):
            self.channel.close()
        if self.tasks or not self.ready:
            self.process.terminate()

    def end(self) -> None:
        """Wait until the process has ended, and give its memory back."""
        self.process.join(GRACE_S)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        for place in list(self._named):
            self.opened(place)
        for memory in filter(None, self.slots):
            memory.close()
        self.slots = []


class Pool:
    """Worker processes that have one dataset.

    Args:
        job: what they need for all batches.
        count: how many processes.
        depth: batches that each of them is given at once.
        seed: from which their own seeds follow.

    Raises:
        DataError: the dataset cannot be pickled, or this process is a worker itself, or is being spawned.
    """

    def __init__(self, job: Job, count: int, depth: int, seed: int) -> None:
        if get_worker_info() is not None:
            raise DataError("DataLoader: a worker process cannot start worker processes; use threads there")
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise DataError(f"DataLoader: worker processes are started while a spawned process begins; {_GUARD}")
        pickled = _pickled(job)
        self.job, self.count, self._depth = job, count, depth
        self._workers: list[_Worker] = []
        self.close = weakref.finalize(self, _end, self._workers, os.getpid())  # also at the end of the program
        try:
            for number in range(count):
                self._workers.append(_Worker(number, count, (seed + number) % 2**63, depth))
            for worker in self._workers:
                worker.send(pickled)
        except BaseException:
            self.close()
            raise

    @property
    def idle(self) -> bool:
        """True if all workers wait for tasks."""
        return self.close.alive and not any(worker.tasks or not worker.process.is_alive() for worker in self._workers)

    def batches(self, tasks: Iterator[Task], timeout: Callable[[], float]) -> Generator[Any, None, None]:
        """The batch of each task, in order; after `timeout()` seconds without one, if that is not 0, an error.

        An exception of a worker is raised in place of its batch, with a `WorkerTraceback` as its cause.
        """
        order: deque[tuple[Task, _Worker]] = deque()
        results: dict[int, Done | Failed] = {}

        def ask() -> None:
            while len((free := min(self._workers, key=lambda worker: len(worker.tasks))).tasks) < self._depth:
                task = next(tasks, None)
                if task is None:
                    return
                free.tasks.append(task)
                order.append((task, free))
                free.send(task)

        ask()
        while order:
            task, worker = order.popleft()
            until = time.monotonic() + timeout() if timeout() else None
            while task.number not in results:
                if not self._listen(results, until):
                    doing = f"makes {worker.doing}" if worker.ready else "is still being started"
                    raise DataError(
                        f"DataLoader: no batch in {timeout():g} seconds; {worker} {doing}; timeout=0 waits for ever"
                    )
            result = results.pop(task.number)
            worker.tasks.popleft()
            worker.made -= 1
            if isinstance(result, Failed):
                _raise(result, worker)
            else:
                batch = worker.taken(result)
                ask()
                yield batch
                del batch

    def _listen(self, results: dict[int, Done | Failed], until: float | None) -> bool:
        """Take what the workers say; False if they say nothing until that time.

        Raises:
            DataError: one of them has ended.
        """
        sources: dict[Any, _Worker] = {}
        for worker in self._workers:
            sources[worker.channel] = sources[worker.process.sentinel] = worker
        left = None if until is None else max(0.0, until - time.monotonic())
        found = connection.wait(list(sources), left)
        for worker in {sources[source].number: sources[source] for source in found}.values():
            heard = False
            try:
                while worker.channel.poll():
                    heard = True
                    self._hear(worker, worker.channel.recv(), results)
            except (EOFError, OSError):
                heard = False
            if not heard:
                raise worker.death()
        return bool(found)

    def _hear(self, worker: _Worker, message: Any, results: dict[int, Done | Failed]) -> None:
        if isinstance(message, Ready):
            worker.ready = True
        elif isinstance(message, Grow):
            worker.grow(*message)
        elif message.number >= 0:
            if isinstance(message, Done):
                worker.opened(message.place)
            results[message.number] = message
            worker.made += 1
        elif message.number == -2:
            _raise(message, worker)
        else:
            main = "__main__" in message.kind or "__mp_main__" in message.kind
            raise DataError(
                f"DataLoader: {worker} cannot unpack the dataset: {message.kind}; "
                f"{_GUARD if main else 'what it is made of must be importable there'}"
                f"{'; what is typed in, as in a notebook, must be in a module' if main else ''}{_THREADS}"
            ) from WorkerTraceback(message.text)


def _raise(failed: Failed, worker: _Worker) -> None:
    error = None if failed.pickled is None else pickle.loads(failed.pickled)
    if not isinstance(error, Exception):
        error = DataError(f"DataLoader: {worker}: {failed.kind}")
    raise error from WorkerTraceback(failed.text)


def _end(workers: list[_Worker], owner: int) -> None:
    if os.getpid() != owner:  # a forked child has no part in them
        return
    for worker in workers:
        worker.tell_to_end()
    for worker in workers:
        worker.end()


def _pickled(job: Job) -> bytes:
    try:
        return pickle.dumps(job, protocol=5)
    except Exception as error:
        for name, value in zip(("the dataset", "collate_fn", "worker_init_fn"), job, strict=True):
            try:
                pickle.dumps(value, protocol=5)
            except Exception as reason:
                raise DataError(
                    f"DataLoader: {name} ({type(value).__name__}) cannot be sent to worker processes: {reason}; a "
                    "function in it must be defined by its name in a module, not as a lambda or within a function"
                    f"{_THREADS}"
                ) from reason
        raise DataError(f"DataLoader: the dataset cannot be sent to worker processes: {error}") from error


def _shared(size: int) -> SharedMemory:
    """Shared memory of at least this size, which is there: without room a process that writes to it would be killed."""
    memory = SharedMemory(create=True, size=size)
    try:
        path = _MEMORY / memory.name
        if hasattr(os, "posix_fallocate") and path.exists():
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        memory.close()
        memory.unlink()
        free = shutil.disk_usage(_MEMORY).free
        raise DataError(
            f"DataLoader: a batch needs {size:,} bytes of shared memory, and {_MEMORY} has {free:,} bytes free; use "
            f"fewer workers or smaller batches, set its size by docker run --shm-size{_THREADS}"
        ) from error
    return memory


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Context in which Ctrl-C is held back, in the processes that are started, too, until they let it through."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
