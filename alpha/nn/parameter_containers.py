"""Modules that hold parameters: a list and a dict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, overload

from alpha.core.tensor import Tensor
from alpha.module.module import Module, Parameter
from alpha.module.uninitialized import shape_text
from alpha.nn.containers import check_name

__all__ = ["ParameterDict", "ParameterList"]


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
        setattr(self, str(len(self)), _parameter(self, value))
        return self

    def extend(self, values: Iterable[Tensor]) -> ParameterList:
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
        return self._named().keys()

    def values(self) -> Iterable[Parameter]:
        return self._named().values()

    def items(self) -> Iterable[tuple[str, Parameter]]:
        return self._named().items()

    def pop(self, name: str) -> Parameter:
        value = self[name]
        delattr(self, name)
        return value
