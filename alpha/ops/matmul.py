"""Matrix products: matmul and linear, their transposes as options of one primitive."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.autograd import Function
from alpha.errors import ShapeError
from alpha.ops.elementwise import add, need_float32, vector_width
from alpha.ops.reduce import sum_middle, sum_parts
from alpha.primitive import Array, primitive
from alpha.runtime import workers
from alpha.runtime.cpu import empty as cpu_empty
from alpha.tensor import Tensor

LARGE, SMALL, DEPTH = (128, 64), (64, 64), 16  # a block's tile of Y, and its step along K
THREADS = 256


@primitive
def matmul_batch(A: Array, B: Array, transpose_a: bool, transpose_b: bool) -> Array:
    """Y = A B (or A^T B, A B^T, A^T B^T), a batch of products

    A (D, M, K) or (D, K, M), B (D, K, N) or (D, N, K) -> Y (D, M, N); a B of D = 1 serves every A.
    """


@matmul_batch.impl("cpu")
def _(A: Array, B: Array, transpose_a: bool, transpose_b: bool) -> Array:
    a = A.transpose(0, 2, 1) if transpose_a else A
    b = B.transpose(0, 2, 1) if transpose_b else B
    D, M, N = a.shape[0], a.shape[1], b.shape[2]
    Y = cpu_empty((D, M, N), A.dtype)
    if D == 1:
        np.matmul(a[0], b[0], out=Y[0])
        return Y

    def chunk(start: int, stop: int) -> None:
        np.matmul(a[start:stop], b if len(b) == 1 else b[start:stop], out=Y[start:stop])

    workers.parallel_for(D, 1, chunk)
    return Y


@matmul_batch.impl("cuda")
def _(A: Array, B: Array, transpose_a: bool, transpose_b: bool) -> Array:
    need_float32("matmul", A, B)
    D, (M, K) = A.shape[0], A.shape[1:][:: -1 if transpose_a else 1]
    N = B.shape[1] if transpose_b else B.shape[2]
    device = A.device
    if D * M * N == 0 or K == 0:
        return device.zeros((D, M, N), A.dtype)
    whole = A.shape[2] % 4 == 0 and B.shape[2] % 4 == 0
    vector = vector_width(A, B) if whole else 1
    processors = device.properties.multiprocessors
    # the large tile where it fills the device; its loads one by one would need too many registers
    tile = LARGE if vector == 4 and _blocks(D, M, N, LARGE) >= processors else SMALL
    blocks = _blocks(D, M, N, tile)
    # a long K over few tiles is cut so that the blocks fill the device
    steps = -(-K // DEPTH)
    splits = max(1, min(2 * processors // blocks, steps // 8))
    depth = -(-steps // splits) * DEPTH
    splits = -(-K // depth)
    part = device.empty((splits, D, M, N), A.dtype)
    device.launch(
        "matmul/matmul.cu", "matmul", blocks * splits, THREADS,
        (part, A, B, M, N, K, D, depth, int(B.shape[0] == 1)),
        {"TRANSPOSE_A": int(transpose_a), "TRANSPOSE_B": int(transpose_b),
         "BM": tile[0], "BN": tile[1], "BK": DEPTH, "VECTOR": vector},
    )  # fmt: skip
    return part.reshape(D, M, N) if splits == 1 else sum_parts(part)


def _blocks(D: int, M: int, N: int, tile: tuple[int, int]) -> int:
    return D * -(-M // tile[0]) * -(-N // tile[1])


class Matmul(Function):
    """Y = A B   A (D, M, K), B (D, K, N) or (1, K, N) -> Y (D, M, N)"""

    def forward(self, *arrays: Array, **options: Any) -> Array:
        self.save(*arrays)
        return matmul_batch(*arrays, False, False)

    def backward(self, dY: Array) -> Any:
        A, B = self.saved
        dA = matmul_batch(dY, B, False, True) if self.needs[0] else None
        dB = None
        if self.needs[1]:
            if B.shape[0] == A.shape[0]:
                dB = matmul_batch(A, dY, True, False)
            else:  # one B for all: the batch is part of the sum
                rows = A.shape[0] * A.shape[1]
                a, g = A.reshape(1, rows, A.shape[2]), dY.reshape(1, rows, dY.shape[2])
                dB = matmul_batch(a, g, True, False)
        return dA, dB


class Linear(Function):
    """Y = X W^T + b   X (R, I), W (O, I), b (O,) -> Y (R, O)"""

    def forward(self, *arrays: Array, **options: Any) -> Array:
        X, W, b = arrays
        self.save(X, W)
        Y = matmul_batch(X.reshape(1, *X.shape), W.reshape(1, *W.shape), False, True)
        Y = Y.reshape(X.shape[0], W.shape[0])
        return Y if b is None else add(Y, b, out=Y)

    def backward(self, dY: Array) -> Any:
        X, W = self.saved
        g = dY.reshape(1, *dY.shape)
        dX = dW = db = None
        if self.needs[0]:
            dX = matmul_batch(g, W.reshape(1, *W.shape), False, False).reshape(*X.shape)
        if self.needs[1]:
            dW = matmul_batch(g, X.reshape(1, *X.shape), True, False).reshape(*W.shape)
        if self.needs[2]:
            db = sum_middle(g).reshape(W.shape[0])
        return dX, dW, db


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Matrix product   a (..., M, K), b (K, N) or (..., K, N) -> (..., M, N)

    Raises:
        ShapeError: the inner lengths differ, or the batch axes differ.
    """
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"matmul: a (..., M, K) and b (..., K, N) are needed  (a {a.shape}, b {b.shape})"
        )
    if b.ndim > 2 and b.shape[:-2] != a.shape[:-2]:
        raise ShapeError(f"matmul: the batch axes differ  (a {a.shape}, b {b.shape})")
    M, K = a.shape[-2:]
    N = b.shape[-1]
    D = math.prod(a.shape[:-2])
    if b.ndim == 2:  # every row of a meets the same b
        left = a.reshape(1, D * M, K)
        return Matmul.apply(left, b.reshape(1, K, N)).reshape(*a.shape[:-1], N)
    y = Matmul.apply(a.reshape(D, M, K), b.reshape(D, K, N))
    return y.reshape(*a.shape[:-1], N)


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
    O, I = weight.shape  # noqa: E741
    if bias is not None and bias.shape != (O,):
        raise ShapeError(f"linear: bias has shape {bias.shape}, weight {weight.shape} needs ({O},)")
    if x.ndim == 2:
        return Linear.apply(x, weight, bias)
    rows = math.prod(x.shape[:-1])
    return Linear.apply(x.reshape(rows, I), weight, bias).reshape(*x.shape[:-1], O)


Tensor.__matmul__ = matmul  # type: ignore[method-assign]
