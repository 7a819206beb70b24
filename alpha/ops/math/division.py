"""Division that is rounded: quotients and remainders of integers and of floating numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array, device_of
from alpha.core.tensor import Tensor
from alpha.ops.kernel import elementwise as ew
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.broadcasting import broadcast_operands
from alpha.ops.kernel.common_dtype import promoted
from alpha.ops.kernel.operands import NUMBERS, beside, like, operand_of, sum_to
from alpha.ops.math.integers import combine, combined, integral

__all__ = ["floor_divide", "fmod", "remainder"]


class Quotient(Function):
    """Y = floor(A / B), of the sign "/" trunc(A / B); the gradient is 0   A (...), B (...) -> the broadcast shape"""

    def forward(self, A: Array, B: Array, *, sign: str) -> Array:
        self.operands = operand_of(A), operand_of(B)
        return combine(*broadcast_operands("div" if sign == "/" else "floor_divide", A, B), sign)

    def backward(self, dY: Array) -> Any:
        device = device_of(dY)
        return tuple(
            device.zeros(*operand) if needed else None
            for operand, needed in zip(self.operands, self.needs_input_grad, strict=True)
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
        if self.needs_input_grad[1]:
            quotient = self.combined("/" if self.sign == "fmod" else "//")
            dB = sum_to(ew.multiply(ew.affine(quotient, p=-1.0, out=quotient), dY, out=quotient), b)
        return sum_to(dY, a) if self.needs_input_grad[0] else None, dB


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


def truncated_quotient(x: Tensor, other: Any) -> Tensor:
    """x / other without its decimals; integers give integers, and the gradient is 0"""
    return _divided("div", "/", x, other)


def reversed_floor_divide(x: Tensor, other: Any) -> Tensor:
    """other // x"""
    return floor_divide(beside("floor_divide", x, other), x)


def reversed_remainder(x: Tensor, other: Any) -> Tensor:
    """other % x"""
    return remainder(beside("remainder", x, other), x)
