"""Watch over the ranks of a group: if one dies, raises or hangs, all end, and each says which rank was the first.

Each rank has a thread that reports once a second to rank 0 how many exchanges it has begun, and which, what it is busy
with and where its main thread is. Rank 0 judges, and its answer is the verdict. Ranks that have begun as many exchanges
must have begun the same ones. A rank hangs if others have begun an exchange
that it has not, if this has not changed for the group's timeout, and if it is not known to be busy (see
alpha/runtime/activity.py). Others wait for the rank that has begun the fewest, and for no other.

To stop, all ranks pause behind the step in which they hear of it, until rank 0 knows that all have heard. Then those
that are behind go on to where the furthest is: one more step, or an exchange that is outside of steps.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
import xmlrpc.client
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from alpha.distributed.membership.board import POLL_SECONDS, Client
from alpha.distributed.membership.roll import explain
from alpha.runtime import recording
from alpha.runtime.activity import activity

REPORT_SECONDS = 1.0
PER_RANK_SECONDS = 0.01  # so that rank 0 has time for many ranks
SILENT_REPORTS = 10  # reports that may be missing before a rank counts as dead
REPORT, RAISED, LEFT, STOP, PAUSED = "report", "raised", "left", "stop", "paused"
STOPPED = 128 + signal.SIGINT  # status of a process that Ctrl-C has stopped
HEAD_OF_THREAD = re.compile(r"(?:Current thread|Thread) (0x[0-9a-f]+)")  # in what faulthandler writes
LINE_OF_THREAD = re.compile(r'  File "(.*)", line (\d+) in ')
# parts of the paths of files that are not the user's: Alpha's own, those of packages and of Python
OF_OTHERS = f"{os.sep}alpha{os.sep}", f"{os.sep}site-packages{os.sep}", f"{Path(os.__file__).parent}{os.sep}"
GO, WAIT = "go", "wait"  # answers to a rank that has paused; the third one is STOP


@dataclass
class _Known:
    """Knowledge of rank 0 about a rank."""

    heard: float
    exchanges: int = 0
    what: str = ""  # the last of them
    trace: int = 0  # a checksum of all of them
    since: float = 0.0  # when the others began to wait for it, its number of exchanges changed, or it was busy
    where: str = ""
    left: bool = False
    begun: int = 0  # steps
    paused: bool = False  # behind the last step that it has begun
    aware: bool = False  # of the stop that was asked for
    stopped: bool = False  # because of it


def lines_of(thread: int) -> list[str]:
    """The lines at which a thread is, as "file:line", the innermost first; empty if they cannot be had.

    No frame is made an object of, as `sys._current_frames` does: such an object keeps the arrays of a function that
    returns meanwhile. They would die in this thread, later than in other steps, and a captured step is compared.
    faulthandler writes the 100 innermost lines of the 100 newest threads, with escapes for what is not ASCII.
    """
    try:
        with tempfile.TemporaryFile() as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            text = os.fsdecode(file.read())
    except OSError:  # there is no room for a file, and a report without lines is better than none
        return []
    for part in text.split("\n\n"):
        head, *rest = part.splitlines()
        if (found := HEAD_OF_THREAD.match(head)) and int(found[1], 16) == thread:
            return [f"{line[1]}:{line[2]}" for line in map(LINE_OF_THREAD.match, rest) if line]
    return []


def _place(known: _Known) -> str:
    """Place of a rank that was at work when it was last heard of."""
    return f"work behind exchange {known.exchanges}" if known.exchanges else "its start"


class Judge:
    """Judgement over all ranks, on rank 0; calls come from many threads.

    Args:
        timeout: seconds after which a rank hangs.
        silence: seconds after which a rank that says nothing is dead.
        now: the time in seconds.
    """

    def __init__(
        self, world_size: int, timeout: float, silence: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._timeout, self._silence, self._now = timeout, silence, now
        self._ranks = {rank: _Known(now(), since=now()) for rank in range(world_size)}
        self._lock = threading.Lock()
        self._stop = ""  # what has asked for a stop, until all have stopped
        self._stops = 0  # the number of this stop, or of the last one
        self.verdict = ""

    def report(self, rank: int, text: str) -> str:
        """Take the state of a rank and return the verdict, empty while all is well, and the stop that is asked for."""
        state = json.loads(text)
        with self._lock:
            known, now = self._ranks[rank], self._now()
            known.heard = now
            if not known.left:
                self._count(known, state, now)
                known.where = state["where"]
            if state["busy"]:
                known.since = now
            known.begun = max(known.begun, state["begun"])
            known.aware = known.aware or state["stop"] == self._stops
            self._judge(now)
            return json.dumps([self.verdict, self._asked])

    def stop(self, rank: int, text: str) -> str:
        """Take note that all ranks are to stop behind the same step, because of `text`, and return the stop."""
        with self._lock:
            if not self._stop:
                self._stop, self._stops = text, self._stops + 1
                for known in self._ranks.values():
                    known.aware = False
            return json.dumps(self._asked)

    @property
    def _asked(self) -> tuple[int, str]:
        """The number of the last stop, and what has asked for it; empty if all have stopped."""
        return self._stops, self._stop

    def paused(self, rank: int, text: str) -> str:
        """Take note that a rank has paused behind so many steps and exchanges.

        Returns:
            GO: go on to the end of the next step, since another rank has begun it, waits in an exchange before it, or
            has ended; STOP: all have paused here; WAIT: ask again.
        """
        begun, exchanges = json.loads(text)
        with self._lock:
            known, ranks = self._ranks[rank], self._ranks.values()
            known.begun, known.paused, known.aware = begun, True, True
            others = [other for other in ranks if not other.stopped]  # who has may have begun another step
            if not all(other.aware or other.left for other in others):
                return WAIT
            if any(other.left or other.begun > begun or other.exchanges > exchanges for other in others):
                known.paused = False
                return GO
            if not all(other.paused and other.begun == begun for other in others):
                return WAIT
            known.stopped = True
            if all(other.stopped for other in ranks):
                self._stop = ""
                for other in ranks:
                    other.paused = other.stopped = False
            return STOP

    def raised(self, rank: int, text: str) -> str:
        """Take note that a rank ends with an error."""
        with self._lock:
            self.verdict = self.verdict or f"rank {rank} ended with {text}"
            self._ranks[rank].left = True
            return self.verdict

    def left(self, rank: int, text: str) -> str:
        """Take note that a rank ends as it should; `text` has its exchanges."""
        with self._lock:
            known, now = self._ranks[rank], self._now()
            self._count(known, json.loads(text), now)
            known.left, known.since = True, now
            return self.verdict

    def _count(self, known: _Known, state: dict[str, Any], now: float) -> None:
        """Take a rank's exchanges. For those that had begun the most, nobody has waited until now."""
        most = max(other.exchanges for other in self._ranks.values())
        for other in self._ranks.values():
            if other.exchanges == most:
                other.since = now
        if state["exchanges"] != known.exchanges:
            known.exchanges, known.since = state["exchanges"], now
            known.what, known.trace = state["what"], state["trace"]

    def _judge(self, now: float) -> None:
        self.verdict = self.verdict or self._differing()
        if self.verdict:
            return
        numbers = [known.exchanges for known in self._ranks.values()]
        least, most = min(numbers), max(numbers)
        for rank, known in self._ranks.items():
            behind = known.exchanges == least < most and now - known.since > self._timeout
            if known.left:
                if behind:
                    self.verdict = f"rank {rank} ended after exchange {known.exchanges}, and the others wait for more"
            elif now - known.heard > self._silence:
                self.verdict = (
                    f"rank {rank} has not been heard of for {now - known.heard:.0f} s: it was killed, or its machine "
                    f"is gone; it was at {known.where or _place(known)}"
                )
            elif behind:
                self.verdict = (
                    f"rank {rank} hangs: others wait in exchange {known.exchanges + 1} for {now - known.since:.0f} s, "
                    f"it is at {known.where or _place(known)}"
                )
            if self.verdict:
                return

    def _differing(self) -> str:
        """Verdict on ranks that have begun as many exchanges, but not the same ones."""
        firsts: dict[int, int] = {}  # by number of exchanges: a rank
        for rank, known in self._ranks.items():
            first = firsts.setdefault(known.exchanges, rank)
            if (other := self._ranks[first]).trace != known.trace:
                each = f"exchange {known.exchanges} of rank {first} is {other.what}, of rank {rank} {known.what}"
                return f"the ranks do not make the same exchanges: {each}{' after others' * (other.what == known.what)}"
        return ""

    @property
    def all_left(self) -> bool:
        """True if every rank has ended as it should."""
        return all(known.left for known in self._ranks.values())

    @property
    def functions(self) -> dict[str, Callable[..., str]]:
        """Functions that the other ranks may call."""
        return {REPORT: self.report, RAISED: self.raised, LEFT: self.left, STOP: self.stop, PAUSED: self.paused}


