"""The text of an out-of-memory error in a step: what the step holds, and what helps at which price.

Everything is found by plans of the same step, without memory of the GPU: with half of its batch, in bf16, with
checkpoints. The price in time is the number of kernels that a step then launches, and the bytes that it copies.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from alpha.autograd.checkpointing import checkpoint
from alpha.autograd.function import Function
from alpha.autograd.memory_mode import MODES
from alpha.core import numerics
from alpha.core.tensor import Tensor
from alpha.errors import AlphaError
from alpha.module.module import Module
from alpha.module.parameter import Parameter
from alpha.nn.containers import ModuleList, Sequential
from alpha.nn.summary.model_summary import arrays_in
from alpha.optim.optimizer import Optimizer
from alpha.runtime import recording
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.memory import CudaMemory
from alpha.runtime.registry import opened
from alpha.step.capturing import captured
from alpha.step.memory.plan_table import mb
from alpha.step.memory.planned import StepMemory, Target, target_of
from alpha.step.memory.simulation import BUFFERS, COPIES, GRADIENTS, KEPT, PARAMETERS, STATE, copy_of
from alpha.step.memory.step_place import roots_of
from alpha.step.memory.subjects import Scene, Subject, subject_of

ROWS = 10  # layers that the text names
LEAST = 0.01  # of the peak: what saves less is no remedy


@dataclass(frozen=True)
class Remedy:
    """A change of a step that may need less memory.

    Attributes:
        text: says what to change.
        plan: gives the plan of the changed step.
        price: what it costs beside launches, in words.
    """

    text: str
    plan: Callable[[], StepMemory]
    price: str = ""


def explained(
    subject: Subject,
    held: set[int] | None,
    others: Callable[[Target], list[Remedy]] = lambda target: [],
    precision: str = "",
) -> str:
    """The plan of a step that found no memory, and what helps.

    Args:
        held: the ids of the blocks that were there before the step, which may still hold what it made; None: all.
        others: remedies that whoever runs the step knows.
        precision: of the step, by default the one in force.
    """
    device = opened("cuda")
    if not isinstance(device, CudaDevice) or not device.driver.owner.here or recording.active() is not None:
        return "alpha.memory_plan(step, ..) shows what a step holds, by kind and layer"
    with _in(precision):
        target = target_of(device, None, held)
        plan = StepMemory(subject, target, precision)
        return "\n".join([plan.table(ROWS), "", *_remedies(subject, plan, others(target))])


def _in(precision: str) -> AbstractContextManager[Any]:
    return numerics.precision(precision) if precision else nullcontext()


def _remedies(subject: Subject, plan: StepMemory, others: list[Remedy]) -> list[str]:
    """A line for each change that saves memory, the one that saves most first."""
    found: list[tuple[int, str]] = []
    for remedy in [*others, *_general(subject, plan)]:
        with suppress(AlphaError):  # what cannot be planned is left out
            changed = remedy.plan()
            found.append((plan.live - changed.live, _line(remedy.text, plan, changed, remedy.price)))
    state = plan.of_kind(STATE)
    if state:
        found.append((state, _row("an optimizer without state, SGD", state, "other steps, other learning rates")))
    lines = [line for saved, line in sorted(found, key=lambda pair: -pair[0]) if saved > LEAST * plan.live]
    head = f"What would help, by plans of the same step (now {mb(plan.live)} MB, {plan.launches} launches):"
    return [head, *lines] if lines else ["No change of the step that was tried would need less memory."]


def _general(subject: Subject, plan: StepMemory) -> list[Remedy]:
    """Changes of any step."""
    changes = [Remedy("alpha.checkpoint around the blocks", lambda: plan.with_change(checkpointed))]
    for mode in MODES[MODES.index(plan.mode) + 1 :]:
        changes.append(Remedy(f'memory mode "{mode}"', partial(plan.in_mode, mode)))
    if plan.precision != "bf16":
        changes.append(Remedy('precision "bf16"', lambda: plan.in_precision("bf16"), "activations are rounded"))
    if subject.batch > 1:
        half, halved = (subject.batch + 1) // 2, plan.at_batch((subject.batch + 1) // 2)
        changes.append(Remedy(f"a batch of {half}", lambda: halved, "twice as many steps"))
        if not halved.fits and (fits := halved.largest_batch()):
            changes.append(Remedy(f"a batch of {fits}", lambda: plan.at_batch(fits)))
    return changes


def checkpointed(scene: Scene) -> None:
    """Let the blocks of the outermost sequences of a network be computed again in the backward pass.

    The copy of a step is changed so, for its plan.
    """
    for root in roots_of(scene.modules):
        for block in _blocks(root):
            forward = block.forward
            block.forward = lambda *args, run=forward, **kwargs: checkpoint(run, *args, **kwargs)  # type: ignore


def _blocks(module: Module) -> list[Module]:
    """The children of the outermost sequences that have layers of their own."""
    found: list[Module] = []
    for child in module.children():
        if isinstance(module, (Sequential, ModuleList)) and any(child.children()):
            found.append(child)
        else:
            found += _blocks(child)
    return found


def _line(text: str, plan: StepMemory, changed: StepMemory, price: str) -> str:
    launches = f"{changed.launches} launches" if changed.launches != plan.launches else ""
    fits = "" if changed.fits is None else "fits" if changed.fits else "still too much"
    return _row(text, plan.live - changed.live, ", ".join(filter(None, (fits, launches, price))))


def _row(text: str, saved: int, rest: str) -> str:
    return f"  {text:<34} saves {mb(saved):>9} MB  {rest}"


def _on_shortage(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], held: set[int] | None) -> str:
    """The text for a captured step that found no memory."""
    return explained(subject_of(function, args, kwargs), held)


captured.on_shortage = _on_shortage


def in_use(memory: CudaMemory) -> str:
    """Bytes that live on a device now, by kind: what is told if it is not known which step found no memory."""
    left = {id(block): block.nbytes for arena in (memory.arena, memory.scratch) for block in arena.live_blocks()}
    sums: dict[str, int] = {}

    def count(kind: str, array: Any) -> None:
        nbytes = left.pop(id(getattr(array, "block", None)), 0)
        sums[kind] = sums.get(kind, 0) + nbytes

    found = gc.get_objects()
    for module in [value for value in found if issubclass(type(value), Module)]:
        for tensor in vars(module).values():
            if isinstance(tensor, Tensor):
                count(PARAMETERS if isinstance(tensor, Parameter) else BUFFERS, tensor.array)
                count(COPIES, copy_of(tensor))
                count(GRADIENTS, tensor._grad.array if tensor._grad is not None else None)
    for optimizer in [value for value in found if issubclass(type(value), Optimizer)]:
        for slots in optimizer.state.values():
            for value in slots.values():
                count(STATE, value)
    for node in [value for value in found if issubclass(type(value), Function)]:
        for value in arrays_in(vars(node).values()):
            count(f"{KEPT} by {node.name}", value)
    sums["other arrays"] = sum(left.values())
    ordered = sorted(((nbytes, kind) for kind, nbytes in sums.items() if nbytes), reverse=True)
    lines = [f"  {mb(nbytes):>10}  {kind}" for nbytes, kind in ordered[:ROWS]]
    tail = "alpha.memory_plan(step, ..) plans a step by kind and layer, and its largest batch"
    return "\n".join(["in use now, MB of 10^6 bytes:", *lines, tail])


CudaMemory.on_shortage = in_use
