"""Roll of the ranks that `alpha.run --cpus` has started: it names the one that is gone first without saying why.

They are no children of the launcher, but of MPI's own, which names a process that was killed by its id alone and kills
the others at once. So each rank holds a connection to the launcher, which the system closes when the rank ends. Files
are closed in the order from the highest number to the lowest, and this one has a high number: so the launcher hears of
the end before MPI's launcher and the other ranks do. If several have ended before it looks, `epoll` gives them in the
order of their ends. Linux alone can do that.
"""

from __future__ import annotations

import json
import os
import select
import socket
from contextlib import suppress

RUNS, ENDS, FAILS = "runs", "ends", "fails"
HIGH = 1000  # the number of a file, above those that a program opens; most systems allow 1,024
_line: socket.socket | None = None  # to the launcher


def name_of(launcher: int) -> str:
    """Name of the socket, without a file, of a launcher whose process id is given."""
    return f"alpha run {launcher}"


def answer(launcher: str, rank: int) -> None:
    """Tell a launcher, by the name of its socket, that this process is a rank."""
    global _line
    with suppress(OSError, AttributeError):  # there is no launcher, or the system is not Linux
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.connect(f"\0{launcher}")
        _line = _high(line)
        os.register_at_fork(after_in_child=_hang_up)
        _tell(RUNS, rank)


def _high(line: socket.socket) -> socket.socket:
    """The connection as a file of a high number; as it is where the system has no such number."""
    import fcntl  # of Unix alone

    with suppress(OSError):
        file = fcntl.fcntl(line.fileno(), fcntl.F_DUPFD_CLOEXEC, HIGH)
        line.close()
        return socket.socket(fileno=file)
    return line


def _hang_up() -> None:
    """Close the connection, in a child that was forked: it is no rank, and may live longer."""
    global _line
    if _line is not None:
        _line.close()
        _line = None


def explain(fails: bool = True, status: int = 1) -> None:
    """Tell the launcher, if there is one, that this process ends as it should, or fails and says itself why."""
    _tell(FAILS if fails else ENDS, status)


def _tell(what: str, number: int) -> None:
    if _line is not None:
        with suppress(OSError):
            _line.send(json.dumps([what, number]).encode())


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
        self._lines: dict[int, socket.socket] = {}  # to the ranks, by their files
        self._ranks: dict[int, int] = {}  # those that have not said how they end, by these files
        self._door: socket.socket | None = None
        if hasattr(select, "epoll") and hasattr(socket, "SOCK_SEQPACKET"):
            self._events = select.epoll()
            with suppress(OSError):
                self._door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self._door.setblocking(False)
                self._door.bind(f"\0{name_of(os.getpid())}")
                self._door.listen(socket.SOMAXCONN)
                self._events.register(self._door, select.EPOLLIN)

    @property
    def files(self) -> list[int]:
        """Files that can be read when there is something to `look` at."""
        return [] if self._door is None else [self._events.fileno()]

    def look(self) -> None:
        """Take what ranks have told, and note which have ended."""
        while self._door is not None and (events := self._events.poll(0)):
            for file, _ in events:
                if file == self._door.fileno():
                    self._let_in(self._door)
                else:
                    self._hear(file)

    def _let_in(self, door: socket.socket) -> None:
        with suppress(BlockingIOError):
            while True:
                line, _ = door.accept()
                line.setblocking(False)
                self._lines[line.fileno()] = line
                self._events.register(line, select.EPOLLIN)

    def _hear(self, file: int) -> None:
        """Read what a rank has told, up to now or to its end."""
        with suppress(BlockingIOError):
            while text := self._read(file):
                what, number = json.loads(text)
                if what == RUNS:
                    self._ranks[file] = number
                else:
                    self._ranks.pop(file, None)
                if what == FAILS:
                    self.status = self.status or number
            rank = self._ranks.pop(file, None)
            if rank is not None and self.gone is None and not self.status:
                self.gone = rank
            self._lines.pop(file).close()  # of which the events forget, too

    def _read(self, file: int) -> bytes:
        """Text of a rank; empty if it has ended."""
        try:
            return self._lines[file].recv(100)
        except ConnectionError:
            return b""

    def close(self) -> None:
        """Watch no more."""
        for line in [*self._lines.values(), *filter(None, [self._door])]:
            line.close()
        self._lines.clear()
        self._ranks.clear()
        if self._door is not None:
            self._events.close()
            self._door = None
