"""Roll of the ranks of MPI's launcher: the one that is gone first without saying why is named."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from itertools import permutations
from subprocess import PIPE, Popen

import child
import pytest

from alpha.distributed.membership.roll import Roll, name_of

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="only Linux tells in which order processes end")
RANK = """
import os, sys
from alpha.distributed.membership.roll import answer, explain
answer(sys.argv[1], int(sys.argv[2]))
print("ready", flush=True)
how = sys.stdin.readline().strip()
if how in ("ends", "fails"):
    explain(how == "fails")
    os._exit(1)
os._exit(0) if how == "exits" else os.kill(os.getpid(), 9)
"""
LATER = """
import socket, sys
from alpha.distributed.membership import roll
roll.answer(sys.argv[1], 0)
pairs = [socket.socketpair() for _ in range(200)]
print(roll._line.fileno(), pairs[-1][1].fileno())
"""


class Ranks:
    """Three processes that answer the roll."""

    def __init__(self) -> None:
        self.roll = Roll()
        command = [sys.executable, "-c", RANK, name_of(os.getpid())]
        self.processes: list[Popen[str]] = [
            child.start([*command, str(rank)], stdin=PIPE, stdout=PIPE) for rank in range(3)
        ]
        for process in self.processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def end(self, rank: int, how: str) -> None:
        child.finish(self.processes[rank], how)


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    made = Ranks()
    yield made
    for process in made.processes:
        if process.returncode is None:
            child.finish(process, "ends")
    made.roll.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["exits", "is killed"])
def test_the_first_that_is_gone_is_named(ranks: Ranks, how: str) -> None:
    ranks.roll.look()
    assert ranks.roll.gone is None
    ranks.end(2, "ends")
    ranks.roll.look()
    assert ranks.roll.gone is None
    ranks.end(1, how)
    ranks.roll.look()
    ranks.end(0, "is killed")
    ranks.roll.look()
    assert ranks.roll.gone == 1


@pytest.mark.slow
@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_of_those_that_are_seen_at_the_same_time_the_first_is_named(ranks: Ranks, order: tuple[int, ...]) -> None:
    """A launcher that is late, as on a busy machine, finds several that have ended."""
    ranks.roll.look()
    for rank, how in zip(order, ("is killed", "exits", "is killed"), strict=True):
        ranks.end(rank, how)
    ranks.roll.look()
    assert ranks.roll.gone == order[0]
    assert not ranks.roll._lines, "their files were closed"


@pytest.mark.slow
def test_the_launcher_hears_of_an_end_before_whoever_is_met_later() -> None:
    """A rank opens its connections to others after it has answered, and the highest file is closed first."""
    roll = Roll()
    done = child.run([sys.executable, "-c", LATER, name_of(os.getpid())], check=True)
    roll.close()
    line, later = map(int, done.stdout.split())
    assert line > later


@pytest.mark.slow
def test_a_rank_that_ends_as_it_should_is_not_the_first(ranks: Ranks) -> None:
    ranks.roll.look()
    for rank, how in ((1, "ends"), (2, "is killed"), (0, "exits")):
        ranks.end(rank, how)
    ranks.roll.look()
    assert ranks.roll.gone == 2


@pytest.mark.slow
def test_nobody_is_named_behind_a_rank_that_says_why(ranks: Ranks) -> None:
    ranks.roll.look()
    ranks.end(1, "fails")
    ranks.roll.look()
    ranks.end(0, "is killed")  # as MPI does then
    ranks.roll.look()
    assert ranks.roll.gone is None


@pytest.mark.slow
def test_a_rank_that_ends_before_anybody_looks_is_nobodys_fault(ranks: Ranks) -> None:
    for rank in range(3):
        ranks.end(rank, "ends")
    ranks.roll.look()
    assert (ranks.roll.gone, ranks.roll._ranks, ranks.roll._lines) == (None, {}, {})
