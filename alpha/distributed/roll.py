"""Roll of the ranks that `alpha.run --cpus` has started: it names the one that is gone first without saying why.

They are no children of the launcher, but of MPI's own, which names a process that was killed by its id alone and kills
the others at once. So each rank tells its id, and the launcher looks when its process ends. If several have ended
before it looks, `epoll` gives them in the order of their ends. Linux alone can do that.
"""

from __future__ import annotations

import json
import os
import select
import socket
from contextlib import suppress

RUNS, ENDS, FAILS = "runs", "ends", "fails"
_launcher = ""  # the name of its socket


def name_of(launcher: int) -> str:
    """Name of the socket, without a file, of a launcher whose process id is given."""
    return f"alpha run {launcher}"


def answer(launcher: str, rank: int) -> None:
    """Tell a launcher, by the name of its socket, that this process is a rank."""
    global _launcher
    _launcher = launcher
    _tell(RUNS, rank)


def explain(fails: bool = True, status: int = 1) -> None:
    """Tell the launcher, if there is one, that this process ends as it should, or fails and says itself why."""
    _tell(FAILS if fails else ENDS, status)


def _tell(what: str, number: int) -> None:
    if _launcher:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line, suppress(OSError):
            line.sendto(json.dumps([what, os.getpid(), number]).encode(), f"\0{_launcher}")


class Roll:
    """The ranks that have told this launcher that they run. Where the system cannot do that, there are none.

    Attributes:
        gone: the rank that was gone first without saying why; None if another had failed before.
        status: that with which the first rank ends that said why; 0 if none has. MPI's launcher, which kills the
            others, mixes theirs with it.
    """

    def __init__(self) -> None:
        self.gone: int | None = None
        self.status = 0
        self._ranks: dict[int, tuple[int, int]] = {}  # process and rank, by a file that can be read when it has ended
        self._ends = select.epoll() if hasattr(select, "epoll") else None
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._line.setblocking(False)
        with suppress(OSError):
            self._line.bind(f"\0{name_of(os.getpid())}")

    @property
    def files(self) -> list[int]:
        """Files that can be read when there is something to `look` at."""
        return [self._line.fileno(), *([] if self._ends is None else [self._ends.fileno()])]

    def look(self) -> None:
        """Take what ranks have told, and note which have ended."""
        # first: what a rank has told before its end can be read then
        ended = [] if self._ends is None else [file for file, _ in self._ends.poll(0)]
        explained = set()
        with suppress(BlockingIOError):
            while True:
                what, process, number = json.loads(self._line.recv(100))
                if what == FAILS:
                    self.status = self.status or number
                if what != RUNS:
                    explained.add(process)
                    continue
                with suppress(OSError, AttributeError):  # it has ended already, or the system is not Linux
                    file = os.pidfd_open(process)
                    self._ranks[file] = process, number
                    assert self._ends is not None
                    self._ends.register(file, select.EPOLLIN)
        self._drop([file for file, (process, _) in self._ranks.items() if process in explained])
        silent = [file for file in ended if file in self._ranks]
        if silent and self.gone is None and not self.status:
            self.gone = self._ranks[silent[0]][1]
        self._drop(silent)

    def _drop(self, files: list[int]) -> None:
        for file in files:
            del self._ranks[file]
            os.close(file)

    def close(self) -> None:
        """Watch no more."""
        self._drop(list(self._ranks))
        if self._ends is not None:
            self._ends.close()
        self._line.close()
