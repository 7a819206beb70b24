"""A rank that does not come to the others, which MPI lets wait for ever: they end, and say which one it is."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from ranks import ran

from alpha.distributed.membership import meeting
from alpha.distributed.membership.environment import Place

on_linux = pytest.mark.skipif(not Path("/proc").exists(), reason="sockets without a file are those of Linux")


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("how", ["sleeps", "ends", "fails", "raises", "is killed"])
@pytest.mark.parametrize(("launcher", "place"), [("", "init"), ("cpus", "init"), ("", "start")])
def test_the_others_end_and_name_the_rank_that_is_missing(launcher: str, place: str, how: str, rank: int) -> None:
    found = ran(2, "late.py", how, rank, place, launcher=launcher)
    assert found.status != 0
    if how == "is killed" or (launcher and how in ("fails", "raises")):
        return  # MPI has ended the other
    goal = "alpha.distributed.init()" if place == "init" else "alpha.run"
    assert f"rank {1 - rank} ends: rank {rank} of 2 has not come to {goal} within 4 s" in found.errors


@on_linux
def test_who_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "_job", os.getpid)
    machine, cluster = Place(0, 12, 0, 12), Place(0, 12, 0, 6)
    with ExitStack() as stack:
        for rank in (0, 2, 3):
            stack.enter_context(meeting.meeting(Place(rank, 12), 1e6, "the test"))
        assert meeting.missing(machine, "the test") == "ranks 1, 4, 5, 6, 7, 8, 9, 10 and 1 more of 12 have"
        assert meeting.missing(cluster, "the test") == "3 of 6 ranks of this machine have"
        for rank in (4, 5):
            stack.enter_context(meeting.meeting(Place(rank, 12), 1e6, "the test"))
        assert meeting.missing(Place(0, 6, 0, 6), "the test") == "rank 1 of 6 has"
        stack.enter_context(meeting.meeting(Place(1, 12), 1e6, "the test"))
        assert meeting.missing(cluster, "the test") == "some of 12 ranks have"
        monkeypatch.setattr(meeting, "_job", lambda: None)
        assert meeting.missing(machine, "the test") == "some of 12 ranks have"
    monkeypatch.setattr(meeting, "_job", os.getpid)
    assert meeting.missing(Place(0, 1), "the test") == "rank 0 of 1 has"
