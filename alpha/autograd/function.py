"""Define-by-run gradients: a `Function` records an operator; alpha/autograd/engine.py walks the record.

A `Function` writes its forward and its gradient rule once, on arrays, with primitives. `apply` makes the output tensor
and the graph node.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from alpha.autograd.derived import is_beside
from alpha.autograd.first_step import FirstStep
from alpha.autograd.grad_mode import is_grad_enabled
from alpha.autograd.memory_mode import FAST, LEAST, Again
from alpha.autograd.memory_mode import setting as memory
from alpha.autograd.recompute import FirstRun
from alpha.autograd.recompute import state as runs
from alpha.autograd.tracing import state as tracing
from alpha.autograd.versions import Version, check_history, check_writable, knows_history, part_of
from alpha.core.numerics import is_floating
from alpha.core.origins import Origin, carry
from alpha.core.primitive import Array, Form, contiguous, form_of, shares_memory
from alpha.core.tensor_hooks import Hook, HookHandle
from alpha.errors import DeviceError, GradientError, type_name
from alpha.runtime.recording import NO_LAYER
from alpha.runtime.recording import state as listening

if TYPE_CHECKING:
    from alpha.core.tensor import Tensor

Edge = Union["Function", "Tensor", None]  # the producing node, a leaf, or no gradient wanted

_ids = itertools.count()


class Function:
    """One recorded operator. Subclasses define `forward(X, .., *, option, ..)` and `backward(dY)`.

    `forward` takes the arrays of the inputs (None for an input that is left out) and the options of `apply`. It returns
    the output array, a new one or the memory of an input (a view), and keeps what the gradient needs with
    `self.save(...)` (arrays of inputs or of the output, guarded against later in-place writes) or as plain attributes;
    `self.guard(...)` guards the memory of other tensors.

    `backward` takes the output's gradient array and returns a gradient, or None, per input; `self.needs_input_grad[i]`
    tells which are wanted. A gradient has the shape, dtype and device of its input. It may be `dY` or a saved array
    itself, and two gradients may be one array; an array that the Function keeps as a plain attribute must be copied.

    A function of one input whose gradient is 0 in most places may set `adds_gradient` and define
    `add_gradient(dY, total)`, which adds its gradient to `total`, that of other users of the input, in place.

    A function whose gradient begins with work on each element of dY may offer it to the function that makes dY; see
    alpha/autograd/first_step.py.

    If `forward` and `backward` are static methods, they are PyTorch's: `forward(ctx, *args)` and
    `backward(ctx, *grads)` compute with tensors, and `apply` takes the arguments of forward; see
    alpha/autograd/static.py.

    Examples:
        >>> import alpha
        >>> class Double(alpha.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return x * 2
        ...     @staticmethod
        ...     def backward(ctx, dy):
        ...         return dy * 2
        ...
        >>> x = alpha.ones(2, requires_grad=True)
        >>> Double.apply(x).sum().backward()
        >>> x.grad.tolist()
        [2.0, 2.0]
    """

    needs_input_grad: tuple[bool, ...] = ()
    inplace = False
    written_as = ""  # how a user writes an operator in place, for errors; by default its name
    is_view = False
    is_writable = False  # of a view: whether what it gives may be written in place
    copies = False  # whether the result has the values of its only input, on another device or in another dtype
    adds_gradient = False
    offers_first_step = False  # whether `first_step` may give one
    takes_first_steps = False  # whether `backward` may take the first step of the function behind its first input
    behind: FirstStep | None = None  # that step, while `backward` may take it
    begun: FirstStep | None = None  # the first step of this function, if it was taken already
    takes_parts = False  # whether `backward` adds up two parts of dY itself, of which the second is `_other_part`
    _other_part: Array | None = None  # the second part of dY, if there is one
    recorded_uses = 0  # of the output, by functions that may give it a gradient
    gradient_is_seen = False  # whether a backward pass was asked for that of the output, or began with it
    lends = False  # whether a gradient that it returns may be memory that somebody else holds
    output_is_kept = False  # whether another function has saved the output; noted in the memory modes below "fast"
    keeps_own_output = False  # whether the output stays for its own gradient, or will take the place of an input
    would_keep_output = False  # whether `keep_output` is to be told of that in any mode
    half: Any = None  # the fp16 copy that is kept in place of an array which `save` would keep
    layer = NO_LAYER  # whose forward has recorded it, if a recording or a profile asks
    # what others have kept of the output in place of its array; a weak reference, which may be dead
    _remade: Callable[[], Again | None] = staticmethod(lambda: None)
    first_run: tuple[FirstRun, int] | None = None  # of a function that must run again, and which operator this is

    def __init_subclass__(cls) -> None:
        if any(isinstance(vars(cls).get(name), staticmethod) for name in ("forward", "backward")):
            from alpha.autograd.static import complete

            complete(cls)

    def __init__(self) -> None:
        self.id = next(_ids)
        self.edges: tuple[Edge, ...] = ()
        self.hooks: dict[HookHandle, Hook] = {}
        self.form: Form | None = None  # that of the output, and so of its gradient
        self.read_bytes: tuple[int, ...] = ()  # of each input
        self._saved: tuple[Array, ...] | None = ()
        self._maker: Callable[[], Array] | None = None  # makes the output again, if that is cheaper than to keep it
        self._again: dict[int, Again] | None = None  # places of `_saved` whose arrays are made when they are asked for
        self._guards: list[tuple[Version, int]] = []

    @property
    def name(self) -> str:
        """The operator's name, for errors."""
        return type(self).__name__

    def _no_forward(self, *arrays: Array | None, **options: Any) -> Array:
        """The output's array for the arrays of the inputs; a subclass defines it."""
        raise DeviceError(f"{self.name} has no forward")

    forward: Callable[..., Array] = _no_forward  # a subclass names its arrays and options

    def backward(self, dY: Array) -> Any:
        """The gradients of the inputs for that of the output; a subclass defines it."""
        raise GradientError(f"{self.name} has no gradient rule")

    def add_gradient(self, dY: Array, total: Array) -> None:
        """Add the gradient of the input to `total` in place; a subclass that has `adds_gradient` defines it."""
        raise GradientError(f"{self.name} has no rule that adds its gradient")

    def first_step(self) -> FirstStep | None:
        """The first step of the gradient rule, if another function may take it; a subclass may offer one."""
        return None

    def save(self, *arrays: Array | None) -> None:
        """Keep arrays for `backward`; read them there as `self.saved`."""
        self._saved = arrays

    def guard(self, *tensors: Tensor) -> None:
        """Let `saved` refuse if one of them is written in place since; for arrays that are plain attributes."""
        self._guards += [(tensor._version, tensor._version.value) for tensor in tensors]

    @property
    def saved(self) -> tuple[Array, ...]:
        """The arrays that `save` has kept; `GradientError` if they were written since, or freed by a backward pass."""
        if self._saved is None:
            raise GradientError(
                f"{self.name}: the graph was freed by an earlier backward(); "
                "pass retain_graph=True to that one to walk it twice"
            )
        for version, value in self._guards:
            if version.value != value:
                raise _written(self.name, version, value)
        if self._again is not None:
            again, arrays = self._again, enumerate(self._saved)
            self._saved = tuple([again[i].array() if i in again else array for i, array in arrays])
            self._again = None
        return self._saved

    def free(self) -> None:
        """Drop what `save` has kept, after the backward pass."""
        self._saved = self._again = self._maker = self.half = None

    def keep_output(self, output: Tensor) -> None:
        """Hear that another function keeps the output in any case; a subclass may keep it, too, and not its input."""

    def output_again(self) -> Again | None:
        """The output, made again when it is asked for; None if it is cheaper to keep, which a subclass may change."""
        return None if self._maker is None else self.made_again(self._maker)

    def made_again(self, compute: Callable[[], Array]) -> Again:
        """The output that `compute` makes: one array for all functions that have kept it."""
        again = self._remade()
        if again is None:
            again = Again(compute)
            self._remade = weakref.ref(again)  # which may hold this node
        return again

    @classmethod
    def apply(cls, *inputs: Tensor | None, **options: Any) -> Tensor:
        """Run forward on the inputs' arrays, and record the step if a gradient is wanted.

        Raises:
            TypeError: an input is no Tensor, or `forward` returned no array.
            DeviceError: the inputs are on several devices, and those on the cpu are not all without axes.
            GradientError: an input's memory was written in place in a way that loses its gradient.
        """
        node = cls()
        try:
            arrays, tensors = node.take(inputs)
        except DeviceError:
            inputs, node = _together(cls, inputs), cls()
            arrays, tensors = node.take(inputs)
        tracer = tracing.tracer
        if tracer is None:
            return node.give(node.forward(*arrays, **options), inputs, tensors)
        return tracer.operator(
            node, inputs, options, lambda: node.give(node.forward(*arrays, **options), inputs, tensors)
        )

    def take(self, inputs: Sequence[Tensor | None]) -> tuple[list[Array | None], list[Tensor]]:
        """The first part of `apply`, before forward: the arrays of the inputs, and those inputs that are tensors."""
        tensor_type = tensor_class()
        enabled = is_grad_enabled()
        arrays: list[Array | None] = []
        needs: list[bool] = []
        tensors: list[Tensor] = []
        for tensor in inputs:
            if tensor is None:
                arrays.append(None)
                needs.append(False)
            elif isinstance(tensor, tensor_type):
                arrays.append(tensor.array)
                needs.append(enabled and tensor._requires_grad)
                tensors.append(tensor)
            else:
                raise TypeError(
                    f"{self.name}: input {len(arrays)} is a {type_name(tensor)}, a Tensor is needed; "
                    "use alpha.tensor(..)"
                )
        self.needs_input_grad = tuple(needs)
        if _check_inputs(self, tensors):
            self.needs_input_grad = tuple(
                [enabled and tensor is not None and tensor._requires_grad for tensor in inputs]
            )
        if self.inplace:
            check_writable(self.written_as or self.name, tensors[0], True in self.needs_input_grad)
        return arrays, tensors

    def give(self, Y: Array, inputs: Sequence[Tensor | None], tensors: Sequence[Tensor]) -> Tensor:
        """The last part of `apply`, after forward has made Y: the output, and the record if a gradient is wanted."""
        recording = True in self.needs_input_grad
        if isinstance(Y, (np.ndarray, np.generic)):
            Y = contiguous(Y)
        elif type(Y) is list:  # of which Tensor would make one
            raise TypeError(f"{self.name}: forward returned a list; Tensor takes an array of a device, not a list")
        if self.inplace:
            output = tensors[0]
            output._version.bump(self.written_as or self.name, recording)
            if recording:
                output._base_version = output._version.recorded
        else:
            output = tensor_class()(Y)
            owner = tensors[0] if self.is_view else None
            for tensor in tensors:
                if tensor.array is Y:
                    owner = tensor
                    break
            if owner is not None:  # one memory, one version
                self.is_view = True
                output._version, output._base_version = owner._version, owner._base_version
        if recording and is_floating(Y.dtype):
            self._record(inputs, (*tensors, output), Y)
            if self.inplace:
                self.take_over(output._node)
            output._node = self
            output._requires_grad = True
            if self.inplace and (part := part_of(output)) is not None:
                part.written(output)
        return output

    def take_over(self, before: Function | None) -> None:
        """Take the hooks that belong to the tensor from the node that made it until now."""
        if before is not None and before.hooks:
            for handle in [handle for handle in before.hooks if handle.last]:
                handle.move(self.hooks)

    def _record(self, inputs: Sequence[Tensor | None], tensors: Sequence[Tensor], Y: Array) -> None:
        """Note where the gradients go, and the version of each saved array that is memory of one of the tensors."""
        edges: list[Edge] = []
        read_bytes = []
        once = memory.name != FAST
        counted = runs.run is None or not runs.run.repeated  # the first run of a checkpoint has counted already
        for tensor, needed in zip(inputs, self.needs_input_grad, strict=True):
            read_bytes.append(0 if tensor is None else tensor.array.nbytes)
            node = None if tensor is None or not needed else tensor._node
            if node is not None:
                node.recorded_uses += counted
                once = once or node.would_keep_output
            edges.append((node or tensor) if needed else None)
        self.edges, self.read_bytes = tuple(edges), tuple(read_bytes)
        listener = listening.listener
        if listener is not None:
            self.layer = listener.layer
        self.form = form_of(Y)
        if once:
            self._save_once(inputs, Y)
        for array in self._saved or ():
            if array is None:
                continue
            guarded = len(self._guards)
            for tensor in tensors:
                if tensor.array is array:
                    self._guards.append((tensor._version, tensor._version.value))
            if len(self._guards) == guarded:
                for tensor in tensors:
                    if shares_memory(tensor.array, (array,)) or is_beside(tensor.array, array):
                        self._guards.append((tensor._version, tensor._version.value))
        if runs.run is not None:
            runs.run.record(self)

    def _save_once(self, inputs: Sequence[Tensor | None], Y: Array) -> None:
        """Let the functions that made what is saved here keep nothing else, or leave it out if it can be made again."""
        for tensor in inputs:
            node = None if tensor is None else tensor._node
            if tensor is None or node is None or tensor._version.value:  # or it was written since it was made
                continue
            places = [i for i, array in enumerate(self._saved or ()) if array is tensor.array]
            if not places:
                continue
            again = node.output_again() if memory.name == LEAST else None
            if again is None:
                node.output_is_kept = True
                node.keep_output(tensor)
            else:
                assert self._saved is not None
                self._saved = tuple([None if i in places else array for i, array in enumerate(self._saved)])
                self._again = {**(self._again or {}), **dict.fromkeys(places, again)}


@functools.cache
def tensor_class() -> type[Tensor]:
    """Tensor, whose module imports this one; an import statement in each call would take longer."""
    from alpha.core.tensor import Tensor

    return Tensor


# -- what goes into a Function --------------------------------------------------------------------


def check_guards(name: str, guards: Iterable[tuple[Version, int]]) -> None:
    """`GradientError` if a version has another value than the one that was noted."""
    for version, value in guards:
        if version.value != value:
            raise _written(name, version, value)


def _written(name: str, version: Version, value: int) -> GradientError:
    return GradientError(
        f"{name}: a tensor saved for backward was written in place by "
        f"{version.writer} (version {version.value}, saved at {value})"
    )


def _check_inputs(node: Function, tensors: Sequence[Tensor]) -> bool:
    """Refuse no tensors at all, tensors on several devices, and those whose history has lost a gradient.

    Returns:
        Whether a tensor has another history now: a part of a tensor that was written by a recorded operator since.
    """
    if not tensors:
        raise TypeError(f"{node.name}: at least one input must be a Tensor")
    first = tensors[0].array
    kind, renewed = type(first), False
    for tensor in tensors:
        array = tensor.array
        if type(array) is not kind or (kind is not np.ndarray and array.device is not first.device):
            check_devices(node.name, tensors)
        if tensor._base_version is not None and tensor._base_version != tensor._version.recorded:
            if isinstance(tensor._base_version, Origin):
                carry(node, tensor._base_version)
            if (part := part_of(tensor)) is not None and not knows_history(tensor) and part.take_again(tensor):
                renewed = True
            check_history(node.name, tensor)
    return renewed


def _together(cls: type[Function], inputs: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    """Inputs that are on several devices, those on the cpu without axes moved to the other one, as PyTorch takes them.

    The same inputs if others are on the cpu, or the one that is written in place.
    """
    there = [tensor for tensor in inputs if tensor is not None]
    moved = [tensor for tensor in there if isinstance(tensor.array, np.ndarray)]
    if len(moved) in (0, len(there)) or any(tensor.ndim for tensor in moved):
        return tuple(inputs)
    if cls.inplace and there[0] is moved[0]:
        return tuple(inputs)
    device = next(tensor.device for tensor in there if not isinstance(tensor.array, np.ndarray))
    return tuple([tensor if tensor is None else tensor.to(device) for tensor in inputs])


def check_devices(name: str, tensors: Sequence[Tensor]) -> None:
    """`DeviceError` if tensors are on several devices."""
    first = tensors[0].device
    for tensor in tensors:
        if tensor.device is not first:
            raise DeviceError(
                f"{name}: tensors on {first.name} and on {tensor.device.name}; move them together with .to(device)"
            )
