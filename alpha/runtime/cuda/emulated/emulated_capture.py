"""The recording of a capture on the emulated driver: nodes on several streams, which events order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Generic, TypeVar

from alpha.errors import DeviceError

Node = TypeVar("Node")
STEP, BESIDE, EXCHANGES = range(3)  # the streams; the last is that of another library, see `Driver.hand_over`
ORDERS = tuple(permutations((STEP, BESIDE, EXCHANGES)))  # of preference, from late to early


@dataclass(frozen=True)
class Mark:
    """A point of a stream of a capture: how many nodes of each stream lie before it."""

    capture: Capture[Any]
    behind: tuple[int, ...]


class Capture(Generic[Node]):
    """Nodes of some streams, in the order in which they were recorded, and what waits for what.

    A GPU may run the streams in any order that their waits allow. The emulated driver always takes the next node of the
    most preferred stream whose waits are over.

    Attributes:
        stream: the one on which nodes are recorded now.
    """

    def __init__(self) -> None:
        self.stream = STEP
        count = len(ORDERS[0])
        self._nodes: list[tuple[int, Node]] = []  # with their streams, in the order of recording
        self._after: list[list[tuple[int, ...]]] = [[] for _ in range(count)]  # by stream, what its nodes wait for
        self._behind = [[0] * count for _ in range(count)]  # by stream, the nodes of all that it has or waits for
        self._begun = {STEP}  # the streams that belong to the capture

    def add(self, node: Node) -> None:
        """Record a node."""
        self._check()
        behind = self._behind[self.stream]
        self._after[self.stream].append(tuple(behind))
        behind[self.stream] += 1
        self._nodes.append((self.stream, node))

    def mark(self) -> Mark:
        """The point that the stream has reached."""
        self._check()
        return Mark(self, tuple(self._behind[self.stream]))

    def _check(self) -> None:
        if self.stream not in self._begun:
            raise DeviceError(f"stream {self.stream} waits for nothing of the capture, so it is no part of it")

    def wait(self, mark: Mark) -> None:
        """Let what is recorded on this stream from here on begin behind a point of any stream."""
        if mark.capture is not self:
            raise DeviceError("wait_for: the event is of another capture")
        self._begun.add(self.stream)
        self._behind[self.stream] = list(map(max, self._behind[self.stream], mark.behind))

    def hand_over(self, node: Node) -> None:
        """Record a node on the stream of another library, behind all that this stream has."""
        before, mark = self.stream, self.mark()
        self.stream = EXCHANGES
        self.wait(mark)
        self.add(node)
        self.stream = before

    def join(self) -> None:
        """Let this stream wait for what was handed over."""
        self._behind[self.stream] = list(map(max, self._behind[self.stream], self._behind[EXCHANGES]))

    @property
    def has_joined(self) -> bool:
        """True if the stream of the step is the current one, and waits for all nodes of the others."""
        return self.stream == STEP and self._behind[STEP] == list(map(len, self._after))

    def ordered(self, preferred: Sequence[int]) -> list[tuple[int, Node]]:
        """Each node with its place in the order of recording: always the next one of the most preferred stream.

        Args:
            preferred: all streams. A stream whose next node must wait is passed over. The first of `ORDERS` runs the
                others as late as they may, and the last as early.
        """
        rest = [[each for each in enumerate(self._nodes) if each[1][0] == stream] for stream in range(len(preferred))]
        done = [0] * len(preferred)
        found: list[tuple[int, Node]] = []
        while len(found) < len(self._nodes):
            ready = (
                stream
                for stream in preferred
                if done[stream] < len(rest[stream]) and all(map(int.__ge__, done, self._after[stream][done[stream]]))
            )
            stream = next(ready)
            place, (_, node) = rest[stream][done[stream]]
            found.append((place, node))
            done[stream] += 1
        return found
