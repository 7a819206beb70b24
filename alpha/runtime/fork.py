"""Preparations around `os.fork`: a child finds whole state, and no lock that nobody will release.

A forked child has a copy of the memory and only the thread that forked. `held_across` takes a lock before a fork, so
that what it guards is whole, and gives it back on both sides. `in_child` registers a method that drops what
a child cannot use, such as threads. Systems without fork need neither.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from typing import Protocol, TypeVar


class _Lock(Protocol):
    def acquire(self) -> bool: ...

    def release(self) -> None: ...


L = TypeVar("L", bound=_Lock)

_registering = threading.Lock()
_locks: list[weakref.ReferenceType[_Lock]] = []
_methods: list[weakref.WeakMethod[Callable[[], None]]] = []
_taken: list[_Lock] = []


def held_across(lock: L) -> L:
    """Return `lock`, which from now on no fork finds taken by another thread.

    Locks are taken in the order of their registration, so a thread that holds one of them may wait only for locks that
    were registered later.
    """
    with _registering:
        _locks[:] = [*(reference for reference in _locks if reference() is not None), weakref.ref(lock)]
    return lock


def in_child(method: Callable[[], None]) -> None:
    """Call this bound method in every forked child, as long as its object lives."""
    with _registering:
        _methods[:] = [*(reference for reference in _methods if reference() is not None), weakref.WeakMethod(method)]


def keep_forever(*objects: object) -> None:
    """Let nothing destroy these objects, not even the end of the interpreter: their destructors crash in a child."""
    for each in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


def _before() -> None:
    _registering.acquire()
    found = [lock for reference in _locks if (lock := reference()) is not None]
    for lock in found:
        lock.acquire()
        _taken.append(lock)


def _release() -> None:
    while _taken:
        _taken.pop().release()
    _registering.release()


def _after_in_child() -> None:
    _release()
    for reference in list(_methods):
        method = reference()
        if method is not None:
            method()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_release, after_in_child=_after_in_child)
