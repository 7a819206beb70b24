"""Calls of a step on a device that only plans, and what its memory is for at the peak."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice, pairwise

import numpy as np

from alpha.autograd.derived import derived_of
from alpha.core.tensor import Tensor
from alpha.errors import CaptureWarning, DryRunError, OutOfMemoryError
from alpha.module.parameter import Parameter, Uninitialized
from alpha.ops.kernel.casts import COPY
from alpha.runtime import MemoryStats
from alpha.runtime.cuda.array import DeviceArray
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.planning.ledger import Ledger, Life
from alpha.runtime.cuda.planning.planning_device import PlanningDevice, PlanningDriver
from alpha.runtime.recording import NO_LAYER, Layer
from alpha.step.dry import in_place_of_the_gpu
from alpha.step.memory.step_place import BETWEEN, OWN, UPDATE, Where, roots_of
from alpha.step.memory.subjects import Scene, Subject
from alpha.step.stand_ins import stand_in

PARAMETERS, BUFFERS, GRADIENTS, STATE = "parameters", "buffers", "gradients", "optimizer state"
COPIES = "bfloat16 copies"  # of parameters, which the optimizer keeps
KEPT, INPUTS, TEMPORARY = "kept for backward", "inputs and data", "temporary and results"
TABLES, ELSEWHERE = "tables and workspaces", "elsewhere in the program"
KINDS = (PARAMETERS, BUFFERS, COPIES, GRADIENTS, STATE, KEPT, INPUTS, TEMPORARY, TABLES, ELSEWHERE)
LEAST_CALLS, MOST_CALLS = 4, 12  # of a step: the first ones make the optimizer's state, and are captured
MOST_BEFORE_UPDATE = 64  # calls, if an optimizer does not step in each of them
GROWING = 4  # calls, each of which leaves more memory in use than the one before


@dataclass(frozen=True)
class Share:
    """Memory of one kind and one layer at the moment of the peak."""

    kind: str
    layer: str
    nbytes: int


@dataclass
class Run:
    """Calls of a step on a planning device.

    Attributes:
        most: bytes that the device held at once.
        updated: whether each optimizer has changed its parameters.
    """

    steps: list[MemoryStats]
    captured: bool
    launches: int
    most: int
    updated: bool

    @property
    def growth(self) -> int:
        """Bytes that the last call left in use beside those of the call before; 0 if not all of the last ones did."""
        live = [stats.live for stats in self.steps[-GROWING - 1 :]]
        grown = [after - before for before, after in pairwise(live)]
        return grown[-1] if len(grown) == GROWING and min(grown) > 0 else 0


def simulate(
    subject: Subject, device: PlanningDevice, held: Held, ledger: Ledger | None = None, where: Where | None = None
) -> Run:
    """Run a step on a planning device until calls take the memory of those before; closes the device.

    Args:
        held: by the program on the opened GPU: what the step does not reach takes room, too.
        ledger, where: note what is found, if given.

    Raises:
        OutOfMemoryError: the device has a limit, and the step needs more.
        DryRunError: see `memory_plan`.
    """
    steps: list[MemoryStats] = []
    reached: set[int] = set()  # blocks of the real device, by their ids
    driver = device.driver
    assert isinstance(driver, PlanningDriver)
    with _explained(subject.title), ExitStack() as stack:
        stack.callback(device.close)
        stack.enter_context(in_place_of_the_gpu(device))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", CaptureWarning)
        if where is not None:
            stack.enter_context(where.watching())
        try:
            things, _ = stand_in(subject.things, device, reached)
            reached.update([id(tensor.array.block) for tensor in subject.replaced if hasattr(tensor.array, "block")])
            others = place_elsewhere(device, held, reached, subject.captured)  # which stays there
            scene = subject.scene(things)
            if ledger is not None and where is not None:
                ledger.tell(others, ELSEWHERE)
                tell(ledger, scene, where)
                device.at_mark = lambda: tell_gradients(ledger, scene, where)
            device.reset_peak()
            launches = 0
            calls = stack.enter_context(closing(subject.calls(things, scene)))
            begun, updated, period = _writes(scene), not scene.optimizers, 1  # calls until each has made an update
            for _ in islice(calls, MOST_BEFORE_UPDATE):
                steps.append(device.memory_stats())
                device.reset_peak()
                launches, driver.launches = len(driver.launches) or launches, []
                if ledger is not None and where is not None:
                    tell(ledger, scene, where)
                if not updated and all(now != before for now, before in zip(_writes(scene), begun, strict=True)):
                    updated, period = True, len(steps)
                waits = subject.captured and driver.captures and not driver.replays
                if updated and len(steps) >= LEAST_CALLS and not waits and _settled(steps, period):
                    break
                if updated and len(steps) >= max(MOST_CALLS, 4 * period):
                    break
        finally:
            device.at_mark = lambda: None
    return Run(steps, bool(driver.replays), launches, driver.most, updated)


def _writes(scene: Scene) -> list[int]:
    """Numbers of which each grows when an optimizer changes its parameters."""
    groups = [optimizer.param_groups for optimizer in scene.optimizers]
    return [sum(p._version.value for group in own for p in group["params"]) for own in groups]


def _settled(steps: Sequence[MemoryStats], period: int) -> bool:
    """True if the last calls, up to an update of the optimizer, took what as many calls before them did."""
    taken = [(stats.live, stats.peak, stats.reserved) for stats in steps[-2 * period :]]
    return len(taken) == 2 * period and taken[:period] == taken[period:]


@contextmanager
def _explained(title: str) -> Iterator[None]:
    try:
        yield
    except (OutOfMemoryError, KeyboardInterrupt):
        raise
    except DryRunError as error:
        raise DryRunError(f"the memory of {title} cannot be planned: {error}") from None
    except Exception as error:
        raise DryRunError(f"the memory of {title} cannot be planned: {type(error).__name__}: {error}") from error


# -- what blocks are for --------------------------------------------------------------------------


def tell(ledger: Ledger, scene: Scene, where: Where) -> None:
    """Tell the ledger which blocks are parameters, gradients, buffers, states and inputs."""
    where.follow(scene.modules)
    layers = {}
    for tensor, layer in _tensors_of(scene, where):
        if isinstance(tensor, Parameter):
            layers[id(tensor)] = layer
            _tell_weight(ledger, tensor, layer, again=True)
        else:
            ledger.tell(tensor.array, BUFFERS, layer, again=True)
    for optimizer in scene.optimizers:
        for trained, slots in optimizer.state.items():
            for value in slots.values():
                array = value.array if isinstance(value, Tensor) else value
                ledger.tell(array, STATE, layers.get(id(trained), NO_LAYER), again=True)
        for group in optimizer.param_groups:  # those of no module
            for parameter in group["params"]:
                if not isinstance(parameter, Uninitialized):
                    _tell_weight(ledger, parameter)
    for tensor in scene.inputs:
        ledger.tell(tensor.array, INPUTS)
    tell_gradients(ledger, scene, where)


def _tensors_of(scene: Scene, where: Where) -> Iterator[tuple[Tensor, Layer]]:
    """The parameters and buffers of the modules that have values, each once with the first layer that has it."""
    seen: set[int] = set()
    for root in roots_of(scene.modules):
        for module in root.modules():
            for _, tensor in module.named_tensors(recurse=False):
                if id(tensor) not in seen and not isinstance(tensor, Uninitialized):
                    seen.add(id(tensor))
                    yield tensor, where.layer_of(module)


def _tell_weight(ledger: Ledger, parameter: Tensor, layer: Layer = NO_LAYER, again: bool = False) -> None:
    ledger.tell(parameter.array, PARAMETERS, layer, again)
    ledger.tell(copy_of(parameter), COPIES, layer, again)


def copy_of(weight: Tensor) -> DeviceArray | None:
    """The bfloat16 copy that an optimizer keeps of a weight."""
    return next((found.array for found in derived_of(weight.array) if found.kind is COPY), None)


def tell_gradients(ledger: Ledger, scene: Scene, where: Where) -> None:
    """Tell the ledger which blocks are gradients of parameters now."""
    where.follow(scene.modules)
    for tensor, layer in _tensors_of(scene, where):
        if tensor._grad is not None:
            ledger.tell(tensor._grad.array, GRADIENTS, layer)
    for optimizer in scene.optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter._grad is not None:
                    ledger.tell(parameter._grad.array, GRADIENTS)


def kind_of(ledger: Ledger, life: Life) -> str:
    """The kind of a block, in words."""
    if life.kind:
        return life.kind
    if life.phase == BETWEEN:
        return INPUTS
    if life.phase == OWN:
        return TABLES
    return KEPT if ledger.waits_for_backward(life) else TEMPORARY


def moment_of(ledger: Ledger, names: Mapping[Layer, str]) -> str:
    """The part of a step that reaches the peak, in words."""
    last = ledger.at_peak()[-1:]
    if not last or last[0].phase in (OWN, BETWEEN):
        return "the beginning of a step"
    if last[0].phase == UPDATE:
        return "the update of the optimizer"
    return f"the {last[0].phase} pass" + (f" of {names[last[0].layer]}" if names[last[0].layer] else "")


def shares_of(ledger: Ledger, live: int, names: Mapping[Layer, str]) -> list[Share]:
    """Parts of the peak, by kind and the name of the layer, the largest first."""
    sums: dict[tuple[str, str], int] = {}
    for life in ledger.at_peak():
        key = kind_of(ledger, life), names[life.layer]
        sums[key] = sums.get(key, 0) + life.nbytes
    rest = live - sum(sums.values())  # between two replays the memory of a graph is not free
    if rest > 0:
        sums[TEMPORARY, ""] = sums.get((TEMPORARY, ""), 0) + rest
    return sorted([Share(*key, nbytes) for key, nbytes in sums.items()], key=lambda share: -share.nbytes)


@dataclass(frozen=True)
class Held:
    """Memory that the program holds on a device: the bytes of blocks by their ids, and of its graphs."""

    blocks: Mapping[int, int] = field(default_factory=dict)
    graphs: int = 0


def held_on(device: CudaDevice, among: set[int] | None) -> Held:
    """Memory that the program holds on a device, but for what the device keeps for itself.

    Args:
        among: only blocks of these ids count, if given.
    """
    gc.collect()  # what is garbage by then is none of it
    own = device.own_blocks()
    blocks = [*device.arena.live_blocks(), *device.scratch.live_blocks()]
    counted = {id(block): block.nbytes for block in blocks if id(block) not in own}
    return Held({key: counted[key] for key in counted if among is None or key in among}, device.graphs.alive_bytes)


def place_elsewhere(device: PlanningDevice, held: Held, reached: set[int], captured: bool) -> DeviceArray | None:
    """Take as much memory as the program holds and a step does not reach; captured steps share that of graphs."""
    nbytes = sum([nbytes for key, nbytes in held.blocks.items() if key not in reached])
    nbytes += 0 if captured else held.graphs
    return device.empty(nbytes, np.uint8) if nbytes else None
