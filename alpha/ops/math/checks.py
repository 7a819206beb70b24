"""What elements are: finite, infinite, negative, close to others, among others, or not 0. It has no gradient."""

from __future__ import annotations

import math

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor, full
from alpha.core.tensor_operators import Dims
from alpha.ops.array.joining import cat
from alpha.ops.indexing.gather_scatter import index_add, index_select, scatter
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.broadcast import broadcast_operands
from alpha.ops.kernel.dtypes import as_dtype
from alpha.ops.kernel.elementwise import elementwise
from alpha.ops.kernel.options import real
from alpha.ops.kernel.promotion import BOOL, INT64, promoted
from alpha.ops.math.bitwise import logical_not
from alpha.ops.math.compare import relate
from alpha.ops.math.rounding import abs
from alpha.ops.reduction import extremes
from alpha.ops.reduction.scan import cumsum
from alpha.ops.reduction.sort import sort

# beside `equal`, which gives no tensor and is of alpha alone
__all__ = ["count_nonzero", "isclose", "isfinite", "isin", "isinf", "isneginf", "isposinf", "signbit"]

FLOAT64 = np.dtype(np.float64)
FEW = 16  # elements with which each of the others is compared


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


@check_arguments
def isin(elements: AnyTensor, test_elements: AnyTensor, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Whether an element is one of the test elements   elements (...), test_elements (any shape) -> elements, bool

    NaN is among no elements.

    Args:
        assume_unique: allowed, and changes nothing: no element comes twice in either tensor.
        invert: whether it is none of them instead.
    """
    left, right = (operand.detach().reshape(operand.size) for operand in promoted(elements, test_elements))
    if right.size <= FEW:
        found = extremes.any(relate(left.reshape((left.size, 1)), right, "=="), 1)
    else:
        found = _among_many(left, right)
    found = found.reshape(elements.shape)
    return logical_not(found) if invert else found


def _among_many(left: Tensor, right: Tensor) -> Tensor:
    """Both are sorted together, and an element counts if its run of equal ones has an element of `right`."""
    both = sort(cat([left, right]))
    values, at = both
    begins = cat([full((1,), False, BOOL, left.device), relate(values[1:], values[:-1], "!=")])
    run = cumsum(begins, 0)
    tests = relate(at, left.size, ">=").astype(INT64)
    counts = index_add(full(run.shape, 0, INT64, left.device), 0, run, tests)
    hits = index_select(counts, 0, run)
    return relate(scatter(full(run.shape, 0, INT64, left.device), 0, at, hits)[: left.size], 0, ">")


@check_arguments
def equal(x: AnyTensor, other: AnyTensor) -> bool:
    """Whether two tensors have one shape and equal elements, as a bool of Python; NaN is equal to nothing

    It waits for the device; so it is refused in a captured step.
    """
    return x.shape == other.shape and not bool(extremes.any(relate(x, other, "!=")))
