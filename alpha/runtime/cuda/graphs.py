"""Captured steps of a device: their memory, their values that change, and their replay.

The arrays that a step makes lie in the *scratch* arena, which all captured steps of a device share. A replay writes
every array before it reads it, so the memory is free for the next step as soon as a step has ended. What is still alive
then, such as a gradient or a loss that the program holds, is moved out before the scratch memory is written again. So
an array never changes under the program that holds it.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.errors import CaptureError, DeviceError, OutOfMemoryError
from alpha.runtime import recording
from alpha.runtime.arena import Arena, Block, Growth
from alpha.runtime.cuda.array import DeviceArray
from alpha.runtime.cuda.plan import Plan, Trace
from alpha.runtime.recording import Recording, StepValue, recorded

if TYPE_CHECKING:
    from alpha.runtime.cuda.device import CudaDevice

VALUE_BYTES = 1 << 16  # of the block of values that change from step to step
VALUE_GRAIN = 16  # bytes; each value is aligned for any structure


class Scratch(Arena):
    """The arena of captured steps.

    It knows its live blocks, notes how long blocks live, can follow a `Plan` of their addresses, and takes up again the
    state that it had at the end of a capture.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._blocks: dict[int, weakref.ref[Block]] = {}
        self._trace: Trace | None = None
        self._plan: Plan | None = None
        self._base = 0

    @property
    def is_range(self) -> bool:
        """Whether memory that is given back and asked for again has the same addresses."""
        return self._growth is Growth.RANGE

    def begin(self, plan: Plan | None) -> None:
        """Begin a step, with nothing live: note its blocks from here on, and give them the addresses of `plan`."""
        with self._lock:
            self._coalesce()
            self._meter.peak = self._meter.in_use
            self._trace, self._plan = Trace(), plan
            if plan is not None:
                self._base = self._make_room(plan.nbytes)

    def finish(self) -> Trace:
        """End the step; how long its blocks lived."""
        with self._lock:
            self._reclaim()
            assert self._trace is not None
            trace, self._trace, self._plan = self._trace, None, None
            return trace

    def allocate(self, nbytes: int) -> Block:
        block = super().allocate(nbytes)
        self._blocks[block.address] = weakref.ref(block)
        if self._trace is not None:
            self._trace.born(block.address, block.nbytes)
        return block

    def _reclaim(self) -> None:
        if self._trace is not None:
            for address in tuple(self.returned):
                self._trace.died(address)
        super()._reclaim()

    def _choose(self, size: int) -> int | None:
        if self._plan is not None and self._trace is not None:
            self._coalesce()
            offset = self._plan.offset(self._trace.count, size)
            if offset is not None and self._free.take_at(self._base + offset, size):
                return self._base + offset
            self._plan = None  # the step does something else than it did: the rest is not planned
        return super()._choose(size)

    def _make_room(self, nbytes: int) -> int:
        """The address of so many consecutive free bytes, for which segments are added if needed."""
        address = self._free.fit(nbytes)
        if address is None and self._grow(nbytes):
            address = self._free.fit(nbytes)
        if address is None:
            raise OutOfMemoryError(f"out of memory: a step needs {nbytes} bytes, {self._meter.total or self._meter}")
        return address

    def live_blocks(self) -> list[Block]:
        """The blocks that somebody still holds."""
        with self._lock:
            self._reclaim()
            self._blocks = {address: held for address, held in self._blocks.items() if address in self._live}
        blocks = (held() for held in self._blocks.values())
        return [block for block in blocks if block is not None]

    def live_sizes(self) -> dict[int, tuple[int, str]]:
        """(bytes, label) of the live blocks by their addresses, in ascending order."""
        with self._lock:
            self._reclaim()
            return dict(sorted(self._live.items()))

    def restore(self, live: Mapping[int, tuple[int, str]]) -> dict[int, Block]:
        """New blocks at the addresses of `live`, which `live_sizes` has given; nothing may be live before."""
        with self._lock:
            self._coalesce()
            if self._live:
                raise AssertionError(f"{len(self._live)} blocks of scratch memory are live before a replay")
            self._free.clear()
            places = [(address, size) for address, (size, _) in live.items()][::-1]
            for start, end in self._extents():
                while places and start <= places[-1][0] < end:
                    address, size = places.pop()
                    if address > start:
                        self._free.add(start, address - start)
                    start = address + size
                if start < end:
                    self._free.add(start, end - start)
            self._live.update(live)
            self._meter.use(sum(size for size, _ in live.values()), len(live))
        blocks = {address: Block(self, address, size) for address, (size, _) in live.items()}
        self._blocks = {address: weakref.ref(block) for address, block in blocks.items()}
        return blocks

    def _extents(self) -> list[tuple[int, int]]:
        """(start, end) of the pieces of memory that no block may leave, in ascending order."""
        if self._growth is Growth.RANGE and self._segments:
            last = next(reversed(self._segments))
            return [(next(iter(self._segments)), last + self._segments[last])]
        return sorted((start, start + size) for start, size in self._segments.items())


