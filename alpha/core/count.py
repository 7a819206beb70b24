"""The number of elements of a tensor: a property in numpy, a method of another meaning in PyTorch."""

from __future__ import annotations

import operator
from typing import overload

from alpha.errors import ShapeError

Shape = tuple[int, ...]


class Count(int):
    """`x.size`, the number of elements of x as an integer; `x.size()` is the shape and `x.size(dim)` one length of it.

    Attributes:
        shape: that of the tensor.
    """

    shape: Shape

    @overload
    def __call__(self, dim: None = None) -> Shape: ...

    @overload
    def __call__(self, dim: int) -> int: ...

    def __call__(self, dim: int | None = None) -> Shape | int:
        if dim is None:
            return self.shape
        rank, axis = len(self.shape), operator.index(dim)
        if not -rank <= axis < rank:
            raise ShapeError(f"size: {axis} is not an axis of shape {self.shape}")
        return self.shape[axis]
