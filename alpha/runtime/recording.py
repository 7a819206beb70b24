"""Record of what a step asks of a device and does on the host, noted while it runs, so that it can be replayed.

`alpha.capture` runs a step inside `recorded(Recording(..))`. The device then notes each launch, copy and fill, and it
refuses or notes what no replay could repeat. What changes from step to step is a `StepValue`, which kernels read from a
small block of device memory; what the host must do again, such as counting an optimizer's steps, is given to `again`.

A recording is one kind of `Listener`, which is told of all that a thread asks of its device, and in which phase and
layer. The other kind is a profile, which leaves everything as it is (alpha/step/profiling).
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

from alpha.errors import CaptureError
from alpha.runtime.work import NO_WORK, Work

T = TypeVar("T")

_PACKAGE = f"{Path(__file__).resolve().parents[1]}{os.sep}"


class StepValue(Generic[T]):
    """A value that an operator reads and that changes from step to step: a learning rate, a random stream.

    Args:
        now: computes it; a captured step calls this again before each replay.
    """

    __slots__ = ("now",)

    def __init__(self, now: Callable[[], T]) -> None:
        self.now = now

    @classmethod
    def fixed(cls, value: T) -> StepValue[T]:
        """A value that is the same at each step."""
        return cls(lambda: value)


class Layer(NamedTuple):
    """A module, as a part of the outermost module that was called.

    Attributes:
        root: the number of the outermost module, which no other one has.
        kind: the name of its class.
        name: the name of the part, as `named_modules` has it; empty for the outermost module itself.
    """

    root: int
    kind: str
    name: str


NO_LAYER = Layer(0, "", "")


def layer_names(layers: Iterable[Layer]) -> dict[Layer, str]:
    """Names of layers; those of several outermost modules begin with the classes of these.

    A second outermost module of one class, in the order of the layers, begins with "Net-2", a third with "Net-3".
    """
    found = dict.fromkeys(layers)
    kinds = {layer.root: layer.kind for layer in found if layer != NO_LAYER}
    if len(kinds) < 2:
        return {layer: layer.name or layer.kind for layer in found}
    heads, counts = {NO_LAYER.root: NO_LAYER.kind}, Counter[str]()
    for root, kind in kinds.items():
        counts[kind] += 1
        heads[root] = kind if counts[kind] == 1 else f"{kind}-{counts[kind]}"
    return {layer: ".".join(filter(None, (heads[layer.root], layer.name))) for layer in found}


_numbers = itertools.count(1)
_roots: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def _number(root: Any) -> int:
    """The number of an outermost module, the same for all listeners; no later module gets it."""
    return _roots[root] if root in _roots else _roots.setdefault(root, next(_numbers))


class Asked(NamedTuple):
    """One thing that the device was asked for.

    Attributes:
        kind: "kernel", "copy", "fill", or "exchange" with other processes.
        entry: the name of the kernel, or of the exchange.
        source: the file of the kernel below `cuda/`.
        operator: the operator that it belongs to; the name of the kernel if it is unknown.
        configuration: the plan that it belongs to, or empty.
    """

    phase: str
    layer: Layer
    kind: str
    entry: str
    source: str
    operator: str
    configuration: str
    work: Work


class About(Protocol):
    """A launch that knows what it is for, as `PreparedLaunch` does."""

    operator: str
    configuration: str

    def work(self, arrays: Any) -> Work:
        """The work for the arrays that it is launched with."""

    def written(self, arrays: Any) -> list[Any]:
        """The arrays among these that it writes; it reads the others."""


class Listener:
    """Somebody who is told of all that a thread asks of its device.

    Attributes:
        phase: the part of the step that is running, see `phase`.
        layer: the innermost module whose forward or gradient is being computed.
        module: the module whose forward is being computed.
        asked: what was asked of the device, in its order.
        profile: the profile that hears from it of what runs at once; None for another one.
        beside: whether what is asked for now may run at the same time as other work, see `Recording.fork`.
    """

    phase = "forward"
    beside = False
    layer = NO_LAYER
    profile: Profiling | None = None
    module: Any = None

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._layers: WeakKeyDictionary[Any, Layer] = WeakKeyDictionary()

    def use(self, arrays: Iterable[Any]) -> None:
        """Note that the device reads or writes these arrays; anything else among them is left out."""

    def note(
        self, arrays: Iterable[Any], *node: Any, about: tuple[About, Any] | None = None, read: int | None = None
    ) -> None:
        """Note what the device was asked for, and the arrays that it was given.

        Args:
            node: the name of what was asked for, and all on which its result depends.
            about: the launch, and the arrays by name.
            read: bytes that it reads, if it is not all of the arrays.
        """
        source, _, entry = node[0].rpartition(":")
        kind = "kernel" if source else node[0] if node[0] in ("copy", "fill") else "exchange"
        operator, configuration = entry, ""
        if about is not None:
            launch, named = about
            operator, configuration, work = launch.operator, launch.configuration, launch.work(named)
        else:
            work = _moved(kind, arrays)
            if read is not None:
                work = work._replace(read=read)
        self.hear(Asked(self.phase, self.layer, kind, entry, source, operator, configuration, work))

    def hear(self, asked: Asked) -> None:
        """Take note of one thing that the device was asked for."""
        self.asked.append(asked)

    def name(self, root: Any) -> None:
        """Give a module and its parts their names, as far as they have none yet."""
        number, kind = _number(root), type(root).__name__
        for name, module in root.named_modules():
            self._layers.setdefault(module, Layer(number, kind, name))

    def layer_of(self, module: Any) -> Layer:
        """The layer that a module is; one without a name is an outermost module."""
        if module not in self._layers:
            self.name(module)
        return self._layers[module]

    def call(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a module, whose layer is the running one until then."""
        before, layer = (self.module, self.layer), self.layer_of(module)
        self.module, self.layer = module, layer
        try:
            return module(*args, **kwargs)
        finally:
            self.module, self.layer = before


