"""Arithmetic of tensors: add, sub, mul, div; with numbers, with broadcasting, in place."""

from __future__ import annotations

from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from alpha.autograd import Function, shares_memory
from alpha.errors import ShapeError
from alpha.ops import broadcast
from alpha.ops import elementwise as ew
from alpha.ops.affine import Affine, AffineInPlace, DivideByNumber, DivideByNumberInPlace, DivideNumber
from alpha.ops.arguments import check_arguments
from alpha.ops.dtypes import DType, as_dtype, require_floating, result_type
from alpha.ops.reduce import sum_axes
from alpha.primitive import Array, Primitive
from alpha.tensor import Tensor, full, tensor

__all__ = ["add", "mul"]

Operand = tuple[tuple[int, ...], DType]  # the shape and dtype that its gradient has
NUMBERS = (int, float, np.integer, np.floating, np.bool_, ml_dtypes.bfloat16)
OPERANDS = (Tensor, *NUMBERS, np.ndarray, list)


def operand_of(x: Array) -> Operand:
    return tuple(x.shape), x.dtype


def sum_to(dY: Array, operand: Operand) -> Array:
    """Sum a broadcast gradient back to the operand's shape, in its dtype."""
    shape, dtype = operand
    if tuple(dY.shape) == shape:
        return as_dtype(dY, dtype)
    lead = dY.ndim - len(shape)
    axes = tuple(range(lead)) + tuple(lead + i for i, n in enumerate(shape) if n == 1 and dY.shape[lead + i] != 1)
    return as_dtype(sum_axes(dY, axes) if axes else dY, dtype).reshape(shape)


