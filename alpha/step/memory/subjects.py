"""Steps whose memory can be planned: what is copied of them, how the copy runs, the same step with another batch."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from alpha.core.nested import map_tensors
from alpha.core.tensor import Tensor
from alpha.errors import DryRunError
from alpha.module.module import Module
from alpha.optim.optimizer import Optimizer
from alpha.runtime.registry import opened
from alpha.step.capturing.captured import Captured
from alpha.step.dry_arguments import BothPasses, input_of, is_shape, shaped
from alpha.step.memory.largest import MOST
from alpha.step.sources.watch import Watch


@dataclass
class Scene:
    """The objects of a step whose memory has a kind.

    Attributes:
        inputs: the tensors of its arguments.
    """

    modules: list[Module] = field(default_factory=list)
    optimizers: list[Optimizer] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Subject:
    """A step that can be planned.

    Attributes:
        title: names it in errors.
        things: what it consists of, of which a copy is run.
        scene: finds the objects of the copy.
        calls: runs the copy, once for each element that is asked for, and adds to the scene what it makes before.
        captured: whether it is a step of `alpha.capture`.
        batch: the batch of its arguments; 0 if they have none.
        at_batch: the same step with another batch.
        other_precision: the same step in a precision of this name; None if it runs in the one in force.
        most: the largest batch that there can be.
        replaced: tensors of the program in whose place the step has others.
    """

    title: str
    things: Any
    scene: Callable[[Any], Scene]
    calls: Callable[[Any, Scene], Generator[Any, None, None]]
    captured: bool
    batch: int
    at_batch: Callable[[int], Subject]
    most: int = MOST
    replaced: Sequence[Tensor] = ()
    other_precision: Callable[[str], Subject] | None = None

    def in_precision(self, name: str) -> Subject:
        """The same step, to be run in the precision of this name."""
        return self if self.other_precision is None else self.other_precision(name)


def subject_of(
    step: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], replaced: Sequence[Tensor] = ()
) -> Subject:
    """A function, a captured step or a module with its arguments, as something that can be planned."""
    title = getattr(step, "__name__", type(step).__name__)
    if isinstance(step, Module) and len(args) == 1 and is_shape(args[0]):
        step, args = BothPasses(step), (input_of("memory_plan", args[0]),)
    tensors: list[Tensor] = []
    map_tensors((args, dict(kwargs)), tensors.append)
    batch = next((len(tensor.array) for tensor in tensors if tensor.ndim), 0)

    def at_batch(wanted: int) -> Subject:
        def resized(tensor: Tensor) -> Tensor:
            if not tensor.ndim or tensor.shape[0] != batch:
                return tensor
            other = shaped((wanted, *tensor.shape[1:]), tensor.dtype)
            other.requires_grad = tensor.requires_grad
            return other

        others, named = map_tensors((args, dict(kwargs)), resized)
        return subject_of(step, others, named, replaced or tensors)

    captured = isinstance(step, Captured)
    return Subject(title, (step, args, dict(kwargs)), _scene_of_call, _calls, captured, batch, at_batch, MOST, replaced)


def _scene_of_call(things: Any) -> Scene:
    step, args, kwargs = things
    watch = Watch(step, {"the arguments": (args, kwargs)})
    device = opened("cuda")
    for name, tensor in watch.named_tensors():
        if tensor.device is not device:
            raise DryRunError(f"it reaches the tensor {name} through a class or a module, which are not copied")
    inputs: list[Tensor] = []
    map_tensors((args, kwargs), inputs.append)
    modules = [value for value in watch.reached if isinstance(value, Module)]
    return Scene(modules, [value for value in watch.reached if isinstance(value, Optimizer)], inputs)


def _calls(things: Any, _: Scene) -> Generator[Any, None, None]:
    step, args, kwargs = things
    result = None
    while True:
        result = step(*args, **kwargs)  # while the result of the call before is still there
        yield result
