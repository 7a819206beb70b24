"""Ctrl-C and SIGTERM between two steps, never within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupted(KeyboardInterrupt):
    """A signal that was taken between two steps: what was trained is whole and can be saved.

    Attributes:
        status: the exit status of a program that a signal stopped, 130 for Ctrl-C and 143 for SIGTERM.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


_check: Callable[[], None] | None = None  # of the block that holds the signals back now


@contextmanager
def interrupt_between_steps(*numbers: signal.Signals) -> Iterator[Callable[[], None]]:
    """Holds signals back until the yielded function is called, which raises Interrupted then.

    So an interrupted run never holds weights of which only some were updated. The second signal acts at once: Ctrl-C
    raises KeyboardInterrupt, SIGTERM ends the process. A block inside another one leaves the signals to the outer one.
    A handler of the program's own, and other threads than the main one, are left alone.

    Args:
        numbers: the signals; Ctrl-C (SIGINT) alone by default.
    """
    global _check
    main = threading.current_thread() is threading.main_thread()
    usual = {number: _usual_handler(number) for number in numbers or (signal.SIGINT,)}
    held = [number for number, handler in usual.items() if main and signal.getsignal(number) == handler]
    if main and _check is not None:
        yield _check
        return
    if not held:
        yield lambda: None
        return
    pending: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if pending:
            signal.signal(number, usual[signal.Signals(number)])
            signal.raise_signal(number)
        pending.append(number)

    def check() -> None:
        if pending:
            raise Interrupted(pending[0])

    for number in held:
        signal.signal(number, note)
    _check = check
    try:
        yield check
    finally:
        _check = None
        for number in held:
            signal.signal(number, usual[number])
    check()


def _usual_handler(number: signal.Signals) -> Any:
    """Handler that Python has for a signal if nobody asks for something else."""
    return signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
