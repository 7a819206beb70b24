"""Times of the operators of the cpu: the clock of the host around each primitive.

A primitive asks for nothing without a profile (`time_primitives` in alpha/core/primitive.py). One that calls others has
only what is left of its time without theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from alpha.ops.conv2d.shape import ConvShape
from alpha.runtime.recording import Asked, Listener, state
from alpha.runtime.work import Work

T = TypeVar("T")


class Timed(NamedTuple):
    """A call of a primitive: nanoseconds of the clock, and how many of them it and those that it called have taken."""

    asked: Asked
    start: int
    own: int
    inner: int


class HostTimes:
    """The calls of functions of the cpu.

    Args:
        listener: the profile, which hears of each call itself, or by a recording.
    """

    def __init__(self, listener: Listener) -> None:
        self.calls: list[Timed] = []
        self._listener = listener
        self._inner = [0]  # nanoseconds of the functions within each that is running

    def call(self, name: str, function: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """The result of a function, whose time is noted under a name."""
        listener = state.listener
        if listener is None or self._listener not in (listener, listener.profile):  # within a capture
            return function(*args, **kwargs)
        self._inner.append(0)
        start, result = time.perf_counter_ns(), None
        try:
            result = function(*args, **kwargs)
            return result
        finally:
            whole = time.perf_counter_ns() - start
            inner = self._inner.pop()
            self._inner[-1] += whole
            work = work_of(name, (*args, *kwargs.values()), result)
            asked = Asked(listener.phase, listener.layer, "operator", name, "", name, "", work)
            self.calls.append(Timed(asked, start, whole - inner, inner))


def work_of(name: str, given: Sequence[Any], result: Any) -> Work:
    """The work of a call: the arrays that it was given and has made, and its products if it is told their sizes."""
    read, written = _nbytes(given), _nbytes(result)
    if name == "matmul_batch" and isinstance(result, np.ndarray) and result.size:
        depth = given[0].size / (result.shape[0] * result.shape[1])
        return Work(2.0 * result.size * depth, 0.0, read, written)
    for value in given:
        if isinstance(value, ConvShape):
            kept = round(value.flops * value.useful)
            return Work(kept, value.flops - kept, read, written)
    return Work(read=read, written=written)


def _nbytes(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, (list, tuple)):
        return sum(map(_nbytes, value))
    return 0