def _moved(kind: str, arrays: Iterable[Any]) -> Work:
    """The work of something that does not say what it is for.

    Kernels are given what they write first; an exchange reads its arrays.
    """
    sizes = [array.nbytes for array in arrays if hasattr(array, "block")]
    if kind == "fill":
        return Work(written=sum(sizes))
    if kind == "copy":
        return Work(read=sizes[-1], written=sizes[0])
    if kind == "kernel" and sizes:
        return Work(read=sum(sizes[1:]), written=sizes[0])
    return Work(read=sum(sizes)) if sizes else NO_WORK


class Recording(Listener):
    """The notes on one run of a step.

    Args:
        capturing: whether the device only records the work, to run it later. Otherwise the step runs as usual.
        strict: what cannot be captured is an error also if the step runs as usual. By default it is noted in
            `obstacles`.

    Attributes:
        nodes: what was asked of the device, in its order; two runs with equal nodes compute the same.
        places: the line of the user's program that asked for each node.
        obstacles: what cannot be captured, each with its line.
        actions: what the host must do again before each replay.
        keeps: each notes what an action is about to change, and returns what takes the change back.
        derived: the values beside weights that nodes read or write, see alpha/autograd/derived.py.
    """

    def __init__(self, capturing: bool, strict: bool = False) -> None:
        super().__init__()
        self.capturing = capturing
        self.profile = None if capturing else state.profile  # which hears of a capture when its graph is launched
        self._strict = strict or capturing
        self.nodes: list[tuple[Any, ...]] = []
        self.places: list[str] = []
        self.obstacles: list[str] = []
        self.actions: list[Callable[[], object]] = []
        self.keeps: list[Callable[[], Callable[[], object]]] = []
        self._derived: dict[int, Any] = {}  # by id

    @property
    def derived(self) -> list[Any]:
        return list(self._derived.values())

    def keep(self, derived: Any) -> None:
        """Note a value beside a weight that a node reads or writes."""
        self._derived[id(derived)] = derived

    def note(
        self, arrays: Iterable[Any], *node: Any, about: tuple[About, Any] | None = None, read: int | None = None
    ) -> None:
        arrays = list(arrays)
        self.use(arrays)
        self.nodes.append(node)
        self.places.append(place())
        super().note(arrays, *node, about=about, read=read)

    def fork(self) -> Callable[[Callable[[], T]], T] | None:
        """Mark the point that the step has reached, behind which other work may run beside that of the step.

        Returns:
            A function that calls the function it is given, whose work may then run at the same time as the work that
            the step asks for behind this point. None if all work runs in the order in which it is asked for.
        """
        return None

    def go_on_beside(self, function: Callable[[], T]) -> T:
        """Call a function, whose work runs behind what runs beside the step, if anything does (see `fork`)."""
        return function()

    def hear(self, asked: Asked) -> None:
        super().hear(asked)
        if self.profile is not None:
            self.profile.hear(asked)

    def refuse(self, what: str) -> None:
        """Note what cannot be captured, or raise `CaptureError`."""
        obstacle = f"{what}, at {place()}"
        if self._strict:
            raise CaptureError(obstacle)
        self.obstacles.append(obstacle)


