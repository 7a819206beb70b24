"""The tree that a module is the root of: its parts by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar, cast

from alpha.parameter import Buffer, Parameter
from alpha.tensor import Tensor

if TYPE_CHECKING:
    from alpha.module import Module

Self = TypeVar("Self", bound="ModuleTree")


class ModuleTree:
    """What a `Module` offers to go through its parts, which are its attributes."""

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(attribute name, module) of the direct submodules, in order of assignment."""
        for name, value in vars(self).items():
            if isinstance(value, ModuleTree):
                yield name, cast("Module", value)

    def children(self) -> Iterator[Module]:
        for _, module in self.named_children():
            yield module

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """(dotted name, module) of this and every module below; a shared one comes once."""
        seen: set[int] = set()

        def walk(module: Module, name: str) -> Iterator[tuple[str, Module]]:
            if id(module) in seen:
                return
            seen.add(id(module))
            yield name, module
            for child_name, child in module.named_children():
                yield from walk(child, f"{name}.{child_name}" if name else child_name)

        return walk(cast("Module", self), prefix)

    def modules(self) -> Iterator[Module]:
        for _, module in self.named_modules():
            yield module

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, tensor) of every parameter and buffer; a shared one comes once."""
        seen: set[int] = set()
        for prefix, module in self.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, (Parameter, Buffer)) and id(value) not in seen:
                    seen.add(id(value))
                    yield (f"{prefix}.{name}" if prefix else name), value

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        for name, value in self.named_tensors():
            if isinstance(value, Parameter):
                yield name, value

    def parameters(self) -> Iterator[Parameter]:
        for _, value in self.named_parameters():
            yield value

    def named_buffers(self) -> Iterator[tuple[str, Buffer]]:
        for name, value in self.named_tensors():
            if isinstance(value, Buffer):
                yield name, value

    def buffers(self) -> Iterator[Buffer]:
        for _, value in self.named_buffers():
            yield value

    def apply(self: Self, function: Callable[[Module], object]) -> Self:
        """Call `function` on every module below, children first, and then on this one."""
        for child in self.children():
            child.apply(function)
        function(cast("Module", self))
        return self
