"""Further names that PyTorch has for functions that there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.api import operators
from alpha.ops.array.axes import axis_of, lengths_of, transpose
from alpha.ops.array.joining import Tensors, cut, vstack
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.math import trigonometric
from alpha.ops.math.rounding import trunc
from alpha.ops.matmul.products import dot, outer
from alpha.ops.reduction.sort import sort

__all__ = [
    "adjoint",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "fix",
    "ger",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "msort",
    "negative",
    "not_equal",
    "row_stack",
    "split_with_sizes",
    "vdot",
]


@check_arguments
def negative(x: AnyTensor) -> Tensor:
    """Another name of `neg`."""
    return unchecked(operators.neg)(x)


@check_arguments
def fix(x: AnyTensor) -> Tensor:
    """Another name of `trunc`."""
    return unchecked(trunc)(x)


@check_arguments
def arccos(x: AnyTensor) -> Tensor:
    """Another name of `acos`."""
    return unchecked(trigonometric.acos)(x)


@check_arguments
def arccosh(x: AnyTensor) -> Tensor:
    """Another name of `acosh`."""
    return unchecked(trigonometric.acosh)(x)


@check_arguments
def arcsin(x: AnyTensor) -> Tensor:
    """Another name of `asin`."""
    return unchecked(trigonometric.asin)(x)


@check_arguments
def arcsinh(x: AnyTensor) -> Tensor:
    """Another name of `asinh`."""
    return unchecked(trigonometric.asinh)(x)


@check_arguments
def arctan(x: AnyTensor) -> Tensor:
    """Another name of `atan`."""
    return unchecked(trigonometric.atan)(x)


@check_arguments
def arctanh(x: AnyTensor) -> Tensor:
    """Another name of `atanh`."""
    return unchecked(trigonometric.atanh)(x)


@check_arguments
def arctan2(x: AnyTensor, other: AnyTensor) -> Tensor:
    """Another name of `atan2`."""
    return unchecked(trigonometric.atan2)(x, other)


@check_arguments
def greater(x: AnyTensor, other: Any) -> Tensor:
    """Another name of `gt`."""
    return unchecked(operators.gt)(x, other)


@check_arguments
def greater_equal(x: AnyTensor, other: Any) -> Tensor:
    """Another name of `ge`."""
    return unchecked(operators.ge)(x, other)


@check_arguments
def less(x: AnyTensor, other: Any) -> Tensor:
    """Another name of `lt`."""
    return unchecked(operators.lt)(x, other)


@check_arguments
def less_equal(x: AnyTensor, other: Any) -> Tensor:
    """Another name of `le`."""
    return unchecked(operators.le)(x, other)


@check_arguments
def not_equal(x: AnyTensor, other: Any) -> Tensor:
    """Another name of `ne`."""
    return unchecked(operators.ne)(x, other)


@check_arguments
def ger(x: AnyTensor, vec2: AnyTensor) -> Tensor:
    """Another name of `outer`."""
    return unchecked(outer)(x, vec2)


@check_arguments
def vdot(x: Tensor, other: Tensor) -> Tensor:
    """`dot`, whose first vector PyTorch conjugates   x (K,), other (K,) -> ()"""
    return unchecked(dot)(x, other)


@check_arguments
def adjoint(x: AnyTensor) -> Tensor:
    """Each matrix with rows as columns, which PyTorch conjugates, too   x (.., M, N) -> (.., N, M)"""
    if x.ndim < 2:
        raise ShapeError(f"adjoint: x (.., M, N) is needed  (x {x.shape})")
    return unchecked(transpose)(x, -2, -1)


@check_arguments
def msort(x: AnyTensor) -> Tensor:
    """The elements in ascending order along the first axis   x (D, ..) -> the same"""
    return unchecked(sort)(x, 0).values


def row_stack(tensors: Tensors) -> Tensor:
    """Another name of `vstack`."""
    return vstack(tensors)


@check_arguments
def split_with_sizes(x: AnyTensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """`split` by a list of lengths   x (.., D, ..) -> (.., D0, ..), (.., D1, ..), ..

    Raises:
        ShapeError: the lengths do not add up to that of the axis.
    """
    axis, sizes = (
        axis_of("split_with_sizes", x, dim, x.ndim),
        lengths_of("split_with_sizes", "split_sizes", split_sizes),
    )
    if sum(sizes) != x.shape[axis]:
        raise ShapeError(f"split_with_sizes: {sizes} do not add up to {x.shape[axis]}, axis {axis} of shape {x.shape}")
    return cut(x, axis, sizes)
