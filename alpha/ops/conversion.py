"""Copies of tensors, in other dtypes and on other devices, under PyTorch's names."""

from __future__ import annotations

from typing import Any

from alpha.autograd import Function
from alpha.ops.axes import transpose
from alpha.ops.layout import view as reshaped
from alpha.primitive import Array
from alpha.tensor import Tensor


class Clone(Function):
    """Y = X in memory of its own   X (...) -> Y (...)"""

    def forward(self, X: Array) -> Array:
        return Tensor(X).device.copy(X)

    def backward(self, dY: Array) -> Any:
        return dY


def clone(x: Tensor) -> Tensor:
    """A copy; gradients flow back."""
    return Clone.apply(x)


def contiguous(x: Tensor) -> Tensor:
    """x itself, because every tensor is contiguous."""
    return x


def cpu(x: Tensor) -> Tensor:
    """The same values on the cpu."""
    return x.to("cpu")


def cuda(x: Tensor) -> Tensor:
    """The same values on the cuda device."""
    return x.to("cuda")


def tolist(x: Tensor) -> Any:
    """The values as nested lists, or as a number; waits for the device."""
    return x.numpy().tolist()


def numel(x: Tensor) -> int:
    """The number of elements."""
    return x.size


def dim(x: Tensor) -> int:
    """The number of axes."""
    return x.ndim


def reversed_axes(x: Tensor) -> Tensor:
    """`x.T`: the axes in reversed order, a copy; a matrix is transposed."""
    return x.permute(*reversed(range(x.ndim)))


def transposed_matrices(x: Tensor) -> Tensor:
    """`x.mT`: the last two axes exchanged, a copy."""
    return transpose(x, -2, -1)


def ravel(x: Tensor) -> Tensor:
    """x as one axis, a view."""
    return reshaped(x, (x.size,))
