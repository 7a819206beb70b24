"""Hooks of tensors, which see their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from alpha.core.tensor import Tensor

Hook = Callable[["Tensor"], "Tensor | None"]
Self = TypeVar("Self", bound="Removable")


class Removable:
    """Handle of a registered hook; `remove()`, or the end of a `with` statement, takes the hook off again."""

    def remove(self) -> None:
        raise NotImplementedError

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


class HookHandle(Removable):
    """The result of `Tensor.register_hook`; `remove()` takes the hook off again."""

    last = False  # whether the hook runs after all others, and belongs to the tensor, whichever node makes it

    def __init__(self, hooks: dict[HookHandle, Hook], hook: Hook) -> None:
        self._hooks = hooks
        hooks[self] = hook
        for handle in [handle for handle in hooks if handle.last]:
            hooks[handle] = hooks.pop(handle)

    def move(self, hooks: dict[HookHandle, Hook]) -> None:
        """Let the hook see the gradient of another node."""
        hooks[self] = self._hooks.pop(self)
        self._hooks = hooks

    def remove(self) -> None:
        self._hooks.pop(self, None)
