"""Record of a forward: its operators in order, the values between them, and the layer that each belongs to.

A forward runs twice, with other numbers and another number of images, and is recorded both times. What is equal in both
records is a constant of the network; a length that differs follows the length of the batch; and a tensor that differs
although no recorded operator made it comes out of the list of operators, which is refused (`paired`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from alpha.autograd.function import Function
from alpha.autograd.grad_mode import no_grad
from alpha.autograd.tracing import tracing, untraced
from alpha.autograd.versions import Version, array_of, part_of
from alpha.core.nested import tensors_in
from alpha.core.primitive import shares_memory
from alpha.core.tensor import Tensor
from alpha.errors import ExportError
from alpha.module.module import Module
from alpha.ops.array.layout import Reshape
from alpha.ops.normalization.batch_norm_primitives import BatchStatistics

Host = npt.NDArray[Any]
EVALUATION = ". A function is exported as it runs: call eval() of its model before"
OF_THE_BATCH = "normalises by the mean and variance of the batch; only running statistics can be exported"


class Length(NamedTuple):
    """A length of an axis: `fixed + per_image N` for a batch of N."""

    fixed: int
    per_image: int = 0

    @property
    def is_fixed(self) -> bool:
        return self.per_image == 0


@dataclass(eq=False)
class Value:
    """A tensor of a forward.

    Attributes:
        shape: that of the first run.
        lengths: its axes, once both runs are known.
        name: of an input, or of a parameter or buffer of the module; else empty.
        depends: whether it depends on an input.
        values: of a constant.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    name: str = ""
    depends: bool = False
    tensor: Tensor | None = None  # of which the values are read, unless an operator makes it
    lengths: tuple[Length, ...] = ()
    values: Host | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(eq=False)
class Step:
    """An operator of a forward.

    Attributes:
        kind: its class, or the function of one that is traced whole.
        inputs: its tensors, in the order of the arguments; None for one that is left out.
        options: its other arguments by name; those of a function have a `Value` in place of each tensor.
        outputs: one, or several of a function.
        layer: the dotted name and the class of the module that calls it.
        others: the options of the second run.
        hides: whether a tensor among the options depends on the input, so that the inputs are not all.
    """

    kind: Any
    inputs: list[Value | None]
    options: dict[str, Any]
    outputs: list[Value]
    layer: str
    others: dict[str, Any] = field(default_factory=dict)
    hides: bool = False

    @property
    def output(self) -> Value:
        return self.outputs[0]

    @property
    def operator(self) -> str:
        """The name of the operator, for errors."""
        return str(self.options.get("operator") or self.kind.__name__).strip("_").removesuffix("InPlace")

    def fixed(self, name: str) -> Any:
        """An option, which must be equal in both runs."""
        found = self.options[name]
        if found != self.others[name]:
            raise self.refused(f"has {name}={found} for one batch and {self.others[name]} for another")
        return found

    def value(self, number: int) -> Value:
        """Input of that number, which is there."""
        found = self.inputs[number]
        assert found is not None
        return found

    def refused(self, why: str) -> ExportError:
        """Error that the operator cannot be exported."""
        return ExportError(f"onnx.export: the operator {self.operator} of {self.layer} {why}")


