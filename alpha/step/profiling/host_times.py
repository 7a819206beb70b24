"""Times of the operators of the cpu: the clock of the host around each primitive.

While a profile runs, the implementations of the primitives for the cpu are replaced by timed ones; afterwards they are
as they were, so that nothing is slower without a profile. A primitive that calls others has only what is left of its
time without theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

from alpha.core.primitive import REGISTRY
from alpha.ops.conv2d.shape import ConvShape
from alpha.runtime.recording import Asked, Listener, state
from alpha.runtime.work import Work


class Timed(NamedTuple):
    """A call of a primitive: nanoseconds of the clock, and how many of them it has taken itself."""

    asked: Asked
    start: int
    own: int


class HostTimes:
    """The calls of primitives of the cpu between `begin` and `end`.

    Args:
        listener: knows the layer of each call.
    """

    def __init__(self, listener: Listener) -> None:
        self.calls: list[Timed] = []
        self._listener = listener
        self._plain: dict[str, Callable[..., Any]] = {}
        self._inner = [0]  # nanoseconds of the primitives within each that is running

    def begin(self) -> None:
        """Time the primitives from here on."""
        for name, primitive in REGISTRY.items():
            plain = primitive.implementations.get("cpu")
            if plain is not None:
                self._plain[name] = plain
                primitive.implementations["cpu"] = self._timed(name, plain)

    def end(self) -> None:
        """Let the primitives be as they were."""
        for name, plain in self._plain.items():
            REGISTRY[name].implementations["cpu"] = plain
        self._plain.clear()

    def _timed(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(plain)
        def call(*args: Any, **kwargs: Any) -> Any:
            if state.listener is not self._listener:  # another thread, or a dry run
                return plain(*args, **kwargs)
            return self.call(name, plain, args, kwargs)

        return call

    def call(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a function, whose time is noted under a name."""
        self._inner.append(0)
        start, result = time.perf_counter_ns(), None
        try:
            result = function(*args, **kwargs)
            return result
        finally:
            whole = time.perf_counter_ns() - start
            own = whole - self._inner.pop()
            self._inner[-1] += whole
            listener = self._listener
            work = work_of(name, (*args, *kwargs.values()), result)
            asked = Asked(listener.phase, listener.layer, "operator", name, "", name, "", work)
            self.calls.append(Timed(asked, start, own))


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
