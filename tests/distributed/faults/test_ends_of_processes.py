"""Ends of processes that are no faults of the training: a status that a rank asks for, and a child that it forks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ranks import mpiexec, ran

PROGRAM = """
import os, sys
from alpha import distributed as dist

dist.init("cpu")
{}
for _ in range(3):
    dist.barrier()
print("rank", dist.rank(), "is done")
"""
CHILD = """
if dist.rank() == {}:
    child = os.fork()
    if not child:
        {}
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == {}
"""


def program(folder: Path, part: str) -> Path:
    path = folder / "program.py"
    path.write_text(PROGRAM.format(part))
    mpiexec()  # or skip
    return path


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("end", ["sys.exit(3)", "sys.exit('no data')", "raise ValueError(3)"])
def test_the_first_status_is_that_of_all(tmp_path: Path, rank: int, end: str) -> None:
    found = ran(2, str(program(tmp_path, f"if dist.rank() == {rank}: {end}")), launcher="cpus")
    assert found.status == (3 if end == "sys.exit(3)" else 1), found.errors
    assert "wait for more" not in found.errors, "nobody waits for a rank that has ended"
    assert f"rank {rank} ended with" in found.errors
    assert found.errors.count("no data") == ("no data" in end) * 2  # by itself, and of the other rank


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("end", "status"), [("sys.exit()", 0), ("sys.exit(3)", 3), ("raise KeyError('child')", 1)])
def test_a_forked_child_ends_by_itself(tmp_path: Path, rank: int, end: str, status: int) -> None:
    found = ran(2, str(program(tmp_path, CHILD.format(rank, end, status))), launcher="cpus")
    assert found.status == 0, found.errors
    assert found.output.count("is done") == 2
