"""Ranks of one process, each a thread of its own, that run in an order which a test decides, without any clock.

A `Player` runs only while it has the turn, and hands it back where it waits. So a schedule is a list of numbers, and a
run of it is the same each time. `Ranks` are real `Watch` objects before one `Judge`, whose calls take as long as the
schedule wants.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from alpha.distributed.membership import rank_watch
from alpha.distributed.membership.rank_watch import Judge, Watch

TURNS = 1_000  # of each player behind the end of a schedule: none that works needs as many


class _Over(BaseException):
    """The end of a player that did not come to its end."""


class Player:
    """A thread that runs only while it has the turn."""

    current: Player

    def __init__(self, work: Callable[[], None]) -> None:
        self.done, self.error = False, None
        self._work, self._stopped = work, False
        self._mine, self._back = threading.Lock(), threading.Lock()  # each is held until the turn comes there
        self._mine.acquire()
        self._back.acquire()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self.wait(first=True)
            self._work()
        except _Over:
            pass
        except BaseException as error:
            self.error: BaseException | None = error
        self.done = True
        self._back.release()

    def wait(self, first: bool = False) -> None:
        """Hand the turn back, and wait for the next one; called by its own thread."""
        if not first:
            self._back.release()
        self._mine.acquire()
        if self._stopped:
            raise _Over

    def turn(self) -> None:
        """Let it run up to where it waits again."""
        if self.done:
            return
        Player.current = self
        self._mine.release()
        self._back.acquire()
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """End it where it waits."""
        self._stopped = True
        with suppress(BaseException):
            self.turn()


def wait() -> None:
    """Let others run."""
    Player.current.wait()


class _Client:
    """A client whose calls take a turn on their way to the judge, and one on their way back."""

    def __init__(self, judge: Judge, rank: int) -> None:
        self._functions, self._rank = judge.functions, rank

    def copy(self) -> _Client:
        return self

    def call(self, name: str, text: str) -> str:
        wait()
        answer = self._functions[name](self._rank, text)
        wait()
        return answer


class Ranks:
    """Ranks that are watched. `program(ranks, rank)` is run by each; their reports are players of their own.

    Attributes:
        exchanges: exchanges that each rank has begun; it goes on when all others have begun as many.
    """

    def __init__(self, count: int, program: Callable[[Ranks, int], None]) -> None:
        self.judge = Judge(count, timeout=25.0, silence=10.0, now=lambda: 0.0)
        self.watches: list[Watch] = []
        reporters: list[Callable[[], None]] = []

        def thread(target: Callable[[], None], **_: Any) -> Any:
            reporters.append(target)
            return SimpleNamespace(start=lambda: None)

        for rank in range(count):
            hook = sys.excepthook
            faked = SimpleNamespace(Thread=thread, Event=_Event, main_thread=threading.main_thread)
            with patch.object(rank_watch, "threading", faked):
                self.watches.append(Watch(_Client(self.judge, rank), rank, count, lambda: None, 25.0))  # type: ignore[arg-type]
            sys.excepthook = hook
        self.players = [Player(lambda rank=rank: program(self, rank)) for rank in range(count)]  # type: ignore[misc]
        self.reporters = [Player(work) for work in reporters]

    def exchange(self, rank: int) -> None:
        """Wait for all others in an exchange, as all-reduce does."""
        watch = self.watches[rank]
        watch.count("all_reduce")
        while any(other.exchanges < watch.exchanges for other in self.watches):
            wait()

    def step(self, rank: int) -> None:
        """Make a step of training, which no rank ends before all have begun it."""
        self.watches[rank].begun += 1
        wait()
        self.exchange(rank)
        wait()

    @property
    def done(self) -> bool:
        return all(player.done for player in self.players)


class _Event(threading.Event):
    """An event for which a player waits one turn."""

    def wait(self, timeout: float | None = None) -> bool:
        wait()
        return self.is_set()


@contextmanager
def ranks(count: int, program: Callable[[Ranks, int], None]) -> Iterator[Ranks]:
    """Ranks that have not begun; they end with the context."""

    def end(watch: Watch, verdict: str) -> None:
        raise AssertionError(f"nobody hangs: {verdict}")

    clock = SimpleNamespace(sleep=lambda seconds: wait(), monotonic=lambda: 0.0)
    with (
        patch.object(rank_watch, "time", clock),
        patch.object(Watch, "_where", lambda self: "program.py:1"),
        patch.object(Watch, "_end", end),
    ):
        made = Ranks(count, program)
        try:
            yield made
        finally:
            for player in [*made.players, *made.reporters]:
                player.stop()


def play(made: Ranks, schedule: Sequence[int], until: Callable[[], bool] | None = None) -> None:
    """Give turns in the order of a schedule, then to all in turn until the ranks are done.

    Raises:
        AssertionError: they never are.
    """
    players = [*made.players, *made.reporters]
    until = until or (lambda: made.done)
    for number in schedule:
        if until():
            return
        players[number % len(players)].turn()
    for _ in range(TURNS):
        if until():
            return
        for player in players:
            player.turn()
    stuck = [f"rank {rank} behind step {watch.begun}" for rank, watch in enumerate(made.watches)]
    raise AssertionError(f"the ranks wait for one another for ever: {', '.join(stuck)}; {made.judge._ranks}")
