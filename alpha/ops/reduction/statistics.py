"""Sums and means without NaN, means beside variances, and both extremes at once."""

from __future__ import annotations

from alpha.core.numerics import BFLOAT16, FLOAT32, is_floating
from alpha.core.results import MinMax
from alpha.core.tensor import Tensor
from alpha.core.tensor_operators import Dims, DTypeLike
from alpha.ops.indexing.where import masked_fill
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.options import integer
from alpha.ops.kernel.sums import mean, sum
from alpha.ops.math.bitwise import logical_not
from alpha.ops.math.compare import isnan
from alpha.ops.reduction.extremes import amax, amin
from alpha.ops.reduction.var_norm import std, var

__all__ = ["aminmax", "nanmean", "nansum", "std_mean", "var_mean"]


@check_arguments
def nansum(x: AnyTensor, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeLike = None) -> Tensor:
    """Sum over axes (all by default) of what is not NaN   x (...) -> the other axes, or 1 in place of each with keepdim

    Args:
        dtype: cast x to it first. Default: that of x, and int64 for integers and bools.
    """
    x = x if dtype is None else x.astype(dtype)
    return sum(masked_fill(x, isnan(x), 0) if is_floating(x.dtype) else x, dim, keepdim)


@check_arguments
def nanmean(x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeLike = None) -> Tensor:
    """Mean over axes (all by default) of what is not NaN; NaN where all is

    x (...) -> the other axes, or 1 in place of each with keepdim

    Args:
        dtype: cast x to it first.
    """
    x = x if dtype is None else x.astype(dtype)
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
