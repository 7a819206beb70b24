"""Products of vectors and matrices under PyTorch's names, made of `matmul`; and sums of a tensor and a product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha.core.tensor import Tensor, full
from alpha.errors import ShapeError
from alpha.ops.array.axes import axes_of, axis_of, permute, roll
from alpha.ops.array.layout import view as reshaped
from alpha.ops.indexing.where import masked_fill
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.kernel.common_dtype import promoted
from alpha.ops.kernel.options import integer, real
from alpha.ops.math.binary import mul
from alpha.ops.matmul.matmul import matmul

__all__ = [
    "addbmm",
    "addmm",
    "addmv",
    "addr",
    "baddbmm",
    "cross",
    "dot",
    "inner",
    "kron",
    "mm",
    "mv",
    "outer",
    "tensordot",
]

_product = unchecked(matmul)


@check_arguments
def outer(x: AnyTensor, vec2: AnyTensor) -> Tensor:
    """Every product of an element of x and one of vec2   x (M,), vec2 (N,) -> (M, N)"""
    if x.ndim != 1 or vec2.ndim != 1:
        raise ShapeError(f"outer: x (M,) and vec2 (N,) are needed  (x {x.shape}, vec2 {vec2.shape})")
    return unchecked(mul)(reshaped(x, (x.size, 1)), reshaped(vec2, (1, vec2.size)))


@check_arguments
def mm(x: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices   x (M, K), mat2 (K, N) -> (M, N)"""
    if x.ndim != 2 or mat2.ndim != 2 or x.shape[1] != mat2.shape[0]:
        raise ShapeError(f"mm: x (M, K) and mat2 (K, N) are needed  (x {x.shape}, mat2 {mat2.shape})")
    return _product(x, mat2)


