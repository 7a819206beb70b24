"""Watch over ranks: whom the judge names and when, and that all ranks stop behind the same step."""

from __future__ import annotations

import json
import re
import tempfile
import threading
import time
import weakref
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules import Ranks, play, ranks

from alpha.distributed.membership import rank_watch
from alpha.distributed.membership.rank_watch import Judge, Watch, lines_of, new_judge

TIMEOUT, SILENCE = 25.0, 10.0
VERDICTS = {
    "silent": r"rank (\d+) has not been heard of for ",
    "hangs": r"rank (\d+) hangs: others wait in exchange ",
    "ended": r"rank (\d+) ended after exchange ",
    "raised": r"rank (\d+) ended with ",
}


def counted(exchanges: int, trace: int = 0, what: str = "all_reduce") -> dict[str, Any]:
    """The part of a report that tells of exchanges."""
    return {"exchanges": exchanges, "trace": trace, "what": what}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Seen:
    """Facts about a rank, as a reader of all reports sees them."""

    exchanges: int = 0
    heard: float = 0.0
    blameless: float = 0.0  # when the number of its exchanges last changed, it was busy, or nobody waited for it
    left: bool = False


@dataclass
class Court:
    """A judge, and an observer who knows by the definitions of silence and of a hang who is at fault."""

    count: int
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.judge = Judge(self.count, TIMEOUT, SILENCE, self.clock)
        self.ranks = [Seen() for _ in range(self.count)]
        self.verdict = ""

    def later(self, seconds: float) -> None:
        self.clock.now += seconds

    def report(self, rank: int, more: int = 0, busy: str = "", where: str = "train.py:7") -> str:
        """Verdict that a rank hears when it tells its state; the observer looks whether it is right."""
        seen = self.ranks[rank]
        self._count(rank, seen.exchanges + (0 if seen.left else more))
        seen.heard = self.clock.now
        if busy:
            seen.blameless = self.clock.now
        state = {**counted(seen.exchanges), "busy": busy, "where": where, "begun": 0, "stop": 0}
        verdict = str(json.loads(self.judge.report(rank, json.dumps(state)))[0])
        if self.verdict:
            assert verdict == self.verdict, "a verdict changed"
        elif verdict:
            found = [(kind, int(m[1])) for kind, text in VERDICTS.items() if (m := re.match(text, verdict))]
            assert len(found) == 1, verdict
            assert found[0] in self.faults(), f"{verdict}, but at fault are {self.faults()}"
        else:
            assert not self.faults(), f"nobody is accused of {self.faults()}"
        self.verdict = verdict
        return verdict

    def leave(self, rank: int) -> None:
        if not self.ranks[rank].left:
            self.ranks[rank].left, self.ranks[rank].blameless = True, self.clock.now
            self.judge.left(rank, json.dumps(counted(self.ranks[rank].exchanges)))

    def fail(self, rank: int, text: str) -> None:
        verdict = self.judge.raised(rank, text)
        self.ranks[rank].left = True
        if not self.verdict:
            self.verdict = f"rank {rank} ended with {text}"
        assert verdict == self.judge.verdict == self.verdict

    def _count(self, rank: int, exchanges: int) -> None:
        now, most = self.clock.now, max(seen.exchanges for seen in self.ranks)
        for seen in self.ranks:
            if seen.exchanges == most:
                seen.blameless = now
        if exchanges != self.ranks[rank].exchanges:
            self.ranks[rank].exchanges, self.ranks[rank].blameless = exchanges, now

    def faults(self) -> set[tuple[str, int]]:
        """Each rank that is at fault now, and why. Others wait for the rank with the fewest exchanges, for no other."""
        now, numbers = self.clock.now, [seen.exchanges for seen in self.ranks]
        found = set()
        for rank, seen in enumerate(self.ranks):
            if not seen.left and now - seen.heard > SILENCE:
                found.add(("silent", rank))
            if seen.exchanges == min(numbers) < max(numbers) and now - seen.blameless > TIMEOUT:
                found.add(("ended" if seen.left else "hangs", rank))
        return found


