"""Matrix products: matmul and linear, their transposes as options of one primitive."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import get_precision
from alpha.core.primitive import Array, primitive
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import expand
from alpha.ops.gemm.tiles import Product
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.kernel.casts import as_dtype, as_float32, cast_operands, require_floating
from alpha.ops.kernel.elementwise import add
from alpha.ops.kernel.sums import sum_axis1
from alpha.ops.matmul import cpu as matmul_cpu
from alpha.ops.matmul.cuda import multiply
from alpha.runtime import workers
from alpha.runtime.cpu import empty as cpu_empty

__all__ = ["bilinear", "bmm", "linear", "matmul"]


@primitive
def matmul_batch(
    A: Array,
    B: Array,
    transpose_a: bool,
    transpose_b: bool,
    precision: str = "float32",
    out_dtype: np.dtype[Any] | None = None,
    bias: Array | None = None,
) -> Array:
    """Y = A B (or A^T B, A B^T, A^T B^T), a batch of products, plus a bias (N,)

    A (D, M, K) or (D, K, M), B (D, K, N) or (D, N, K) -> Y (D, M, N); a B of D = 1 serves every A. A and B have
    one dtype, Y has it too, or `out_dtype`; products of bfloat16 are summed in float32.
    """


@matmul_batch.impl("cpu")
@np.errstate(all="ignore")
def _(
    A: Array,
    B: Array,
    transpose_a: bool,
    transpose_b: bool,
    precision: str = "float32",
    out_dtype: np.dtype[Any] | None = None,
    bias: Array | None = None,
) -> Array:
    out = out_dtype or A.dtype
    A, B = as_float32(A), as_float32(B)
    a = A.transpose(0, 2, 1) if transpose_a else A
    b = B.transpose(0, 2, 1) if transpose_b else B
    D, M, N = a.shape[0], a.shape[1], b.shape[2]
    Y = cpu_empty((D, M, N), A.dtype)
    if D == 1:
        matmul_cpu.multiply(a[0], b[0], Y[0])
        return as_dtype(Y if bias is None else add(Y, bias, out=Y), out)

    def chunk(start: int, stop: int) -> None:
        np.matmul(a[start:stop], b if len(b) == 1 else b[start:stop], out=Y[start:stop])

    workers.parallel_for(D, 1, chunk, blas=True)
    return as_dtype(Y if bias is None else add(Y, bias, out=Y), out)


@matmul_batch.impl("cuda")
def _(
    A: Array,
    B: Array,
    transpose_a: bool,
    transpose_b: bool,
    precision: str = "float32",
    out_dtype: np.dtype[Any] | None = None,
    bias: Array | None = None,
) -> Array:
    out = out_dtype or A.dtype
    D, (M, K) = A.shape[0], A.shape[1:][:: -1 if transpose_a else 1]
    N = B.shape[1] if transpose_b else B.shape[2]
    if D * M * N == 0 or K == 0:
        empty = A.device.zeros((D, M, N), out)
        return empty if bias is None or empty.size == 0 else add(empty, bias, out=empty)
    p = Product(D, M, N, K, transpose_a, transpose_b)
    return as_dtype(multiply(p, A, B, precision, out, bias), out)


class Matmul(Function):
    """Y = A B, or A B^T   A (D, M, K), B (D, K, N) or (D, N, K) -> Y (D, M, N)"""

    def forward(self, A: Array, B: Array, *, transpose_b: bool = False) -> Array:
        self.precision, self.transpose_b = get_precision(), transpose_b
        self.dtypes = A.dtype, B.dtype
        A, B = cast_operands("matmul", self.precision, A, B)
        self.save(A, B)
        return matmul_batch(A, B, False, transpose_b, self.precision)

    def backward(self, dY: Array) -> Any:
        A, B = self.saved
        dA = dB = None
        if self.needs_input_grad[0]:
            dA = matmul_batch(dY, B, False, not self.transpose_b, self.precision, self.dtypes[0])
        if self.needs_input_grad[1]:
            left, right = (dY, A) if self.transpose_b else (A, dY)
            dB = matmul_batch(left, right, True, False, self.precision, self.dtypes[1])
        return dA, dB


class Linear(Function):
    """Y = X W^T + b   X (R, I), W (O, I), b (O,) -> Y (R, O)"""

    def forward(self, X: Array, W: Array, b: Array | None) -> Array:
        self.precision = get_precision()
        self.dtypes = X.dtype, W.dtype, W.dtype if b is None else b.dtype
        X, W = cast_operands("linear", self.precision, X, W)
        self.save(X, W)
        x, w = (array.reshape(1, *array.shape) for array in (X, W))
        return matmul_batch(x, w, False, True, self.precision, bias=b).reshape(X.shape[0], W.shape[0])

    def backward(self, dY: Array) -> Any:
        X, W = self.saved
        x, w, g = (array.reshape(1, *array.shape) for array in (X, W, dY))
        dX = dW = db = None
        if self.needs_input_grad[0]:
            dX = matmul_batch(g, w, False, False, self.precision, self.dtypes[0]).reshape(*X.shape)
        if self.needs_input_grad[1]:
            dW = matmul_batch(g, x, True, False, self.precision, self.dtypes[1]).reshape(*W.shape)
        if self.needs_input_grad[2]:
            db = as_dtype(sum_axis1(g).reshape(W.shape[0]), self.dtypes[2])
        return dX, dW, db


@check_arguments
def matmul(x: Tensor, other: Tensor) -> Tensor:
    """Matrix product   x (..., M, K) or (K,), other (..., K, N) or (K,) -> (..., M, N), without M or N for a vector

    Batch axes broadcast; one that repeats costs a copy, except if other is a single matrix.

    Raises:
        ShapeError: the inner lengths differ, or the batch axes do not broadcast.

    Examples:
        >>> import alpha
        >>> alpha.matmul(alpha.ones(2, 3), alpha.ones(3, 4)).shape
        (2, 4)
    """
    if not x.ndim or not other.ndim or x.shape[-1] != other.shape[-min(2, other.ndim)]:
        raise ShapeError(f"matmul: x (..., M, K) and other (..., K, N) are needed  (x {x.shape}, other {other.shape})")
    for tensor in (x, other):
        require_floating("matmul", tensor.dtype)
    left = x.reshape(1, *x.shape) if x.ndim == 1 else x
    right = other.reshape(*other.shape, 1) if other.ndim == 1 else other
    y = products(left, right)
    *batch, M, N = y.shape
    return y.reshape(*batch, *([M] if x.ndim > 1 else []), *([N] if other.ndim > 1 else []))


@check_arguments
def bmm(x: Tensor, mat2: Tensor) -> Tensor:
    """Products of the matrices of two batches, one by one   x (D, M, K), mat2 (D, K, N) -> (D, M, N)"""
    if x.ndim != 3 or mat2.ndim != 3 or (x.shape[0], x.shape[2]) != mat2.shape[:2]:
        raise ShapeError(f"bmm: x (D, M, K) and mat2 (D, K, N) are needed  (x {x.shape}, mat2 {mat2.shape})")
    return products(x, mat2)


def products(a: Tensor, b: Tensor, transpose_b: bool = False) -> Tensor:
    """A B, or A B^T, of matrices whose inner lengths are equal   a (.., M, K), b (.., K, N) or (.., N, K) -> (.., M, N)

    Raises:
        ShapeError: the batch axes do not broadcast.
    """
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ShapeError(f"matmul: the batch axes do not broadcast  (x {a.shape}, other {b.shape})") from None
    (M, K), N = a.shape[-2:], b.shape[-2 if transpose_b else -1]
    D = math.prod(batch)
    if math.prod(b.shape[:-2]) == 1 and a.shape[:-2] == batch:  # every row of a meets the same b
        y = Matmul.apply(a.reshape(1, D * M, K), b.reshape(1, *b.shape[-2:]), transpose_b=transpose_b)
    else:
        left, right = _repeated(a, batch).reshape(D, M, K), _repeated(b, batch).reshape(D, *b.shape[-2:])
        y = Matmul.apply(left, right, transpose_b=transpose_b)
    return y.reshape(*batch, M, N)


def _repeated(x: Tensor, batch: tuple[int, ...]) -> Tensor:
    return x if x.shape[:-2] == batch else expand(x, (*batch, *x.shape[-2:]))


@check_arguments
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Y = X W^T + b   x (..., I), weight (O, I), bias (O,) -> (..., O)

    Raises:
        ShapeError: the last axis of x is not I, or bias is not (O,).
    """
    if weight.ndim != 2 or x.ndim < 1 or x.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear: x has {x.shape[-1] if x.shape else 0} features but weight expects "
            f"{weight.shape[-1] if weight.shape else 0}  (x {x.shape}, weight {weight.shape})"
        )
    for tensor in (x, weight) if bias is None else (x, weight, bias):
        require_floating("linear", tensor.dtype)
    O, I = weight.shape
    if bias is not None and bias.shape != (O,):
        raise ShapeError(f"linear: bias has shape {bias.shape}, weight {weight.shape} needs ({O},)")
    if x.ndim == 2:
        return Linear.apply(x, weight, bias)
    rows = math.prod(x.shape[:-1])
    return Linear.apply(x.reshape(rows, I), weight, bias).reshape(*x.shape[:-1], O)


