"""Hooks: functions that a module calls before and after its forward, and with the gradients of its call.

For those of gradients, the recorded tensors that go into the call, and those that come out of it, pass a gate: one node
that has an edge to each of them, and a node for each that leads to the gate. Such a passage keeps its gradient, and the
gate gives all of them on together, after the hooks have seen them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from alpha.autograd.function import Function
from alpha.autograd.grad_mode import is_grad_enabled
from alpha.core.numerics import FLOAT32
from alpha.core.primitive import Array, device_of
from alpha.core.tensor import Tensor
from alpha.core.tensor_hooks import Removable
from alpha.errors import type_name

if TYPE_CHECKING:
    from alpha.module.module import Module


Inputs = tuple[tuple[Any, ...], dict[str, Any]]  # positional and keyword arguments
Before = Callable[["Module", tuple[Any, ...], dict[str, Any]], Inputs]
After = Callable[["Module", tuple[Any, ...], dict[str, Any], Any], Any]


def sees_gradients(module: Hooked) -> bool:
    """True if a hook sees the gradients of a call. The call then has only the arguments that the user knows."""
    return bool(module._backward_hooks or module._backward_pre_hooks)


def hooks_act(module: Module) -> bool:
    """True if a hook acts on what a module is given and makes; one that has `only_watches` set does not."""
    if module._backward_hooks or module._backward_pre_hooks:
        return True
    hooks = module._pre_hooks + module._forward_hooks
    return bool(hooks) and not all([getattr(hook, "only_watches", False) for hook in hooks])


def is_plain(module: Module) -> bool:
    """True if a call of a module is the forward of its class and no hook sees it, so that other code may compute it."""
    if "forward" in vars(module):
        return False
    if module._pre_hooks or module._forward_hooks or module._backward_hooks or module._backward_pre_hooks:
        return not hooks_act(module)
    return True


def before(hook: Callable[..., Any], with_kwargs: bool) -> Before:
    """The hook as a function of the arguments that returns the arguments; see `Module.register_forward_pre_hook`."""

    def call(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs:
        result = hook(module, args, kwargs) if with_kwargs else hook(module, args)
        if result is None:
            return args, kwargs
        if not with_kwargs:
            return (result if isinstance(result, tuple) else (result,)), kwargs
        if not isinstance(result, tuple) or list(map(type, result)) != [tuple, dict]:
            raise TypeError(
                f"{type(module).__name__}: a hook before the forward, with_kwargs=True, returned a "
                f"{type(result).__name__}; it returns None or (args, kwargs), a tuple and a dict"
            )
        return result

    return call


def after(hook: Callable[..., Any], with_kwargs: bool) -> After:
    """The hook as a function of arguments and output that returns the output; see `Module.register_forward_hook`."""

    def call(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        result = hook(module, args, kwargs, output) if with_kwargs else hook(module, args, output)
        return output if result is None else result

    return call


class HookHandle(Removable):
    """Handle of a registered hook of a module or an optimizer; `remove()` takes the hook off again."""

    def __init__(self, module: object, hooks: str, call: Callable[..., Any], prepend: bool) -> None:
        self._module, self._hooks, self._call = module, hooks, call  # one function a handle: a hook may come twice
        others = getattr(module, hooks)
        setattr(module, hooks, (call, *others) if prepend else (*others, call))

    def remove(self) -> None:
        kept = [call for call in getattr(self._module, self._hooks) if call is not self._call]
        setattr(self._module, self._hooks, tuple(kept))


class Hooked:
    """Hooks of a `Module`, which look at its calls."""

    _pre_hooks: tuple[Before, ...] = ()
    _forward_hooks: tuple[After, ...] = ()
    _backward_pre_hooks: tuple[Callable[..., Any], ...] = ()
    _backward_hooks: tuple[Callable[..., Any], ...] = ()

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Call `hook(module, args)` before each forward; a result, a tuple or the only argument, replaces the args.

        Args:
            prepend: True calls it before the hooks that are there.
            with_kwargs: True calls `hook(module, args, kwargs)`, whose result is None or a new (args, kwargs).
        """
        return HookHandle(self, "_pre_hooks", before(hook, with_kwargs), prepend)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Call `hook(module, args, output)` after each forward; a result replaces the output.

        Args:
            prepend: True calls it before the hooks that are there.
            with_kwargs: True calls `hook(module, args, kwargs, output)`.
        """
        return HookHandle(self, "_forward_hooks", after(hook, with_kwargs), prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> HookHandle:
        """Call `hook(module, grad_output)` once the gradients of a call's outputs are there; a result replaces them.

        `grad_output` is a tuple with a gradient for each output, None for one that has none. A result is such a tuple,
        or the only gradient.

        Args:
            prepend: True calls it before the hooks that are there.
        """
        return HookHandle(self, "_backward_pre_hooks", partial(hook), prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> HookHandle:
        """Call `hook(module, grad_input, grad_output)` once the gradients of a call's inputs are there.

        `grad_input` is a tuple with a gradient for each positional argument, None for one that has none; a result, such
        a tuple or the only gradient, replaces them. `grad_output` is that of the outputs. While the hook is there, the
        module may not write its arguments in place, and nobody its outputs.

        Args:
            prepend: True calls it before the hooks that are there.
        """
        return HookHandle(self, "_backward_hooks", partial(hook), prepend)


Gradients: TypeAlias = "list[Array | None]"  # one for each argument or output of a call


class ModuleGate(Function):
    """Nothing of its inputs, whose gradients are those that have passed   X0 (...), X1 (...), .. -> ()"""

    def forward(self, *arrays: Array, meet: Callable[[], Gradients], places: Sequence[int]) -> Array:
        self.meet, self.places = meet, places
        return device_of(arrays[0]).zeros((), FLOAT32)

    def backward(self, dY: Array) -> Any:
        found = self.meet()
        return [found[place] for place in self.places]


class ModulePassage(Function):
    """X itself, whose gradient waits at the gate   gate (), X (...) -> X"""

    def forward(self, gate: Array, X: Array, *, kept: Gradients, place: int) -> Array:
        self.kept, self.place = kept, place
        return X

    def backward(self, dY: Array) -> Any:
        device = device_of(dY)
        self.kept[self.place] = device.copy(dY)
        return device.zeros((), FLOAT32), None


class _Call:
    """One call of a module, with the gradients of its arguments and outputs as far as they are there."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.inputs: Gradients = []
        self.outputs: Gradients = []
        self.seen: Gradients = []  # of the outputs, as the hooks left them
        self.is_first = True  # whether no argument needs a gradient, so that none comes back

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, behind their gate."""
        self.inputs = [None] * len(args)
        passed = _through(args, self.inputs, self._meet_inputs)
        self.is_first = passed is args
        return passed

    def leave(self, output: Any) -> Any:
        """The output, behind its gate."""
        several = isinstance(output, (tuple, list))
        if not several and not isinstance(output, Tensor):
            raise TypeError(
                f"{type(self.module).__name__}: with a backward hook it returns a Tensor or a tuple of Tensors, "
                f"not a {type_name(output)}"
            )
        values = tuple(output) if several else (output,)
        self.outputs = [None] * len(values)
        values = _through(values, self.outputs, self._meet_outputs)
        if not several:
            return values[0]
        return type(output)(*values) if hasattr(output, "_fields") else type(output)(values)

    def _meet_outputs(self) -> Gradients:
        found = _taken(self.outputs)
        for hook in self.module._backward_pre_hooks:
            found = self._replaced("grad_output", hook(self.module, _given(found)), found)
        self.seen = found
        if self.is_first:
            for hook in self.module._backward_hooks:
                hook(self.module, _given(self.inputs), _given(found))
        return [None if array is None else _copy(array) for array in found]

    def _meet_inputs(self) -> Gradients:
        found = _taken(self.inputs)
        for hook in self.module._backward_hooks:
            found = self._replaced("grad_input", hook(self.module, _given(found), _given(self.seen)), found)
        return found

    def _replaced(self, name: str, result: Any, found: Gradients) -> Gradients:
        """The gradients after a hook, which has returned None, all of them, or the only one."""
        if result is None:
            return found
        values = result if isinstance(result, (tuple, list)) else (result,)
        if len(values) != len(found) or not all(isinstance(value, (Tensor, type(None))) for value in values):
            raise TypeError(
                f"{type(self.module).__name__}: a backward hook returned {len(values)} values for the {len(found)} of "
                f"{name}; each is a Tensor or None"
            )
        return [None if value is None else _copy(value.array) for value in values]


def _through(values: tuple[Any, ...], kept: Gradients, meet: Callable[[], Gradients]) -> tuple[Any, ...]:
    """The values, of which the recorded tensors pass a gate; themselves if there is none."""
    places = [i for i, value in enumerate(values) if isinstance(value, Tensor) and value.requires_grad]
    if not places or not is_grad_enabled():
        return values
    gate = ModuleGate.apply(*[values[place] for place in places], meet=meet, places=places)
    passed = list(values)
    for place in places:
        passed[place] = ModulePassage.apply(gate, values[place], kept=kept, place=place)
    return tuple(passed)


def _copy(array: Array) -> Array:
    return device_of(array).copy(array)


def _taken(kept: Gradients) -> Gradients:
    """The gradients that have come, which the next walk through the graph does not find again."""
    found = list(kept)
    kept[:] = [None] * len(kept)
    return found


def _given(gradients: Gradients) -> tuple[Tensor | None, ...]:
    """Copies that a hook may keep and write."""
    return tuple([None if array is None else Tensor(_copy(array)) for array in gradients])


def call_with_backward_hooks(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Result of `module(*args, **kwargs)`, whose gradients the backward hooks of the module will see."""
    for before in module._pre_hooks:
        args, kwargs = before(module, args, kwargs)
    call = _Call(module)
    output = module.forward(*call.enter(args), **kwargs)
    for after in module._forward_hooks:
        output = after(module, args, kwargs, output)
    return call.leave(output)
