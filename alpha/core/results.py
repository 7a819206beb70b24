"""The results of operators that give two tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from alpha.core.tensor import Tensor


class Extremes(NamedTuple):
    """Elements, and their places along the axis."""

    values: Tensor
    indices: Tensor


class MinMax(NamedTuple):
    """The smallest and the largest elements."""

    min: Tensor
    max: Tensor


class Sorted(NamedTuple):
    """Elements in their order, and where they were along the axis."""

    values: Tensor
    indices: Tensor
