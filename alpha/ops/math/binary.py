"""Arithmetic of tensors: add, sub, mul, div; with numbers, with broadcasting, in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from alpha.autograd.function import Function
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array, Primitive, device_of, shares_memory
from alpha.core.tensor import Tensor, full
from alpha.errors import ShapeError
from alpha.ops.kernel import broadcasting
from alpha.ops.kernel import elementwise as ew
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.casts import require_floating, result_type
from alpha.ops.kernel.operands import NUMBERS, beside, floating_operands, operand_of, room_in, sum_to
from alpha.ops.kernel.rectifier import AddRectified, rectifier_of
from alpha.ops.math.division import floor_divide, truncated_quotient
from alpha.ops.math.integers import combined, integral
from alpha.ops.math.number_arithmetic import (
    AddNumberInPlace,
    Affine,
    DivideByNumber,
    DivideByNumberInPlace,
    DivideNumber,
    MultiplyNumberInPlace,
    NegateInPlace,
    SubtractNumberInPlace,
)
from alpha.ops.math.written_results import written

__all__ = ["add", "mul"]


class _Binary(Function):
    """Common part of the operators of two tensors: dtypes, broadcasting and the way back."""

    operator: ClassVar[str]
    primitive: ClassVar[Primitive]

    def forward(self, a: Array, b: Array) -> Array:
        for array in (a, b):
            require_floating(self.operator, array.dtype)
        dtype = result_type(self.operator, (a, b))
        self.operands = operand_of(a), operand_of(b)
        if self.inplace and b is not a and shares_memory(a, (b,)):
            b = device_of(b).copy(b)  # a part of a, which is written while b is read
        left, right = broadcasting.broadcast_operands(self.operator, a, b)
        if self.inplace and left is not a:
            raise ShapeError(f"{self.operator}: {tuple(b.shape)} does not fit into {tuple(a.shape)}")
        self.keep(a, b)
        return self.primitive(left, right, out=a if self.inplace else room_in(dtype, left))

    def keep(self, a: Array, b: Array) -> None:
        """Save what the gradient reads."""

    def binary(self, primitive: Primitive, a: Array, b: Array) -> Array:
        return primitive(*broadcasting.broadcast_operands(self.operator, a, b))


def _factors(step: Function, a: Array, b: Array) -> tuple[Array, Array]:
    """Operands that the gradient of a product or a quotient reads: a, which only the gradient of b does, and b.

    In place a is overwritten, so a copy is kept if that gradient is needed, or if b is a, of which a detached tensor
    has the same array; else what stands for a is never read.
    """
    is_read = step.needs_input_grad[1] or (b is a and step.needs_input_grad[0])
    held = (device_of(a).copy(a) if is_read else b) if step.inplace else a
    return held, held if b is a else b


class Add(_Binary):
    operator, primitive = "add", ew.add

    def backward(self, dY: Array) -> Any:
        a, b = self.operands
        return sum_to(dY, a) if self.needs_input_grad[0] else None, sum_to(dY, b) if self.needs_input_grad[1] else None


class AddInPlace(Add):
    operator, inplace, written_as = "add_", True, "x += y"


class Subtract(_Binary):
    operator, primitive = "sub", ew.subtract

    def backward(self, dY: Array) -> Any:
        a, b = self.operands
        return (
            sum_to(dY, a) if self.needs_input_grad[0] else None,
            ew.affine(sum_to(dY, b), p=-1.0) if self.needs_input_grad[1] else None,
        )


class SubtractInPlace(Subtract):
    operator, inplace, written_as = "sub_", True, "x -= y"


class Multiply(_Binary):
    operator, primitive = "mul", ew.multiply

    def keep(self, a: Array, b: Array) -> None:
        self.save(*_factors(self, a, b))

    def backward(self, dY: Array) -> Any:
        a, b = self.saved
        return (
            sum_to(self.binary(ew.multiply, dY, b), self.operands[0]) if self.needs_input_grad[0] else None,
            sum_to(self.binary(ew.multiply, dY, a), self.operands[1]) if self.needs_input_grad[1] else None,
        )


class MultiplyInPlace(Multiply):
    operator, inplace, written_as = "mul_", True, "x *= y"


class Divide(_Binary):
    operator, primitive = "div", ew.divide

    def keep(self, a: Array, b: Array) -> None:
        self.save(*_factors(self, a, b))

    def backward(self, dY: Array) -> Any:
        a, b = self.saved
        da = db = None
        if self.needs_input_grad[0]:
            da = sum_to(self.binary(ew.divide, dY, b), self.operands[0])
        if self.needs_input_grad[1]:  # d(a/b)/db = -(a/b)/b
            quotient = self.binary(ew.divide, self.binary(ew.divide, a, b), b)
            db = sum_to(self.binary(ew.multiply, ew.affine(dY, p=-1.0), quotient), self.operands[1])
        return da, db


class DivideInPlace(Divide):
    operator, inplace, written_as = "div_", True, "x /= y"


def _scaled(name: str, value: float | Tensor, alpha: float) -> float | Tensor:
    if not isinstance(alpha, NUMBERS):
        raise TypeError(f"{name}: alpha is a {type(alpha).__name__}, a number is needed")
    return value if alpha == 1 else value * float(alpha)


def _of_integers(operator: str, sign: str, x: Tensor, other: Any, alpha: float = 1) -> Tensor:
    """x sign alpha other, for integers and bools"""
    value = beside(operator, x, other)
    if alpha != 1:
        if not integral(x, alpha):
            raise TypeError(f"{operator}: alpha={alpha!r} must be an integer beside the dtype {x.dtype.name}")
        value = combined(operator, "*", value, beside(operator, value, alpha))
    return combined(operator, sign, x, value)


@check_arguments
def add(x: AnyTensor, other: Any, *, alpha: float = 1, activation: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """x + alpha other with broadcasting; integers give integers, which wrap around, and bools give bools

    x (...), other (...) or a number -> the broadcast shape

    Args:
        activation: is applied to the sum: a layer or a function of one tensor. For tensors of one shape and dtype, the
            kernel of the sum computes ReLU, ReLU6 and leaky ReLU of a positive slope itself.
    """
    if activation is not None:
        rectifier = rectifier_of(activation) if alpha == 1 and is_floating(x.dtype) else None
        if rectifier is not None and isinstance(other, Tensor) and (other.shape, other.dtype) == (x.shape, x.dtype):
            return AddRectified.apply(x, other, rectifier=rectifier)
        return activation(add(x, other, alpha=alpha))
    if integral(x, other):
        return _of_integers("add", "+", x, other, alpha)
    x, value = floating_operands("add", x, other)
    value = _scaled("add", value, alpha)
    if isinstance(value, Tensor):
        return Add.apply(x, value)
    return Affine.apply(x, alpha=1.0, beta=value)


def add_(x: Tensor, other: Any, *, alpha: float = 1) -> Tensor:
    """`add` written into x, whose shape must be the broadcast one."""
    if not is_floating(x.dtype):
        return written("add_", x, add(x, other, alpha=alpha))
    met, operand = floating_operands("add_", x, other)
    if met is not x:
        return written("add_", x, add(x, other, alpha=alpha))
    value = _scaled("add_", operand, alpha)
    if isinstance(value, Tensor):
        return AddInPlace.apply(x, value)
    return AddNumberInPlace.apply(x, alpha=1.0, beta=value)


def sub(x: Tensor, other: Any, *, alpha: float = 1) -> Tensor:
    """x - alpha other with broadcasting; integers give integers, which wrap around

    x (...), other (...) or a number -> the broadcast shape
    """
    if integral(x, other):
        return _of_integers("sub", "-", x, other, alpha)
    x, value = floating_operands("sub", x, other)
    value = _scaled("sub", value, alpha)
    if isinstance(value, Tensor):
        return Subtract.apply(x, value)
    return Affine.apply(x, alpha=1.0, beta=-value)


def sub_(x: Tensor, other: Any, *, alpha: float = 1) -> Tensor:
    """`sub` written into x, whose shape must be the broadcast one."""
    if not is_floating(x.dtype):
        return written("sub_", x, sub(x, other, alpha=alpha))
    met, operand = floating_operands("sub_", x, other)
    if met is not x:
        return written("sub_", x, sub(x, other, alpha=alpha))
    value = _scaled("sub_", operand, alpha)
    if isinstance(value, Tensor):
        return SubtractInPlace.apply(x, value)
    return SubtractNumberInPlace.apply(x, alpha=1.0, beta=-value)


@check_arguments
def mul(x: AnyTensor, other: Any) -> Tensor:
    """x other elementwise with broadcasting; integers give integers, which wrap around, and bools give bools

    x (...), other (...) or a number -> the broadcast shape
    """
    if integral(x, other):
        return _of_integers("mul", "*", x, other)
    x, value = floating_operands("mul", x, other)
    if isinstance(value, Tensor):
        return Multiply.apply(x, value)
    return Affine.apply(x, alpha=value, beta=0.0)


def mul_(x: Tensor, other: Any) -> Tensor:
    """`mul` written into x, whose shape must be the broadcast one; x is kept as a copy if `other` needs a gradient."""
    if not is_floating(x.dtype):
        return written("mul_", x, mul(x, other))
    met, value = floating_operands("mul_", x, other)
    if met is not x:
        return written("mul_", x, mul(x, other))
    if isinstance(value, Tensor):
        return MultiplyInPlace.apply(x, value)
    return MultiplyNumberInPlace.apply(x, alpha=value, beta=0.0)


def div(x: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """x / other elementwise with broadcasting; division by zero gives infinities and NaN, and integers give float32.

    x (...), other (...) or a number -> the broadcast shape

    Args:
        rounding_mode: "floor" or "trunc" rounds the quotient down or towards 0; integers then give integers.
    """
    if rounding_mode is not None:
        return _rounded_quotient(x, other, rounding_mode)
    x, value = floating_operands("div", x, other)
    if isinstance(value, Tensor):
        return Divide.apply(x, value)
    return DivideByNumber.apply(x, number=value)


def _rounded_quotient(x: Tensor, other: Any, rounding_mode: str) -> Tensor:
    if rounding_mode == "floor":
        return floor_divide(x, other)
    if rounding_mode != "trunc":
        raise ValueError(f"div: rounding_mode={rounding_mode!r} is neither None, 'floor' nor 'trunc'")
    return truncated_quotient(x, other)


def div_(x: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """`div` written into x, whose shape must be the broadcast one; x is kept as a copy if `other` needs a gradient."""
    if rounding_mode is not None or not is_floating(x.dtype):
        return written("div_", x, div(x, other, rounding_mode=rounding_mode))
    met, value = floating_operands("div_", x, other)
    if met is not x:
        return written("div_", x, div(x, other))
    if isinstance(value, Tensor):
        return DivideInPlace.apply(x, value)
    return DivideByNumberInPlace.apply(x, number=value)


def reversed_sub(x: Tensor, other: Any) -> Tensor:
    """other - x"""
    if integral(x, other):
        return combined("sub", "-", beside("sub", x, other), x)
    x, value = floating_operands("sub", x, other)
    return Subtract.apply(value, x) if isinstance(value, Tensor) else Affine.apply(x, alpha=-1.0, beta=value)


def reversed_div(x: Tensor, other: Any) -> Tensor:
    """other / x"""
    x, value = floating_operands("div", x, other)
    return Divide.apply(value, x) if isinstance(value, Tensor) else DivideNumber.apply(x, number=value)


def neg(x: Tensor) -> Tensor:
    """-x; integers wrap around   x (...) -> (...)"""
    if not is_floating(x.dtype):
        return combined("neg", "-", full((), 0, x.dtype, x.device), x)
    return Affine.apply(x, alpha=-1.0, beta=0.0)


def neg_(x: Tensor) -> Tensor:
    """-x written into x."""
    if not is_floating(x.dtype):
        return written("neg_", x, neg(x))
    return NegateInPlace.apply(x, alpha=-1.0, beta=0.0)
