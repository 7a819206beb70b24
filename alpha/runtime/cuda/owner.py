"""Owner of a driver, who alone may use it: the main thread of the process that made it, or who has a turn."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from alpha.errors import DeviceError
from alpha.runtime import fork

NOBODY = 0  # no thread has this number


class Owner:
    """The main thread of this process; `check` refuses the calls of any other.

    All work of a device is in one order. Calls from several threads would have none, so both drivers refuse them,
    before anything is changed. CUDA does not survive a fork, so both refuse the calls of a forked child, too.

    The owner can lend the driver. Until it is taken back, each thread, also the main thread, takes turns, one after the
    other, and owns the driver for the time of its turn.

    Args:
        enter: is called in another thread than the main thread when its turn begins.
        leave: is called there when the turn ends.

    Raises:
        DeviceError: it is made in another thread.
    """

    def __init__(self, enter: Callable[[], object] | None = None, leave: Callable[[], object] | None = None) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise DeviceError("make the cuda device in the main thread: alpha.get_device('cuda')")
        self._home = self._thread = threading.get_ident()
        self._process = os.getpid()
        self._open = True
        self._why_not = ""
        self._enter, self._leave = enter, leave
        self._turns = threading.RLock()  # held by the thread that has a turn
        self._depth = 0  # turns of that thread, within each other
        self._loans = 0
        fork.in_child(self.close)

    @property
    def forked(self) -> bool:
        """True in a forked child."""
        return os.getpid() != self._process

    @property
    def here(self) -> bool:
        """True in the thread that owns the driver, and in the one that a child has of it."""
        return threading.get_ident() == self._thread

    @property
    def usable(self) -> bool:
        """True if `check` lets a call pass."""
        return self.here and self._open and not self._why_not and not self.forked

    def lend(self) -> None:
        """Let all threads take turns, until `take_back` was called as often as this.

        Raises DeviceError if a thread that does not own the driver lends what is not lent yet.
        """
        self._refuse_after_a_fork("lend")
        with self._turns:
            if not self._loans:
                self.check("lend")
            self._loans += 1
            if not self._depth:
                self._thread = NOBODY

    def take_back(self) -> None:
        """End a loan, once the turn that goes on has ended. After the last one the main thread is the owner again."""
        if self.forked:
            return
        with self._turns:
            self._loans = max(0, self._loans - 1)
            if not self._depth:
                self._thread = NOBODY if self._loans else self._home

    def end_loans(self) -> None:
        """Take everything back, in the main thread or in a forked child, before the driver is closed."""
        if self.forked:
            self._loans, self._thread = 0, self._home
        while self._loans and threading.get_ident() == self._home:
            self.take_back()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Own the driver inside the `with` statement, after the turns of other threads. The owner may always do that.

        Raises DeviceError in another thread if the driver is not lent.
        """
        self._refuse_after_a_fork("turn")
        if not (self._loans and self._open):
            self.check("turn")
        with self._turns:
            if not ((self._loans and self._open) or self._depth):  # taken back or closed while this thread has waited
                self.check("turn")
            visits = not self._depth and threading.get_ident() != self._home
            if visits and self._enter is not None:
                self._enter()
            self._depth += 1
            self._thread = threading.get_ident()
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    self._thread = NOBODY if self._loans else self._home
                    if visits and self._leave is not None:
                        self._leave()

    def close(self) -> None:
        """Refuse every call from now on."""
        self._open = False

    @contextmanager
    def refusing(self, why: str) -> Iterator[None]:
        """Refuse the owner's calls, too."""
        before, self._why_not = self._why_not, why
        try:
            yield
        finally:
            self._why_not = before

    def check(self, call: str) -> None:
        """`DeviceError` unless the owner calls."""
        if threading.get_ident() == self._thread and self._open and not self._why_not:
            return
        self._refuse_after_a_fork(call)
        if threading.get_ident() == self._thread and self._why_not:
            raise DeviceError(f"{call}: {self._why_not}")
        if not self._open:
            raise DeviceError(f"{call}: the cuda device is closed")
        if self._loans:
            raise DeviceError(
                f"{call}: the cuda device is lent, and thread {threading.current_thread().name!r} has no turn: "
                "with alpha.cuda.turn(): .."
            )
        raise DeviceError(
            f"{call}: called from thread {threading.current_thread().name!r}, but the cuda device belongs to the main "
            "thread: hand host arrays over and upload them there, or let it lend the device (alpha.cuda.lend)"
        )

    def _refuse_after_a_fork(self, call: str) -> None:
        if self.forked:
            raise DeviceError(
                f"{call}: the cuda device was made before a fork, and CUDA does not survive one: start processes by "
                "'spawn' (multiprocessing.get_context('spawn')), or use device='cpu' in them"
            )
