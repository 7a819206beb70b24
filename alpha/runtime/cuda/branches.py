"""Two branches of a captured step: work that may run at the same time.

The kernels of a step mostly wait for each other. At the end of each some multiprocessors are idle, while its last
blocks still run. Nothing waits for the gradient of a weight before the optimizer does, so its kernels are given to a
second stream, and run on the multiprocessors that the others leave.

`Branches.fork` marks a point of the step, and `run` records work on the second stream that begins behind that point.
Each launch is compared with what the other branch was given: it waits if one of the two writes memory that the other
one reads or writes. Memory that the second branch uses is not used anew before it has joined, at the next fork at the
latest. `go_on` records work behind that of `run` on the second stream, as the exchange of the gradients that it has
made. So a step is recorded as if there were one stream, and computes the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from alpha.runtime.arena.arena import Block
from alpha.runtime.cuda.array import DeviceArray

if TYPE_CHECKING:
    from alpha.runtime.cuda.driver import Driver

T = TypeVar("T")
Arrays = Iterable[DeviceArray]


class Touched:
    """Memory that a branch reads and writes, as (begin, end) of blocks."""

    def __init__(self) -> None:
        self._read: set[tuple[int, int]] = set()
        self._written: set[tuple[int, int]] = set()

    def add(self, read: Arrays, written: Arrays) -> None:
        """Note what a launch reads and writes."""
        self._read |= _places(read)
        self._written |= _places(written)

    def meets(self, read: Arrays, written: Arrays) -> bool:
        """True if a launch must be ordered: it writes what is noted, or reads what is noted as written."""
        reads, writes = _places(read), _places(written)
        return _overlap(writes, self._read) or _overlap(reads | writes, self._written)


def _places(arrays: Arrays) -> set[tuple[int, int]]:
    blocks = [array.block for array in arrays]
    return {(block.address, block.address + block.nbytes) for block in blocks}


def _overlap(some: set[tuple[int, int]], others: set[tuple[int, int]]) -> bool:
    return any(begin < stop and start < end for begin, end in some for start, stop in others)


class Branches:
    """The work beside the other work of a step that is being captured.

    An interrupt in the lines that change the stream loses no order: the way back to the stream of the step may be gone
    twice, and the last thing that it does is to note that it has arrived. If the interrupt comes just behind the first
    wait of the second stream, that stream does not join, and the driver refuses the capture.

    Attributes:
        running: whether what is recorded now belongs to the second branch.
    """

    def __init__(self, driver: Driver) -> None:
        self.running = False
        self._driver = driver
        self._point: Any = None  # that the next work of the second branch waits for
        self._end: Any = None  # of the second branch; None: it has joined
        self._first = Touched()  # since the point
        self._second = Touched()  # since it joined
        self._entered = False  # whether the second stream belongs to the capture: it waits for an event of it
        self._waits = False  # whether `run` is expected, so that blocks of the first branch are held for it
        self._held: dict[bool, dict[int, Block]] = {False: {}, True: {}}  # blocks in use, by `running`

    def fork(self) -> None:
        """Mark the point behind which the work of `run` may begin. What ran beside until here joins."""
        self.join()
        self._mark()
        self._waits = True

    def run(self, function: Callable[[], T]) -> T:
        """Call `function`, whose work belongs to the second branch, also if it raises and the step goes on."""
        try:
            self.running = True
            self._driver.switch(True)
            self._driver.wait_for(self._point)
            self._entered = True
            result = function()
            self._go_back()
        except BaseException:
            self._go_back()
            raise
        return result

    def go_on(self, function: Callable[[], T]) -> T:
        """Call `function`; its work belongs to the second branch if work there has not joined, otherwise to the first.

        So what needs the results of `run` does not make the first branch wait for them.
        """
        return function() if self._end is None or self.running else self.run(function)

    def _go_back(self) -> None:
        if self.running:
            if self._entered:
                self._driver.switch(True)
                self._end = self._driver.record_event()
            self._waits = False
            self._driver.switch(False)
            self._held[False].clear()
            self.running = False

    def join(self) -> None:
        """Let the work from here on begin behind that of the second branch."""
        if self._end is not None:
            self._driver.wait_for(self._end)
            self._end = None
        self._second = Touched()
        self._held[True].clear()

    def note(self, read: Arrays, written: Arrays) -> None:
        """Order what is about to be recorded behind the work of the other branch, where their memory demands it."""
        if self._point is None:
            return
        if self.running and self._first.meets(read, written):
            self._driver.switch(False)
            self._mark()
            self._driver.switch(True)
            self._driver.wait_for(self._point)
        elif not self.running and self._second.meets(read, written):
            self.join()
        (self._second if self.running else self._first).add(read, written)
        if self.running or self._waits:
            self._held[self.running].update((id(array.block), array.block) for array in (*read, *written))

    def _mark(self) -> None:
        self._point = self._driver.record_event()
        self._first = Touched()
