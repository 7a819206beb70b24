"""Further names that PyTorch has for functions that there are."""

from __future__ import annotations

from collections.abc import Sequence

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.api import operators
from alpha.ops.array.axes import axis_of, lengths_of, transpose
from alpha.ops.array.joining import Tensors, cut, vstack
from alpha.ops.kernel.arguments import AnyTensor, another_name, check_arguments, unchecked
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

negative = another_name("negative", operators.neg)
fix = another_name("fix", trunc)
arccos = another_name("arccos", trigonometric.acos)
arccosh = another_name("arccosh", trigonometric.acosh)
arcsin = another_name("arcsin", trigonometric.asin)
arcsinh = another_name("arcsinh", trigonometric.asinh)
arctan = another_name("arctan", trigonometric.atan)
arctanh = another_name("arctanh", trigonometric.atanh)
arctan2 = another_name("arctan2", trigonometric.atan2)
greater = another_name("greater", operators.gt)
greater_equal = another_name("greater_equal", operators.ge)
less = another_name("less", operators.lt)
less_equal = another_name("less_equal", operators.le)
not_equal = another_name("not_equal", operators.ne)
ger = another_name("ger", outer)


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
