"""One rank that does not come to a place where the others wait for it: late.py HOW RANK PLACE.

PLACE is "init" of a program that imports nothing of Alpha before, or "start" of what `alpha.run` starts.
"""

from __future__ import annotations

import os
import signal
import sys
import time

how, faulty, place = sys.argv[1], int(sys.argv[2]), sys.argv[3]
SECONDS = 4.0

if int(os.environ["PMI_RANK"]) == faulty:
    if how == "sleeps":
        time.sleep(10_000)
    if how == "raises":
        raise ValueError("no data")
    if how == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(3 if how == "fails" else 0)


def wait() -> None:
    """Wait for the other one."""
    if place == "start":
        from alpha.distributed import mpi_program

        mpi_program.TIMEOUT = SECONDS  # type: ignore[misc]
        sys.argv = [sys.argv[0], "-m", "this"]
        mpi_program.start()
    import alpha

    alpha.distributed.init("cpu", SECONDS)


wait()