@check_arguments
def mv(x: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector   x (M, K), vec (K,) -> (M,)"""
    if x.ndim != 2 or vec.ndim != 1 or x.shape[1] != vec.shape[0]:
        raise ShapeError(f"mv: x (M, K) and vec (K,) are needed  (x {x.shape}, vec {vec.shape})")
    return _product(x, vec)


@check_arguments
def dot(x: Tensor, tensor: Tensor) -> Tensor:
    """The sum of the products of the elements of two vectors   x (K,), tensor (K,) -> ()"""
    if x.ndim != 1 or x.shape != tensor.shape:
        raise ShapeError(f"dot: x (K,) and tensor (K,) are needed  (x {x.shape}, tensor {tensor.shape})")
    return _product(x, tensor)


@check_arguments
def inner(x: Tensor, other: Tensor) -> Tensor:
    """Sums of products over the last axes; with a 0-d tensor the product   x (.., K), other (:, K) -> (.., :)"""
    if not x.ndim or not other.ndim:
        return unchecked(mul)(x, other)
    if x.shape[-1] != other.shape[-1]:
        raise ShapeError(f"inner: the last axes must be equal  (x {x.shape}, other {other.shape})")
    K, left, right = x.shape[-1], x.shape[:-1], other.shape[:-1]
    a = reshaped(x, (math.prod(left), K))
    b = reshaped(other, (math.prod(right), K))
    return reshaped(_product(a, b.transpose(0, 1)), (*left, *right))


def _plus(operator: str, x: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """beta x + alpha product; x is not read if beta is 0, so that NaN in it counts for nothing."""
    factors = real(operator, "beta", beta), real(operator, "alpha", alpha)
    try:
        fits = np.broadcast_shapes(x.shape, product.shape) == product.shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(f"{operator}: x {x.shape} does not broadcast to the product {product.shape}")
    if factors[0] == 0:
        x = unchecked(masked_fill)(x, full((), True, np.bool_, x.device), 0)
    elif factors[0] != 1:
        x = x * factors[0]
    return x + (product if factors[1] == 1 else product * factors[1])


@check_arguments
def addmm(x: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta x + alpha mat1 mat2   x that broadcasts to (M, N), mat1 (M, K), mat2 (K, N) -> (M, N)

    Args:
        beta: if it is 0, infinities and NaN of x do not count.
    """
    if mat1.ndim != 2 or mat2.ndim != 2 or mat1.shape[1] != mat2.shape[0]:
        raise ShapeError(f"addmm: mat1 (M, K) and mat2 (K, N) are needed  (mat1 {mat1.shape}, mat2 {mat2.shape})")
    return _plus("addmm", x, _product(mat1, mat2), beta, alpha)


@check_arguments
def addmv(x: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta x + alpha mat vec   x that broadcasts to (M,), mat (M, K), vec (K,) -> (M,)

    Args:
        beta: as of `addmm`.
    """
    if mat.ndim != 2 or vec.ndim != 1 or mat.shape[1] != vec.shape[0]:
        raise ShapeError(f"addmv: mat (M, K) and vec (K,) are needed  (mat {mat.shape}, vec {vec.shape})")
    return _plus("addmv", x, _product(mat, vec), beta, alpha)


@check_arguments
def baddbmm(x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta x + alpha batch1 batch2 of each matrix   x that broadcasts to (D, M, N), batch1 (D, M, K), batch2 (D, K, N)

    Args:
        beta: as of `addmm`.
    """
    fits = batch1.ndim == batch2.ndim == 3 and (batch1.shape[0], batch1.shape[2]) == batch2.shape[:2]
    if not fits:
        raise ShapeError(
            f"baddbmm: batch1 (D, M, K) and batch2 (D, K, N) are needed  (batch1 {batch1.shape}, batch2 {batch2.shape})"
        )
    return _plus("baddbmm", x, _product(batch1, batch2), beta, alpha)


@check_arguments
def addbmm(x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta x + alpha times the sum of all products batch1[d] batch2[d]

    x that broadcasts to (M, N), batch1 (D, M, K), batch2 (D, K, N) -> (M, N)

    Args:
        beta: as of `addmm`.
    """
    fits = batch1.ndim == batch2.ndim == 3 and (batch1.shape[0], batch1.shape[2]) == batch2.shape[:2]
    if not fits:
        raise ShapeError(
            f"addbmm: batch1 (D, M, K) and batch2 (D, K, N) are needed  (batch1 {batch1.shape}, batch2 {batch2.shape})"
        )
    D, M, K = batch1.shape
    wide = reshaped(batch1.transpose(0, 1), (M, D * K))  # one product over all D K
    return _plus("addbmm", x, _product(wide, reshaped(batch2, (D * K, batch2.shape[2]))), beta, alpha)


@check_arguments
def addr(x: Tensor, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta x + alpha times the products of all pairs   x that broadcasts to (M, N), vec1 (M,), vec2 (N,) -> (M, N)

    Args:
        beta: as of `addmm`.
    """
    if vec1.ndim != 1 or vec2.ndim != 1:
        raise ShapeError(f"addr: vec1 (M,) and vec2 (N,) are needed  (vec1 {vec1.shape}, vec2 {vec2.shape})")
    return _plus("addr", x, unchecked(outer)(vec1, vec2), beta, alpha)


@check_arguments
def tensordot(a: Tensor, b: Tensor, dims: int | Sequence[Any] = 2) -> Tensor:
    """Sums of products over several axes of a and b; the result has the other axes of a, then those of b.

    a (..), b (..) -> (..)

    Args:
        dims: so many of the last axes of a and of the first axes of b; or two lists of axes, in one order. An axis that
            meets one of length 1 is summed.

    Raises:
        ShapeError: the lists name different numbers of axes, or axes of other lengths.
    """
    if isinstance(dims, (tuple, list)):
        if len(dims) != 2:
            raise ShapeError(f"tensordot: dims={dims!r} is neither an integer nor two lists of axes")
        left, right = (_integers(part) for part in dims)
        of_a, of_b = axes_of("tensordot", a, left), axes_of("tensordot", b, right)
    else:
        count = integer("tensordot", "dims", dims, 0)
        if count > min(a.ndim, b.ndim):
            raise ShapeError(f"tensordot: dims={count} axes, of which one tensor has less  (a {a.shape}, b {b.shape})")
        of_a, of_b = tuple(range(a.ndim - count, a.ndim)), tuple(range(count))
    if len(of_a) == len(of_b):
        a, b = _summed(a, of_a, b, of_b), _summed(b, of_b, a, of_a)
    if [a.shape[i] for i in of_a] != [b.shape[i] for i in of_b]:
        raise ShapeError(f"tensordot: the axes {of_a} of a and {of_b} of b differ  (a {a.shape}, b {b.shape})")
    rows = [i for i in range(a.ndim) if i not in of_a]
    columns = [i for i in range(b.ndim) if i not in of_b]
    K = math.prod([a.shape[i] for i in of_a])
    shape = (*[a.shape[i] for i in rows], *[b.shape[i] for i in columns])
    A = unchecked(permute)(a, (*rows, *of_a))
    B = unchecked(permute)(b, (*of_b, *columns))
    M, N = (math.prod([t.shape[i] for i in axes]) for t, axes in ((a, rows), (b, columns)))
    return reshaped(_product(reshaped(A, (M, K)), reshaped(B, (K, N))), shape)


def _integers(axes: Any) -> list[int]:
    return [integer("tensordot", "dims", axis) for axis in (axes if isinstance(axes, (tuple, list)) else (axes,))]


def _summed(x: Tensor, axes: Sequence[int], other: Tensor, others: Sequence[int]) -> Tensor:
    """x, summed over those of its axes that meet one of length 1."""
    longer = [i for i, j in zip(axes, others, strict=True) if x.shape[i] != 1 and other.shape[j] == 1]
    return x.sum(longer, True) if longer else x


@check_arguments
def kron(x: AnyTensor, other: AnyTensor) -> Tensor:
    """The Kronecker product: other times each element of x   x (A, B, ..), other (C, D, ..) -> (A C, B D, ..)

    Missing leading axes have length 1.
    """
    rank = max(x.ndim, other.ndim)
    left, right = ((1,) * (rank - v.ndim) + v.shape for v in (x, other))
    a = reshaped(x, tuple([part for n in left for part in (n, 1)]))
    b = reshaped(other, tuple([part for n in right for part in (1, n)]))
    return reshaped(unchecked(mul)(a, b), tuple([m * n for m, n in zip(left, right, strict=True)]))


@check_arguments
def cross(x: AnyTensor, other: AnyTensor, dim: int | None = None) -> Tensor:
    """The cross products of vectors along an axis of length 3   x, other (.., 3, ..) that broadcast -> (.., 3, ..)

    Args:
        dim: the axis; None: the first one of length 3 in x.

    Raises:
        ShapeError: the shapes do not broadcast, or the axis has another length than 3.
    """
    if x.ndim != other.ndim:
        raise ShapeError(f"cross: as many axes are needed  (x {x.shape}, other {other.shape})")
    try:
        np.broadcast_shapes(x.shape, other.shape)
    except ValueError:
        raise ShapeError(f"cross: the shapes do not broadcast  (x {x.shape}, other {other.shape})") from None
    if dim is None:
        dim = x.shape.index(3) if 3 in x.shape else -1
    axis = axis_of("cross", x, dim, x.ndim)
    if x.shape[axis] != 3 or other.shape[axis] != 3:
        raise ShapeError(f"cross: an axis of length 3 is needed  (x {x.shape}, other {other.shape}, dim={dim})")
    a, b = promoted(x, other)

    def turned(v: Tensor, by: int) -> Tensor:
        return unchecked(roll)(v, -by, axis)

    return turned(a, 1) * turned(b, 2) - turned(a, 2) * turned(b, 1)
