"""Times calls on a device in turns, without the time that Python takes to launch them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bench.operators import Part

ROUNDS = 3
MOST_CALLS = 100  # in a block: with the fills before them fewer than the launches a GPU queues
MOST_FILLS = 200
TRIES = 3  # of a block, if the device was not held long enough to queue all of it
FILL_BYTES = 1 << 28  # about 0.1 ms of a large GPU


class Clock(Protocol):
    """Time stamps in a device's stream.

    Attributes:
        queues: calls return before the device has computed them.
    """

    queues: bool

    def hold(self, ms: float) -> None:
        """Keep the device busy about so long."""

    def mark(self) -> Any: ...

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Milliseconds between two marks; waits for the second."""


class WallClock:
    """Clock for a device that has computed when the call returns."""

    queues = False

    def hold(self, ms: float) -> None:
        pass

    def mark(self) -> float:
        return time.perf_counter()

    def elapsed_ms(self, start: float, end: float) -> float:
        return 1e3 * (end - start)


class EventClock:
    """Clock for a GPU: `record` makes an event, `fill` queues a fill of FILL_BYTES."""

    queues = True

    def __init__(
        self, record: Callable[[], Any], elapsed: Callable[[Any, Any], float], fill: Callable[[], Any]
    ) -> None:
        self.mark, self.elapsed_ms, self._fill = record, elapsed, fill
        fill()
        start = record()
        fill()
        self._fill_ms = max(1e-3, elapsed(start, record()))

    def hold(self, ms: float) -> None:
        for _ in range(min(MOST_FILLS, math.ceil(ms / self._fill_ms))):
            self._fill()


@dataclass(frozen=True)
class Contestant:
    """One way to compute an operator.

    Attributes:
        name: a kernel configuration of Alpha, or a layout of PyTorch.
        take: (result of call, part) -> that part as a numpy array in NHWC.
    """

    name: str
    call: Callable[[], Any]
    clock: Clock
    take: Callable[[Any, Part], np.ndarray]


def measure(contestants: Sequence[Contestant], budget_ms: float) -> list[float]:
    """Milliseconds a call of each: the median over rounds, in each of which everyone has a turn.

    Calls are queued behind fills of memory that last as long as it takes to launch them. So what
    is timed is the device, as in a captured step, and not Python.
    """
    plans = [_plan(contestant, budget_ms / ROUNDS) for contestant in contestants]
    times: list[list[float]] = [[] for _ in contestants]
    for _ in range(ROUNDS):
        for contestant, (calls, launch_ms), found in zip(contestants, plans, times, strict=True):
            found.append(_held_block(contestant, calls, launch_ms) / calls)
    return [statistics.median(found) for found in times]


def _plan(contestant: Contestant, budget_ms: float) -> tuple[int, float]:
    """(calls in a block, ms that launching them takes), after a warm-up that compiles and tunes."""
    _block(contestant, 1)
    clock = contestant.clock
    begin, start = time.perf_counter(), clock.mark()
    contestant.call()
    contestant.call()
    launch_ms = 1e3 * (time.perf_counter() - begin) / 2
    ms = clock.elapsed_ms(start, clock.mark()) / 2
    calls = max(1, min(MOST_CALLS, int(budget_ms / max(ms, 1e-3))))
    return calls, 1.5 * launch_ms * calls


def _held_block(contestant: Contestant, calls: int, hold_ms: float) -> float:
    """Milliseconds of so many calls that were all queued while the device was held."""
    clock, ms = contestant.clock, 0.0
    for _ in range(TRIES):
        begin = time.perf_counter()
        clock.hold(hold_ms)
        marks = _queued(contestant, calls)
        took = 1e3 * (time.perf_counter() - begin)
        ms = clock.elapsed_ms(*marks)
        if took <= hold_ms or not clock.queues:
            break
        hold_ms = 1.25 * took
    return ms


def _block(contestant: Contestant, calls: int) -> float:
    """Milliseconds of so many calls, one after another."""
    return contestant.clock.elapsed_ms(*_queued(contestant, calls))


def _queued(contestant: Contestant, calls: int) -> tuple[Any, Any]:
    """The marks before and after so many calls."""
    start = contestant.clock.mark()
    for _ in range(calls):
        contestant.call()
    return start, contestant.clock.mark()
