"""Sums and means over axes of what is not NaN."""

from __future__ import annotations

from alpha.core.host_values import Dims, DTypeLike
from alpha.core.numerics import BFLOAT16, FLOAT32, is_floating
from alpha.core.tensor import Tensor
from alpha.ops.indexing.where import masked_fill
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.casts import require_floating
from alpha.ops.kernel.sums import sum
from alpha.ops.math.bitwise import logical_not
from alpha.ops.math.comparison import isnan

__all__ = ["nanmean", "nansum"]


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
