"""What a captured function knows of its calls: those of one kind, and the captures that have not led to a graph yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from alpha.core.tensor import Tensor
from alpha.runtime.cuda.array import DeviceArray
from alpha.runtime.cuda.graphs import CudaRecording
from alpha.runtime.cuda.plan import Plan
from alpha.step.replay import Replay
from alpha.step.watch import Watch

MOST_DOUBTS = 3  # calls in which something may speak against a capture: the first calls often make something once
FIRST_REST = 64  # calls that run as usual after the first refusal
GROWTH = 4  # how many times as many after the next one


@dataclass
class Trial:
    """Captures of one kind of call that have not led to a graph yet."""

    inputs: list[Tensor] | None = None
    plan: Plan | None = None  # of the memory, made of what the first capture asked for
    nodes: list[tuple[Any, ...]] | None = None  # of the last capture that followed the plan
    gradients: dict[int, DeviceArray] = field(default_factory=dict)  # by the id of the leaf: see `Gradient.input`
    watch: Watch | None = None  # of the last capture
    count: int = 0


@dataclass
class Kind:
    """The calls with the same shapes, numbers and modes."""

    replays: list[Replay] = field(default_factory=list)  # the last used first
    trials: dict[Any, Trial] = field(default_factory=dict)  # by which leaves have gradients at the beginning
    misses: int = 0  # calls in a row for which none of the graphs was right
    doubts: int = 0  # calls in which something spoke against a capture, since the last replay
    doubted: str = ""  # what it was in the last of them, in words
    watched: bool = False  # whether the next call runs as usual, to see whether something still does
    refused: str = ""  # why all calls run as usual until `rest` of them have passed
    rest: int = 0
    next_rest: int = FIRST_REST

    def refuse(self, why: str) -> None:
        """Run the next calls as usual; after each refusal more of them."""
        self.refused, self.rest, self.next_rest = why, self.next_rest, GROWTH * self.next_rest
        self.misses, self.watched = 0, True
        self.trials.clear()
        for replay in self.replays:
            replay.graph.close()
        self.replays.clear()

    def is_resting(self) -> bool:
        """Whether this call runs as usual, because it is refused. If it is not any more, one doubt suffices."""
        if self.refused:
            self.rest -= 1
            if self.rest < 0:
                self.refused, self.doubts = "", MOST_DOUBTS - 1
        return bool(self.refused)


def difference(before: list[tuple[Any, ...]] | None, notes: CudaRecording) -> str:
    """What two captures did not record alike, in words."""
    if before is None:
        return ""
    for number, (a, b) in enumerate(zip(before, notes.nodes, strict=False)):
        if a != b:
            what = "gets other arguments" if a[0] == b[0] else "is another one"
            return f"launch {number + 1}, {b[0]}, {what} at each call, at {notes.places[number]}"
    if len(before) != len(notes.nodes):
        return f"it launches {len(before)} kernels in one call and {len(notes.nodes)} in the next"
    return ""
