"""Replay of a captured step: what it needs, and what it leaves: arguments, gradients, versions, results."""

from __future__ import annotations

import operator
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from sys import getrefcount
from typing import Any

import numpy as np

from alpha.autograd.derived import Derived, refresh
from alpha.core import rng
from alpha.core.nested import map_tensors
from alpha.core.tensor import Tensor
from alpha.runtime.arena.places import Block
from alpha.runtime.cuda.array import ArrayForm, DeviceArray
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.graphs import CudaRecording, StepGraph
from alpha.step.call_arguments import Arguments, memories_of
from alpha.step.sources.kinds import is_constant
from alpha.step.sources.watch import Watch


@dataclass
class Replay:
    """A graph, the state in which it is right, and what a call of the function does on the host."""

    graph: StepGraph
    watch: Watch
    inputs: list[Tensor]  # the graph's own, which a call's tensors are copied into
    gradients: list[Gradient]
    versions: list[tuple[Any, int, int, str]]  # of tensors that are written in place: how far they count
    result: Any  # in which `GraphTensor` stands for a tensor
    alone: list[Any]  # memory into which it copies, see rebound.py
    counts: list[int] = field(default_factory=list)  # how many references to `alone` there are
    derived: list[Derived] = field(init=False)  # what lies beside weights and is right when a replay begins and ends

    def count(self) -> None:
        """Note how many references there are to what nobody else may hold; once the capture is over."""
        if self.alone and not self.counts:
            self.counts = [*map(getrefcount, self.alone)]

    def __post_init__(self) -> None:
        self._written = {id(version) for version, *_ in self.versions}
        self.derived = self.graph.notes.derived

    def change(self, arguments: list[Tensor]) -> str:
        """Reason why the graph is not right for a call with these tensors, in words; empty if it is right."""
        if self._written and not self._written.isdisjoint(memories_of(arguments)):
            return "an argument, whose memory it writes in place"
        for gradient in self.gradients:
            if gradient.needed is not None and (gradient.leaf._grad is not None) is not gradient.needed:
                return f"the gradient of a tensor {gradient.leaf.shape}"
        if any(map(_SHARED, self.derived)):
            return "a weight, whose memory another library has, too"
        if self.alone:
            counts = [*map(getrefcount, self.alone)]
            if any(map(operator.gt, counts, self.counts)):
                return "who holds the memory of a tensor whose `data` the step replaces"
            self.counts = counts
        return self.watch.change()


_SHARED = operator.attrgetter("version.shared")


@dataclass
class Gradient:
    """Record of what becomes of the `.grad` of a leaf.

    Attributes:
        needed: whether there must be one at the beginning; None if the step drops it unread.
        input: the graph's own array, which the gradient is copied into before, because the step reads it.
        after: what the step leaves: a new gradient, None, or KEPT for the one of before.
    """

    leaf: Tensor
    needed: bool | None
    input: DeviceArray | None
    after: GraphTensor | Kept | None


class Kept(Enum):
    KEPT = "the same tensor"


KEPT = Kept.KEPT


@dataclass(frozen=True)
class GraphTensor:
    """A tensor of a result, in memory of the graph."""

    block: int  # its address
    offset: int
    form: ArrayForm


class Entry:
    """A leaf as it is when a capture begins; `input` takes the place of its gradient, if there is one."""

    def __init__(self, leaf: Tensor, input: DeviceArray | None) -> None:
        self.leaf, self.before, self.input = leaf, leaf._grad, None if leaf._grad is None else input
        self._address = None if self.before is None else self.before.array.block.address
        self._own: Tensor | None = None
        if self.before is not None and self.input is not None:
            self.input.device.copy_into(self.input, self.before.array)
            self._own = leaf._grad = Tensor(self.input)

    def is_read(self, notes: CudaRecording) -> bool:
        """True if the step uses the gradient of before, and not an array of the graph's own in its place."""
        return self.input is None and self._address in notes.read

    def leave(self, device: CudaDevice) -> Gradient:
        """State of the gradient, once the step has been done."""
        left = self.leaf._grad
        if self.before is None:
            return Gradient(self.leaf, False, None, place_of(device, left) if left is not None else None)
        if self.input is None:
            if left is self.before:
                return Gradient(self.leaf, True, None, KEPT)
            return Gradient(self.leaf, None, None, place_of(device, left) if left is not None else None)
        if left is not self._own:
            return Gradient(self.leaf, True, self.input, place_of(device, left) if left is not None else None)
        _take_back(self.before, self.input)
        self.leaf._grad = self.before
        return Gradient(self.leaf, True, self.input, KEPT)


