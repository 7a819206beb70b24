"""Notes of what the main thread is busy with for a longer time, for whoever watches that a program does not hang."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_activities: list[str] = []


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Context in which the program works on something that other processes must wait for, such as "compiles"."""
    _activities.append(what)
    try:
        yield
    finally:
        _activities.remove(what)


def activity() -> str:
    """Description of what the program is busy with; empty if it is nothing of that kind."""
    return _activities[-1] if _activities else ""
