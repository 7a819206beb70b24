"""Work that a program does not wait for, such as files that are written while it goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Background:
    """Does one job at a time in a thread of its own, the newest one first.

    A job that still waits when a newer one is given is left out. So a program that gives jobs faster than they are
    done does not fall behind. The end of the process waits for the jobs.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._next: Callable[[], None] | None = None
        self._error: BaseException | None = None
        self._works = False

    def start(self, job: Callable[[], None]) -> None:
        """Do `job` soon. Raises what an earlier job raised; `job` is left out then."""
        with self._changed:
            self._raise()
            self._next = job
            if not self._works:
                self._works = True
                threading.Thread(target=self._work, name="alpha-background").start()

    def wait(self) -> None:
        """Wait until all jobs are done. Raises what one of them raised."""
        with self._changed:
            self._changed.wait_for(lambda: not self._works)
            self._raise()

    def _work(self) -> None:
        while True:
            with self._changed:
                job, self._next = self._next, None
                if job is None:
                    self._works = False
                    self._changed.notify_all()
                    return
            try:
                job()
            except BaseException as error:
                with self._changed:
                    self._error, self._next = error, None

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
