"""Work that a program does not wait for: files that are written, and kernels compiled, while it goes on."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable
from weakref import WeakKeyDictionary

from alpha import config
from alpha.autograd.memory_mode import get_memory_mode
from alpha.core.numerics import get_precision
from alpha.errors import DryRunError
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.step import DryRun, dry_run
from alpha.train.batches.feed import Feed


class Background:
    """Does one job at a time in a thread of its own, the newest one first.

    A job that still waits when a newer one is given is left out. So a program that gives jobs faster than they are
    done does not fall behind. The end of the process waits for the jobs.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._next: Callable[[], None] | None = None
        self._error: BaseException | None = None
        self._works = False

    def start(self, job: Callable[[], None]) -> None:
        """Do `job` soon. Raises what an earlier job raised; `job` is left out then."""
        with self._changed:
            self._raise()
            self._next = job
            if not self._works:
                self._works = True
                threading.Thread(target=self._work, name="alpha-background").start()

    def wait(self) -> None:
        """Wait until all jobs are done. Raises what one of them raised."""
        with self._changed:
            self._changed.wait_for(lambda: not self._works)
            self._raise()

    def _work(self) -> None:
        while True:
            with self._changed:
                job, self._next = self._next, None
                if job is None:
                    self._works = False
                    self._changed.notify_all()
                    return
            try:
                job()
            except BaseException as error:
                with self._changed:
                    self._error, self._next = error, None

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


class Precompiler:
    """Knows for which steps, sizes of a batch and precisions the kernels are compiled."""

    def __init__(self) -> None:
        self._done: WeakKeyDictionary[Callable[..., None], set[Hashable]] = WeakKeyDictionary()  # by the step

    def dry_runs(self, device: CudaDevice, step: Callable[..., None], feed: Feed, count: int) -> list[DryRun]:
        """Dry runs of the first `count` calls of a step, one for each size of a batch that is new."""
        runs = []
        for size, arguments in feed.examples(count).items():
            key, done = (size, get_precision(), get_memory_mode()), self._done.setdefault(step, set())
            if key not in done:
                done.add(key)
                try:
                    runs.append(dry_run(step, *arguments, gpu=device))
                except DryRunError as error:  # the kernels are compiled when they are first used
                    if config.DEBUG.flag():
                        print(f"alpha: {error}", file=sys.stderr)
        return runs
