"""Matrix products on the cpu: cut by their shape alone into products of one BLAS thread each.

BLAS with several threads cuts a product by their number, and what it gives may depend on it.
"""

from __future__ import annotations

import numpy as np

from alpha.core.primitive import Array
from alpha.runtime import workers
from alpha.runtime.cpu import empty as cpu_empty

ONE_THREAD = 1 << 15  # products of two numbers; for so few BLAS uses no second thread
LEAST_PRODUCTS = 1 << 22  # of a part; some 0.1 milliseconds
LEAST_ROWS = 256  # of a part: BLAS packs the other operand again for each part
MOST_PIECES = 32


def multiply(a: Array, b: Array, out: Array) -> None:
    """out = a b   a (M, K), b (K, N) -> out (M, N)"""
    (M, K), N = a.shape, b.shape[1]
    products = M * N * K
    if products <= ONE_THREAD:
        np.matmul(a, b, out=out)
        return
    pieces = min(products // LEAST_PRODUCTS, MOST_PIECES)
    across = min(pieces, max(M, N) // LEAST_ROWS)
    if across <= 1 < pieces and pieces * max(M, N) < K:
        _by_depth(a, b, out, -(-K // pieces))
    elif M >= N:
        _by_rows(a, b, out, across)
    else:
        _by_rows(b.T, a.T, out.T, across)


def _by_rows(a: Array, b: Array, out: Array, pieces: int) -> None:
    M = a.shape[0]

    def piece(start: int, stop: int) -> None:
        np.matmul(a[start:stop], b, out=out[start:stop])

    workers.parallel_for(M, -(-M // max(1, pieces)), piece, blas=True)


def _by_depth(a: Array, b: Array, out: Array, depth: int) -> None:
    """Cut K, the length of the sums."""

    def part(i: int) -> Array:
        k = slice(i * depth, (i + 1) * depth)
        return np.matmul(a[:, k], b[k], out=cpu_empty(out.shape, out.dtype))

    def add(i: int, product: Array) -> None:
        np.add(out, product, out=out)

    out.fill(0)
    workers.sum_in_order(-(-a.shape[1] // depth), part, add)