RANKS = st.integers(0, 5)
EVENTS = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([0.25, 1.0, 4.0, 9.0, 11.0])),
    st.tuples(st.just("report"), RANKS, st.integers(0, 3), st.sampled_from(["", "compiles"])),
    st.tuples(st.just("minute"), st.sampled_from([3, 24, 25, 26, 60]), st.sets(RANKS), st.sets(RANKS, max_size=2)),
    st.tuples(st.just("minute"), st.sampled_from([3, 24, 25, 26, 60]), st.sets(RANKS), st.just(set())),
    st.tuples(st.just("leave"), RANKS),
    st.tuples(st.just("fail"), RANKS),
)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.integers(1, 6), st.lists(EVENTS, max_size=12))
def test_the_named_rank_is_at_fault_and_nobody_at_fault_is_overlooked(count: int, events: list[Any]) -> None:
    court = Court(count)
    for event in events:
        match event:
            case "wait", seconds:
                court.later(seconds)
            case "report", rank, more, busy:
                court.report(rank % count, more, busy)
            case "minute", seconds, moving, busy:  # once a second all report, as they do
                for second in range(seconds):
                    for rank in range(count):
                        court.report(rank, int(second == 0 and rank in moving), "evaluates" if rank in busy else "")
                    court.later(1.0)
            case "leave", rank:
                court.leave(rank % count)
            case "fail", rank:
                court.fail(rank % count, f"ValueError: {rank}")
    assert court.judge.verdict == court.verdict
    assert court.judge.all_left == all(seen.left for seen in court.ranks)


def minute(court: Court, *ranks: int, seconds: int = 60, busy: int = -1) -> str:
    """Verdict after a minute in which these ranks report once a second."""
    for _ in range(seconds):
        court.later(1.0)
        for rank in ranks:
            court.report(rank, busy="compiles" if rank == busy else "")
    return court.verdict


def test_each_kind_of_fault_is_told_with_its_numbers() -> None:
    silent = Court(3)
    silent.report(1, where="net.py:12")
    assert minute(silent, 0, 2).startswith("rank 1 has not been heard of for 11 s: it was killed")
    assert silent.verdict.endswith("it was at net.py:12")
    working = Court(2)
    working.report(1, 3, where="")  # of a rank that works, the line is not looked for
    assert minute(working, 0).endswith("it was at work behind exchange 3")
    unheard = Court(2)
    assert minute(unheard, 0).endswith("it was at its start")
    hanging = Court(3)
    for rank in range(3):
        hanging.report(rank, 4 + (rank != 1))
    assert minute(hanging, 0, 1, 2) == "rank 1 hangs: others wait in exchange 5 for 26 s, it is at train.py:7"
    ended = Court(2)
    ended.leave(1)
    ended.report(0, 1)
    assert minute(ended, 0) == "rank 1 ended after exchange 0, and the others wait for more"
    failed = Court(2)
    failed.fail(1, "ValueError: no")
    assert failed.report(0) == "rank 1 ended with ValueError: no"


def test_nobody_is_accused_of_waiting_or_working() -> None:
    """The timeout counts from when others wait: who works for long before an exchange is not late at once."""
    working = Court(2)
    assert minute(working, 0, 1, seconds=300) == ""
    working.report(0, 1)  # rank 1 comes a moment later
    assert working.verdict == ""
    working.report(1, 1)
    busy = Court(2)
    busy.report(0, 1)
    assert minute(busy, 0, 1, seconds=300, busy=1) == ""
    assert minute(busy, 0, 1, seconds=25) == ""
    assert minute(busy, 0, 1, seconds=1).startswith("rank 1 hangs")


