"""A copy of a tensor in memory of its own."""

from __future__ import annotations

from typing import Any

from alpha.autograd.function import Function
from alpha.core.names.no_effect import check_memory_format
from alpha.core.primitive import Array, device_of
from alpha.core.tensor import Tensor


class Clone(Function):
    """Y = X in memory of its own   X (...) -> Y (...)"""

    copies = True

    def forward(self, X: Array) -> Array:
        return device_of(X).copy(X)

    def backward(self, dY: Array) -> Any:
        return dY


def clone(x: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy; gradients flow back. memory_format has no effect."""
    check_memory_format("clone", memory_format)
    return Clone.apply(x)