class Profiling(Listener):
    """A listener that hears of replayed graphs, and times functions of the cpu."""

    def timed(self, name: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """The result of a function of arrays of the cpu, whose time is noted under a name."""
        raise NotImplementedError

    def replay(self, notes: Recording) -> None:
        """Take note that a graph is about to be launched, of which `notes` have the launches."""
        raise NotImplementedError


class _State(threading.local):
    """Listeners of a thread, each of which may be None.

    Attributes:
        recording: notes a step, for a capture or a dry run; it hears all, and the profile hears from it.
        profile: the profile of this thread.
        listener: the recording if there is one, else the profile.
    """

    recording: Recording | None = None
    profile: Profiling | None = None
    listener: Listener | None = None

    def record(self, recording: Recording | None) -> None:
        """Let this recording be told from now on."""
        self.recording = recording
        self.listener = self.profile if recording is None else recording


state = _State()


def active() -> Recording | None:
    """The recording of this thread, or None."""
    return state.recording


@contextmanager
def recorded(recording: Recording | None) -> Iterator[None]:
    """Note in `recording` what is done inside; None notes nothing."""
    before = state.recording
    state.record(recording)
    try:
        yield
    finally:
        state.record(before)


@contextmanager
def unheard() -> Iterator[None]:
    """Context in which neither a recording nor a profile of this thread hears of anything, as of a plan."""
    profile, recording = state.profile, state.recording
    state.profile = None
    state.record(None)
    try:
        yield
    finally:
        state.profile = profile
        state.record(recording)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Say that what is done inside is the "forward" or the "backward" pass, or the "update", of the step that runs."""
    listener = state.listener
    if listener is None:
        yield
        return
    before, listener.phase = listener.phase, name
    try:
        yield
    finally:
        listener.phase = before


def again(action: Callable[[], object], keep: Callable[[], Callable[[], object]] | None = None) -> None:
    """Let every replay of the step that is being recorded begin with `action`; without one nothing happens.

    `keep` is called before, and returns what takes back the action of a replay that is cut off. Draws of random numbers
    need none.
    """
    if state.recording is not None:
        state.recording.actions.append(action)
        if keep is not None:
            state.recording.keeps.append(keep)


def refuse(what: str) -> None:
    """Say that what comes now cannot be captured; without a recording nothing happens."""
    if state.recording is not None:
        state.recording.refuse(what)


def place() -> str:
    """The line of the user's program that is running, "step.py:12"."""
    frame = sys._getframe(callers())
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def callers() -> int:
    """Number of frames of Alpha's own above the user's program, counted from the caller of this function."""
    count, frame = 0, sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        count, frame = count + 1, frame.f_back
    return count


def _is_ours(filename: str) -> bool:
    return filename.startswith(_PACKAGE) or filename.endswith(("contextlib.py", "functools.py"))
