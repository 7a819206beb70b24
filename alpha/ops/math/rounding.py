"""Rounding and signs: functions of one tensor that leave integers integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array, Primitive
from alpha.core.tensor import Tensor
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.elementwise import elementwise, in_place, kept, place
from alpha.ops.kernel.options import integer

__all__ = ["abs", "absolute", "ceil", "floor", "frac", "round", "sgn", "sign", "trunc"]


def _sign_cpu(y: Array, a: Array) -> None:
    np.subtract(a > 0, a < 0, out=y, dtype=np.int8, casting="unsafe")


def _magnitude_slope_cpu(dx: Array, a: Array, b: Array) -> None:
    np.copyto(dx, np.where(b > 0, a, np.where(b < 0, -a, 0)))


magnitude = elementwise("magnitude", "a > 0 ? a : 0 - a", lambda y, a: np.abs(a, out=y), 1)
magnitude_slope = elementwise("magnitude_slope", "b > 0 ? a : b < 0 ? -a : 0", _magnitude_slope_cpu, 2)
signum = elementwise("signum", "a > 0 ? 1 : a < 0 ? -1 : 0", _sign_cpu, 1)
ceiling = elementwise("ceiling", "ceil(a)", lambda y, a: np.ceil(a, out=y), 1)
lower_integer = elementwise("lower_integer", "floor(a)", lambda y, a: np.floor(a, out=y), 1)
nearest = elementwise("nearest", "rint(a * p) / p", lambda y, a, p: np.divide(np.rint(a * p), p, out=y), 1)
truncated = elementwise("truncated", "trunc(a)", lambda y, a: np.trunc(a, out=y), 1)


class Rounded(Function):
    """A function whose gradient is 0   X (...) -> Y (...)"""

    def forward(self, X: Array, *, rule: Primitive, p: float) -> Array:
        return rule(X, p=p, out=place(self, X))

    def backward(self, dY: Array) -> Any:
        return Tensor(dY).device.zeros(dY.shape, dY.dtype)


class Absolute(Function):
    """Y = |X|   X (...) -> Y (...)"""

    def forward(self, X: Array) -> Array:
        self.save(kept(self, X))
        return magnitude(X, out=place(self, X))

    def backward(self, dY: Array) -> Any:
        return magnitude_slope(dY, self.saved[0])


AbsoluteInPlace = in_place(Absolute, "abs_")
_ROUNDED = {name: in_place(Rounded, name) for name in ("ceil_", "floor_", "round_", "trunc_")}


def _rounded(operator: str, x: Tensor, rule: Primitive, p: float = 1.0) -> Tensor:
    if x.dtype == np.bool_:
        raise TypeError(f"{operator}: x has dtype bool; use .astype('float32')")
    return _ROUNDED.get(operator, Rounded).apply(x, rule=rule, p=p) if is_floating(x.dtype) else x


def _absolute(operator: str, x: Tensor) -> Tensor:
    if x.dtype == np.bool_:
        raise TypeError(f"{operator}: x has dtype bool; use .astype('float32')")
    return Absolute.apply(x)


@check_arguments
def abs(x: AnyTensor) -> Tensor:
    """|x|, elementwise; the gradient at 0 is 0   x (...) -> (...)"""
    return _absolute("abs", x)


@check_arguments
def absolute(x: AnyTensor) -> Tensor:
    """Another name of `abs`."""
    return _absolute("absolute", x)


@check_arguments
def sign(x: AnyTensor) -> Tensor:
    """1, 0 or -1, the sign of x, elementwise; 0 for NaN   x (...) -> (...)"""
    return Rounded.apply(x, rule=signum, p=0.0)


@check_arguments
def sgn(x: AnyTensor) -> Tensor:
    """Another name of `sign`: both differ for complex numbers only."""
    return Rounded.apply(x, rule=signum, p=0.0)


@check_arguments
def ceil(x: AnyTensor) -> Tensor:
    """The least integer that is not less than x, elementwise   x (...) -> (...)"""
    return _rounded("ceil", x, ceiling)


@check_arguments
def floor(x: AnyTensor) -> Tensor:
    """The largest integer that is not more than x, elementwise   x (...) -> (...)"""
    return _rounded("floor", x, lower_integer)


@check_arguments
def trunc(x: AnyTensor) -> Tensor:
    """x without its decimals, elementwise   x (...) -> (...)"""
    return _rounded("trunc", x, truncated)


@check_arguments
def round(x: AnyTensor, *, decimals: int = 0) -> Tensor:
    """The nearest number of so many decimals, of two the even one, elementwise   x (...) -> (...)"""
    return _rounded("round", x, nearest, 10.0 ** integer("round", "decimals", decimals))


@check_arguments
def frac(x: Tensor) -> Tensor:
    """The decimals of x, with its sign, elementwise   x (...) -> (...)"""
    return x - trunc(x)


def abs_(x: Tensor) -> Tensor:
    """`abs` written into x; a copy of x is kept if a gradient is needed."""
    if x.dtype == np.bool_:
        raise TypeError("abs_: x has dtype bool; use .astype('float32')")
    return AbsoluteInPlace.apply(x)


def ceil_(x: Tensor) -> Tensor:
    """`ceil` written into x."""
    return _rounded("ceil_", x, ceiling)


def floor_(x: Tensor) -> Tensor:
    """`floor` written into x."""
    return _rounded("floor_", x, lower_integer)


def trunc_(x: Tensor) -> Tensor:
    """`trunc` written into x."""
    return _rounded("trunc_", x, truncated)


def round_(x: Tensor, *, decimals: int = 0) -> Tensor:
    """`round` written into x."""
    return _rounded("round_", x, nearest, 10.0 ** integer("round_", "decimals", decimals))
