"""One BLAS thread while Alpha's operators run.

The operators run BLAS in their own workers, one thread each: what a product gives may depend on how many threads
BLAS takes. Most libraries have one limit for the whole process, so it is set by the first operator that begins and
taken back by the last one that ends, whichever Python threads they run in. Between operators a program's own numpy
calls have the threads that they had.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import threadpoolctl

from alpha.runtime import fork


@dataclass
class Library:
    """Access to the number of threads of a BLAS library; `of_a_thread`: it belongs to the thread that asks."""

    get: Callable[[], int]
    set: Callable[[int], object]
    of_a_thread: bool = False


class OneThread:
    """`with one_thread:` no library takes more than one thread for what this thread asks of it; may be nested.

    It counts the threads that are within. `libraries` is asked for once, at the first use.
    """

    def __init__(self, libraries: Callable[[], list[Library]]) -> None:
        self._libraries = libraries
        self._lock = fork.held_across(threading.Lock())
        self._found: tuple[list[Library], list[Library]] | None = None
        self._count = 0
        self._before: list[tuple[Library, int]] = []  # what to go back to
        self._own = _Own()
        fork.in_child(self._forget)

    def __enter__(self) -> None:
        with self._lock:
            shared, own = self._found or self._find()
            self._count += 1
            if self._count == 1:
                self._before = _to_one(shared)
        if own:
            self._own.before.append(_to_one(own))

    def __exit__(self, *_: object) -> None:
        if self._own.before:
            _restore(self._own.before.pop())
        with self._lock:
            self._count = max(0, self._count - 1)  # 0 already, in a child that was forked within
            if self._count == 0 and self._before:
                _restore(self._before)
                self._before = []

    def _find(self) -> tuple[list[Library], list[Library]]:
        """Libraries with one limit for the process, and those with a limit for each thread."""
        libraries = self._libraries()
        self._found = [x for x in libraries if not x.of_a_thread], [x for x in libraries if x.of_a_thread]
        return self._found

    def _forget(self) -> None:
        """Forget, in a forked child, the threads that are within: the child has none of them."""
        self._count = 0
        _restore(self._before)
        self._before = []


class _Own(threading.local):
    def __init__(self) -> None:
        self.before: list[list[tuple[Library, int]]] = []


def _to_one(libraries: list[Library]) -> list[tuple[Library, int]]:
    changed = []
    for library in libraries:
        threads = library.get()
        if threads != 1:
            library.set(1)
            changed.append((library, threads))
    return changed


def _restore(changed: list[tuple[Library, int]]) -> None:
    """Go back, but not from a number that somebody else has set meanwhile."""
    for library, threads in changed:
        if library.get() == 1:
            library.set(threads)


def _loaded() -> list[Library]:
    controllers = threadpoolctl.ThreadpoolController().lib_controllers
    return [_library(controller) for controller in controllers if controller.user_api == "blas"]


def _library(controller: Any) -> Library:
    if getattr(controller, "threading_layer", "") == "openmp":
        return Library(controller.get_num_threads, controller.set_num_threads, of_a_thread=True)
    # directly, in a tenth of the time, and from any thread: threadpoolctl lets only one set the number
    for prefix, suffix in itertools.product(("", "scipy_"), ("", "64_", "_64")):
        get, set_ = (f"{prefix}openblas_{verb}_num_threads{suffix}" for verb in ("get", "set"))
        if hasattr(controller.dynlib, get) and hasattr(controller.dynlib, set_):
            getter, setter = getattr(controller.dynlib, get), getattr(controller.dynlib, set_)
            getter.argtypes, getter.restype, setter.argtypes, setter.restype = [], ctypes.c_int, [ctypes.c_int], None
            return Library(getter, setter)
    return Library(controller.get_num_threads, controller.set_num_threads)


one_thread = OneThread(_loaded)
