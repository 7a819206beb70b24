"""The recording of a capture on the emulated driver: nodes on two streams, which events order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Node = TypeVar("Node")


@dataclass(frozen=True)
class Mark:
    """A point of a stream of a capture: behind its first `count` nodes."""

    beside: bool
    count: int


class Capture(Generic[Node]):
    """Nodes of two streams, in the order in which they were recorded, and what waits for what.

    A GPU may run work of the second stream at any time that its waits allow. The emulated driver runs it as late, or as
    early, as they allow.

    Attributes:
        beside: whether what is recorded now is on the second stream.
    """

    def __init__(self) -> None:
        self.beside = False
        self._nodes: list[tuple[bool, Node]] = []  # in the order of recording; True: of the second stream
        self._counts = [0, 0]
        self._after: list[int] = []  # by node of the second stream, the nodes of the first one that it waits for
        self._waited = 0  # nodes of the first stream that the second one waits for from here on
        self._joins: list[tuple[int, int]] = []  # (nodes of the first stream, behind which it waits for so many others)

    def add(self, node: Node) -> None:
        """Record a node."""
        if self.beside:
            self._after.append(self._waited)
        self._nodes.append((self.beside, node))
        self._counts[self.beside] += 1

    def mark(self) -> Mark:
        """The point that the stream has reached."""
        return Mark(self.beside, self._counts[self.beside])

    def wait(self, mark: Mark) -> None:
        """Let what is recorded on this stream from here on begin behind a point of the other one."""
        if mark.beside == self.beside:
            return
        if self.beside:
            self._waited = max(self._waited, mark.count)
        else:
            self._joins.append((self._counts[False], mark.count))

    @property
    def has_joined(self) -> bool:
        """True if the first stream waits for all nodes of the second one."""
        return max([count for _, count in self._joins], default=0) == self._counts[True] and not self.beside

    def ordered(self, early: bool) -> list[tuple[int, Node]]:
        """Each node with its place in the order of recording; those of the second stream early, or late."""
        first = [(place, node) for place, (beside, node) in enumerate(self._nodes) if not beside]
        second = [(place, node) for place, (beside, node) in enumerate(self._nodes) if beside]
        found: list[tuple[int, Node]] = []
        done = 0
        for count in range(len(first) + 1):
            due = max([needed for place, needed in self._joins if place <= count], default=0)
            while done < len(second) and (done < due or (early and self._after[done] <= count)):
                found.append(second[done])
                done += 1
            found += first[count : count + 1]
        return found
