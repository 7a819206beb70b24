"""Modules that hold modules, or parameters: Sequential calls its modules in order, the others only hold them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, overload

from alpha.core.tensor import Tensor
from alpha.module.hooks import hooks_act, is_plain
from alpha.module.module import Module, Parameter
from alpha.module.parameter import shape_text
from alpha.nn.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from alpha.nn.convolution import Conv2d
from alpha.nn.dragon_norms import Affine
from alpha.nn.joined_calls import batch_norm_activation, conv_batch_norm, joins_pool
from alpha.nn.layers import Dropout
from alpha.ops.convolution.conv_arguments import slope_of
from alpha.ops.kernel.rectifier import rectifier_of

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


WITH_ACTIVATION = BatchNorm1d, BatchNorm3d, Affine  # which compute a rectifier behind them
Self = TypeVar("Self", bound="_Ordered")


class _Ordered(Module):
    """Modules named "0", "1", ..: what both containers are."""

    def append(self: Self, module: Module) -> Self:
        if not isinstance(module, Module):
            raise TypeError(f"{type(self).__name__} holds modules, not {type(module).__name__}")
        name = str(len(self))
        if name in vars(self):
            kind = type(self).__name__
            raise KeyError(
                f"{kind}: the next module would be {name!r}, which is there under that name; make a new {kind} of the "
                "modules"
            )
        setattr(self, name, module)
        return self

    def insert(self, index: int, module: Module) -> None:
        """Put a module before the one at an index, as `list.insert`; all are numbered anew."""
        if not isinstance(module, Module):
            raise TypeError(f"{type(self).__name__} holds modules, not {type(module).__name__}")
        modules = self._parts()
        modules.insert(index, module)
        self._number(modules)

    def pop(self, index: int) -> Module:
        """Take a module out and return it; the others are numbered anew."""
        module = self[index]
        del self[index]
        return module

    def extend(self: Self, modules: Iterable[Module]) -> Self:
        for module in modules:
            self.append(module)
        return self

    def __len__(self) -> int:
        return len(self._parts())

    def __iter__(self) -> Iterator[Module]:
        return iter(self._parts())

    def _parts(self) -> list[Module]:
        return [module for module in vars(self).values() if isinstance(module, Module)]

    @overload
    def __getitem__(self: Self, index: int) -> Module: ...

    @overload
    def __getitem__(self: Self, index: slice) -> Self: ...

    def __getitem__(self: Self, index: int | slice) -> Module | Self:
        """A module, or for a slice a container of the same modules, numbered from 0."""
        modules = self._parts()
        if not isinstance(index, slice):
            return modules[index]
        return self._of(enumerate(modules[index]))

    def _of(self: Self, named: Iterable[tuple[Any, Module]]) -> Self:
        """A container of this kind and mode with other modules, of these names."""
        result = type(self).__new__(type(self))
        result.training = self.training
        for name, module in named:
            setattr(result, str(name), module)
        return result

    def __delitem__(self, index: int | slice) -> None:
        """Take out a module, or those of a slice; the others are numbered anew."""
        modules = self._parts()
        del modules[index]
        self._number(modules)

    def __add__(self: Self, other: Iterable[Module]) -> Self:
        """A container of the modules of both, numbered from 0."""
        return self._of(enumerate(self)).extend(other) if isinstance(other, Iterable) else NotImplemented

    def __iadd__(self: Self, other: Iterable[Module]) -> Self:
        return self.extend(list(other)) if isinstance(other, Iterable) else NotImplemented

    def _number(self, modules: Iterable[Module]) -> None:
        """Hold these modules, named "0", "1", .., in place of those that are there."""
        for name, _ in list(self._named_parts()):
            delattr(self, name)
        for number, module in enumerate(modules):
            setattr(self, str(number), module)

    def __setitem__(self, index: int, module: Module) -> None:
        if not isinstance(module, Module):
            raise TypeError(f"{type(self).__name__} holds modules, not {type(module).__name__}")
        names = [name for name, _ in self._named_parts()]
        setattr(self, names[index], module)


class Sequential(_Ordered):
    """Modules called one after the other   `Sequential(Conv2d(3, 64, 3), ReLU())`

    Args:
        modules: modules, which get the names "0", "1", .., or one mapping of names and modules.

    Examples:
        >>> import alpha
        >>> from alpha import nn
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 10))
        >>> model(alpha.ones(2, 8, 8, 3)).shape
        (2, 10)
    """

    def __init__(self, *modules: Module | Mapping[str, Module]) -> None:
        named = modules[0] if len(modules) == 1 else None
        if not isinstance(named, Mapping):
            self.extend(modules)  # type: ignore[arg-type]  # which refuses what is no module
            return
        for name, module in named.items():
            if not isinstance(module, Module):
                raise TypeError(f"Sequential holds modules, not {type(module).__name__}")
            check_name(self, name)
            setattr(self, name, module)

    def __getitem__(self: Self, index: int | slice) -> Module | Self:  # type: ignore[override]
        """A module, or for a slice a Sequential of the same modules, which keep their names, as in PyTorch."""
        named = list(self._named_parts())
        return self._of(named[index]) if isinstance(index, slice) else named[index][1]

    def forward(self, x: Any) -> Any:
        modules = self._parts()
        position = 0
        while position < len(modules):
            x, called = _call(modules, position, x)
            position += called
        return x


def _call(modules: list[Module], position: int, x: Any) -> tuple[Any, int]:
    """Call the module at a position and those behind it that its kernels compute; return the result and how many."""
    module, *behind = modules[position : position + 5]
    if type(module) is Conv2d and behind:
        return _convolve(module, behind, x)
    if behind and is_plain(module) and not hooks_act(behind[0]):
        if type(module) is BatchNorm2d:
            activation, pool, called = _behind_norm(module, behind)
            return batch_norm_activation(module, x, activation, pool=pool), called
        if type(module) in WITH_ACTIVATION and rectifier_of(behind[0]) is not None:
            return module(x, activation=behind[0]), 2
        writes_input = position == 0 and getattr(module, "inplace", False)  # which the caller may see
        if type(behind[0]) is Dropout and is_plain(behind[0]) and rectifier_of(module) is not None and not writes_input:
            return behind[0](x, activation=module), 2
    return module(x), 1


def _convolve(conv: Conv2d, behind: list[Module], x: Any) -> tuple[Any, int]:
    """Call a convolution, and with it a rectifier and a batch normalisation, also with a rectifier, that follow it."""
    slope = None
    if type(behind[0]) is not BatchNorm2d and conv.negative_slope == 1 and is_plain(conv) and not hooks_act(behind[0]):
        slope = slope_of(behind[0])
    called = 1 if slope is None else 2
    rest = behind[called - 1 :]
    if rest and type(norm := rest[0]) is BatchNorm2d:
        activation, pool, more = _behind_norm(norm, rest[1:])
        return conv_batch_norm(conv, norm, x, activation, between=slope, pool=pool), called + more
    return conv(x) if slope is None else conv(x, None, slope), called


def _behind_norm(norm: BatchNorm2d, behind: list[Module]) -> tuple[Module | None, Module | None, int]:
    """The rectifier and the pool behind a norm that are called with it, or None, and how many modules these are."""
    activation = behind[0] if behind and rectifier_of(behind[0]) is not None else None
    called = 1 if activation is None else 2
    pool = behind[called - 1] if len(behind) >= called else None
    if not joins_pool(norm, activation, None, pool):
        return activation, None, called
    return activation, pool, called + 1


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
        """Add modules of a mapping or of (name, module) pairs, in order; one of the same name is replaced."""
        for name, module in modules.items() if isinstance(modules, Mapping) else modules:
            self[name] = module

    def __setitem__(self, name: str, module: Module) -> None:
        if not isinstance(module, Module):
            raise TypeError(f"ModuleDict holds modules, not {type(module).__name__}")
        check_name(self, name)
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
        """The names, in order of insertion."""
        return dict(self.items()).keys()

    def values(self) -> Iterable[Module]:
        """The modules, in order of insertion."""
        return dict(self.items()).values()

    def items(self) -> Iterable[tuple[str, Module]]:
        """Pairs of a name and its module, in order of insertion."""
        return list(self._named_parts())

    def pop(self, name: str) -> Module:
        """Remove a module and return it; `KeyError` if there is none of this name."""
        module = self[name]
        delattr(self, name)
        return module


def check_name(container: Module, name: str) -> None:
    """`TypeError` or `KeyError` for a name that cannot be that of a part."""
    kind = type(container).__name__
    if not isinstance(name, str):
        raise TypeError(f"{kind}: the name {name!r} is not a string")
    if not name or "." in name or hasattr(type(container), name):
        raise KeyError(f"{kind}: {name!r} cannot be a name, because it is empty, has a dot or is an attribute")


def _parameter(container: Module, value: Any) -> Parameter:
    """A Parameter as it is, or one with the values of a Tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{type(container).__name__} holds parameters, not {type(value).__name__}")
    return value if isinstance(value, Parameter) else Parameter(value)


