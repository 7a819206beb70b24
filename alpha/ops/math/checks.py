"""What elements are: finite, infinite, negative, close to others, among others, or not 0. It has no gradient."""

from __future__ import annotations

import math

import numpy as np

from alpha.autograd.function import Function
from alpha.core.host_values import Dims
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor, full
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.dtypes import as_dtype
from alpha.ops.kernel.elementwise import elementwise
from alpha.ops.kernel.operands import BOOL
from alpha.ops.kernel.options import real
from alpha.ops.kernel.views import broadcast_operands
from alpha.ops.math.compare import relate
from alpha.ops.math.rounding import abs

# beside `equal`, which gives no tensor and is of alpha alone
__all__ = ["count_nonzero", "isclose", "isfinite", "isinf", "isneginf", "isposinf", "signbit"]

FLOAT64 = np.dtype(np.float64)


def _close_cpu(y: Array, a: Array, b: Array, p: float, q: float, r: float) -> None:
    distance = np.abs(a - b)
    close = (a == b) | (np.isfinite(distance) & (distance <= a.dtype.type(q) + np.abs(a.dtype.type(p) * b)))
    np.copyto(y, close | (np.isnan(a) & np.isnan(b)) if r else close)


# p is rtol, q is atol, and r whether NaN is close to NaN; x - x is 0 for finite numbers only
closeness = elementwise(
    "closeness",
    "a == b || (r != 0 && a != a && b != b) || ((a - b) - (a - b) == 0 && fabs(a - b) <= q + fabs(p * b)) ? 1 : 0",
    _close_cpu,
    2,
)
sign_of_bit = elementwise("sign_of_bit", "copysign(Real(1), a)", lambda y, a: np.copysign(1, a, out=y), 1)


class Close(Function):
    """Y = |A - B| <= atol + rtol |B|   A (...), B (...) -> the broadcast shape, bool"""

    def forward(self, A: Array, B: Array, *, rtol: float, atol: float, equal_nan: bool) -> Array:
        found = closeness(*broadcast_operands("isclose", A, B), p=rtol, q=atol, r=float(equal_nan))
        return as_dtype(found, BOOL)


class SignBit(Function):
    """Y = whether the sign of X is negative, also of -0   X (...) -> Y (...) of bools"""

    def forward(self, X: Array) -> Array:
        return relate(Tensor(sign_of_bit(X)), 0, "<").array


def _all_of(x: Tensor, value: bool) -> Tensor:
    return full(x.shape, value, BOOL, x.device)


@check_arguments
def isfinite(x: AnyTensor) -> Tensor:
    """Whether an element is neither infinite nor NaN   x (...) -> (...) of bools"""
    return relate(abs(x.detach()), math.inf, "<") if is_floating(x.dtype) else _all_of(x, True)


@check_arguments
def isinf(x: AnyTensor) -> Tensor:
    """Whether an element is infinite   x (...) -> (...) of bools"""
    return relate(abs(x.detach()), math.inf, "==") if is_floating(x.dtype) else _all_of(x, False)


@check_arguments
def isposinf(x: AnyTensor) -> Tensor:
    """Whether an element is positive and infinite   x (...) -> (...) of bools"""
    return relate(x, math.inf, "==") if is_floating(x.dtype) else _all_of(x, False)


@check_arguments
def isneginf(x: AnyTensor) -> Tensor:
    """Whether an element is negative and infinite   x (...) -> (...) of bools"""
    return relate(x, -math.inf, "==") if is_floating(x.dtype) else _all_of(x, False)


@check_arguments
def signbit(x: AnyTensor) -> Tensor:
    """Whether the sign of an element is negative, which that of -0 is   x (...) -> (...) of bools"""
    return SignBit.apply(x) if is_floating(x.dtype) else relate(x, 0, "<")


@check_arguments
def isclose(
    x: AnyTensor, other: AnyTensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """Whether |x - other| <= atol + rtol |other|, with broadcasting; an infinity is close to itself only

    x (...), other (...) of one dtype -> the broadcast shape, bool

    Args:
        rtol, atol: at least 0.
        equal_nan: whether NaN is close to NaN.
    """
    if x.dtype != other.dtype:
        raise TypeError(f"isclose: x has dtype {x.dtype.name} and other {other.dtype.name}; use .astype")
    bounds = {name: real("isclose", name, value) for name, value in (("rtol", rtol), ("atol", atol))}
    for name, bound in bounds.items():
        if bound < 0:
            raise ValueError(f"isclose: {name}={bound} must be at least 0")
    if not is_floating(x.dtype):
        if not any(bounds.values()):
            return relate(x, other, "==")
        x, other = x.astype(FLOAT64), other.astype(FLOAT64)
    return Close.apply(x, other, **bounds, equal_nan=bool(equal_nan))


@check_arguments
def count_nonzero(x: AnyTensor, dim: Dims = None) -> Tensor:
    """The number of elements over axes (all by default) that are not 0   x (...) -> the other axes, int64"""
    return relate(x, 0, "!=").sum(dim)
