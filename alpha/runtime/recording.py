"""Record of what a step asks of a device and does on the host, noted while it runs, so that it can be replayed.

`alpha.capture` runs a step inside `recorded(Recording(..))`. The device then notes each launch, copy and fill, and it
refuses or notes what no replay could repeat. What changes from step to step is a `StepValue`, which kernels read from a
small block of device memory; what the host must do again, such as counting an optimizer's steps, is given to `again`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from alpha.errors import CaptureError

T = TypeVar("T")

_PACKAGE = f"{Path(__file__).resolve().parents[1]}{os.sep}"


class StepValue(Generic[T]):
    """A value that an operator reads and that changes from step to step: a learning rate, a random stream.

    Args:
        now: computes it; a captured step calls this again before each replay.
    """

    __slots__ = ("now",)

    def __init__(self, now: Callable[[], T]) -> None:
        self.now = now

    @classmethod
    def fixed(cls, value: T) -> StepValue[T]:
        """A value that is the same at each step."""
        return cls(lambda: value)


class Recording:
    """The notes on one run of a step.

    Args:
        capturing: whether the device only records the work, to run it later. Otherwise the step runs as usual.
        strict: what cannot be captured is an error also if the step runs as usual. By default it is noted in
            `obstacles`.

    Attributes:
        nodes: what was asked of the device, in its order; two runs with equal nodes compute the same.
        places: the line of the user's program that asked for each node.
        obstacles: what cannot be captured, each with its line.
        actions: what the host must do again before each replay.
        keeps: each notes what an action is about to change, and returns what takes the change back.
        phase: the part of the step that is running, see `phase`.
    """

    phase = "forward"

    def __init__(self, capturing: bool, strict: bool = False) -> None:
        self.capturing = capturing
        self._strict = strict or capturing
        self.nodes: list[tuple[Any, ...]] = []
        self.places: list[str] = []
        self.obstacles: list[str] = []
        self.actions: list[Callable[[], object]] = []
        self.keeps: list[Callable[[], Callable[[], object]]] = []

    def use(self, arrays: Iterable[Any]) -> None:
        """Note that the device reads or writes these arrays; anything else among them is left out."""

    def note(self, arrays: Iterable[Any], *node: Any) -> None:
        """Note what the device was asked for, and the arrays that it was given."""
        self.use(arrays)
        self.nodes.append(node)
        self.places.append(place())

    def refuse(self, what: str) -> None:
        """Note what cannot be captured, or raise `CaptureError`."""
        obstacle = f"{what}, at {place()}"
        if self._strict:
            raise CaptureError(obstacle)
        self.obstacles.append(obstacle)


class _State(threading.local):
    recording: Recording | None = None


state = _State()


def active() -> Recording | None:
    """The recording of this thread, or None."""
    return state.recording


@contextmanager
def recorded(recording: Recording | None) -> Iterator[None]:
    """Note in `recording` what is done inside; None notes nothing."""
    before, state.recording = state.recording, recording
    try:
        yield
    finally:
        state.recording = before


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Say that what is done inside is the "backward" pass or the "update" of the step that is being recorded."""
    recording = state.recording
    if recording is None:
        yield
        return
    before, recording.phase = recording.phase, name
    try:
        yield
    finally:
        recording.phase = before


def again(action: Callable[[], object], keep: Callable[[], Callable[[], object]] | None = None) -> None:
    """Let every replay of the step that is being recorded begin with `action`; without one nothing happens.

    `keep` is called before, and returns what takes back the action of a replay that is cut off. Draws of random numbers
    need none.
    """
    if state.recording is not None:
        state.recording.actions.append(action)
        if keep is not None:
            state.recording.keeps.append(keep)


def refuse(what: str) -> None:
    """Say that what comes now cannot be captured; without a recording nothing happens."""
    if state.recording is not None:
        state.recording.refuse(what)


def place() -> str:
    """The line of the user's program that is running, "step.py:12"."""
    frame = sys._getframe(callers())
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def callers() -> int:
    """Number of frames of Alpha's own above the user's program, counted from the caller of this function."""
    count, frame = 0, sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        count, frame = count + 1, frame.f_back
    return count


def _is_ours(filename: str) -> bool:
    return filename.startswith(_PACKAGE) or filename.endswith(("contextlib.py", "functools.py"))
