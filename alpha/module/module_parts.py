"""`module._modules`, `_parameters` and `_buffers`: a module's attributes of one kind, as in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any


class Parts(MutableMapping[str, Any]):
    """The attributes of a module that are of one kind, by name; what is written or deleted here is so in the module."""

    def __init__(self, module: Any, kind: type) -> None:
        self._module, self._kind = module, kind

    def __getitem__(self, name: str) -> Any:
        value = vars(self._module).get(name)
        if not isinstance(value, self._kind):
            raise KeyError(name)
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)

    def __delitem__(self, name: str) -> None:
        self[name]
        delattr(self._module, name)

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, value in vars(self._module).items() if isinstance(value, self._kind)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)})"
