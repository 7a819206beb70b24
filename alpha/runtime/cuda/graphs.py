"""Captured steps of a device: their memory, their values that change, and their replay.

The arrays that a step makes lie in the *scratch* arena, which all captured steps of a device share. A replay writes
every array before it reads it, so the memory is free for the next step as soon as a step has ended. What is still alive
then, such as a gradient or a loss that the program holds, is moved out before the scratch memory is written again. So
an array never changes under the program that holds it.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import getweakrefs, ref

import numpy as np

from alpha.errors import CaptureError, DeviceError
from alpha.runtime import recording
from alpha.runtime.arena.arena import Block
from alpha.runtime.cuda.array import DeviceArray
from alpha.runtime.cuda.branches import Branches
from alpha.runtime.cuda.driver import Driver
from alpha.runtime.cuda.host_copies import SMALL_BYTES
from alpha.runtime.cuda.scratch import MemoryPlan, Scratch, Trace
from alpha.runtime.recording import About, Recording, StepValue

if TYPE_CHECKING:
    from alpha.runtime.cuda.cuda_device import CudaDevice

T = TypeVar("T")
VALUE_BYTES = SMALL_BYTES  # of the block of values that change from step to step: each step uploads it
VALUE_GRAIN = 16  # bytes; each value is aligned for any structure


class CudaRecording(Recording):
    """A recording of a device, with the memory that its nodes use and the values that they read.

    Attributes:
        one_stream: whether all work runs in the order in which it is asked for; a benchmark may set it for all.
        held: the blocks outside of the scratch memory that the nodes use, which must live as long as the graph.
        read: the addresses of the blocks that the nodes use.
        branches: what may run beside the rest of a step, while it is captured.
    """

    one_stream = False

    def __init__(self, device: CudaDevice, capturing: bool, strict: bool = False) -> None:
        super().__init__(capturing, strict)
        self._scratch = device.scratch
        self.held: dict[int, Block] = {}
        self.read: set[int] = set()
        self.values = StepValues(device) if capturing else None
        self.branches = Branches(device.driver) if capturing and not self.one_stream else None
        self._used: list[DeviceArray] = []  # by the next node

    @property
    def beside(self) -> bool:  # type: ignore[override]
        return self.branches is not None and self.branches.running

    def fork(self) -> Callable[[Callable[[], T]], T] | None:
        if self.branches is None:
            return None
        self.branches.fork()
        return self.branches.run

    def go_on_beside(self, function: Callable[[], T]) -> T:
        return function() if self.branches is None else self.branches.go_on(function)

    def use(self, arrays: Iterable[Any]) -> None:
        """Note that a node reads or writes these arrays; anything else among them is left out."""
        for array in arrays:
            if isinstance(array, DeviceArray):
                block = array.block
                self.read.add(block.address)
                self._used.append(array)
                if block.arena is not self._scratch:
                    self.held[id(block)] = block

    def note(
        self, arrays: Iterable[Any], *node: Any, about: tuple[About, Any] | None = None, read: int | None = None
    ) -> None:
        arrays = [array for array in arrays if isinstance(array, DeviceArray)]
        super().note(arrays, *node, about=about, read=read)
        used, self._used = self._used, []
        if self.branches is not None:
            only_read = {id(array) for array in _only_read(arrays, node[0], about)}
            reads = [array for array in used if id(array) in only_read]
            self.branches.note(reads, [array for array in used if id(array) not in only_read])


def _only_read(arrays: Sequence[DeviceArray], kind: str, about: tuple[About, Any] | None) -> Iterable[DeviceArray]:
    """The arrays given to a node that it does not write. A node that says nothing of itself may write all of them."""
    if about is not None:
        launch, named = about
        written = {id(array) for array in launch.written(named)}
        return [array for array in arrays if id(array) not in written]
    return arrays[1:] if kind == "copy" else ()


class StepValues:
    """Values that change from step to step, in the device's block for them; one copy before each replay writes it.

    All graphs of a device share the block, because they are replayed one after the other.
    """

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self.array = device.step_block()
        self._host = np.zeros(VALUE_BYTES, np.uint8)
        self._end = 0
        self._slots: dict[int, tuple[StepValue[Any], DeviceArray]] = {}  # by the id of the value

    def slot(self, value: StepValue[Any], pack: Callable[[Any], Any]) -> DeviceArray:
        """The place of `pack(value.now())`, a numpy scalar, which each replay computes anew.

        It is computed at the same point of the step as now: an optimizer that makes two steps in one counts between.
        """
        if id(value) not in self._slots:
            nbytes = pack(value.now()).nbytes
            start, stop = self._end, self._end + nbytes
            self._end = -(-stop // VALUE_GRAIN) * VALUE_GRAIN
            if self._end > VALUE_BYTES:
                raise CaptureError(f"more than {VALUE_BYTES} bytes of values change from step to step")

            def put() -> None:
                self._host[start:stop] = np.frombuffer(pack(value.now()).tobytes(), np.uint8)

            put()
            recording.again(put)
            self._slots[id(value)] = value, self.array.slice_rows(start, stop)
        return self._slots[id(value)][1]

    def write(self) -> None:
        """Copy the block to the device."""
        if self._end:
            self._device.write(self.array.slice_rows(0, self._end), self._host[: self._end])


@dataclass(eq=False)
class StepGraph:
    """One captured step, ready for replays.

    Attributes:
        nodes: how many launches, copies and fills it has.
        nbytes: the most scratch memory that its arrays take at once.
        live: the scratch blocks that are live at its end.
        trace: its blocks, and how long they live.
    """

    device: CudaDevice
    notes: CudaRecording
    nbytes: int
    live: Mapping[int, tuple[int, str]]
    trace: Trace
    handle: Any

    @property
    def nodes(self) -> int:
        return len(self.notes.nodes)

    def keep(self) -> Callable[[], None]:
        """Note what `act` is about to change on the host, but for the random streams, and return what takes it back."""
        undo = [keep() for keep in self.notes.keeps]

        def take_back() -> None:
            for each in undo:
                each()

        return take_back

    def act(self) -> None:
        """Do on the host what the step does there: draw, count, and compute the values that change.

        Raises what an optimizer has against a hyper-parameter; whoever calls takes back what was done then.
        """
        for action in self.notes.actions:
            action()

    def launch(self, done: list[Any]) -> None:
        """Write the values that change, and queue a replay; nothing in scratch memory may be live.

        `done` gets an element in the moment in which the replay is queued, see `Driver.replay`.
        """
        values = self.notes.values
        assert values is not None
        values.write()
        profile = recording.state.profile
        if profile is not None:
            profile.replay(self.notes)
        self.device.driver.replay(self.handle, done)

    def blocks(self) -> dict[int, Block]:
        """The blocks that are live at the end of the last replay, by address."""
        return self.device.scratch.restore(self.live)

    def close(self) -> None:
        """Give the graph back, but not the scratch memory (`trim` of the scratch arena does). Safe to call twice."""
        self.device.graphs.close(self)


@dataclass(frozen=True)
class Held:
    """Resources that a graph holds until it is closed: its handle, and scratch memory from `begin` to `end`."""

    handle: Any
    nbytes: int
    begin: int
    end: int


class StepGraphs:
    """The graphs of a device, and the memory that they share.

    A graph that dies without `close` is closed when the device next captures a step. As for blocks (places.py), weak
    references say that it has died, and no finalizer.

    Attributes:
        dropped: references to graphs that have died.
    """

    def __init__(self, scratch: Scratch, driver: Driver) -> None:
        self.dropped: deque[ref[StepGraph]] = deque()
        self._scratch, self._driver = scratch, driver
        self._open: dict[ref[StepGraph], Held] = {}

    @property
    def nbytes(self) -> int:
        """The most scratch memory that the arrays of one graph take."""
        return max((held.nbytes for held in self._open.values()), default=0)

    @property
    def alive_bytes(self) -> int:
        """The same, of the graphs that the program still has."""
        return max((held.nbytes for graph, held in self._open.items() if graph() is not None), default=0)

    def remember(self, graph: StepGraph) -> None:
        """Count the memory of a graph until it is closed."""
        held = Held(graph.handle, graph.nbytes, graph.trace.begin, graph.trace.end)
        self._open[ref(graph, self.dropped.append)] = held
        self._keep_memory()

    def close(self, graph: StepGraph) -> None:
        """Give a graph back. Safe to call twice."""
        for reference in getweakrefs(graph):
            self._close(reference)

    def close_dropped(self) -> None:
        """Close the graphs that were dropped."""
        while self.dropped:
            self._close(self.dropped[0])
            self._scratch.trim()
            self.dropped.popleft()

    def close_all(self) -> None:
        """Close all of them."""
        for reference in list(self._open):
            self._close(reference)

    def _close(self, reference: ref[StepGraph]) -> None:
        held = self._open.get(reference)
        if held is not None:
            self._driver.free_graph(held.handle)
            self._open.pop(reference, None)
        self._keep_memory()

    def _keep_memory(self) -> None:
        """Keep the memory of a graph free for other steps between two replays, without giving it back to the device."""
        self._scratch.keep([(held.begin, held.end) for held in self._open.values()])


def capture(
    device: CudaDevice, notes: CudaRecording, step: Callable[[], Any], plan: MemoryPlan | None
) -> tuple[Any, StepGraph]:
    """Record `step` without running it, and return its result, whose arrays the first launch of the graph fills.

    `plan` gives its arrays their addresses, as long as it asks for what it asked for when the plan was made.

    Raises whatever the step raises; nothing of it has run then.
    """
    device.graphs.close_dropped()
    device.memory.clear_scratch()
    device.arena.trim()
    device.synchronize()  # what is written beside the stream, such as tables, must not overtake the work before
    scratch = device.scratch
    collecting = gc.isenabled()
    try:
        gc.disable()  # so that blocks die at the same points each time
        scratch.begin(plan)
        device.driver.begin_capture()
        result = device.within(scratch, notes, step)
        try:
            if notes.branches is not None:
                notes.branches.join()
            handle = device.driver.end_capture()
        except DeviceError as error:  # a call beside Alpha has spoilt it
            raise CaptureError(f"the driver cannot capture it: {error}") from error
        notes.branches = None  # the notes may live as long as the graph, and the events of its streams need not
        trace = scratch.finish()
        graph = StepGraph(device, notes, scratch.stats().peak, scratch.live_sizes(), trace, handle)
        device.graphs.remember(graph)
        if collecting:
            gc.enable()
    except BaseException:  # no `finally`, whose code may be cut off where no exception has come before
        if collecting:
            gc.enable()
        notes.branches = None
        scratch.abandon()
        device.driver.abandon_capture()
        raise
    return result, graph
