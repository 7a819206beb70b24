"""Norms and products under the names of `torch.linalg`. What needs a decomposition of a matrix is not offered."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from alpha.core.host_values import Dims, DTypeLike
from alpha.core.names.missing_names import tell_instead
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import axes_of
from alpha.ops.array.diagonals import diagonal as _diagonal
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.kernel.common_dtype import promoted
from alpha.ops.kernel.operands import NUMBERS
from alpha.ops.matmul.matmul import matmul
from alpha.ops.matmul.matrix_powers import matrix_power
from alpha.ops.matmul.products import cross as _cross
from alpha.ops.reduction.extremes import amax, amin
from alpha.ops.reduction.norm import norm as _norm

__all__ = ["cross", "diagonal", "matmul", "matrix_norm", "matrix_power", "multi_dot", "norm", "vecdot", "vector_norm"]

Ord: TypeAlias = "float | str | None"

SINGULAR = (2, -2, "nuc")  # norms of singular values


@check_arguments
def vector_norm(
    x: Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeLike = None
) -> Tensor:
    """(sum of |x|^ord)^(1/ord) over axes (all by default)   x (...) -> the other axes, or 1 in place of each

    Args:
        ord: a number; inf is the largest |x|, -inf the smallest, 0 the count of what is not 0.
        dtype: cast x to it first.

    Raises:
        TypeError: ord is no number.
    """
    if not isinstance(ord, NUMBERS):
        raise TypeError(f"vector_norm: ord={ord!r} is not a number")
    return _norm(x, ord, dim, keepdim, dtype=dtype)


@check_arguments
def matrix_norm(
    A: Tensor,
    ord: float | str = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DTypeLike = None,
) -> Tensor:
    """The norm of each matrix of two axes   A (.., M, N) -> (..), or (.., 1, 1) with keepdim

    Args:
        ord: "fro", the root of the sum of squares; 1 and -1, the largest and the smallest sum of |x| of a column; inf
            and -inf, those of a row.
        dim: the axes of the rows and of the columns.
        dtype: cast A to it first.

    Raises:
        ValueError: ord is 2, -2 or "nuc", which need singular values, or none of the norms.
        ShapeError: dim does not name two axes of A.
    """
    axes = axes_of("matrix_norm", A, tuple(dim), "dim")
    if len(axes) != 2:
        raise ShapeError(f"matrix_norm: dim={tuple(dim)} does not name two axes  (A {A.shape})")
    if ord == "fro":
        return _norm(A, 2, axes, keepdim, dtype=dtype)
    if ord in SINGULAR:
        raise ValueError(f"matrix_norm: ord={ord!r} needs singular values, which are not offered")
    if isinstance(ord, str) or abs(ord) not in (1, math.inf):
        raise ValueError(f"matrix_norm: ord={ord!r} is not one of 'fro', 1, -1, inf, -inf")
    summed, kept = axes if abs(ord) == 1 else axes[::-1]
    sums = _norm(A, 1, summed, True, dtype=dtype)
    largest = (amax if ord > 0 else amin)(sums, kept, True)
    return largest if keepdim else largest.squeeze(axes)


@check_arguments
def norm(A: Tensor, ord: Ord = None, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeLike = None) -> Tensor:
    """The norm of vectors or matrices   A (...) -> the other axes, or 1 in place of each with keepdim

    Args:
        ord: None, the root of the sum of squares of the axes; else as `vector_norm` and `matrix_norm` say.
        dim: one axis, for vectors, or two, for matrices. None: all axes; if ord is given, there are at most two.
        dtype: cast A to it first.

    Raises:
        ValueError: as `matrix_norm`, or "fro" of vectors.
        ShapeError: ord is given for another number of axes.
    """
    if ord is None:
        return _norm(A, 2, dim, keepdim, dtype=dtype)
    axes = tuple(range(A.ndim)) if dim is None else axes_of("norm", A, dim, "dim")
    if len(axes) == 2:
        return matrix_norm(A, ord, axes, keepdim, dtype=dtype)
    if len(axes) != 1:
        raise ShapeError(f"norm: ord={ord!r} is for one axis or two, not {len(axes)}  (A {A.shape}, dim={dim})")
    if isinstance(ord, str):
        raise ValueError(f"norm: ord={ord!r} is for matrices, dim={dim} names one axis  (A {A.shape})")
    return _norm(A, ord, axes, keepdim, dtype=dtype)


@check_arguments
def vecdot(x: AnyTensor, y: AnyTensor, *, dim: int = -1) -> Tensor:
    """The sums of products of vectors along an axis   x, y (.., K, ..) that broadcast -> the other axes"""
    a, b = promoted(x, y)
    return (a * b).sum(dim)


@check_arguments
def cross(x: AnyTensor, other: AnyTensor, *, dim: int = -1) -> Tensor:
    """The cross products of vectors along an axis of length 3   x, other (.., 3, ..) that broadcast -> (.., 3, ..)"""
    return _cross(x, other, dim)


@check_arguments
def diagonal(A: AnyTensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonal of each matrix, as the last axis; a copy   A (.., M, N) -> (.., D); see `alpha.diagonal`"""
    return _diagonal(A, offset, dim1, dim2)


def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of matrices, in the order that needs the fewest multiplications

    (M, K1), (K1, K2), .., (Kn, N) -> (M, N). The first may be a vector (K1,), the last a vector (Kn,), and the result
    has no axis for it.

    Raises:
        ShapeError: fewer than two matrices, or shapes that do not meet.
    """
    given = list(tensors)
    shapes = ", ".join(str(v.shape) for v in given)
    middle, ends = given[1:-1], [v for v in (given[:1] + given[-1:]) if v.ndim not in (1, 2)]
    if len(given) < 2 or ends or any(v.ndim != 2 for v in middle):
        raise ShapeError(
            f"multi_dot: two matrices or more are needed, of which the outer ones may be vectors: {shapes}"
        )
    matrices = [given[0] if given[0].ndim == 2 else given[0].unsqueeze(0), *middle]
    matrices.append(given[-1] if given[-1].ndim == 2 else given[-1].unsqueeze(1))
    if any(a.shape[1] != b.shape[0] for a, b in itertools.pairwise(matrices)):
        raise ShapeError(f"multi_dot: the columns of a matrix are the rows of the next one: {shapes}")
    sizes = [matrices[0].shape[0], *(v.shape[1] for v in matrices)]

    @functools.cache
    def best(first: int, last: int) -> tuple[int, int]:
        """(the multiplications of the product of these matrices, the last of its first factor)"""
        if first == last:
            return 0, first
        ends = sizes[first] * sizes[last + 1]
        return min(
            (best(first, cut)[0] + best(cut + 1, last)[0] + ends * sizes[cut + 1], cut) for cut in range(first, last)
        )

    def product(first: int, last: int) -> Any:
        if first == last:
            return matrices[first]
        cut = best(first, last)[1]
        return unchecked(matmul)(product(first, cut), product(cut + 1, last))

    result: Tensor = product(0, len(matrices) - 1)
    return result.reshape(*[n for n, end in zip(result.shape, (given[0], given[-1]), strict=True) if end.ndim == 2])


tell_instead(__name__)
