"""Norms over axes, the distance of two tensors, and parts with a largest norm."""

from __future__ import annotations

import math
from typing import Any

from alpha.autograd.function import Function
from alpha.core.host_values import Dims, DTypeLike
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import axis_of
from alpha.ops.indexing.where import where
from alpha.ops.kernel import elementwise as ew
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.kernel.broadcasting import broadcast_operands
from alpha.ops.kernel.casts import as_dtype, require_floating
from alpha.ops.kernel.elementwise import unless_zero
from alpha.ops.kernel.operands import NUMBERS
from alpha.ops.kernel.options import real
from alpha.ops.kernel.rows.wide_sums import wide_sum_axes
from alpha.ops.kernel.sums import axes_of, shape_without
from alpha.ops.kernel.views import Shape
from alpha.ops.math.unary import abs as absolute
from alpha.ops.math.unary import signum, square_root
from alpha.ops.reduction.extremes import amax, amin

__all__ = ["dist", "norm", "renorm"]


class EuclideanNorm(Function):
    """Y = root of the sum of X^2 over axes   X (...) -> Y shape; the gradient of a norm 0 is 0"""

    def forward(self, X: Array, *, axes: Shape, shape: Shape) -> Array:
        total = wide_sum_axes(X, axes, squared=True)
        self.kept = tuple(total.shape)
        Y = as_dtype(square_root(total), X.dtype).reshape(shape)
        self.save(X, Y)
        return Y

    def backward(self, dY: Array) -> Any:
        X, Y = self.saved
        slope = unless_zero(ew.divide(dY, Y), Y, p=0.0).reshape(self.kept)
        return ew.multiply(*broadcast_operands("norm", X, slope))


class NotZero(Function):
    """1 where X is not 0, else 0; without a gradient   X (...) -> Y (...)"""

    def forward(self, X: Array) -> Array:
        return ew.multiply(*[signum(X)] * 2)

    def backward(self, dY: Array) -> Any:
        return None


@check_arguments
def norm(
    x: AnyTensor, p: float | str | None = "fro", dim: Dims = None, keepdim: bool = False, *, dtype: DTypeLike = None
) -> Tensor:
    """(sum of |x|^p)^(1/p) over axes (all by default)   x (...) -> the other axes, or 1 in place of each with keepdim

    Args:
        p: a number; "fro" or None is 2, inf the largest |x|, -inf the smallest, 0 the count of what is not 0.
        dtype: cast x to it first.
    """
    x = x if dtype is None else x.astype(dtype)
    require_floating("norm", x.dtype)
    power = 2.0 if p in ("fro", None) else p
    if not isinstance(power, NUMBERS):
        raise TypeError(f"norm: p={p!r} is not a number, 'fro' or None")
    axes = axes_of("norm", x, dim)
    if power == 2:
        return EuclideanNorm.apply(x, axes=axes, shape=shape_without(x, axes, keepdim))
    if power == 0:
        x, power = NotZero.apply(x), 1.0
    size = absolute(x)
    if math.prod(x.shape[axis] for axis in axes) == 1:
        return size.reshape(shape_without(x, axes, keepdim)) if axes else size
    if math.isinf(power):
        return (amax if power > 0 else amin)(size, axes, keepdim)
    return size.sum(axes, keepdim) if power == 1 else (size**power).sum(axes, keepdim) ** (1 / power)


@check_arguments
def dist(x: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of x - other with broadcasting; p is a number, which may be infinite   x (...), other (...) -> ()"""
    return unchecked(norm)(x - other, p)


@check_arguments
def renorm(x: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """x with each part along an axis whose p-norm is larger scaled down to `maxnorm`   x (.., D, ..) -> the same

    Raises:
        ValueError: p is not above 0, or maxnorm is below 0.
        ShapeError: x has fewer than two axes.
    """
    power, most = real("renorm", "p", p), real("renorm", "maxnorm", maxnorm)
    if power <= 0 or most < 0:
        raise ValueError(f"renorm: p={power} must be above 0 and maxnorm={most} at least 0")
    if x.ndim < 2:
        raise ShapeError(f"renorm: x of at least two axes is needed  (x {x.shape})")
    axis = axis_of("renorm", x, dim)
    sizes = unchecked(norm)(x, power, [i for i in range(x.ndim) if i != axis], True)
    factors: Tensor = where(sizes > most, most / (sizes + 1e-7), 1.0)
    return x * factors