def _take_back(grad: Tensor, own: DeviceArray) -> None:
    """Write what the step has made of a gradient into the program's array of it."""
    own.device.copy_into(grad.array, own)
    grad._version.bump("backward")


def run(replay: Replay, arguments: Arguments) -> Any:
    """Do the step by a replay of its graph and return its result.

    If it is cut off, as by Ctrl-C, it has either been done as a whole, on the host and on the device, or not at all.
    Then only gradients that it would have dropped unread may be gone.
    """
    graph = replay.graph
    device = graph.device
    refresh(replay.derived)
    # all memory that it takes comes first: without it nothing has changed
    moves = device.memory.room_for_scratch(_dies(replay.gradients))
    versions = [(version, version.value + v, version.recorded + r, who) for version, v, r, who in replay.versions]
    state, take_back = rng.default.state(), graph.keep()
    launched: list[Any] = []
    try:
        graph.act()  # first: it checks hyper-parameters, and an error must change nothing
        copy_inputs(device, replay.inputs, arguments)
        for gradient in replay.gradients:
            grad = gradient.leaf._grad
            if gradient.input is not None and grad is not None:
                device.copy_into(gradient.input, grad.array)
        for gradient in replay.gradients:
            if gradient.after is not KEPT:
                gradient.leaf._grad = grad = None
        device.memory.move(moves)
        device.memory.clear_scratch()
        graph.launch(launched)
        blocks = _leave(replay, versions)
    except BaseException:
        if launched:
            _leave(replay, versions)
        else:
            rng.default.set_state(state)
            take_back()
            _give_back_gradients(device, replay)
        raise

    handing = Handing(replay.inputs, arguments.tensors, replay.watch.tensors)
    made: dict[int, Tensor] = {}

    def out(place: GraphTensor | Tensor) -> Tensor:
        if not isinstance(place, GraphTensor):
            return handing(place)
        if id(place) not in made:
            made[id(place)] = Tensor(_array(device, blocks, place))
        return made[id(place)]

    return map_tensors(replay.result, out, (GraphTensor, Tensor))


def _leave(replay: Replay, versions: list[tuple[Any, int, int, str]]) -> dict[int, Block]:
    """Give the program what the graph has made, once it is queued; return the blocks. To do it twice does no harm."""
    for gradient in replay.gradients:
        if gradient.after is not KEPT:
            gradient.leaf._grad = None
    blocks = replay.graph.blocks()
    for gradient in replay.gradients:
        if isinstance(gradient.after, GraphTensor):
            gradient.leaf._grad = Tensor(_array(replay.graph.device, blocks, gradient.after))
        elif gradient.input is not None and gradient.leaf._grad is not None:
            _take_back(gradient.leaf._grad, gradient.input)
    for version, value, recorded, writer in versions:
        version.value, version.recorded, version.writer = value, recorded, writer
    for derived in replay.derived:
        derived.replayed()
    return blocks


def _array(device: CudaDevice, blocks: Mapping[int, Block], place: GraphTensor) -> DeviceArray:
    return DeviceArray(device, blocks[place.block], place.offset, place.form)


def _give_back_gradients(device: CudaDevice, replay: Replay) -> None:
    """Let each leaf have the gradient again that the graph would have read, and that was dropped for it."""
    for gradient in replay.gradients:
        if gradient.needed and gradient.input is not None and gradient.leaf._grad is None:
            gradient.leaf._grad = Tensor(device.copy(gradient.input))


