"""Parameter and Buffer: the tensors that belong to a module."""

from __future__ import annotations

from typing import Any

from alpha.tensor import Tensor, tensor

__all__ = ["Buffer", "Parameter"]


class Parameter(Tensor):
    """A tensor that a module trains; `values`, whatever `alpha.tensor` takes, are copied."""

    __slots__ = ()

    def __init__(self, values: Any, requires_grad: bool = True) -> None:
        super().__init__(tensor(values).array, requires_grad)


class Buffer(Tensor):
    """State of a module that is not trained, as running statistics; `values` as for `Parameter`."""

    __slots__ = ()

    def __init__(self, values: Any) -> None:
        super().__init__(tensor(values).array)

    @classmethod
    def _of(cls, value: Tensor) -> Buffer:
        """A Buffer that shares everything with a Tensor: memory, version, graph."""
        result = cls.__new__(cls)
        for name in Tensor.__slots__:
            if name != "__weakref__":
                setattr(result, name, getattr(value, name))
        return result
