"""Workers of the cpu operators: split a range into cache-sized chunks over threads, one BLAS thread each.

numpy and BLAS release the interpreter lock inside their loops, so threads run in parallel; a chunk that fits the
second-level cache lets an operator of several passes read memory once.

What an operator computes must not depend on the number of workers. So its chunks follow from the shapes alone, and
partial sums are added in the order of the chunks (`sum_in_order`), never in the order in which workers finish.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from alpha import config
from alpha.runtime import fork
from alpha.runtime.blas import one_thread

CHUNK_BYTES = 1 << 18  # a chunk of each operand; several of them fit a second-level cache

T = TypeVar("T")

_NO_LIMIT = contextlib.nullcontext()
_inside = threading.local()


def count() -> int:
    """Number of workers: ALPHA_CPU_THREADS, or the cores this process may use."""
    return config.CPU_THREADS.integer() or cores()


def cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    # not on macOS and Windows: the cores of this process from Python 3.13 on, else those of the machine
    counted: Callable[[], int | None] = getattr(os, "process_cpu_count", os.cpu_count)
    return counted() or 1


class _Pools:
    """A pool of threads for each number of them; a forked child begins without, for it has no threads."""

    def __init__(self) -> None:
        self._pools: dict[int, ThreadPoolExecutor] = {}
        self._of_the_parent: list[ThreadPoolExecutor] = []  # kept: their destructor would speak to dead threads
        self._lock = fork.held_across(threading.Lock())
        fork.in_child(self._forget)

    def get(self, workers: int) -> ThreadPoolExecutor:
        with self._lock:
            if workers not in self._pools:
                self._pools[workers] = ThreadPoolExecutor(workers, thread_name_prefix="alpha-cpu")
            return self._pools[workers]

    def _forget(self) -> None:
        self._of_the_parent += self._pools.values()
        self._pools = {}


_pools = _Pools()


def parallel_for(
    length: int,
    grain: int,
    body: Callable[[int, int], object],
    *,
    blas: bool = False,
    abandon: Callable[[], object] = bool,
) -> None:
    """Call `body(start, stop)` over [0, length) in chunks of `grain`, on all workers; raises what a chunk raised.

    No chunk begins after an error. None runs any more when it returns or raises, also if an interrupt has cut it off.

    Args:
        blas: the chunks call BLAS, which then has one thread in each. Inside a chunk further calls run serially.
        abandon: is called after an error in any thread, so that chunks that wait for other chunks end.
    """
    grain = max(1, grain)
    workers = 1 if length <= grain else min(count(), -(-length // grain))
    limit = one_thread if blas else _NO_LIMIT
    if workers <= 1 or getattr(_inside, "chunk", False):
        with limit:
            for start in range(0, length, grain):
                body(start, min(start + grain, length))
        return
    errors = np.geterr()  # numpy keeps its error state by thread: chunks run under the caller's
    starts = itertools.count(0, grain)  # next() is atomic: chunks go to whoever is free

    running: list[None] = []  # as long as the workers that may be within a chunk are many
    stopped = False

    def run() -> None:
        nonlocal stopped
        _inside.chunk = True
        try:
            with np.errstate(**errors), limit:
                while not stopped and (start := next(starts)) < length:
                    body(start, min(start + grain, length))
        except BaseException:
            stopped = True
            abandon()
            raise
        finally:
            _inside.chunk = False

    def work() -> None:
        running.append(None)  # before it looks at `stopped`
        try:
            run()
        finally:
            running.pop()

    pool = _pools.get(workers - 1)
    try:
        futures = [pool.submit(work) for _ in range(workers - 1)]
        run()
        for future in futures:
            future.result()
    except BaseException:  # of one that nobody has a future of, too, because `submit` was cut off
        _inside.chunk = False
        stopped = True
        abandon()
        while running:
            time.sleep(1e-4)
        raise


def sum_in_order(length: int, part: Callable[[int], T], add: Callable[[int, T], object]) -> None:
    """`add(i, part(i))` for each i < length: the parts on all workers, the additions one by one in the order of i.

    Parts call BLAS with one thread. A part that waits for its turn holds its memory, so it is memory of its own; no
    worker gets further ahead than twice the number of workers.
    """
    ahead = 2 * count()
    ready: dict[int, T] = {}
    turn = threading.Condition()  # of what follows
    added, adding, failed = 0, False, False

    def may_begin(i: int) -> bool:
        with turn:
            turn.wait_for(lambda: failed or i < added + ahead)
            return not failed

    def add_ready() -> None:
        """Add what comes next, unless another worker is at it, who then goes on with this one's part."""
        nonlocal added, adding
        while True:
            with turn:
                if adding or added not in ready:
                    return
                adding, found = True, ready.pop(added)
            add(added, found)
            with turn:
                added, adding = added + 1, False
                turn.notify_all()

    def work(i: int, _: int) -> None:
        if not may_begin(i):
            return
        try:
            found = part(i)
            with turn:
                ready[i] = found
            del found
            add_ready()
        except BaseException:
            abandon()
            raise

    def abandon() -> None:
        nonlocal failed
        with turn:
            failed = True
            turn.notify_all()

    parallel_for(length, 1, work, blas=True, abandon=abandon)