class _Parameters(Module):
    """Parameters by name, in order of insertion: what both containers are."""

    def _named(self) -> dict[str, Parameter]:
        return {name: value for name, value in vars(self).items() if isinstance(value, Parameter)}

    def __len__(self) -> int:
        return len(self._named())

    def extra_repr(self) -> str:
        return ", ".join(f"{name}: {shape_text(value)}" for name, value in self._named().items())


class ParameterList(_Parameters):
    """A list of parameters, named "0", "1", ..; a Tensor becomes a parameter   `ParameterList([Parameter(..)])`"""

    def __init__(self, values: Iterable[Tensor] | None = None) -> None:
        self.extend(values or ())

    def append(self, value: Tensor) -> ParameterList:
        """Add a parameter, or a Tensor as one, at the end, and return the list."""
        setattr(self, str(len(self)), _parameter(self, value))
        return self

    def extend(self, values: Iterable[Tensor]) -> ParameterList:
        """Add several parameters at the end, and return the list."""
        for value in values:
            self.append(value)
        return self

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._named().values())

    @overload
    def __getitem__(self, index: int) -> Parameter: ...

    @overload
    def __getitem__(self, index: slice) -> ParameterList: ...

    def __getitem__(self, index: int | slice) -> Parameter | ParameterList:
        """A parameter, or for a slice a list of the same parameters, numbered from 0."""
        values = list(self)
        return ParameterList(values[index]) if isinstance(index, slice) else values[index]

    def __setitem__(self, index: int, value: Tensor) -> None:
        setattr(self, list(self._named())[index], _parameter(self, value))


