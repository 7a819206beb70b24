"""Workers of the cpu operators: split a range into cache-sized chunks over threads, one BLAS thread each.

numpy and BLAS release the interpreter lock inside their loops, so threads run in parallel; a chunk that fits the
second-level cache lets an operator of several passes read memory once.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import threadpoolctl

from alpha import config
from alpha.errors import ConfigError

CHUNK_BYTES = 1 << 18  # a chunk of each operand; several of them fit a second-level cache

_inside = threading.local()


def count() -> int:
    """How many workers run: ALPHA_CPU_THREADS, or the cores this process may use."""
    wanted = config.CPU_THREADS.integer()
    if wanted < 0:
        raise ConfigError(f"ALPHA_CPU_THREADS={wanted} is negative")
    return wanted or len(os.sched_getaffinity(0))


@functools.cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="alpha-cpu")


@functools.cache
def _blas() -> threadpoolctl.ThreadpoolController:
    return threadpoolctl.ThreadpoolController()


def parallel_for(length: int, grain: int, body: Callable[[int, int], object]) -> None:
    """Call `body(start, stop)` over [0, length) in chunks of `grain`, on all workers; raises what a chunk raised.

    Inside a chunk further calls run serially.
    """
    grain = max(1, grain)
    workers = min(count(), -(-length // grain))
    if workers <= 1 or getattr(_inside, "chunk", False):
        for start in range(0, length, grain):
            body(start, min(start + grain, length))
        return
    errors = np.geterr()  # numpy keeps its error state by thread: chunks run under the caller's
    starts = itertools.count(0, grain)  # next() is atomic: chunks go to whoever is free

    def work() -> None:
        _inside.chunk = True
        try:
            with np.errstate(**errors):
                while (start := next(starts)) < length:
                    body(start, min(start + grain, length))
        finally:
            _inside.chunk = False

    with _blas().limit(limits=1, user_api="blas"):
        futures = [_pool(workers - 1).submit(work) for _ in range(workers - 1)]
        try:
            work()
        finally:
            for future in futures:
                future.result()
