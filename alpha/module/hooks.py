"""Hooks: functions that a module calls before and after its forward, and with the gradients of its call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from alpha.core.tensor_hooks import Removable

if TYPE_CHECKING:
    from alpha.module.module import Module

Inputs = tuple[tuple[Any, ...], dict[str, Any]]  # positional and keyword arguments
Before = Callable[["Module", tuple[Any, ...], dict[str, Any]], Inputs]
After = Callable[["Module", tuple[Any, ...], dict[str, Any], Any], Any]


def sees_gradients(module: Hooked) -> bool:
    """Whether a hook sees the gradients of a call, which then has the arguments that the user knows, and no others."""
    return bool(module._backward_hooks or module._backward_pre_hooks)


def hooks_act(module: Module) -> bool:
    """Whether a hook sees what a module is given and makes; not, if all its hooks have `only_watches` set."""
    if module._backward_hooks or module._backward_pre_hooks:
        return True
    hooks = module._pre_hooks + module._forward_hooks
    return bool(hooks) and not all([getattr(hook, "only_watches", False) for hook in hooks])


def is_plain(module: Module) -> bool:
    """Whether a call of a module is the forward of its class, which no hook sees, so that others may compute it."""
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
    """What registering a hook of a module or an optimizer returns; `remove()` takes the hook off again."""

    def __init__(self, module: object, hooks: str, call: Callable[..., Any], prepend: bool) -> None:
        self._module, self._hooks, self._call = module, hooks, call  # one function a handle: a hook may come twice
        others = getattr(module, hooks)
        setattr(module, hooks, (call, *others) if prepend else (*others, call))

    def remove(self) -> None:
        kept = [call for call in getattr(self._module, self._hooks) if call is not self._call]
        setattr(self._module, self._hooks, tuple(kept))


class Hooked:
    """What a `Module` offers to look at its calls."""

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