class Recorder:
    """Tracer that keeps the operators of one run."""

    def __init__(self, model: Any) -> None:
        self.steps: list[Step] = []
        self.given: list[Value] = []
        self.outputs: list[Value] = []
        self.values: list[Value] = []
        self.model = model
        self._known: dict[int, tuple[Any, Value | None, Tensor]] = {}  # by the id of an array; None: it is stale
        self._path: list[str] = []
        self.names: dict[int, tuple[str, Tensor]] = {}
        self.structure: Any = None
        if isinstance(model, Module):
            self.names = {id(tensor.array): (name, tensor) for name, tensor in model.named_tensors()}

    # -- what a tracer is told ------------------------------------------------------------------------

    def operator(
        self, node: Function, inputs: Sequence[Tensor | None], options: dict[str, Any], run: Callable[[], Tensor]
    ) -> Tensor:
        given = [None if tensor is None else self.value_of(tensor) for tensor in inputs]
        stats = options.get("stats")
        if isinstance(stats, BatchStatistics) and stats.training and stats.running is not None:  # before they move
            raise Step(type(node), given, options, [], self.layer).refused(OF_THE_BATCH + EVALUATION)
        with untraced():
            if node.inplace and inputs[0] is not None:
                self._keep_constants(inputs[0])
            output = run()
        made = self._made(output, given)
        step = Step(type(node), given, options, [made], self.layer, hides=self._hides(options))
        self.steps.append(step)
        if node.inplace:
            self._overwritten(output, made)
        else:
            self._know(output, made)
        return output

    def whole(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        given: list[Value | None] = []

        def replaced(value: Any) -> Any:
            if isinstance(value, Tensor):
                given.append(self.value_of(value))
                return given[-1]
            if type(value) in (tuple, list):
                return type(value)(map(replaced, value))
            return value

        options = {name: replaced(value) for name, value in bound.arguments.items()}
        with untraced():
            result = function(*args, **kwargs)
        outputs = []
        for tensor in tensors_in(result):
            outputs.append(self._made(tensor, given))
            self._know(tensor, outputs[-1])
        self.steps.append(Step(function, given, options, outputs, self.layer))
        return result

    def read(self, tensor: Tensor) -> None:
        known = self._known.get(id(tensor.array))
        if known is not None and known[1] is not None and known[1].depends:
            raise ExportError(
                f"onnx.export: {self.layer} reads values of a tensor {tensor.shape} that depends on the input (by "
                "numpy, item, float, bool or an index). An ONNX file holds operators, not what a program decides by "
                "their values; compute it with operators, as alpha.where"
            )

    # -- values ---------------------------------------------------------------------------------------

    @property
    def layer(self) -> str:
        return self._path[-1] if self._path else "the function"

    def value_of(self, tensor: Tensor) -> Value:
        """The value that a tensor has now."""
        array_of(tensor)
        known = self._known.get(id(tensor.array))
        if known is not None:
            if known[1] is None:
                raise ExportError(
                    f"onnx.export: in {self.layer} a tensor {tensor.shape} is used whose memory was written through "
                    "another tensor; take the view or the part again after the write, or write no tensor in place"
                )
            return known[1]
        name = self.names.get(id(tensor.array), ("", tensor))[0]
        value = Value(tuple(tensor.shape), tensor.dtype, name, tensor=tensor)
        self._know(tensor, value)
        return value

    def _hides(self, options: Any) -> bool:
        if isinstance(options, Tensor):
            known = self._known.get(id(options.array))
            return known is not None and known[1] is not None and known[1].depends
        parts = options.values() if isinstance(options, dict) else options if isinstance(options, (tuple, list)) else ()
        return any(map(self._hides, parts))

    def _made(self, tensor: Tensor, given: Sequence[Value | None]) -> Value:
        depends = any(value is not None and value.depends for value in given)
        return Value(tuple(tensor.shape), tensor.dtype, depends=depends, tensor=None if depends else tensor)

    def _know(self, tensor: Tensor, value: Value) -> None:
        self._known[id(tensor.array)] = tensor.array, value, tensor
        self.values.append(value)

    def _keep_constants(self, target: Tensor) -> None:
        """Copy the constants in memory that will be written: their values are read after the run."""
        for array, value, _ in self._known.values():
            if value is not None and value.tensor is not None and shares_memory(array, (target.array,)):
                value.tensor = value.tensor.clone()

    def _overwritten(self, tensor: Tensor, value: Value) -> None:
        """Let a tensor have the value that was written into it, and other tensors of its memory none."""
        if type(tensor._version) is not Version:
            raise ExportError(
                f"onnx.export: {self.layer} writes a part of a tensor in place  (part {tensor.shape}); compute the "
                "whole with operators that give a new tensor, as alpha.where or alpha.cat"
            )
        if not value.depends:
            value.tensor = tensor.clone()
        for key, (array, old, other) in list(self._known.items()):
            if array is tensor.array or old is None:
                continue
            part = part_of(other)
            whole = None if part is None else part.whole(other)
            if shares_memory(array, (tensor.array,)) and array.nbytes == tensor.array.nbytes:
                seen = Value(old.shape, old.dtype, depends=value.depends, tensor=None if value.depends else other)
                self.steps.append(Step(Reshape, [value], {"shape": old.shape}, [seen], self.layer))
                self._known[key] = array, seen, other
                self.values.append(seen)
            elif shares_memory(array, (tensor.array,)) or (whole is not None and whole.array is tensor.array):
                self._known[key] = array, None, other
        self._know(tensor, value)

    # -- a run ------------------------------------------------------------------------------------------

    def run(self, inputs: Sequence[Tensor], names: Sequence[str]) -> None:
        """Call the model and keep what it does."""
        for name, tensor in zip(names, inputs, strict=True):
            self.given.append(Value(tuple(tensor.shape), tensor.dtype, name, depends=True))
            self._know(tensor, self.given[-1])
        with ExitStack() as stack:
            if isinstance(self.model, Module):
                stack.enter_context(_watched(self.model, self._path))
            stack.enter_context(no_grad())
            stack.enter_context(tracing(self))
            result = self.model(*inputs)
        self.structure = result
        found = list(tensors_in(result))
        if not found:
            raise ExportError(f"onnx.export: the model returns a {type(result).__name__} without a tensor")
        self.outputs = [self.value_of(tensor) for tensor in found]


@contextmanager
def _watched(model: Module, path: list[str]) -> Iterator[None]:
    """Note in `path` which module is called, by hooks that only watch."""
    handles = []
    for name, module in model.named_modules():
        text = f"{name or 'the model'} ({type(module).__name__})"

        def enter(_module: Any, _args: Any, text: str = text) -> None:
            path.append(text)

        def leave(_module: Any, _args: Any, _output: Any) -> None:
            path.pop()

        for hook in (enter, leave):
            vars(hook)["only_watches"] = True
        handles.append(module.register_forward_pre_hook(enter, prepend=True))
        handles.append(module.register_forward_hook(leave))
    try:
        yield
    finally:
        path.clear()
        for handle in handles:
            handle.remove()


# -- two runs -------------------------------------------------------------------------------------------


def paired(first: Recorder, second: Recorder, batches: tuple[int, int]) -> None:
    """Complete the first record by what the second one tells: lengths that follow the batch, and constants.

    Raises:
        ExportError: the runs differ in what they compute.
    """
    if [step.kind for step in first.steps] != [step.kind for step in second.steps]:
        both = zip(first.steps, second.steps, strict=False)
        differing = next((step for step, other in both if step.kind is not other.kind), None)
        where = "" if differing is None else f", from {differing.operator} of {differing.layer} on"
        raise ExportError(
            f"onnx.export: the forward ran {len(first.steps)} operators for a batch of {batches[0]} and "
            f"{len(second.steps)} for another batch of {batches[1]}{where}; an ONNX file has one list of operators. "
            "batch_axis=None exports for the batch of x alone"
        )
    pairs: dict[Value, Value] = {}
    for value, other in _in_order(first, second):
        pairs.setdefault(value, other)
    for value, other in pairs.items():
        value.lengths = tuple([length_of(n, m, batches) for n, m in zip(value.shape, other.shape, strict=True)])
    for step, other_step in zip(first.steps, second.steps, strict=True):
        step.others = other_step.options
        for given, twin in zip(step.inputs, other_step.inputs, strict=True):
            if (given is None) != (twin is None) or (given is not None and pairs[given] is not twin):
                raise step.refused("has other inputs in a second run with another batch")
    for value, other in pairs.items():
        if not value.depends:
            _settle(value, other, first, batches)


def _in_order(first: Recorder, second: Recorder) -> Iterator[tuple[Value, Value]]:
    for step, other in zip(first.steps, second.steps, strict=True):
        for value, twin in zip(step.inputs, other.inputs, strict=True):
            if value is not None and twin is not None:
                yield _checked(value, twin, step)
        for value, twin in zip(step.outputs, other.outputs, strict=True):
            yield _checked(value, twin, step)
    yield from zip(first.given, second.given, strict=True)
    yield from zip(first.outputs, second.outputs, strict=True)


def _checked(value: Value, twin: Value, step: Step) -> tuple[Value, Value]:
    if value.rank != twin.rank:
        raise step.refused(f"has tensors {value.shape} and {twin.shape} in two runs")
    return value, twin


def length_of(n: int, m: int, batches: tuple[int, int]) -> Length:
    """The length that is n and m for the two batches."""
    if n == m:
        return Length(n)
    first, second = batches
    if second == first or (m - n) % (second - first):
        raise ExportError(
            f"onnx.export: an axis has {n} elements for a batch of {first} and {m} for one of {second}; such an axis "
            "cannot be described. batch_axis=None exports for the batch of x alone"
        )
    per_image = (m - n) // (second - first)
    return Length(n - per_image * first, per_image)


def check_lengths(first: Recorder, third: Recorder, batch: int) -> None:
    """Refuse lengths that are no multiple of the batch and a constant, by a third run with another batch."""
    if len(first.steps) != len(third.steps):
        raise ExportError("onnx.export: the forward ran other operators in a third run; give batch_axis=None")
    for value, other in _in_order(first, third):
        wanted = tuple(n.fixed + n.per_image * batch for n in value.lengths)
        if wanted != other.shape:
            raise ExportError(
                f"onnx.export: a tensor has the shape {other.shape} for a batch of {batch}, and {wanted} was expected "
                f"from smaller batches, of which {value.shape} is one; such a shape cannot be described. "
                "batch_axis=None exports for the batch of x alone"
            )


def _settle(value: Value, other: Value, record: Recorder, batches: tuple[int, int]) -> None:
    """Keep the values of a constant, one number along each axis that follows the batch."""
    assert value.tensor is not None
    assert other.tensor is not None
    if value.tensor is other.tensor:  # a parameter, or another tensor that was there before
        value.values = host_values(value.tensor)
        return
    A, B = host_values(value.tensor), host_values(other.tensor)
    for axis, length in enumerate(value.lengths):
        if not length.is_fixed:
            A, B = A.take([0], axis), B.take([0], axis)
    whole = np.ascontiguousarray(np.broadcast_to(A, value.shape))
    if not (_same(A, B) and _same(whole, host_values(value.tensor))):
        users = [step for step in record.steps if value in step.inputs or value in step.outputs]
        where = f"used by {users[0].operator} of {users[0].layer}" if users else "that the model returns"
        raise ExportError(
            f"onnx.export: a tensor {value.shape} {where} is no parameter and no result of an operator of the input "
            "that can be exported, and it differed between two runs with other inputs: it is random, or made by a "
            "function that is no recorded operator (numpy, nonzero, ..)"
        )
    value.values = A


def host_values(tensor: Tensor) -> Host:
    """The values on the host, without a copy if they are there."""
    array = array_of(tensor)
    return array if isinstance(array, np.ndarray) else tensor.numpy()


def _same(A: Host, B: Host) -> bool:
    return A.size == B.size and A.tobytes() == B.tobytes()