class CudaRecording(Recording):
    """A recording of a device, with the memory that its nodes use and the values that they read.

    Attributes:
        held: the blocks outside of the scratch memory that the nodes use, which must live as long as the graph.
        read: the addresses of the blocks that the nodes use.
    """

    def __init__(self, device: CudaDevice, capturing: bool, strict: bool = False) -> None:
        super().__init__(capturing, strict)
        self._scratch = device.scratch
        self.held: dict[int, Block] = {}
        self.read: set[int] = set()
        self.values = StepValues(device) if capturing else None

    def use(self, arrays: Iterable[Any]) -> None:
        """Note that a node reads or writes these arrays; anything else among them is left out."""
        for array in arrays:
            if isinstance(array, DeviceArray):
                block = array.block
                self.read.add(block.address)
                if block.arena is not self._scratch:
                    self.held[id(block)] = block


class StepValues:
    """What changes from step to step and lies in the device's block for it; one copy before each replay writes it.

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
    _open: bool = field(default=True)

    @property
    def nodes(self) -> int:
        return len(self.notes.nodes)

    def act(self) -> None:
        """Do on the host what the step does there: draw, count, and compute the values that change.

        Raises what an optimizer has against a hyper-parameter; whoever calls takes back the draws then.
        """
        for action in self.notes.actions:
            action()

    def launch(self) -> None:
        """Write the values that change, and queue a replay; nothing in scratch memory may be live."""
        values = self.notes.values
        assert values is not None
        values.write()
        self.device.driver.replay(self.handle)

    def blocks(self) -> dict[int, Block]:
        """The blocks that are live at the end of a replay, by address; ask once per replay."""
        return self.device.scratch.restore(self.live)

    def close(self) -> None:
        """Give the graph back, but not the scratch memory (`shrink_scratch` of the device does). Safe to call twice."""
        if self._open:
            self._open = False
            self.device.driver.free_graph(self.handle)
            self.device.forget(self)

    def drop(self) -> None:
        """Let the device close the graph when it next captures a step; for finalizers, which may run on any thread."""
        self.device.dropped.append(self)


def capture(
    device: CudaDevice, notes: CudaRecording, step: Callable[[], Any], plan: Plan | None
) -> tuple[Any, StepGraph]:
    """Record `step` without running it; its result, whose arrays the first launch of the graph fills.

    `plan` gives its arrays their addresses, as long as it asks for what it asked for when the plan was made.

    Raises whatever the step raises; nothing of it has run then.
    """
    device.close_dropped()
    device.clear_scratch()
    device.arena.trim()
    device.synchronize()  # what is written beside the stream, such as tables, must not overtake the work before
    scratch = device.scratch
    collecting = gc.isenabled()
    gc.disable()  # so that blocks die at the same points each time
    try:
        scratch.begin(plan)
        device.driver.begin_capture()
        with recorded(notes), device.allocating_from(scratch):
            result = step()
        try:
            handle = device.driver.end_capture()
        except DeviceError as error:  # a call beside Alpha has spoilt it
            raise CaptureError(f"the driver cannot capture it: {error}") from error
    except BaseException:
        device.driver.abandon_capture()
        raise
    finally:
        trace = scratch.finish()
        if collecting:
            gc.enable()
    graph = StepGraph(device, notes, scratch.stats().peak, scratch.live_sizes(), trace, handle)
    device.remember(graph)
    return result, graph
