"""Modules that hold modules: Sequential calls them in order, ModuleList and ModuleDict only hold them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, overload

from alpha.module import Module
from alpha.nn.convolution import Conv2d
from alpha.nn.normalization import BatchNorm2d, conv_batch_norm

__all__ = ["ModuleDict", "ModuleList", "Sequential"]

Self = TypeVar("Self", bound="_Ordered")


class _Ordered(Module):
    """Modules named "0", "1", ..: what both containers are."""

    def append(self: Self, module: Module) -> Self:
        if not isinstance(module, Module):
            raise TypeError(f"{type(self).__name__} holds modules, not {type(module).__name__}")
        setattr(self, str(len(self)), module)
        return self

    def extend(self: Self, modules: Iterable[Module]) -> Self:
        for module in modules:
            self.append(module)
        return self

    def __len__(self) -> int:
        return sum(1 for _ in self.children())

    def __iter__(self) -> Iterator[Module]:
        return self.children()

    @overload
    def __getitem__(self: Self, index: int) -> Module: ...

    @overload
    def __getitem__(self: Self, index: slice) -> Self: ...

    def __getitem__(self: Self, index: int | slice) -> Module | Self:
        """A module, or for a slice a container of the same modules, numbered from 0."""
        modules = list(self.children())
        if not isinstance(index, slice):
            return modules[index]
        result = type(self).__new__(type(self))
        result.training = self.training
        return result.extend(modules[index])

    def __setitem__(self, index: int, module: Module) -> None:
        if not isinstance(module, Module):
            raise TypeError(f"{type(self).__name__} holds modules, not {type(module).__name__}")
        names = [name for name, _ in self.named_children()]
        setattr(self, names[index], module)


class Sequential(_Ordered):
    """Modules called one after the other   `Sequential(Conv2d(3, 64, 3), ReLU())`"""

    def __init__(self, *modules: Module) -> None:
        self.extend(modules)

    def forward(self, x: Any) -> Any:
        modules = list(self.children())
        position = 0
        while position < len(modules):
            module, following = modules[position], modules[position + 1 : position + 2]
            if type(module) is Conv2d and following and type(following[0]) is BatchNorm2d:
                x = conv_batch_norm(module, following[0], x)
                position += 2
            else:
                x = module(x)
                position += 1
        return x


class ModuleList(_Ordered):
    """A list of modules; the model's own forward calls them."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        self.extend(modules or ())


class ModuleDict(Module):
    """Modules by name, in order of insertion; the model's own forward calls them   `ModuleDict({"relu": ReLU()})`

    Args:
        modules: a mapping, or pairs, of names and modules. A name is an attribute, so it has no dot, and is not that
            of a method.
    """

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        for name, module in modules.items() if isinstance(modules, Mapping) else modules:
            self[name] = module

    def __setitem__(self, name: str, module: Module) -> None:
        if not isinstance(module, Module):
            raise TypeError(f"ModuleDict holds modules, not {type(module).__name__}")
        if not isinstance(name, str):
            raise TypeError(f"ModuleDict: the name {name!r} is not a string")
        if not name or "." in name or hasattr(type(self), name):
            raise KeyError(f"ModuleDict: {name!r} cannot be a name, because it is empty, has a dot or is an attribute")
        setattr(self, name, module)

    def __getitem__(self, name: str) -> Module:
        return dict(self.items())[name]

    def __delitem__(self, name: str) -> None:
        self.pop(name)

    def __contains__(self, name: object) -> bool:
        return name in dict(self.items())

    def __len__(self) -> int:
        return len(dict(self.items()))

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self.items()))

    def keys(self) -> Iterable[str]:
        return dict(self.items()).keys()

    def values(self) -> Iterable[Module]:
        return dict(self.items()).values()

    def items(self) -> Iterable[tuple[str, Module]]:
        return list(self.named_children())

    def pop(self, name: str) -> Module:
        module = self[name]
        delattr(self, name)
        return module
