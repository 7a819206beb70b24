"""The diagonals of matrices: read, summed, and written into zeros; and a matrix turned over its diagonal."""

from __future__ import annotations

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import axis_of, transpose
from alpha.ops.array.layout import view as reshaped
from alpha.ops.array.parts.assemble import Assemble, Piece, read
from alpha.ops.array.parts.copied_parts import linked
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.kernel.options import integer
from alpha.ops.kernel.views import View

__all__ = ["diag", "diag_embed", "diagflat", "diagonal", "t", "trace"]


class Diagonal(Assemble):
    """A diagonal of each matrix   X (..) -> Y (.., D)"""


class DiagEmbed(Assemble):
    """Matrices of zeros with X on a diagonal   X (.., D) -> Y (..)"""


def _of(operator: str, box: View, offset: int, first: int, second: int) -> View:
    """The diagonal of two axes of a box as its last axis; a positive offset lies above the main one."""
    if first == second:
        raise ShapeError(f"{operator}: dim1 and dim2 are both axis {first} of shape {box.shape}")
    M, N = box.shape[first], box.shape[second]
    length = max(0, min(M, N - offset) if offset >= 0 else min(M + offset, N))
    start = (offset * box.strides[second] if offset >= 0 else -offset * box.strides[first]) if length else 0
    rest = [i for i in range(len(box.shape)) if i not in (first, second)]
    return View(
        (*[box.shape[i] for i in rest], length),
        (*[box.strides[i] for i in rest], box.strides[first] + box.strides[second]),
        box.offset + start,
    )


@check_arguments
def diagonal(x: AnyTensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of each matrix of two axes, as the last axis; a copy   x (.., M, .., N, ..) -> (.., .., .., D)

    Args:
        offset: 0 is the main diagonal, 1 the one above it, -1 the one below it.
        dim1, dim2: the axes of the rows and of the columns.

    Raises:
        ShapeError: dim1 and dim2 are not two axes of x.
    """
    box = diagonal_view("diagonal", x, offset, dim1, dim2)
    return linked(read(Diagonal, x, box), x, box)


def _diagonal(operator: str, x: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    return read(Diagonal, x, diagonal_view(operator, x, offset, dim1, dim2))


def diagonal_view(operator: str, x: Tensor, offset: int, dim1: int, dim2: int) -> View:
    """View of the diagonals of the matrices of x, after a check of the arguments of `diagonal`."""
    first = axis_of(operator, x, dim1, x.ndim, "dim1")
    second = axis_of(operator, x, dim2, x.ndim, "dim2")
    return _of(operator, View.whole(x.shape), integer(operator, "offset", offset), first, second)


@check_arguments
def diag_embed(x: AnyTensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices of zeros with the last axis of x on a diagonal   x (.., D) -> (.., M, .., M, ..)  M = D + |offset|

    Args:
        offset: as of `diagonal`.
        dim1, dim2: the axes of the result for the rows and for the columns.
    """
    return _embedded("diag_embed", x, offset, dim1, dim2)


def _embedded(operator: str, x: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    if not x.ndim:
        raise ShapeError(f"{operator}: x (.., D) is needed, not a 0-d tensor")
    by, rank = integer(operator, "offset", offset), x.ndim + 1
    first = axis_of(operator, x, dim1, rank, "dim1")
    second = axis_of(operator, x, dim2, rank, "dim2")
    side = x.shape[-1] + abs(by)
    lengths = iter(x.shape[:-1])
    shape = tuple([side if i in (first, second) else next(lengths, 0) for i in range(rank)])
    box = _of(operator, View.whole(shape), by, first, second)
    return DiagEmbed.apply(x, shape=shape, pieces=[Piece(0, View.whole(x.shape), box)], fill=0)


@check_arguments
def diag(x: AnyTensor, diagonal: int = 0) -> Tensor:
    """The diagonal of a matrix, or a matrix of zeros with a vector on its diagonal   x (M, N) -> (D,), x (D,) -> (M, M)

    Args:
        diagonal: the offset of `diagonal`.
    """
    if x.ndim not in (1, 2):
        raise ShapeError(f"diag: a matrix (M, N) or a vector (D,) is needed  (x {x.shape})")
    by = integer("diag", "diagonal", diagonal)
    return _embedded("diag", x, by, 0, 1) if x.ndim == 1 else _diagonal("diag", x, by, 0, 1)


@check_arguments
def diagflat(x: AnyTensor, offset: int = 0) -> Tensor:
    """A matrix of zeros with all elements on a diagonal   x (...) of D elements -> (M, M)  M = D + |offset|"""
    return unchecked(diag)(reshaped(x, (x.size,)), integer("diagflat", "offset", offset))


@check_arguments
def trace(x: AnyTensor) -> Tensor:
    """The sum of the main diagonal, int64 of integers and bools   x (M, N) -> ()"""
    if x.ndim != 2:
        raise ShapeError(f"trace: a matrix (M, N) is needed  (x {x.shape})")
    return _diagonal("trace", x, 0, 0, 1).sum()


@check_arguments
def t(x: AnyTensor) -> Tensor:
    """The matrix with rows as columns; a vector or a number as it is   x (M, N) -> (N, M)"""
    if x.ndim > 2:
        raise ShapeError(f"t: x has {x.ndim} axes, at most 2 are offered; use transpose or permute  (x {x.shape})")
    return unchecked(transpose)(x, 0, 1) if x.ndim == 2 else reshaped(x, x.shape)