def like(x: Tensor, value: Any) -> Tensor:
    """A number, list or numpy array as a tensor of the device and dtype of `x`; a Tensor as it is."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, NUMBERS):
        return full((), value, x.dtype, x.device)
    return tensor(np.asarray(value, x.dtype), device=x.device)


class _Binary(Function):
    """Common part of the operators of two tensors: dtypes, broadcasting and the way back."""

    operator: ClassVar[str]
    primitive: ClassVar[Primitive]

    def forward(self, a: Array, b: Array) -> Array:
        for array in (a, b):
            require_floating(self.operator, array.dtype)
        result_type(self.operator, (a, b))
        self.operands = operand_of(a), operand_of(b)
        if self.inplace and b is not a and shares_memory(a, (b,)):
            b = Tensor(b).device.copy(b)  # a part of a, which is written while b is read
        left, right = broadcast.broadcast_operands(self.operator, a, b)
        if self.inplace and left is not a:
            raise ShapeError(f"{self.operator}: {tuple(b.shape)} does not fit into {tuple(a.shape)}")
        self.keep(a, b)
        return self.primitive(left, right, out=a if self.inplace else None)

    def keep(self, a: Array, b: Array) -> None:
        """Save what the gradient reads."""

    def binary(self, primitive: Primitive, a: Array, b: Array) -> Array:
        return primitive(*broadcast.broadcast_operands(self.operator, a, b))


class _Scaling(_Binary):
    """X *= b or X /= b with b a constant of the graph: the gradient needs no X."""

    inplace = True

    def keep(self, a: Array, b: Array) -> None:
        if self.needs[1]:
            raise TypeError(
                f"{self.operator}: the operand requires a gradient, which needs the values that are overwritten; "
                "use the operator without the trailing underscore"
            )
        self.save(b)

    def backward(self, dY: Array) -> Any:
        return as_dtype(self.binary(self.primitive, dY, self.saved[0]), dY.dtype), None


class Add(_Binary):
    operator, primitive = "add", ew.add

    def backward(self, dY: Array) -> Any:
        a, b = self.operands
        return sum_to(dY, a) if self.needs[0] else None, sum_to(dY, b) if self.needs[1] else None


class AddInPlace(Add):
    operator, inplace = "add_", True


class Subtract(_Binary):
    operator, primitive = "sub", ew.subtract

    def backward(self, dY: Array) -> Any:
        a, b = self.operands
        return (sum_to(dY, a) if self.needs[0] else None, ew.affine(sum_to(dY, b), p=-1.0) if self.needs[1] else None)


class SubtractInPlace(Subtract):
    operator, inplace = "sub_", True


class Multiply(_Binary):
    operator, primitive = "mul", ew.multiply

    def keep(self, a: Array, b: Array) -> None:
        self.save(a, b)

    def backward(self, dY: Array) -> Any:
        a, b = self.saved
        return (
            sum_to(self.binary(ew.multiply, dY, b), self.operands[0]) if self.needs[0] else None,
            sum_to(self.binary(ew.multiply, dY, a), self.operands[1]) if self.needs[1] else None,
        )


class MultiplyInPlace(_Scaling):
    operator, primitive = "mul_", ew.multiply


class Divide(_Binary):
    operator, primitive = "div", ew.divide

    def keep(self, a: Array, b: Array) -> None:
        self.save(a, b)

    def backward(self, dY: Array) -> Any:
        a, b = self.saved
        da = db = None
        if self.needs[0]:
            da = sum_to(self.binary(ew.divide, dY, b), self.operands[0])
        if self.needs[1]:  # d(a/b)/db = -(a/b)/b
            quotient = self.binary(ew.divide, self.binary(ew.divide, a, b), b)
            db = sum_to(self.binary(ew.multiply, ew.affine(dY, p=-1.0), quotient), self.operands[1])
        return da, db


class DivideInPlace(_Scaling):
    operator, primitive = "div_", ew.divide


def _operand(name: str, x: Tensor, other: Any) -> float | Tensor:
    """The second operand as a number or a tensor; `TypeError` for anything else."""
    require_floating(name, x.dtype)
    if isinstance(other, Tensor):
        return other
    if isinstance(other, NUMBERS):
        return float(other)
    if isinstance(other, OPERANDS):
        return like(x, other)
    raise TypeError(f"{name}: {type(other).__name__} is no operand; a Tensor, a number or a numpy array is needed")


def _scaled(name: str, value: float | Tensor, alpha: float) -> float | Tensor:
    if not isinstance(alpha, NUMBERS):
        raise TypeError(f"{name}: alpha is a {type(alpha).__name__}, a number is needed")
    return value if alpha == 1 else value * float(alpha)


@check_arguments
def add(x: Tensor, other: Any, *, alpha: float = 1) -> Tensor:
    """x + alpha other with broadcasting   x (...), other (...) or a number -> the broadcast shape"""
    value = _scaled("add", _operand("add", x, other), alpha)
    if isinstance(value, Tensor):
        return Add.apply(x, value)
    return Affine.apply(x, alpha=1.0, beta=value)


def add_(x: Tensor, other: Any, *, alpha: float = 1) -> Tensor:
    """`add` written into x, whose shape must be the broadcast one."""
    value = _scaled("add_", _operand("add_", x, other), alpha)
    if isinstance(value, Tensor):
        return AddInPlace.apply(x, value)
    return AffineInPlace.apply(x, alpha=1.0, beta=value)


def sub(x: Tensor, other: Any, *, alpha: float = 1) -> Tensor:
    """x - alpha other with broadcasting   x (...), other (...) or a number -> the broadcast shape"""
    value = _scaled("sub", _operand("sub", x, other), alpha)
    if isinstance(value, Tensor):
        return Subtract.apply(x, value)
    return Affine.apply(x, alpha=1.0, beta=-value)


def sub_(x: Tensor, other: Any, *, alpha: float = 1) -> Tensor:
    """`sub` written into x, whose shape must be the broadcast one."""
    value = _scaled("sub_", _operand("sub_", x, other), alpha)
    if isinstance(value, Tensor):
        return SubtractInPlace.apply(x, value)
    return AffineInPlace.apply(x, alpha=1.0, beta=-value)


@check_arguments
def mul(x: Tensor, other: Any) -> Tensor:
    """x other elementwise with broadcasting   x (...), other (...) or a number -> the broadcast shape"""
    value = _operand("mul", x, other)
    if isinstance(value, Tensor):
        return Multiply.apply(x, value)
    return Affine.apply(x, alpha=value, beta=0.0)


def mul_(x: Tensor, other: Any) -> Tensor:
    """`mul` written into x, whose shape must be the broadcast one; `other` may not require a gradient."""
    value = _operand("mul_", x, other)
    if isinstance(value, Tensor):
        return MultiplyInPlace.apply(x, value)
    return AffineInPlace.apply(x, alpha=value, beta=0.0)


def div(x: Tensor, other: Any) -> Tensor:
    """x / other elementwise with broadcasting; division by zero gives infinities and NaN.

    x (...), other (...) or a number -> the broadcast shape
    """
    value = _operand("div", x, other)
    if isinstance(value, Tensor):
        return Divide.apply(x, value)
    return DivideByNumber.apply(x, number=value)


def div_(x: Tensor, other: Any) -> Tensor:
    """`div` written into x, whose shape must be the broadcast one; `other` may not require a gradient."""
    value = _operand("div_", x, other)
    if isinstance(value, Tensor):
        return DivideInPlace.apply(x, value)
    return DivideByNumberInPlace.apply(x, number=value)


def reversed_sub(x: Tensor, other: Any) -> Tensor:
    """other - x"""
    value = _operand("sub", x, other)
    return Subtract.apply(value, x) if isinstance(value, Tensor) else Affine.apply(x, alpha=-1.0, beta=value)


def reversed_div(x: Tensor, other: Any) -> Tensor:
    """other / x"""
    value = _operand("div", x, other)
    return Divide.apply(value, x) if isinstance(value, Tensor) else DivideNumber.apply(x, number=value)


def neg(x: Tensor) -> Tensor:
    """-x"""
    require_floating("neg", x.dtype)
    return Affine.apply(x, alpha=-1.0, beta=0.0)
