"""Parameter and Buffer: the tensors that belong to a module."""

from __future__ import annotations

from typing import Any

from alpha.core.origins import unmark
from alpha.core.tensor import Tensor, tensor

__all__ = ["Buffer", "Parameter"]


class Parameter(Tensor):
    """A tensor that a module trains; `values`, whatever `alpha.tensor` takes, are copied."""

    __slots__ = ()
    _belongs = True

    def __init__(self, values: Any, requires_grad: bool = True) -> None:
        made = tensor(values)
        super().__init__(made.array, requires_grad)
        self._seen = made._seen  # until a module has it


class Buffer(Tensor):
    """State of a module that is not trained, as running statistics.

    Args:
        values: as for `Parameter`.
        persistent: False leaves it out of state dicts.
    """

    __slots__ = ("persistent",)
    _belongs = True

    def __init__(self, values: Any, *, persistent: bool = True) -> None:
        super().__init__(tensor(values).array)
        self.persistent = persistent

    @classmethod
    def _of(cls, value: Tensor, persistent: bool = True) -> Buffer:
        """A Buffer that shares everything with a Tensor: memory, version, graph."""
        result = cls.__new__(cls)
        for name, held in value._held().items():
            setattr(result, name, held)
        result.persistent = persistent
        unmark(result)
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Buffer:
        result = super().__deepcopy__(memo)
        assert isinstance(result, Buffer)
        result.persistent = self.persistent
        return result
