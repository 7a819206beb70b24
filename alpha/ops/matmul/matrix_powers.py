"""Powers of matrices, and the matrix of the powers of a vector."""

from __future__ import annotations

import numpy as np

from alpha.core.tensor import Tensor, full
from alpha.errors import ShapeError
from alpha.ops.array.axes import expand, flip
from alpha.ops.array.creation import eye, ones
from alpha.ops.array.joining import cat
from alpha.ops.array.layout import view as reshaped
from alpha.ops.indexing.where import masked_fill
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.kernel.options import integer
from alpha.ops.matmul.matmul import matmul
from alpha.ops.reduction.scan import cumprod

__all__ = ["matrix_power", "vander"]


@check_arguments
def matrix_power(x: Tensor, n: int) -> Tensor:
    """Each matrix n times multiplied by itself; the identity for 0   x (.., M, M) -> the same

    Raises:
        ValueError: n is below 0; inverses are not offered.
        ShapeError: the matrices are not square.
    """
    times = integer("matrix_power", "n", n)
    if times < 0:
        raise ValueError(f"matrix_power: n={times} is below 0; inverses are not offered")
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"matrix_power: x (.., M, M) is needed  (x {x.shape})")
    if times == 0:
        nothing: Tensor = unchecked(masked_fill)(x, full((), True, np.bool_, x.device), 0)  # whatever x is
        return nothing + eye(x.shape[-1], dtype=x.dtype, device=x.device)
    result: Tensor | None = None
    power = x
    while True:
        if times % 2:
            result = power if result is None else unchecked(matmul)(result, power)
        times //= 2
        if not times:
            return x.clone() if result is x or result is None else result
        power = unchecked(matmul)(power, power)


@check_arguments
def vander(x: AnyTensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of each element, the largest first; of integers int64   x (M,) -> (M, N)

    Args:
        N: how many, from the power 0 on; by default M.
        increasing: the power 0 comes first.
    """
    if x.ndim != 1:
        raise ShapeError(f"vander: a vector x (M,) is needed  (x {x.shape})")
    M = x.shape[0]
    count = M if N is None else integer("vander", "N", N, 0)
    first = ones(M, min(1, count), dtype=x.dtype, device=x.device)
    columns = unchecked(expand)(reshaped(x, (M, 1)), (M, max(0, count - 1)))
    powers = unchecked(cumprod)(cat([first, columns], 1), 1)
    return powers if increasing else unchecked(flip)(powers, 1)