def test_the_one_that_all_wait_for_is_named() -> None:
    """A GPU's exchanges are queued, so ranks that wait may have begun different numbers of them."""
    for slow in range(3):
        court = Court(3)
        for rank in range(3):
            court.report(rank, 5 if rank == slow else 8 + rank)
        assert minute(court, 0, 1, 2).startswith(f"rank {slow} hangs: others wait in exchange 6 ")
        compiling = Court(3)
        for rank in range(3):
            compiling.report(rank, 5 if rank == slow else 8 + rank)
        assert minute(compiling, 0, 1, 2, busy=slow) == ""


def watched(ranks: int, exchanges: list[list[str]], leaves: bool = False) -> str:
    """Verdict of a judge on ranks that have begun these exchanges; with `leaves` each of them has ended."""
    judge = Judge(ranks, TIMEOUT, SILENCE, lambda: 0.0)
    for rank, own in enumerate(exchanges):
        watch = Watch.__new__(Watch)
        watch._last = 0, 0, ""
        for what in own:
            watch.count(what)
        if leaves:
            judge.left(rank, json.dumps(watch._counted()))
        judge.report(rank, json.dumps({**watch._counted(), "busy": "", "where": "", "begun": 0, "stop": 0}))
    return judge.verdict


@pytest.mark.parametrize("leaves", [False, True])
def test_ranks_in_different_exchanges_with_one_number_are_found_at_once(leaves: bool) -> None:
    same = ["all_reduce", "broadcast"]
    assert watched(3, [same, same, same], leaves) == ""
    assert watched(3, [same, same[:1], [*same, "all_gather"]], leaves) == ""  # they may come to the same
    text = "the ranks do not make the same exchanges: exchange 2 of rank {} is {}, of rank {} {}"
    assert watched(3, [same, same, same[::-1]], leaves) == text.format(0, "broadcast", 2, "all_reduce")
    assert watched(3, [same[:1], same, ["all_reduce"] * 2], leaves) == text.format(1, "broadcast", 2, "all_reduce")
    # earlier ones, between two reports
    assert watched(2, [same, ["all_gather", "broadcast"]], leaves).endswith("of rank 1 broadcast after others")


def test_a_thread_that_asks_where_another_one_is_keeps_nothing_of_it() -> None:
    """A local variable dies with its function, in its own thread: the memory of a captured step is compared."""

    class Local:
        pass

    def work() -> None:
        local = Local()
        weakref.finalize(local, lambda: deaths.append(threading.get_ident()))
        time.sleep(1e-4)  # the other thread asks now

    deaths: list[int] = []
    found: set[str] = set()
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            found.update(lines_of(main)[:1])

    main = threading.get_ident()
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for number in range(500):
            work()
            assert deaths == [main] * (number + 1)
    finally:
        over.set()
        asking.join()
    assert f"{__file__}:{work.__code__.co_firstlineno + 3}" in found
    assert lines_of(0) == []


def test_a_rank_without_room_for_files_reports_without_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    assert lines_of(threading.get_ident()) == []


def test_the_first_cause_stays() -> None:
    court = Court(3)
    court.fail(2, "ValueError: first")
    court.fail(0, "KeyError: second")
    court.report(1, 7)
    assert minute(court, 1) == "rank 2 ended with ValueError: first"
    late = Court(2)
    assert minute(late, 0).startswith("rank 1 has not been heard of")
    late.fail(0, "DistributedError: the other side is gone")
    assert late.report(0).startswith("rank 1 has not been heard of")


def test_a_large_group_reports_less_often_and_is_given_more_time() -> None:
    for count in (2, 1_000):
        clock_of = new_judge(count, TIMEOUT)
        assert clock_of._silence >= 10 * max(1.0, 0.01 * count)


# -- stopping behind the same step -----------------------------------------------------------------

