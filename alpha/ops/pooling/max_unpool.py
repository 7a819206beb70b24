"""Partial inverse of maximum pooling: numbers back at the places of the maxima, zeros elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from alpha.autograd.function import Function
from alpha.core.primitive import Array, device_of
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import lengths_of
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.common_dtype import INT64
from alpha.ops.kernel.options import FORMS, Lengths, lengths
from alpha.ops.kernel.rows.row_indices import places, put_rows, take_rows
from alpha.ops.pooling.pool_shape import image_sizes

__all__ = ["max_unpool1d", "max_unpool2d", "max_unpool3d"]


class MaxUnpool(Function):
    """Y[n, J[n, o, c], c] = X[n, o, c], the last of several at one place, else 0   X, J (N, O, C) -> Y sizes"""

    def forward(self, X: Array, J: Array, *, sizes: tuple[int, int, int]) -> Array:
        self.shape, (N, I, C) = tuple(X.shape), sizes
        self.at = places(J.reshape((J.size,)), I, C, None, (C, X.shape[1] * C, I * C))
        Y = device_of(X).zeros((1, N * I * C, 1), X.dtype)
        put_rows(Y, self.at, X.reshape((1, X.size, 1)), False)
        return Y.reshape(sizes)

    def backward(self, dY: Array) -> Any:
        return take_rows(dY.reshape((1, dY.size, 1)), self.at).reshape(self.shape), None


def _max_unpool(
    operator: str,
    rank: int,
    x: Tensor,
    indices: Tensor,
    windows: tuple[Lengths, Lengths | None, Lengths],
    output_size: Any,
) -> Tensor:
    F = lengths(operator, "kernel_size", windows[0], rank)
    s = F if windows[1] is None else lengths(operator, "stride", windows[1], rank)
    p = lengths(operator, "padding", windows[2], rank)
    N, O, C = image_sizes(operator, rank, x)
    if indices.shape != x.shape:
        raise ShapeError(f"{operator}: indices have shape {indices.shape}, x has {x.shape}")
    if indices.dtype != INT64:
        raise TypeError(f"{operator}: indices have dtype {indices.dtype.name}; those of max_pool{rank}d are int64")
    usual = tuple([(o - 1) * step + f - 2 * pad for o, f, step, pad in zip(O, F, s, p, strict=True)])
    I = usual if output_size is None else lengths_of(operator, "output_size", output_size)
    I = I[1:-1] if len(I) == rank + 2 else I
    if len(I) != rank or min(*s, *I) < 1 or any(abs(i - u) >= step for i, u, step in zip(I, usual, s, strict=True)):
        raise ShapeError(
            f"{operator}: output_size {I} must be {rank} positive lengths within the stride {s} of {usual}  "
            f"(x {x.shape}, kernel_size {F}, padding {p}, the form {FORMS[rank]})"
        )
    sizes = N, math.prod(I), C
    y = MaxUnpool.apply(x.reshape(N, math.prod(O), C), indices.reshape(N, math.prod(O), C), sizes=sizes)
    return y.reshape(*x.shape[: x.ndim - rank - 1], *I, C)


@check_arguments
def max_unpool1d(
    x: Tensor,
    indices: AnyTensor,
    kernel_size: Lengths,
    stride: Lengths | None = None,
    padding: Lengths = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Numbers back at the places of the maxima of a sequence; arguments and errors as for `max_unpool2d`.

    x, indices (N, O, C), or one sequence without N -> (N, L, C)
    """
    return _max_unpool("max_unpool1d", 1, x, indices, (kernel_size, stride, padding), output_size)


@check_arguments
def max_unpool2d(
    x: Tensor,
    indices: AnyTensor,
    kernel_size: Lengths,
    stride: Lengths | None = None,
    padding: Lengths = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Numbers back at the places of the maxima, zeros elsewhere: the partial inverse of `max_pool2d`.

    x, indices (N, OH, OW, C), or one image without N -> (N, IH, IW, C)

    Args:
        indices: what `max_pool2d` returns with `return_indices`: the place ih IW + iw in the image, as in PyTorch. If a
            place is there several times, it gets the last of the numbers.
        kernel_size, stride, padding: those of the pool; IH is (OH - 1) sh + FH - 2 ph, IW likewise.
        output_size: (IH, IW), or the whole shape of the result, if another size has the same maxima. It may differ
            from the usual one by less than the stride.

    Raises:
        ShapeError: x and indices have different shapes, or output_size does not fit.
        TypeError: x is not a Tensor of floating numbers, or indices are not int64.
        IndexError: on cpu, an index is outside of the image; on cuda it is left out, with the gradient NaN.
    """
    return _max_unpool("max_unpool2d", 2, x, indices, (kernel_size, stride, padding), output_size)


@check_arguments
def max_unpool3d(
    x: Tensor,
    indices: AnyTensor,
    kernel_size: Lengths,
    stride: Lengths | None = None,
    padding: Lengths = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Numbers back at the places of the maxima of a volume; arguments and errors as for `max_unpool2d`.

    x, indices (N, OD, OH, OW, C), or one volume without N -> (N, ID, IH, IW, C); an index is (id IH + ih) IW + iw.
    """
    return _max_unpool("max_unpool3d", 3, x, indices, (kernel_size, stride, padding), output_size)
