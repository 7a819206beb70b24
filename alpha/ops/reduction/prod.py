"""Products over an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.host_values import DTypeLike
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array, device_of
from alpha.core.tensor import Tensor
from alpha.ops.array.axes import axis_of
from alpha.ops.kernel import broadcasting
from alpha.ops.kernel import elementwise as ew
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.broadcasting import broadcast_operands
from alpha.ops.kernel.casts import as_dtype
from alpha.ops.kernel.elementwise import elementwise, unless_zero
from alpha.ops.kernel.rows.reductions import around, product_axis1
from alpha.ops.kernel.sums import shape_without, sum_axes
from alpha.ops.kernel.views import Shape
from alpha.ops.math.comparison import compare

__all__ = ["prod"]


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
        zeros = as_dtype(compare(*broadcast_operands("prod", x, device_of(X).zeros((1,), X.dtype)), "=="), X.dtype)
        rest = as_dtype(product_axis1(unless_zero(x, x, p=1.0)), X.dtype).reshape((A, 1, B))
        given = ew.multiply(dY.reshape((A, 1, B)), rest)
        count = as_dtype(sum_axes(zeros, (1,)), X.dtype)
        given, x, count = (broadcasting.broadcast_to(part, self.sizes) for part in (given, x, count))
        return product_slope(given, x, count).reshape(X.shape)


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
