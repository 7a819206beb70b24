"""Branches of a captured step: work that may run at the same time.

The kernels of a step mostly wait for each other. At the end of each some multiprocessors are idle, while its last
blocks still run. Two kinds of work need not wait for the kernels that the step asked for just before, and have streams
of their own, so that they run on the multiprocessors that the others leave:

- The gradient of a weight, for which nothing waits before the optimizer does. `Branches.fork` marks a point of the
  step, and `run` records work on the second stream that begins behind that point.
- The update of a weight, whose gradient was complete long before the backward pass has ended. `overtake` records work
  on the third stream that waits only for the last work that used its memory.

Each launch is compared with what the other branches were given: it waits if one of the two writes memory that the other
one reads or writes. Memory that the second branch uses is not used anew before it has joined, at the next fork at the
latest. So a step is recorded as if there were one stream, and computes the same bits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from alpha.runtime.arena.arena import Block
from alpha.runtime.cuda.array import DeviceArray

if TYPE_CHECKING:
    from alpha.runtime.cuda.driver import Driver

T = TypeVar("T")
Arrays = Iterable[DeviceArray]
Span: TypeAlias = tuple[int, int]  # the addresses at which a block begins and ends

STEP, SECOND, THIRD = range(3)  # the streams
SEGMENT = 8  # launches: the third stream waits for a few more than it must


class Spans:
    """Blocks of memory, which may overlap."""

    def __init__(self) -> None:
        self._found: set[Span] = set()
        self._begins: list[int] = []  # of the blocks, joined where they meet, in ascending order
        self._ends: list[int] = []

    def add(self, spans: set[Span]) -> None:
        """Add blocks."""
        if not spans <= self._found:
            self._found |= spans
            self._ends = []

    def meet(self, spans: set[Span]) -> bool:
        """True if one of these blocks shares memory with one that was added."""
        if not self._ends:
            self._join()
        for begin, end in spans:
            at = bisect_left(self._ends, begin + 1)  # the first that ends behind the beginning
            if at < len(self._ends) and self._begins[at] < end:
                return True
        return False

    def _join(self) -> None:
        self._begins = []
        for begin, end in sorted(self._found):
            if self._ends and begin <= self._ends[-1]:
                self._ends[-1] = max(end, self._ends[-1])
            else:
                self._begins.append(begin)
                self._ends.append(end)


class Memory(NamedTuple):
    """The blocks of a launch: those that it only reads, and those that it writes."""

    read: set[Span]
    written: set[Span]

    @classmethod
    def of(cls, read: Arrays, written: Arrays) -> Memory:
        """The blocks of these arrays."""
        return cls(_spans(read), _spans(written))


def _spans(arrays: Arrays) -> set[Span]:
    blocks = [array.block for array in arrays]
    return {(block.address, block.address + block.nbytes) for block in blocks}


class Touched:
    """Memory that some launches read and write."""

    def __init__(self) -> None:
        self._read, self._written = Spans(), Spans()

    def add(self, memory: Memory) -> None:
        """Note a launch."""
        self._read.add(memory.read)
        self._written.add(memory.written)

    def meets(self, memory: Memory) -> bool:
        """True if a launch must be ordered: it writes what is noted, or reads what is noted as written."""
        written = self._written
        return self._read.meet(memory.written) or written.meet(memory.written) or written.meet(memory.read)


class Segment(NamedTuple):
    """Launches of a stream up to an event, and the event. `touched` may have more, but nothing of another stream."""

    event: Any
    touched: Touched


class Branches:
    """The work beside the other work of a step that is being captured.

    An interrupt in the lines that change the stream loses no order: the way back to the stream of the step may be gone
    twice, and the last thing that it does is to note that it has arrived.

    Attributes:
        stream: the number of the one to which belongs what is recorded now.
    """

    def __init__(self, driver: Driver) -> None:
        self.stream = STEP
        self._driver = driver
        self._point: Any = None  # that the next work of the second branch waits for
        self._end: Any = None  # of the second branch; None: it has joined
        self._first = Touched()  # by the step since the point
        self._second = Touched()  # by the second branch since it joined
        self._waits = False  # whether `run` is expected, so that blocks of the first branch are held for it
        self._held: dict[bool, dict[int, Block]] = {False: {}, True: {}}  # blocks in use, of the second branch or not
        self._segments: tuple[list[Segment], list[Segment]] = [], []  # of the first two streams
        self._open = Touched()  # by the step since the end of its last segment
        self._launches = 0  # of the open segment
        self._behind = [0, 0]  # by stream, how many segments the third one has waited for
        self._given_away = Touched()  # by other libraries, for which the stream of the step alone waits

    def fork(self) -> None:
        """Mark the point behind which the work of `run` may begin. What ran beside until here joins."""
        self.join()
        self._mark()
        self._waits = True

    def run(self, function: Callable[[], T]) -> T:
        """Call `function`, whose work belongs to the second branch, also if it raises and the step goes on."""
        try:
            self._leave(SECOND)
            self._driver.wait_for(self._point)
            result = function()
            self._go_back()
        except BaseException:
            self._go_back()
            raise
        return result

    def _leave(self, stream: int) -> None:
        self.stream = stream
        self._driver.switch(stream)

    def _go_back(self) -> None:
        if self.stream == SECOND:
            self._driver.switch(SECOND)
            self._end = self._driver.record_event()
            self._segments[SECOND].append(Segment(self._end, self._second))
            self._waits = False
            self._driver.switch(STEP)
            self._held[False].clear()
            self.stream = STEP

    def join(self) -> None:
        """Let the work from here on begin behind that of the second branch."""
        if self._end is not None:
            self._driver.wait_for(self._end)
            self._end = None
        self._second = Touched()
        self._held[True].clear()

    def overtake(self, function: Callable[[], T]) -> T:
        """Call `function`, whose work waits only for the last work that used its memory.

        All later work of the step waits for it. If the step is on another branch, the work belongs to that one.
        """
        if self.stream != STEP:
            return function()
        if not self._segments[STEP]:
            self._end_segment()
        try:
            self._leave(THIRD)
            self._driver.wait_for(self._segments[STEP][0].event)  # of the capture is what waits for an event of it
            result = function()
            self._come_back()
        except BaseException:
            self._come_back()
            raise
        return result

    def _come_back(self) -> None:
        if self.stream == THIRD:
            self._driver.switch(THIRD)
            end = self._driver.record_event()
            self._driver.switch(STEP)
            self._driver.wait_for(end)
            self._mark()  # behind which work of the second branch, too, is behind that of the third
            self.stream = STEP

    def note(self, read: Arrays, written: Arrays, given_away: bool = False) -> None:
        """Order what is about to be recorded behind the work of the other branches, where their memory demands it.

        given_away: it is work of another library, which may end later than what the step asks for next.
        """
        memory = Memory.of(read, written)
        if self.stream == THIRD:
            self._wait_for_memory(memory)
            return
        beside = self.stream == SECOND
        if beside:
            if self._first.meets(memory) or self._given_away.meets(memory):
                self._driver.switch(STEP)
                self._mark()
                self._driver.switch(SECOND)
                self._driver.wait_for(self._point)
            self._second.add(memory)
        else:
            if self._second.meets(memory):
                self.join()
            if self._launches == SEGMENT:
                self._end_segment()
            self._launches += 1
            self._first.add(memory)
            self._open.add(memory)
        if given_away:
            self._given_away.add(memory)
        if beside or self._waits:
            self._held[beside].update((id(array.block), array.block) for array in (*read, *written))

    def _wait_for_memory(self, memory: Memory) -> None:
        """Let the third stream wait for the last of the work that used this memory, on each of the others."""
        if self._open.meets(memory) or self._given_away.meets(memory):
            self._driver.switch(STEP)
            event = self._end_segment()
            self._driver.switch(THIRD)
            self._driver.wait_for(event)
            self._behind[STEP] = len(self._segments[STEP])
        for stream, segments in enumerate(self._segments):
            for number in range(len(segments), self._behind[stream], -1):
                if segments[number - 1].touched.meets(memory):
                    self._driver.wait_for(segments[number - 1].event)
                    self._behind[stream] = number
                    break

    def _mark(self) -> None:
        self._point = self._end_segment()
        self._first = Touched()

    def _end_segment(self) -> Any:
        """An event behind all work of the step. The current stream is that of the step."""
        event = self._driver.record_event()
        if self._launches or not self._segments[STEP]:
            self._segments[STEP].append(Segment(event, self._open))
            self._open, self._launches = Touched(), 0
        return event
