"""Meeting of the processes of MPI, before there is a watch: if one does not come, the others end, and say which it was.

MPI itself waits for ever, in C, for a process that does not come. So a thread ends this one after some seconds. Each
process has a socket with a name that the others of its machine know, which is gone with the process.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from alpha.distributed.membership.environment import Place
from alpha.distributed.membership.roll import explain
from alpha.errors import first_few

LINGER_SECONDS = 1.0  # in which the others, whose time is over, too, can see that this process had come
SHOWN = 8  # ranks in a message


@contextmanager
def meeting(place: Place, seconds: float, goal: str) -> Iterator[None]:
    """Context in which this process waits for the others; it ends the process if that takes more than some seconds.

    Args:
        goal: place in the program that all must reach, such as "alpha.distributed.init()".
    """
    own = _mark(place.rank, goal)
    timer = threading.Timer(seconds, _end, (place, seconds, goal))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if own is not None:
            own.close()


def _end(place: Place, seconds: float, goal: str) -> None:
    text = f"rank {place.rank} ends: {missing(place, goal)} not come to {goal} within {seconds:g} s: ended, or late"
    explain()
    print(text, file=sys.stderr, flush=True)
    time.sleep(LINGER_SECONDS)
    os._exit(1)


def missing(place: Place, goal: str) -> str:
    """The ranks that have not come, or their number, as far as that can be known: "rank 1 of 2 has"."""
    absent = [] if _job() is None else [rank for rank in range(place.world_size) if not _is_there(rank, goal)]
    elsewhere = place.world_size - place.local_size  # ranks that cannot be seen from here
    if elsewhere and len(absent) > elsewhere:
        return f"{len(absent) - elsewhere} of {place.local_size} ranks of this machine have"
    if elsewhere or not absent:
        return f"some of {place.world_size} ranks have"
    verb = "have" if len(absent) > 1 else "has"
    return f"rank{'s' * (len(absent) > 1)} {first_few(absent, SHOWN)} of {place.world_size} {verb}"


def _mark(rank: int, goal: str) -> socket.socket | None:
    """A socket that shows the others of this machine that this rank has come; None if that cannot be."""
    if _job() is None:
        return None
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with suppress(OSError):
        mark.bind(_name(rank, goal))
    return mark


def _is_there(rank: int, goal: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_name(rank, goal))
        except OSError:
            return False
    return True


def _name(rank: int, goal: str) -> str:
    """Name without a file, which Linux alone has."""
    return f"\0alpha {_job()} {goal} {rank}"


def _job() -> int | None:
    """Id of the process of MPICH's mpiexec that has started the ranks of this machine; None if it is not known."""
    try:
        with socket.socket(fileno=os.dup(int(os.environ["PMI_FD"]))) as way:
            credentials = way.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except (KeyError, ValueError, OSError, AttributeError):
        return None
    return int(struct.unpack("3i", credentials)[0])