class Watch:
    """One rank's part: it reports, and ends the process when rank 0 says so.

    Attributes:
        begun: how many steps of training it has begun.
        stopped: the step behind which all ranks have stopped together the last time, or -1.
    """

    def __init__(self, client: Client, rank: int, world_size: int, abort: Callable[[], None], timeout: float) -> None:
        self._client, self._rank, self._abort = client, rank, abort
        self._silence = silence_of(world_size, timeout)
        self._seconds = max(REPORT_SECONDS, PER_RANK_SECONDS * world_size)
        self._last = 0, 0, ""  # how many exchanges it has begun, a checksum of them, and which was the last
        self.begun, self.stopped = 0, -1
        self._asked = 0, ""  # the number of the last stop that it has heard of, and what has asked for it
        self._stops = 0  # the number of the last one that was made
        self._main = threading.main_thread().ident
        self._over = threading.Event()
        self._hook = sys.excepthook
        sys.excepthook = self._on_exception
        threading.Thread(target=self._run, name="alpha-watch", daemon=True).start()

    def count(self, what: str) -> None:
        """Count an exchange that begins now; in a captured step also each time that it is replayed."""
        self._count(what)
        recording.again(partial(self._count, what))

    def _count(self, what: str) -> None:
        number, trace, _ = self._last
        self._last = number + 1, zlib.crc32(what.encode(), trace), what  # at once, for the thread that reports

    @property
    def exchanges(self) -> int:
        """Number of exchanges with other ranks that this one has begun."""
        return self._last[0]

    def _counted(self) -> dict[str, Any]:
        return dict(zip(("exchanges", "trace", "what"), self._last, strict=True))

    def _run(self) -> None:
        client, heard, before = self._client.copy(), time.monotonic(), -1
        while not self._over.wait(self._seconds):
            state = {**self._counted(), "busy": activity(), "begun": self.begun, "stop": self._asked[0]}
            state["where"] = self._where() if state["exchanges"] == before else ""  # of one that may hang
            before = state["exchanges"]
            try:
                verdict, asked = json.loads(client.call(REPORT, json.dumps(state)))
                heard = time.monotonic()
                self._asked = max(self._asked, tuple(asked))  # an answer may be late
            except (OSError, xmlrpc.client.Error):
                client = client.copy()
                silent = time.monotonic() - heard
                verdict = ""
                if silent > self._silence:
                    verdict = f"rank 0 has not been heard of for {silent:.0f} s: it was killed, or its machine is gone"
            if verdict and not self._over.is_set():
                self._end(verdict)

    def stops_here(self, why: str) -> str:
        """Reason to stop behind the last step that was begun, the same on all ranks; empty to go on.

        Args:
            why: a reason of this rank's own, or empty.
        """
        if why:
            self._asked = tuple(json.loads(self._client.call(STOP, why)))
        number, reason = self._asked
        if number <= self._stops:
            return ""
        while (answer := self._client.call(PAUSED, json.dumps([self.begun, self.exchanges]))) != GO:
            if answer == STOP:
                self._stops, self.stopped = number, self.begun
                return reason
            time.sleep(POLL_SECONDS)
        return ""

    def _where(self) -> str:
        """The line of the program at which the main thread is."""
        lines = lines_of(self._main or 0)
        own = [line for line in lines if not any(folder in line for folder in OF_OTHERS)]
        return next(iter(own or lines), "")

    def _end(self, verdict: str) -> None:
        explain()
        sys.stdout.flush()
        print(f"rank {self._rank} ends: {verdict}", file=sys.stderr, flush=True)
        os._exit(1)

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Print the error as usual, tell the others, and end; nobody waits for this rank any more.

        Ctrl-C is no error. If all ranks have stopped because of it, this one ends as it should, and leaves the group at
        the end of the program; otherwise the others end with it, too.
        """
        text = f"{kind.__name__}: {error}" if str(error) else kind.__name__
        if issubclass(kind, KeyboardInterrupt):
            status = getattr(error, "status", STOPPED)
            if self.stopped == self.begun:
                if self._rank == 0:
                    print(f"all ranks have stopped: {text}", file=sys.stderr, flush=True)
                raise SystemExit(status)  # which Python takes from a hook
            self._over.set()
            print(f"rank {self._rank} ends with {text}", file=sys.stderr)
            self.fail(text, status)
        self._over.set()
        print(f"rank {self._rank} ends with an error:", file=sys.stderr)
        self._hook(kind, error, trace)
        self.fail(text, 1)

    def fail(self, text: str, status: int) -> None:
        """Tell the others that this rank ends with an error, and end the process with that status."""
        self._over.set()
        explain(status=status)
        sys.stdout.flush()
        sys.stderr.flush()
        with suppress(OSError, xmlrpc.client.Error):  # if rank 0 is gone, all end
            self._client.copy().call(RAISED, text)
            time.sleep(3 * self._seconds)  # in which the others hear of it
        try:
            self._abort()
        finally:
            os._exit(status)

    def leave(self, judge: Judge | None) -> None:
        """Say that this rank ends as it should, and watch no more; rank 0 has the judge and waits for the others."""
        if judge is not None:
            self._wait_for_others(judge)
        self._over.set()
        self.give_back_hook()
        with suppress(OSError, xmlrpc.client.Error):
            self._client.copy().call(LEFT, json.dumps(self._counted()))

    def give_back_hook(self) -> None:
        """Leave errors to the hook that was there before."""
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._hook

    def _wait_for_others(self, judge: Judge) -> None:
        judge.left(self._rank, json.dumps(self._counted()))
        while not judge.all_left:  # meanwhile the thread of this rank ends the process if one of them fails
            time.sleep(POLL_SECONDS)


def new_judge(world_size: int, timeout: float) -> Judge:
    """The judge of a group."""
    return Judge(world_size, timeout, silence_of(world_size, timeout))


def silence_of(world_size: int, timeout: float) -> float:
    """Seconds after which a rank that says nothing is dead: a call in C may keep its thread from reporting."""
    return max(timeout, SILENT_REPORTS * max(REPORT_SECONDS, PER_RANK_SECONDS * world_size))
