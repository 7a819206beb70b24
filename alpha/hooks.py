"""Hooks: functions that a module calls before and after its forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from alpha.tensor_hooks import Removable

if TYPE_CHECKING:
    from alpha.module import Module

Inputs = tuple[tuple[Any, ...], dict[str, Any]]  # positional and keyword arguments
Before = Callable[["Module", tuple[Any, ...], dict[str, Any]], Inputs]
After = Callable[["Module", tuple[Any, ...], dict[str, Any], Any], Any]


def hooks_act(module: Module) -> bool:
    """Whether a hook sees what a module is given and makes; not, if all its hooks have `only_watches` set."""
    hooks = module._pre_hooks + module._forward_hooks
    return bool(hooks) and not all([getattr(hook, "only_watches", False) for hook in hooks])


def is_plain(module: Module) -> bool:
    """Whether a call of a module is the forward of its class, which no hook sees, so that others may compute it."""
    if "forward" in vars(module):
        return False
    return not (module._pre_hooks or module._forward_hooks) or not hooks_act(module)


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
    """What registering a forward hook returns; `remove()` takes the hook off again."""

    def __init__(self, module: Module, hooks: str, call: Before | After, prepend: bool) -> None:
        self._module, self._hooks, self._call = module, hooks, call  # one function a handle: a hook may come twice
        others = getattr(module, hooks)
        setattr(module, hooks, (call, *others) if prepend else (*others, call))

    def remove(self) -> None:
        kept = [call for call in getattr(self._module, self._hooks) if call is not self._call]
        setattr(self._module, self._hooks, tuple(kept))
