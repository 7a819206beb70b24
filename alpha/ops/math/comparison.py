"""Comparisons of tensors with broadcasting, and checks of elements: finite, infinite, negative, close. No gradients."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.host_values import Dims
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array, primitive
from alpha.core.tensor import Tensor, full, tensor
from alpha.errors import ShapeError
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.broadcasting import broadcast_operands
from alpha.ops.kernel.casts import BLOCK, CUDA_TYPES, DType, as_dtype
from alpha.ops.kernel.elementwise import elementwise
from alpha.ops.kernel.operands import NUMBERS
from alpha.ops.kernel.options import real
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan
from alpha.ops.math.unary import abs
from alpha.runtime.cpu import empty as cpu_empty

# beside `isnan` and `allclose`, which are of alpha alone, as `equal` is
__all__ = ["count_nonzero", "isclose", "isfinite", "isinf", "isneginf", "isposinf", "signbit"]

RELATIONS = {  # in the order that the kernel numbers them
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
FLOAT64, INT64, BOOL = np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.bool_)


@primitive
def compare(A: Array, B: Array, relation: str) -> Array:
    """Y = A relation B as bools   A (...), B of one dtype with A, of its shape or repeating along it -> Y (...)"""


@compare.impl("cpu")
@np.errstate(all="ignore")
def _(A: Array, B: Array, relation: str) -> Array:
    Y = cpu_empty(A.shape, BOOL)
    RELATIONS[relation](A, B, out=Y)
    return Y


@compare.impl("cuda")
def _(A: Array, B: Array, relation: str) -> Array:
    if A.size == 0:
        return A.device.empty(A.shape, BOOL)
    return _plan(A.shape, B.size, A.dtype, relation).launch(A.device, {"A": A, "B": B})["Y"]


@functools.lru_cache(maxsize=4096)
def _plan(shape: tuple[int, ...], period: int, dtype: np.dtype[Any], relation: str) -> Plan:
    result = Buffer(shape, BOOL)
    launch = KernelLaunch(
        "elementwise/compare.cu",
        "compare",
        -(-result.size // BLOCK),
        BLOCK,
        (*map(ArrayArg, "YAB"), list(RELATIONS).index(relation), np.int64(period), np.int64(result.size)),
        {"TYPE": CUDA_TYPES[dtype]},
    )
    return Plan("compare", (launch,), {"Y": result})


class Compare(Function):
    """Y = A relation B   A (...), B (...) -> the broadcast shape, bool"""

    def forward(self, A: Array, B: Array, *, relation: str) -> Array:
        dtype = _common(A.dtype, B.dtype)
        return compare(*broadcast_operands("comparison", as_dtype(A, dtype), as_dtype(B, dtype)), relation)


def _common(a: DType, b: DType) -> DType:
    """A dtype in which values of both can be compared."""
    if a == b:
        return a
    return FLOAT64 if is_floating(a) or is_floating(b) else INT64


def relate(x: Tensor, other: Any, relation: str) -> Tensor:
    """x relation other   x (...), other a Tensor, a numpy array, a list or a number -> the broadcast shape, bool"""
    if isinstance(other, NUMBERS):
        other = full((), other, _number_dtype(x.dtype, other), x.device)
    elif not isinstance(other, Tensor):
        other = tensor(other, device=x.device)
    return Compare.apply(x, other, relation=relation)


def _number_dtype(dtype: DType, number: Any) -> DType:
    """The dtype of a tensor if that can hold the number, so that nothing is cast; else float64."""
    if is_floating(dtype):
        return dtype
    value = float(number)
    lowest, highest = (0, 1) if dtype == BOOL else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return dtype if value.is_integer() and lowest <= number <= highest else FLOAT64


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
    """Y = the sign of X is negative, as that of -0   X (...) -> Y (...) of bools"""

    def forward(self, X: Array) -> Array:
        return relate(Tensor(sign_of_bit(X)), 0, "<").array


@check_arguments
def isnan(x: AnyTensor) -> Tensor:
    """True if an element is NaN, which no integer is   x (...) -> (...) of bools"""
    return Compare.apply(x, x, relation="!=")


def _all_of(x: Tensor, value: bool) -> Tensor:
    return full(x.shape, value, BOOL, x.device)


@check_arguments
def isfinite(x: AnyTensor) -> Tensor:
    """True if an element is neither infinite nor NaN   x (...) -> (...) of bools"""
    return relate(abs(x.detach()), math.inf, "<") if is_floating(x.dtype) else _all_of(x, True)


@check_arguments
def isinf(x: AnyTensor) -> Tensor:
    """True if an element is infinite   x (...) -> (...) of bools"""
    return relate(abs(x.detach()), math.inf, "==") if is_floating(x.dtype) else _all_of(x, False)


@check_arguments
def isposinf(x: AnyTensor) -> Tensor:
    """True if an element is positive and infinite   x (...) -> (...) of bools"""
    return relate(x, math.inf, "==") if is_floating(x.dtype) else _all_of(x, False)


@check_arguments
def isneginf(x: AnyTensor) -> Tensor:
    """True if an element is negative and infinite   x (...) -> (...) of bools"""
    return relate(x, -math.inf, "==") if is_floating(x.dtype) else _all_of(x, False)


@check_arguments
def signbit(x: AnyTensor) -> Tensor:
    """True if the sign of an element is negative, as that of -0   x (...) -> (...) of bools"""
    return SignBit.apply(x) if is_floating(x.dtype) else relate(x, 0, "<")


@check_arguments
def allclose(x: AnyTensor, other: AnyTensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """True if |x - other| <= atol + rtol |other| for all elements, with broadcasting; it waits for the device

    Args:
        equal_nan: NaN is equal to NaN.
    """
    if x.dtype != other.dtype:
        raise TypeError(f"allclose: x has dtype {x.dtype.name} and other {other.dtype.name}; use .astype")
    a, b = (v.numpy().astype(FLOAT64) if is_floating(v.dtype) else v.numpy() for v in (x, other))
    try:
        return np.allclose(a, b, real("allclose", "rtol", rtol), real("allclose", "atol", atol), bool(equal_nan))
    except ValueError:
        raise ShapeError(f"allclose: the shapes do not broadcast  (x {x.shape}, other {other.shape})") from None


@check_arguments
def isclose(
    x: AnyTensor, other: AnyTensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """True if |x - other| <= atol + rtol |other|, with broadcasting; an infinity is close to itself only

    x (...), other (...) of one dtype -> the broadcast shape, bool

    Args:
        rtol, atol: at least 0.
        equal_nan: NaN is close to NaN.
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