@check_arguments
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y_o = x1^T W_o x2 + b_o   input1 (..., I), input2 (..., J), weight (O, I, J), bias (O,) -> (..., O)

    Raises:
        ShapeError: the last axes are not I and J, the other axes differ, or bias is not (O,).
    """
    for tensor in (input1, input2, weight) if bias is None else (input1, input2, weight, bias):
        require_floating("bilinear", tensor.dtype)
    rows = input1.shape[:-1]
    fits = weight.ndim == 3 and input1.ndim and input1.shape[-1] == weight.shape[1]
    if not fits or input2.shape != (*rows, weight.shape[2]):
        raise ShapeError(
            "bilinear: input1 (..., I), input2 (..., J) and weight (O, I, J) are needed  "
            f"(input1 {input1.shape}, input2 {input2.shape}, weight {weight.shape})"
        )
    O, I, J = weight.shape
    if bias is not None and bias.shape != (O,):
        raise ShapeError(f"bilinear: bias has shape {bias.shape}, weight {weight.shape} needs ({O},)")
    R = math.prod(rows)
    products = linear(input1.reshape(R, I), weight.permute(0, 2, 1).reshape(O * J, I)).reshape(R, O, J)
    y = (products * input2.reshape(R, 1, J)).sum(2)
    return (y if bias is None else y + bias).reshape(*rows, O)
