"""Owner of a driver, who alone may use it: the main thread of the process that made it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from alpha.errors import DeviceError
from alpha.runtime import fork


class Owner:
    """The main thread of this process; `check` refuses the calls of any other.

    All work of a device is in one order. Calls from several threads would have none, so both drivers refuse them,
    before anything is changed. CUDA does not survive a fork, so both refuse the calls of a forked child, too.

    Raises:
        DeviceError: it is made in another thread.
    """

    def __init__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise DeviceError("make the cuda device in the main thread: alpha.get_device('cuda')")
        self._thread = threading.get_ident()
        self._process = os.getpid()
        self._open = True
        self._why_not = ""
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
        if self.forked:
            raise DeviceError(
                f"{call}: the cuda device was made before a fork, and CUDA does not survive one: start processes by "
                "'spawn' (multiprocessing.get_context('spawn')), or use device='cpu' in them"
            )
        if threading.get_ident() == self._thread and self._why_not:
            raise DeviceError(f"{call}: {self._why_not}")
        if not self._open:
            raise DeviceError(f"{call}: the cuda device is closed")
        raise DeviceError(
            f"{call}: called from thread {threading.current_thread().name!r}, but the cuda device belongs to the main "
            "thread: hand host arrays over and upload them there"
        )