COUNTS = st.sampled_from([1, 2, 3, 3, 4, 6])
SCHEDULES = st.builds(  # players of very different speeds
    lambda seed, speeds: Random(seed).choices(range(12), [4**speed for speed in speeds], k=300),
    st.integers(0, 2**32),
    st.lists(st.sampled_from([0, 1, 3, 5]), min_size=12, max_size=12),
)
ASKS = st.dictionaries(RANKS, st.integers(0, 3), min_size=1, max_size=3)  # by rank: the step behind which it asks


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(COUNTS, SCHEDULES, st.lists(ASKS, min_size=1, max_size=2))
def test_all_ranks_stop_behind_one_step(count: int, schedule: list[int], rounds: list[dict[int, int]]) -> None:
    """The step is at most one later than that of the furthest rank when the first one asked; again for later stops."""
    asks = [{rank % count: step for rank, step in asked.items()} for asked in rounds]
    furthest: list[list[int]] = [[] for _ in asks]
    stops: list[list[tuple[str, int]]] = [[] for _ in range(count)]

    def program(ranks: Ranks, rank: int) -> None:
        watch = ranks.watches[rank]
        for number, asked in enumerate(asks):
            reason, behind = "", watch.begun + 1
            while not reason:
                ranks.step(rank)
                why = ""
                if rank in asked and watch.begun >= behind + asked[rank]:
                    why = f"signal {number} to rank {rank}"
                    furthest[number].append(max(other.begun for other in ranks.watches))
                    behind = 10**9  # each asks once
                reason = watch.stops_here(why)
            stops[rank].append((reason, watch.begun))

    with ranks(count, program) as made:
        play(made, schedule)
    assert all(found == stops[0] for found in stops), stops
    for number, (reason, step) in enumerate(stops[0]):
        assert re.fullmatch(rf"signal {number} to rank \d", reason)
        assert step <= furthest[number][0] + 1


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(COUNTS, SCHEDULES, ASKS, st.sampled_from([(1, 1), (1, 3), (2, 2), (3, 1)]), st.booleans())
def test_a_stop_between_epochs_and_at_the_end(
    count: int, schedule: list[int], asks: dict[int, int], sizes: tuple[int, int], sums: bool
) -> None:
    """Ranks that have not heard of a stop sum up the epoch, or end; a rank that has paused does not keep them."""
    epochs, steps = sizes
    asks = {rank % count: 1 + step for rank, step in asks.items()}
    furthest: list[int] = []
    ends: list[tuple[str, int]] = [("", -1)] * count

    def train(ranks: Ranks, rank: int) -> str:
        watch = ranks.watches[rank]
        for _ in range(epochs):
            for _ in range(steps):
                ranks.step(rank)
                why = f"signal to rank {rank}" if asks.get(rank) == watch.begun else ""
                if why:
                    furthest.append(max(other.begun for other in ranks.watches))
                if reason := watch.stops_here(why):
                    return reason
            sum_up(ranks, rank)
            sum_up(ranks, rank)  # an evaluation
        return ""

    def sum_up(ranks: Ranks, rank: int) -> None:
        if sums:
            ranks.exchange(rank)

    def program(ranks: Ranks, rank: int) -> None:
        reason = train(ranks, rank)
        ends[rank] = reason, ranks.watches[rank].begun
        sum_up(ranks, rank)  # also an epoch that was stopped
        ranks.watches[rank].leave(ranks.judge if rank == 0 else None)

    with ranks(count, program) as made:
        play(made, schedule)
    assert all(end == ends[0] for end in ends), ends
    reason, step = ends[0]
    if reason:
        assert step <= furthest[0] + 1
    elif furthest:
        assert furthest[0] + 1 > epochs * steps, "the stop was forgotten"
    assert made.judge.all_left


def test_a_rank_is_at_a_line_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of Python, of packages and of Alpha are passed over: a rank may wait in any of them."""
    lines = [threading.__file__ + ":327", "/venv/lib/site-packages/tqdm/std.py:5", "/src/alpha/nn/x.py:3"]
    monkeypatch.setattr(rank_watch, "lines_of", lambda thread: [*lines, "/home/me/train.py:57", "/home/me/main.py:9"])
    watch: Any = SimpleNamespace(_main=1)
    assert Watch._where(watch) == "/home/me/train.py:57"
    monkeypatch.setattr(rank_watch, "lines_of", lambda thread: lines)
    assert Watch._where(watch) == lines[0]
