"""Exponentials and logarithms of other bases, the error function, and reciprocals; of integers in float32.

The exponential and the natural logarithm of a tensor.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.kernel import elementwise as ew
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.dtypes import require_floating
from alpha.ops.kernel.elementwise import activation, in_place, kept, place
from alpha.ops.kernel.operands import as_floating
from alpha.ops.math.binary import ReciprocalInPlace

__all__ = ["erf", "exp2", "expm1", "log1p", "log2", "log10", "positive", "reciprocal", "rsqrt", "square"]

_SLOPE = 2 / math.sqrt(math.pi)  # of erf at 0


def _erf_cpu(y: Array, a: Array) -> None:
    from scipy.special import erf  # takes half a second to import, more than all of Alpha

    erf(a, out=y)


_EXP2 = activation(
    "exp2",
    ("exp2(a)", lambda y, a: np.exp2(a, out=y)),
    ("a * b * Real(0.6931471805599453)", lambda dx, a, b: np.multiply(a * b, b.dtype.type(math.log(2)), out=dx)),
    holds="Y",
)
_EXPM1 = activation(
    "expm1",
    ("expm1(a)", lambda y, a: np.expm1(a, out=y)),
    ("a * (b + 1)", lambda dx, a, b: np.multiply(a, b + 1, out=dx)),
    holds="Y",
)
_LOG2 = activation(
    "log2",
    ("log2(a)", lambda y, a: np.log2(a, out=y)),
    ("a / (b * Real(0.6931471805599453))", lambda dx, a, b: np.divide(a, b * b.dtype.type(math.log(2)), out=dx)),
    holds="X",
)
_LOG10 = activation(
    "log10",
    ("log10(a)", lambda y, a: np.log10(a, out=y)),
    ("a / (b * Real(2.302585092994046))", lambda dx, a, b: np.divide(a, b * b.dtype.type(math.log(10)), out=dx)),
    holds="X",
)
_LOG1P = activation(
    "log1p",
    ("log1p(a)", lambda y, a: np.log1p(a, out=y)),
    ("a / (b + 1)", lambda dx, a, b: np.divide(a, b + 1, out=dx)),
    holds="X",
)
_RSQRT = activation(
    "rsqrt",
    ("1 / sqrt(a)", lambda y, a: np.divide(1, np.sqrt(a), out=y)),
    ("a * (b * b * b) / -2", lambda dx, a, b: np.multiply(a, b * b * b / -2, out=dx)),
    holds="Y",
)
_ERF = activation(
    "erf",
    ("erf(a)", _erf_cpu),
    (
        "a * Real(1.1283791670955126) * exp(-b * b)",
        lambda dx, a, b: np.multiply(a * b.dtype.type(_SLOPE), np.exp(-b * b), out=dx),
    ),
    holds="X",
)


IN_PLACE = (_EXP2, _EXPM1, _LOG2, _LOG10, _LOG1P, _RSQRT, _ERF)  # which are methods such as log2_


@check_arguments
def exp2(x: AnyTensor) -> Tensor:
    """2 to the power of x, elementwise   x (...) -> (...)"""
    return _EXP2(as_floating(x))


@check_arguments
def expm1(x: AnyTensor) -> Tensor:
    """exp(x) - 1, exact near 0, elementwise   x (...) -> (...)"""
    return _EXPM1(as_floating(x))


@check_arguments
def log2(x: AnyTensor) -> Tensor:
    """The logarithm to the base 2, elementwise   x (...) -> (...)"""
    return _LOG2(as_floating(x))


@check_arguments
def log10(x: AnyTensor) -> Tensor:
    """The logarithm to the base 10, elementwise   x (...) -> (...)"""
    return _LOG10(as_floating(x))


@check_arguments
def log1p(x: AnyTensor) -> Tensor:
    """log(1 + x), exact near 0, elementwise   x (...) -> (...)"""
    return _LOG1P(as_floating(x))


@check_arguments
def erf(x: AnyTensor) -> Tensor:
    """The error function, elementwise   x (...) -> (...)"""
    return _ERF(as_floating(x))


@check_arguments
def square(x: Tensor) -> Tensor:
    """x x, elementwise   x (...) -> (...)"""
    return x**2


@check_arguments
def reciprocal(x: AnyTensor) -> Tensor:
    """1 / x, elementwise   x (...) -> (...)"""
    return 1 / as_floating(x)


@check_arguments
def rsqrt(x: AnyTensor) -> Tensor:
    """1 / sqrt(x), elementwise   x (...) -> (...)"""
    return _RSQRT(as_floating(x))


@check_arguments
def positive(x: AnyTensor) -> Tensor:
    """x itself"""
    return x


def reciprocal_(x: Tensor) -> Tensor:
    """`reciprocal` written into x; a copy of x is kept if a gradient is needed."""
    require_floating("reciprocal_", x.dtype)
    return ReciprocalInPlace.apply(x, number=1.0)


class Exponential(Function):
    """Y = exp(X)   X (...) -> Y (...)"""

    def forward(self, X: Array) -> Array:
        Y = ew.exponential(X, out=place(self, X))
        self.save(Y)
        return Y

    def backward(self, dY: Array) -> Any:
        return ew.multiply(dY, self.saved[0])


class Logarithm(Function):
    """Y = log(X)   X (...) -> Y (...)"""

    def forward(self, X: Array) -> Array:
        self.save(kept(self, X))
        return ew.logarithm(X, out=place(self, X))

    def backward(self, dY: Array) -> Any:
        return ew.divide(dY, self.saved[0])


ExponentialInPlace = in_place(Exponential, "exp_")


LogarithmInPlace = in_place(Logarithm, "log_")


@check_arguments
def exp(x: Tensor) -> Tensor:
    """e to the power of x, elementwise"""
    require_floating("exp", x.dtype)
    return Exponential.apply(x)


@check_arguments
def log(x: Tensor) -> Tensor:
    """The natural logarithm, elementwise"""
    require_floating("log", x.dtype)
    return Logarithm.apply(x)


def exp_(x: Tensor) -> Tensor:
    """`exp` written into x."""
    require_floating("exp_", x.dtype)
    return ExponentialInPlace.apply(x)


def log_(x: Tensor) -> Tensor:
    """`log` written into x; a copy of x is kept if a gradient is needed."""
    require_floating("log_", x.dtype)
    return LogarithmInPlace.apply(x)
