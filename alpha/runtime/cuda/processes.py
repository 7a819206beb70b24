"""Compilers that run as processes: an interrupt stops them, with the processes that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence

from alpha.errors import CompileError


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a compiler and collect what it prints. If the caller is interrupted meanwhile, the compiler is stopped.

    Raises:
        OSError: it could not be started.
        CompileError: the `Group` of this thread was stopped.
    """
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,  # nvcc starts other processes, which do not end with it
    ) as process:
        group: Group | None = getattr(_local, "group", None)
        try:
            if group is not None:
                group.add(process)
            out, err = process.communicate()
        except BaseException:
            _kill(process)
            raise
        finally:
            if group is not None:
                group.remove(process)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


_local = threading.local()


class Group:
    """The compilers of several threads, which can be stopped together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def join(self) -> None:
        """Let the compilers that this thread runs belong to this group."""
        _local.group = self

    def add(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            if self._stopped:
                raise CompileError("the compilers were stopped")
            self._running.add(process)

    def remove(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._running.discard(process)

    def stop(self) -> None:
        """Kill what runs, and refuse what comes."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    if process.poll() is None and hasattr(os, "killpg"):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has just ended
            return
    process.kill()