def _dies(gradients: list[Gradient]) -> set[int]:
    """The ids of the blocks that nobody holds any more when the replay drops the gradients of before."""
    blocks: dict[int, Any] = {}
    arrays: dict[int, int] = {}  # how many arrays that die a block has
    for gradient in gradients:
        if gradient.after is not KEPT and (grad := gradient.leaf._grad) is not None:
            array = grad.array
            if getrefcount(grad) <= HELD and getrefcount(array) <= HELD:
                key = id(array.block)
                blocks[key], arrays[key] = array.block, arrays.get(key, 0) + 1
    return {key for key in blocks if getrefcount(blocks[key]) < HELD + arrays[key]}


HELD = 3  # references to what has one owner: its, that of a variable (or here of a dict), and that of `getrefcount`


class Handing:
    """Tensors that a call hands out in the place of those of its result; one of them stays one.

    An argument is the argument of the call, and a view of it is a view of that. A tensor that the program has had
    before the step is that tensor. All others have no graph.

    Args:
        own, given: the arguments as the step has had them, and as the call was given them.
        known: tensors of the program.
    """

    def __init__(self, own: list[Tensor], given: list[Tensor], known: Iterable[Tensor] = ()) -> None:
        self._given = list(zip(own, given, strict=True))
        self._made = {id(tensor): tensor for tensor in known}

    def __call__(self, tensor: Tensor) -> Tensor:
        """Tensor that stands for a tensor of the result."""
        key = id(tensor)
        if key not in self._made:
            self._made[key] = self._other(tensor)
        return self._made[key]

    def _other(self, tensor: Tensor) -> Tensor:
        array = tensor.array
        for own, given in self._given:
            if tensor is own:
                return given
            if isinstance(array, DeviceArray) and array.block is own.array.block:
                place = given.array.offset + array.offset - own.array.offset
                view = Tensor(DeviceArray(array.device, given.array.block, place, array.form))
                view._version, view._base_version = given._version, None
                return view
        if isinstance(array, np.ndarray):  # made of what the step reads on the host, so that each call makes it
            return Tensor(array.copy())
        return tensor.detach()


def odd_result(value: Any, watch: Watch, arguments: list[Tensor]) -> str:
    """Part of a result that no replay could make anew, in words: an object that the step has made, for example."""
    kept = {id(item) for item in watch.reached}
    lasting = [*watch.tensors, *arguments]
    map_tensors(value, lasting.append)
    memories = {id(tensor._version) for tensor in lasting}

    def odd(value: Any) -> str:
        if isinstance(value, Tensor):
            is_part = id(value) not in kept and id(value._version.base()) in memories
            return "a part of a tensor that is there after it, which is a copy (return its .clone())" if is_part else ""
        if is_constant(value):
            return ""
        if type(value) in (list, dict) and id(value) in kept:
            return f"a {type(value).__name__} of the program"
        if isinstance(value, tuple) or type(value) is list:
            return next(filter(None, map(odd, value)), "")
        if type(value) is dict:
            return next(filter(None, map(odd, value.values())), "")
        lasts = id(value) in kept or isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType))
        return "" if lasts else f"an object of the type {type(value).__name__}"

    found = odd(value)
    return f"it returns {found}: return tensors and numbers, or tuples, lists and dicts of these" if found else ""


def copy_inputs(device: CudaDevice, inputs: list[Tensor], arguments: Arguments) -> None:
    """Copy the tensors of a call to the graph's own."""
    for own, given in zip(inputs, arguments.tensors, strict=True):
        if own.array.address != given.array.address:
            device.copy_into(own.array, given.array)


def place_of(device: CudaDevice, tensor: Tensor) -> Any:
    """Place of a tensor of the step, if that is memory of the graph; else the tensor itself."""
    array = tensor.array
    if not isinstance(array, DeviceArray) or array.block.arena is not device.scratch:
        return tensor
    return GraphTensor(array.block.address, array.offset, array.form)
