"""Further names that PyTorch has for functions that there are."""

from __future__ import annotations

from collections.abc import Sequence

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import axis_of, lengths_of, transpose
from alpha.ops.array.joining import cut
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.matmul.products import dot
from alpha.ops.reduction.sort import sort

__all__ = ["adjoint", "msort", "split_with_sizes", "vdot"]


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
