"""Variances and standard deviations over axes, also beside the means."""

from __future__ import annotations

import math
from typing import Any

from alpha.autograd.function import Function
from alpha.core.host_values import Dims
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.kernel import elementwise as ew
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.kernel.broadcasting import broadcast_operands
from alpha.ops.kernel.casts import as_dtype, require_floating
from alpha.ops.kernel.elementwise import unless_zero
from alpha.ops.kernel.options import real
from alpha.ops.kernel.rows.wide_sums import wide_sum_axes
from alpha.ops.kernel.sums import axes_of, mean, shape_without
from alpha.ops.kernel.views import Shape
from alpha.ops.math.unary import square_root

__all__ = ["std", "std_mean", "var", "var_mean"]


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