class ParameterDict(_Parameters):
    """Parameters by name, in order of insertion; a Tensor becomes a parameter   `ParameterDict({"scale": ..})`

    Args:
        parameters: a mapping, or pairs, of names and parameters. A name is an attribute, so it has no dot, and is not
            that of a method.
    """

    def __init__(self, parameters: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]] | None = None) -> None:
        self.update(parameters or {})

    def update(self, parameters: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]) -> None:
        """Add parameters of a mapping or of (name, parameter) pairs, in order; one of the same name is replaced."""
        for name, value in parameters.items() if isinstance(parameters, Mapping) else parameters:
            self[name] = value

    def __setitem__(self, name: str, value: Tensor) -> None:
        check_name(self, name)
        setattr(self, name, _parameter(self, value))

    def __getitem__(self, name: str) -> Parameter:
        return self._named()[name]

    def __delitem__(self, name: str) -> None:
        self.pop(name)

    def __contains__(self, name: object) -> bool:
        return name in self._named()

    def __iter__(self) -> Iterator[str]:
        return iter(self._named())

    def keys(self) -> Iterable[str]:
        """The names, in order of insertion."""
        return self._named().keys()

    def values(self) -> Iterable[Parameter]:
        """The parameters, in order of insertion."""
        return self._named().values()

    def items(self) -> Iterable[tuple[str, Parameter]]:
        """Pairs of a name and its parameter, in order of insertion."""
        return self._named().items()

    def pop(self, name: str) -> Parameter:
        """Remove a parameter and return it; `KeyError` if there is none of this name."""
        value = self[name]
        delattr(self, name)
        return value
