"""Division that is rounded: quotients and remainders of integers and of floating numbers; divisors of integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.kernel import elementwise as ew
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.operands import NUMBERS, beside, like, operand_of, promoted, sum_to
from alpha.ops.kernel.views import broadcast_operands
from alpha.ops.math.integers import combine, combined, integral
from alpha.ops.math.rounding import abs

__all__ = ["floor_divide", "fmod", "gcd", "lcm", "remainder"]


class Quotient(Function):
    """Y = floor(A / B), of the sign "/" trunc(A / B); the gradient is 0   A (...), B (...) -> the broadcast shape"""

    def forward(self, A: Array, B: Array, *, sign: str) -> Array:
        self.operands = operand_of(A), operand_of(B)
        return combine(*broadcast_operands("div" if sign == "/" else "floor_divide", A, B), sign)

    def backward(self, dY: Array) -> Any:
        device = Tensor(dY).device
        return tuple(
            device.zeros(*operand) if needed else None
            for operand, needed in zip(self.operands, self.needs, strict=True)
        )


class Remainder(Function):
    """Y = A - B floor(A / B), of the sign "fmod" A - B trunc(A / B)   A (...), B (...) -> the broadcast shape"""

    def forward(self, A: Array, B: Array, *, sign: str) -> Array:
        self.operands, self.sign = (operand_of(A), operand_of(B)), sign
        self.save(A, B)
        return self.combined(sign)

    def combined(self, sign: str) -> Array:
        operator = "fmod" if self.sign == "fmod" else "remainder"
        return combine(*broadcast_operands(operator, *self.saved), sign)

    def backward(self, dY: Array) -> Any:
        a, b = self.operands
        dB = None
        if self.needs[1]:
            quotient = self.combined("/" if self.sign == "fmod" else "//")
            dB = sum_to(ew.multiply(ew.affine(quotient, p=-1.0, out=quotient), dY, out=quotient), b)
        return sum_to(dY, a) if self.needs[0] else None, dB


def _divided(operator: str, sign: str, x: Tensor, other: Any) -> Tensor:
    if integral(x, other):
        if isinstance(other, NUMBERS) and not other:
            raise ZeroDivisionError(f"{operator}: integers are divided by 0  (x {x.shape} {x.dtype.name})")
        return combined(operator, sign, x, beside(operator, x, other))
    if is_floating(x.dtype) and isinstance(other, (np.ndarray, list)):
        other = like(x, other)
    step = Remainder if sign in ("%", "fmod") else Quotient
    return step.apply(*promoted(x, beside(operator, x, other)), sign=sign)


@check_arguments
def floor_divide(x: AnyTensor, other: Any) -> Tensor:
    """floor(x / other) with broadcasting; integers give integers, and the gradient is 0

    x (...), other (...) or a number -> the broadcast shape

    Raises:
        ZeroDivisionError: x is of integers and other is the number 0. At zeros of a tensor the result is 0.
    """
    return _divided("floor_divide", "//", x, other)


@check_arguments
def remainder(x: AnyTensor, other: Any) -> Tensor:
    """x - other floor(x / other) with broadcasting, which has the sign of other; integers give integers

    x (...), other (...) or a number -> the broadcast shape

    Raises:
        ZeroDivisionError: x is of integers and other is the number 0. At zeros of a tensor the result is 0.
    """
    return _divided("remainder", "%", x, other)


@check_arguments
def fmod(x: AnyTensor, other: Any) -> Tensor:
    """x - other trunc(x / other) with broadcasting, which has the sign of x; integers give integers

    x (...), other (...) or a number -> the broadcast shape

    Raises:
        ZeroDivisionError: x is of integers and other is the number 0. At zeros of a tensor the result is 0.
    """
    return _divided("fmod", "fmod", x, other)


def _divisor(operator: str, x: Tensor, other: Tensor) -> Tensor:
    if not integral(x, other):
        names = f"{x.dtype.name} and {other.dtype.name}"
        raise TypeError(f"{operator}: integers are needed, not dtypes {names}; use .astype('int64')")
    return combined(operator, "gcd", x, other)


@check_arguments
def gcd(x: AnyTensor, other: AnyTensor) -> Tensor:
    """The greatest common divisor of integers, at least 0, with broadcasting

    x (...), other (...) of integers -> the broadcast shape
    """
    return _divisor("gcd", x, other)


@check_arguments
def lcm(x: AnyTensor, other: AnyTensor) -> Tensor:
    """The least common multiple of integers, at least 0, with broadcasting; it wraps around

    x (...), other (...) of integers -> the broadcast shape
    """
    divisor = _divisor("lcm", x, other)
    return abs(combined("lcm", "*", combined("lcm", "//", x, divisor), other))


def truncated_quotient(x: Tensor, other: Any) -> Tensor:
    """x / other without its decimals; integers give integers, and the gradient is 0"""
    return _divided("div", "/", x, other)


def reversed_floor_divide(x: Tensor, other: Any) -> Tensor:
    """other // x"""
    return floor_divide(beside("floor_divide", x, other), x)


def reversed_remainder(x: Tensor, other: Any) -> Tensor:
    """other % x"""
    return remainder(beside("remainder", x, other), x)
