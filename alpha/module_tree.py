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

    def named_modules(self, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """(dotted name, module) of this and every module below; a shared one once, or with `False` by each name."""
        seen: set[int] = set()

        def walk(module: Module, name: str) -> Iterator[tuple[str, Module]]:
            if id(module) in seen:
                return
            if remove_duplicate:
                seen.add(id(module))
            yield name, module
            for child_name, child in module.named_children():
                yield from walk(child, _dotted(name, child_name))

        return walk(cast("Module", self), prefix)

    def modules(self) -> Iterator[Module]:
        for _, module in self.named_modules():
            yield module

    def named_tensors(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, tensor) of the parameters and buffers.

        Args:
            prefix: what the names begin with, before a dot.
            recurse: False leaves out the modules below this one.
            remove_duplicate: a shared tensor comes once; False: by each of its names.
        """
        modules = self.named_modules(prefix, remove_duplicate) if recurse else [(prefix, cast("Module", self))]
        seen: set[int] = set()
        for path, module in modules:
            for name, value in vars(module).items():
                if isinstance(value, (Parameter, Buffer)) and id(value) not in seen:
                    if remove_duplicate:
                        seen.add(id(value))
                    yield _dotted(path, name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """(dotted name, parameter); arguments as of `named_tensors`."""
        for name, value in self.named_tensors(prefix, recurse, remove_duplicate):
            if isinstance(value, Parameter):
                yield name, value

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        for _, value in self.named_parameters(recurse=recurse):
            yield value

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Buffer]]:
        """(dotted name, buffer); arguments as of `named_tensors`."""
        for name, value in self.named_tensors(prefix, recurse, remove_duplicate):
            if isinstance(value, Buffer):
                yield name, value

    def buffers(self, recurse: bool = True) -> Iterator[Buffer]:
        for _, value in self.named_buffers(recurse=recurse):
            yield value

    def apply(self: Self, function: Callable[[Module], object]) -> Self:
        """Call `function` on every module below, children first, and then on this one."""
        for child in self.children():
            child.apply(function)
        function(cast("Module", self))
        return self


def _dotted(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
