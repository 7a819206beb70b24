"""Products, variances and norms over axes.

This file also has: sums and means without NaN, means beside variances, and both extremes at once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.host_values import Dims, DTypeLike
from alpha.core.numerics import BFLOAT16, FLOAT32, is_floating
from alpha.core.primitive import Array
from alpha.core.results import MinMax
from alpha.core.tensor import Tensor
from alpha.ops.array.axes import axis_of
from alpha.ops.indexing.where import masked_fill
from alpha.ops.kernel import elementwise as ew
from alpha.ops.kernel import views as broadcast
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.casts import as_dtype, require_floating
from alpha.ops.kernel.elementwise import elementwise, unless_zero
from alpha.ops.kernel.operands import NUMBERS
from alpha.ops.kernel.options import integer, real
from alpha.ops.kernel.reductions import around, product_axis1, wide_sum_axes
from alpha.ops.kernel.sums import axes_of, mean, shape_without, sum, sum_axes
from alpha.ops.kernel.views import Shape, broadcast_operands
from alpha.ops.math.bitwise import logical_not
from alpha.ops.math.comparison import compare, isnan
from alpha.ops.math.unary import abs as absolute
from alpha.ops.math.unary import signum, square_root
from alpha.ops.reduction.extremes import amax, amin

__all__ = ["aminmax", "nanmean", "nansum", "norm", "prod", "std", "std_mean", "var", "var_mean"]


def _product_slope_cpu(dx: Array, a: Array, b: Array, c: Array) -> None:
    np.copyto(dx, np.where(c == 0, a / b, np.where((c == 1) & (b == 0), a, 0)))


# a is dY times the product of all that are not 0, b is X, c the number of zeros
product_slope = elementwise("product_slope", "c == 0 ? a / b : c == 1 && b == 0 ? a : 0", _product_slope_cpu, 3)


class Product(Function):
    """Y = product over an axis   X (...) -> Y shape"""

    def forward(self, X: Array, *, sizes: tuple[int, int, int], shape: Shape) -> Array:
        self.sizes = sizes
        self.save(X)
        return as_dtype(product_axis1(X.reshape(sizes)), X.dtype).reshape(shape)

    def backward(self, dY: Array) -> Any:
        (X,) = self.saved
        A, _, B = self.sizes
        x = X.reshape(self.sizes)
        zeros = as_dtype(compare(*broadcast_operands("prod", x, Tensor(X).device.zeros((1,), X.dtype)), "=="), X.dtype)
        rest = as_dtype(product_axis1(unless_zero(x, x, p=1.0)), X.dtype).reshape((A, 1, B))
        given = ew.multiply(dY.reshape((A, 1, B)), rest)
        count = as_dtype(sum_axes(zeros, (1,)), X.dtype)
        given, x, count = (broadcast.broadcast_to(part, self.sizes) for part in (given, x, count))
        return product_slope(given, x, count).reshape(X.shape)


class Variance(Function):
    """Y = sum of (X - mean)^2 over axes / count, or its root   X (...) -> Y shape"""

    def forward(self, X: Array, *, axes: Shape, correction: float, root: bool, shape: Shape) -> Array:
        length = math.prod([X.shape[axis] for axis in axes])
        self.axes, self.root, self.count = axes, root, max(0.0, length - correction)
        mean = ew.divide_by_number(wide_sum_axes(X, axes), p=float(length))  # of equal elements the element itself
        self.kept = tuple(mean.shape)
        centered = ew.subtract(*broadcast_operands("var", X, as_dtype(mean, X.dtype)))
        Y = ew.divide_by_number(wide_sum_axes(centered, axes, squared=True), p=self.count)
        Y = as_dtype(square_root(Y) if root else Y, X.dtype).reshape(shape)
        self.save(centered, Y)
        return Y

    def backward(self, dY: Array) -> Any:
        centered, Y = self.saved
        if self.root:  # 0 where the deviation is 0
            slope = unless_zero(ew.divide(dY, Y), Y, p=0.0)
        else:
            slope = ew.affine(dY, p=2.0)
        slope = ew.divide_by_number(slope, p=self.count).reshape(self.kept)
        return ew.multiply(*broadcast_operands("var", centered, slope))


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
def prod(x: AnyTensor, dim: int | None = None, keepdim: bool = False, *, dtype: DTypeLike = None) -> Tensor:
    """The product along an axis, or of all elements   x (...) -> the other axes, or 1 in place of it with keepdim

    Args:
        dtype: cast x to it first. Default: that of x, and int64 for integers and bools.
    """
    x = x if dtype is None else x.astype(dtype)
    x = x if is_floating(x.dtype) else x.astype(np.int64)
    if dim is None:
        if keepdim:
            raise TypeError("prod: keepdim needs dim")
        y = Product.apply(x, sizes=(1, x.size, 1), shape=())
    else:
        axis = axis_of("prod", x, dim)
        y = Product.apply(x, sizes=around(x.shape or (1,), axis), shape=shape_without(x, (axis,), keepdim))
    return y if dtype is None else y.astype(dtype)


@check_arguments
def var(
    x: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float = 1
) -> Tensor:
    """The variance over axes (all by default)   x (...) -> the other axes, or 1 in place of each with keepdim

    Args:
        correction: the sum of squared deviations is divided by the number of elements less this: 1 is Bessel's.
        unbiased: instead of correction; True is 1, False is 0. It may come alone: `x.var(False)`.
    """
    dim, unbiased = _dim_or_unbiased("var", dim, unbiased)
    return _variance("var", x, dim, _correction("var", correction, unbiased), keepdim)


@check_arguments
def std(
    x: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float = 1
) -> Tensor:
    """The standard deviation over axes (all by default); its gradient is 0 where it is 0

    x (...) -> the other axes, or 1 in place of each with keepdim

    Args:
        correction, unbiased: as of `var`.
    """
    dim, unbiased = _dim_or_unbiased("std", dim, unbiased)
    return _variance("std", x, dim, _correction("std", correction, unbiased), keepdim)


def _dim_or_unbiased(operator: str, dim: Dims, unbiased: bool | None) -> tuple[Dims, bool | None]:
    """The axes and `unbiased`; PyTorch takes `x.var(False)`, where a bool stands in the place of the axes."""
    if not isinstance(dim, bool):
        return dim, unbiased
    if unbiased is not None:
        raise TypeError(f"{operator}: dim={dim} is a bool, an axis or several are needed")
    return None, dim


def _correction(operator: str, correction: float, unbiased: bool | None) -> float:
    if unbiased is None:
        return correction
    if correction != 1:
        raise TypeError(f"{operator}: correction={correction} and unbiased={unbiased} say the same; give one of them")
    return int(bool(unbiased))


def _variance(operator: str, x: Tensor, dim: Dims, correction: float, keepdim: bool) -> Tensor:
    require_floating(operator, x.dtype)
    axes = axes_of(operator, x, dim)
    by = real(operator, "correction", correction)
    return Variance.apply(x, axes=axes, correction=by, root=operator == "std", shape=shape_without(x, axes, keepdim))


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
def nansum(x: AnyTensor, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeLike = None) -> Tensor:
    """Sum over axes (all by default) of what is not NaN   x (...) -> the other axes, or 1 in place of each with keepdim

    Args:
        dtype: cast x to it first; the sum has it, too. Default: that of x, and int64 for integers and bools.
    """
    x = x if dtype is None else x.astype(dtype)
    return sum(masked_fill(x, isnan(x), 0) if is_floating(x.dtype) else x, dim, keepdim, dtype=dtype)


@check_arguments
def nanmean(x: AnyTensor, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeLike = None) -> Tensor:
    """Mean over axes (all by default) of what is not NaN; NaN where all is

    x (...) -> the other axes, or 1 in place of each with keepdim

    Args:
        dtype: cast x to it first.
    """
    x = x if dtype is None else x.astype(dtype)
    require_floating("nanmean", x.dtype)
    wide = x.astype(FLOAT32) if x.dtype == BFLOAT16 else x  # a count has more digits than bfloat16
    count = sum(logical_not(isnan(x)), dim, keepdim)
    return (nansum(wide, dim, keepdim) / count.astype(wide.dtype)).astype(x.dtype)


@check_arguments
def aminmax(x: AnyTensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """The smallest and the largest element, of all or along an axis; equal ones share the gradient

    x (...) -> min, max of the other axes, or 1 in place of each with keepdim
    """
    axis = None if dim is None else integer("aminmax", "dim", dim)
    return MinMax(amin(x, axis, keepdim), amax(x, axis, keepdim))


@check_arguments
def var_mean(
    x: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float = 1
) -> tuple[Tensor, Tensor]:
    """(variance, mean) over axes (all by default), as `var` and `mean` have them"""
    return var(x, dim, correction=correction, unbiased=unbiased, keepdim=keepdim), mean(
        x, None if isinstance(dim, bool) else dim, keepdim
    )


@check_arguments
def std_mean(
    x: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float = 1
) -> tuple[Tensor, Tensor]:
    """(standard deviation, mean) over axes (all by default), as `std` and `mean` have them"""
    return std(x, dim, correction=correction, unbiased=unbiased, keepdim=keepdim), mean(
        x, None if isinstance(dim, bool) else dim, keepdim
    )
