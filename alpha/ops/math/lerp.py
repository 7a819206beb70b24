"""Sums of products in one pass: lerp, addcmul and addcdiv, also in place; and ldexp."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import FLOAT32, is_floating
from alpha.core.primitive import Array, Primitive, device_of, shares_memory
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError, type_name
from alpha.ops.kernel import elementwise as ew
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.broadcasting import broadcast_operands
from alpha.ops.kernel.casts import require_floating
from alpha.ops.kernel.common_dtype import BOOL, promoted
from alpha.ops.kernel.elementwise import elementwise
from alpha.ops.kernel.in_place import in_place, kept, place
from alpha.ops.kernel.operands import NUMBERS, operand_of, sum_to
from alpha.ops.kernel.options import real
from alpha.ops.math.binary import add, mul
from alpha.ops.math.integers import integral
from alpha.ops.math.unary import exp2
from alpha.ops.math.written_results import written

__all__ = ["addcdiv", "addcmul", "ldexp", "lerp"]


def _between_cpu(y: Array, a: Array, b: Array, p: float) -> None:
    p = a.dtype.type(p)
    np.copyto(y, a + p * (b - a) if abs(p) < 0.5 else b - (b - a) * (1 - p))


def _between_weighted_cpu(y: Array, a: Array, b: Array, c: Array) -> None:
    np.copyto(y, np.where(np.abs(c) < 0.5, a + c * (b - a), b - (b - a) * (1 - c)))


# exact at both ends
between = elementwise("between", "fabs(p) < Real(0.5) ? a + p * (b - a) : b - (b - a) * (1 - p)", _between_cpu, 2)
between_weighted = elementwise(
    "between_weighted", "fabs(c) < Real(0.5) ? a + c * (b - a) : b - (b - a) * (1 - c)", _between_weighted_cpu, 3
)
times_difference = elementwise("times_difference", "a * (b - c)", lambda dx, a, b, c: np.multiply(a, b - c, out=dx), 3)
add_product = elementwise("add_product", "a + p * b * c", lambda y, a, b, c, p: np.add(a, p * b * c, out=y), 3)
add_quotient = elementwise("add_quotient", "a + p * b / c", lambda y, a, b, c, p: np.add(a, p * b / c, out=y), 3)
scaled_product = elementwise("scaled_product", "p * a * b", lambda y, a, b, p: np.multiply(p * a, b, out=y), 2)
scaled_ratio = elementwise("scaled_ratio", "p * a / b", lambda y, a, b, p: np.divide(p * a, b, out=y), 2)
divisor_slope = elementwise(
    "divisor_slope", "-p * a * b / (c * c)", lambda dx, a, b, c, p: np.divide(-p * a * b, c * c, out=dx), 3
)


class _Broadcast(Function):
    """A function of several operands with broadcasting."""

    operator: str

    def run(self, primitive: Primitive, *arrays: Array, **numbers: float) -> Array:
        result: Array = primitive(*broadcast_operands(self.operator, *arrays), **numbers)
        return result

    def beside(self, X: Array, *others: Array) -> tuple[Array, ...]:
        """The other operands; copies of those that lie in X, if X is about to be overwritten while they are read."""
        return tuple([self._unwritten(X, y) for y in others]) if self.inplace else others

    def _unwritten(self, X: Array, y: Array) -> Array:
        if y is X:  # an element is read before it is written, but the gradient reads it later
            return kept(self, X)
        return device_of(y).copy(y) if shares_memory(X, (y,)) else y

    def result(self, primitive: Primitive, X: Array, *others: Array, **numbers: float) -> Array:
        """Result of `forward`: a new array, or X with other values."""
        whole, *rest = broadcast_operands(self.operator, X, *others)
        if self.inplace and whole is not X:
            raise ShapeError(f"{self.written_as}: the result {tuple(whole.shape)} does not fit into {tuple(X.shape)}")
        result: Array = primitive(whole, *rest, out=place(self, X), **numbers)
        return result


class Lerp(_Broadcast):
    """Y = A + w (B - A), w a number   A (...), B (...) -> the broadcast shape"""

    operator = "lerp"

    def forward(self, A: Array, B: Array, *, weight: float) -> Array:
        self.operands, self.weight = (operand_of(A), operand_of(B)), weight
        return self.result(between, A, *self.beside(A, B), p=weight)

    def backward(self, dY: Array) -> Any:
        shares = zip((1 - self.weight, self.weight), self.operands, self.needs_input_grad, strict=True)
        return tuple(ew.affine(sum_to(dY, operand), p=share) if needed else None for share, operand, needed in shares)


class LerpWeighted(_Broadcast):
    """Y = A + W (B - A)   A (...), B (...), W (...) -> the broadcast shape"""

    operator = "lerp"

    def forward(self, A: Array, B: Array, W: Array) -> Array:
        self.operands = operand_of(A), operand_of(B), operand_of(W)
        B, W = self.beside(A, B, W)
        self.save(kept(self, A), B, W)
        return self.result(between_weighted, A, B, W)

    def backward(self, dY: Array) -> Any:
        A, B, W = self.saved
        a, b, w = self.operands
        return (
            sum_to(self.run(ew.multiply, dY, ew.affine(W, p=-1.0, q=1.0)), a) if self.needs_input_grad[0] else None,
            sum_to(self.run(ew.multiply, dY, W), b) if self.needs_input_grad[1] else None,
            sum_to(self.run(times_difference, dY, B, A), w) if self.needs_input_grad[2] else None,
        )


class AddProduct(_Broadcast):
    """Y = X + v A B, v a number   X (...), A (...), B (...) -> the broadcast shape"""

    operator = "addcmul"

    def forward(self, X: Array, A: Array, B: Array, *, value: float) -> Array:
        self.operands, self.value = (operand_of(X), operand_of(A), operand_of(B)), value
        A, B = self.beside(X, A, B)
        self.save(A, B)
        return self.result(add_product, X, A, B, p=value)

    def backward(self, dY: Array) -> Any:
        A, B = self.saved
        x, a, b = self.operands
        return (
            sum_to(dY, x) if self.needs_input_grad[0] else None,
            sum_to(self.run(scaled_product, dY, B, p=self.value), a) if self.needs_input_grad[1] else None,
            sum_to(self.run(scaled_product, dY, A, p=self.value), b) if self.needs_input_grad[2] else None,
        )


class AddQuotient(_Broadcast):
    """Y = X + v A / B, v a number   X (...), A (...), B (...) -> the broadcast shape"""

    operator = "addcdiv"

    def forward(self, X: Array, A: Array, B: Array, *, value: float) -> Array:
        self.operands, self.value = (operand_of(X), operand_of(A), operand_of(B)), value
        A, B = self.beside(X, A, B)
        self.save(A, B)
        return self.result(add_quotient, X, A, B, p=value)

    def backward(self, dY: Array) -> Any:
        A, B = self.saved
        x, a, b = self.operands
        return (
            sum_to(dY, x) if self.needs_input_grad[0] else None,
            sum_to(self.run(scaled_ratio, dY, B, p=self.value), a) if self.needs_input_grad[1] else None,
            sum_to(self.run(divisor_slope, dY, A, B, p=self.value), b) if self.needs_input_grad[2] else None,
        )


LerpInPlace, LerpWeightedInPlace = in_place(Lerp, "lerp_"), in_place(LerpWeighted, "lerp_")
AddProductInPlace, AddQuotientInPlace = in_place(AddProduct, "addcmul_"), in_place(AddQuotient, "addcdiv_")


@check_arguments
def lerp(x: Tensor, end: Tensor, weight: Any) -> Tensor:
    """x + weight (end - x) with broadcasting: x if weight is 0, and end if it is 1, exactly

    x (...), end (...), weight (...) or a number -> the broadcast shape
    """
    if isinstance(weight, Tensor):
        return LerpWeighted.apply(*promoted(x, end, weight))
    if not isinstance(weight, NUMBERS):
        raise TypeError(f"lerp: weight={weight!r} is not a number or a Tensor")
    return Lerp.apply(*promoted(x, end), weight=float(weight))


@check_arguments
def addcmul(x: AnyTensor, tensor1: AnyTensor, tensor2: AnyTensor, *, value: float = 1) -> Tensor:
    """x + value tensor1 tensor2 with broadcasting; integers give integers, which wrap around

    x (...), tensor1 (...), tensor2 (...) -> the broadcast shape
    """
    by = real("addcmul", "value", value)
    x, tensor1, tensor2 = promoted(x, tensor1, tensor2)
    if is_floating(x.dtype):
        return AddProduct.apply(x, tensor1, tensor2, value=by)
    if x.dtype == BOOL:
        raise TypeError("addcmul: the tensors have dtype bool; use .astype('int32')")
    if not integral(x, value):
        raise TypeError(f"addcmul: value={value!r} must be an integer beside the dtype {x.dtype.name}")
    return add(x, mul(tensor1, tensor2), alpha=value)


@check_arguments
def addcdiv(x: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """x + value tensor1 / tensor2 with broadcasting

    x (...), tensor1 (...), tensor2 (...) -> the broadcast shape
    """
    by = real("addcdiv", "value", value)
    return AddQuotient.apply(*promoted(x, tensor1, tensor2), value=by)


def lerp_(x: Tensor, end: Tensor, weight: Any) -> Tensor:
    """`lerp` written into x, in the dtype of x."""
    if isinstance(weight, Tensor):
        return _written("lerp_", LerpWeightedInPlace, x, end, weight)
    if not isinstance(weight, NUMBERS):
        raise TypeError(f"lerp_: weight={weight!r} is not a number or a Tensor")
    return _written("lerp_", LerpInPlace, x, end, weight=float(weight))


def addcmul_(x: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """`addcmul` written into x, in the dtype of x."""
    if not is_floating(x.dtype):
        return written("addcmul_", x, addcmul(x, tensor1, tensor2, value=value))
    return _written("addcmul_", AddProductInPlace, x, tensor1, tensor2, value=real("addcmul_", "value", value))


def addcdiv_(x: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """`addcdiv` written into x, in the dtype of x."""
    return _written("addcdiv_", AddQuotientInPlace, x, tensor1, tensor2, value=real("addcdiv_", "value", value))


def _written(operator: str, step: type[Function], x: Tensor, *others: Tensor, **numbers: float) -> Tensor:
    """x, which an operator in place has written; the other operands are cast to its dtype."""
    require_floating(operator, x.dtype)
    for other in others:
        if not isinstance(other, Tensor):
            raise TypeError(f"{operator}: a {type_name(other)} is no operand; a Tensor is needed")
    return step.apply(x, *[other.astype(x.dtype) for other in others], **numbers)


@check_arguments
def ldexp(x: AnyTensor, other: AnyTensor) -> Tensor:
    """x times 2 to the power of other, with broadcasting; of integers in float32

    x (...), other (...) -> the broadcast shape
    """
    floating = x.dtype if is_floating(x.dtype) else FLOAT32
    return mul(x, exp2(other if is_floating(other.dtype) else other.astype(floating)))
