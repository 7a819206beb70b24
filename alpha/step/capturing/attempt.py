"""Attempts to capture a step: its Python code runs and is recorded, then the graph does the recorded work once.

A captured function keeps its calls of one kind, and the captures of it that have not led to a graph yet (`Trial`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any

from alpha.autograd.derived import derived_of, refresh
from alpha.core import rng
from alpha.core.nested import map_tensors
from alpha.core.tensor import Tensor
from alpha.errors import CaptureError, OutOfMemoryError
from alpha.runtime.cuda.array import DeviceArray
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.graphs import CudaRecording, StepGraph
from alpha.runtime.cuda.graphs import capture as capture_graph
from alpha.runtime.cuda.scratch import Life, MemoryPlan
from alpha.step.call_arguments import Arguments, memories_of
from alpha.step.capturing.host_state import HostState
from alpha.step.capturing.rebound import Bound
from alpha.step.capturing.replay import Entry, Gradient, Handing, Replay, copy_inputs, odd_result, place_of
from alpha.step.sources.ran import Ran
from alpha.step.sources.watch import Watch

MOST_DOUBTS = 3  # calls in which something may speak against a capture: the first calls often make something once
FIRST_REST = 64  # calls that run as usual after the first refusal
GROWTH = 4  # how many times as many after the next one


@dataclass
class Trial:
    """Captures of one kind of call that have not led to a graph yet."""

    inputs: list[Tensor] | None = None
    plan: MemoryPlan | None = None  # of the memory, made of what the first capture asked for
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
        """True if this call runs as usual, because the step is refused.

        After the last such call one doubt suffices to refuse it again.
        """
        if self.refused:
            self.rest -= 1
            if self.rest < 0:
                self.refused, self.doubts = "", MOST_DOUBTS - 1
        return bool(self.refused)


def difference(before: list[tuple[Any, ...]] | None, notes: CudaRecording) -> str:
    """Difference between the records of two captures, in words."""
    if before is None:
        return ""
    for number, (a, b) in enumerate(zip(before, notes.nodes, strict=False)):
        if a != b:
            what = "gets other arguments" if a[0] == b[0] else "is another one"
            return f"launch {number + 1}, {b[0]}, {what} at each call, at {notes.places[number]}"
    if len(before) != len(notes.nodes):
        return f"it launches {len(before)} kernels in one call and {len(notes.nodes)} in the next"
    return ""


def difference_of_lives(before: Sequence[Life], lives: Sequence[Life]) -> str:
    """Difference between the memory that two captures have asked for, in words."""
    for number, (a, b) in enumerate(zip(before, lives, strict=False)):
        if a.nbytes != b.nbytes:
            return f"array {number + 1} that it asks for has {a.nbytes:,} bytes in one call, {b.nbytes:,} in the next"
        if a != b:
            return (
                f"array {number + 1} that it asks for, of {a.nbytes:,} bytes, is dropped {_end(a, before)} in one "
                f"call, {_end(b, lives)} in the next"
            )
    if len(before) != len(lives):
        return f"it asks for {len(before)} arrays in one call and {len(lives)} in the next"
    return ""


def _end(life: Life, lives: Sequence[Life]) -> str:
    """The place among the arrays that a step asks for at which it drops one of them."""
    if life.death == inf:
        return "with its result"
    return f"before array {life.death + 1}" if life.death < len(lives) else "behind the last one"


class Attempt:
    """A capture of a step. All memory that it takes is asked for before the graph runs.

    So an error up to there, as for want of memory, leaves everything as before the call, and there is none afterwards.

    Args:
        holders: with what the captured step itself holds tensors and arrays.

    Attributes:
        notes, graph: what was recorded.
        host: the state of the host before.
        result: of the step.
        why: why there are no replays, in words, although another capture would not help; set by `finish`.
        differs: what the last capture has not recorded alike, in words; set by `finish`.
    """

    graph: StepGraph
    result: Any = None
    why = differs = ""

    def __init__(
        self, device: CudaDevice, trial: Trial, arguments: Arguments, watch: Watch, holders: Iterable[Any]
    ) -> None:
        self._device, self._trial, self._watch = device, trial, watch
        if trial.inputs is None:
            trial.inputs = [Tensor(device.copy(tensor.array)) for tensor in arguments.tensors]
        else:
            copy_inputs(device, trial.inputs, arguments)
        self._inputs = trial.inputs
        for tensor in watch.tensors:  # so that all captures begin alike
            refresh(derived_of(tensor.array))
        device.memory.clear_scratch()
        self.notes, self.host = CudaRecording(device, capturing=True), HostState(watch)
        self._given = arguments.tensors
        self._bound = Bound(watch, self.host, holders)
        versions = [tensor._version for tensor in (*watch.tensors, *self._inputs, *self._given)]
        for version in versions:  # a write to a part is one to the memory of which it is a copy
            if (base := version.base()) is not None:
                versions.append(base)
        self._counts = [(version, version.value, version.recorded) for version in versions]
        self._arguments = arguments.replaced(self._inputs)
        self._state = rng.default.state()
        self._entries = [Entry(leaf, trial.gradients.get(id(leaf))) for leaf in watch.leaves]

    def run(self, function: Callable[..., Any], ran: Ran) -> str:
        """Record the step, do it, note what has run, and return what it changes or asks for on the host, in words."""
        args, kwargs = self._arguments
        closing: Callable[[], None] | None = None
        launched: list[Any] = []

        def step() -> Any:
            with ran.watching():
                result = function(*args, **kwargs)
            self._bound.settle(self._device, result, self.notes.held)
            refresh(self.notes.derived)  # so that the next replay need not do it
            return result

        try:
            self.result, self.graph = capture_graph(self._device, self.notes, step, self._trial.plan)
            closing = self.graph.close
            if not self._written().isdisjoint(memories_of((*self._inputs, *self._given))):
                raise CaptureError("it writes an argument in place")
            changes = [*self.host.changes(), *ran.asked]
            self.graph.launch(launched)
            self._gradients = self._leave()
        except BaseException:
            if launched:  # the device does the step
                self._leave()
            else:
                self._undo()
            if closing is not None:
                closing()
            raise
        return changes[0] if changes else ""

    def _written(self) -> set[int]:
        """The ids of the versions of the memory that it has written in place."""
        return {id(version) for version, value, _ in self._counts if version.value != value}

    def _leave(self) -> list[Gradient]:
        """State of the gradients after the step; to ask for it twice does no harm."""
        return [entry.leave(self._device) for entry in self._entries]

    def _undo(self) -> None:
        self.result = None
        for entry in self._entries:
            entry.leaf._grad = entry.before
        rng.default.set_state(self._state)
        self._bound.restore()
        self.host.restore()
        for value in self.notes.derived:
            value.forget()

    def finish(self, why: str) -> Replay | None:
        """Give the program what the step has made; return its replays unless `why` or the last capture is against them.

        Without them, the `Trial` has what the next capture is compared with. `result` is what the call returns.
        """
        trial, device = self._trial, self._device
        result = self.result
        gradients = self._gradients
        versions = [
            (version, version.value - value, version.recorded - recorded, version.writer)
            for version, value, recorded in self._counts
            if version.value != value
        ]
        why = why or odd_result(result, self._watch, self._inputs)
        self.result = map_tensors(result, Handing(self._inputs, self._given, self._watch.tensors))
        read = [entry for entry in self._entries if entry.is_read(self.notes)]
        self.why, self.differs = why, difference(trial.nodes, self.notes)
        if why or self.differs or read or trial.nodes is None:
            self._compare_later(read)
            return None
        places: dict[int, Any] = {}

        def place(tensor: Tensor) -> Any:
            kept = any(tensor is own for own in (*self._inputs, *self._watch.tensors))
            return places.setdefault(id(tensor), tensor if kept else place_of(device, tensor.detach()))

        template = map_tensors(result, place)
        return Replay(self.graph, self._watch, self._inputs, gradients, versions, template, self._bound.copied_to)

    def _compare_later(self, read: list[Entry]) -> None:
        """Keep of this capture what the next one is compared with, and not its graph."""
        trial, device, graph = self._trial, self._device, self.graph
        with suppress(OutOfMemoryError):  # what the step has made stays; the next step moves what finds no room now
            device.memory.clear_scratch()
        graph.close()
        trial.nodes, trial.count = None if read else self.notes.nodes, trial.count + 1
        if trial.plan is None or trial.plan.lives != graph.trace.lives:
            if trial.plan is not None and not self.differs:
                self.differs = difference_of_lives(trial.plan.lives, graph.trace.lives)
            trial.plan, trial.nodes = MemoryPlan(graph.trace.lives), None
            if device.scratch.is_range:  # else the next capture would have other addresses
                device.scratch.trim()
        with suppress(OutOfMemoryError):
            trial.gradients |= {id(e.leaf): device.empty(e.leaf.shape, e.leaf.dtype) for e in read}
        if trial.watch is not None and (cause := trial.watch.change()) and self.differs:
            self.differs = f"{self.differs}; {cause}"
        trial.watch = self._watch
