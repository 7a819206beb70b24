"""Hooks: functions that a module calls before and after its forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alpha.module import Module

PreHook = Callable[["Module", tuple[Any, ...]], Any]
ForwardHook = Callable[["Module", tuple[Any, ...], Any], Any]


def hooks_act(module: Module) -> bool:
    """Whether a hook sees what a module is given and makes; not, if all its hooks have `only_watches` set."""
    hooks = module._pre_hooks + module._forward_hooks
    return bool(hooks) and not all([getattr(hook, "only_watches", False) for hook in hooks])


def is_plain(module: Module) -> bool:
    """Whether a call of a module is the forward of its class, which no hook sees, so that others may compute it."""
    if "forward" in vars(module):
        return False
    return not (module._pre_hooks or module._forward_hooks) or not hooks_act(module)


class HookHandle:
    """What registering a forward hook returns; `remove()` takes the hook off again."""

    def __init__(self, module: Module, hooks: str, hook: Callable[..., Any]) -> None:
        def call(*args: Any) -> Any:  # one function a handle: a hook may be registered twice
            return hook(*args)

        self._module, self._hooks, self._call = module, hooks, call
        setattr(module, hooks, (*getattr(module, hooks), call))

    def remove(self) -> None:
        kept = [call for call in getattr(self._module, self._hooks) if call is not self._call]
        setattr(self._module, self._hooks, tuple(kept))
