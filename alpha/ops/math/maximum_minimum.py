"""The larger or the smaller of two elements: maximum and minimum, and fmax and fmin, which leave out NaN."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array, Primitive
from alpha.core.tensor import Tensor
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.broadcasting import broadcast_operands
from alpha.ops.kernel.common_dtype import promoted
from alpha.ops.kernel.elementwise import elementwise
from alpha.ops.kernel.of_two import OfTwo
from alpha.ops.kernel.operands import operand_of, sum_to

__all__ = ["fmax", "fmin", "maximum", "minimum"]


def _further_cpu(y: Array, a: Array, b: Array, p: float) -> None:
    np.copyto(y, np.where(np.isnan(b) | (p * a >= p * b), a, b))


def _further_slope_cpu(dx: Array, a: Array, b: Array, c: Array, p: float) -> None:
    np.copyto(dx, np.where(np.isnan(c) | (p * b >= p * c), a, 0))


def _other_slope_cpu(dx: Array, a: Array, b: Array, c: Array, p: float) -> None:
    np.copyto(dx, np.where(np.isnan(c) | (p * b >= p * c), 0, a))


# p is 1 for the larger one and -1 for the smaller one; b and c of the slopes are both operands, and a is dY
further = elementwise("further", "b != b || p * a >= p * b ? a : b", _further_cpu, 2)
further_slope = elementwise("further_slope", "c != c || p * b >= p * c ? a : 0", _further_slope_cpu, 3)
other_slope = elementwise("other_slope", "c != c || p * b >= p * c ? 0 : a", _other_slope_cpu, 3)


class FMax(OfTwo):
    """Y = max(A, B), which is no NaN if one of them is not   A (...), B (...) -> the broadcast shape

    The gradient of equal ones is that of A.
    """

    operator, primitive, numbers = "fmax", further, {"p": 1.0}

    def slopes(self, dY: Array, A: Array, B: Array, Y: Array) -> Any:
        for primitive in (further_slope, other_slope):
            yield lambda primitive=primitive: self.run(primitive, dY, A, B)


class FMin(FMax):
    """Y = min(A, B), which is no NaN if one of them is not   A (...), B (...) -> the broadcast shape"""

    operator, numbers = "fmin", {"p": -1.0}


@check_arguments
def fmax(x: AnyTensor, other: AnyTensor) -> Tensor:
    """The larger of two elements with broadcasting, or the one that is no NaN; the gradient of equal ones is x's.

    x (...), other (...) -> the broadcast shape
    """
    left, right = promoted(x, other)
    return FMax.apply(left, right) if is_floating(left.dtype) else maximum(left, right)


@check_arguments
def fmin(x: AnyTensor, other: AnyTensor) -> Tensor:
    """The smaller of two elements with broadcasting, or the one that is no NaN; the gradient of equal ones is x's.

    x (...), other (...) -> the broadcast shape
    """
    left, right = promoted(x, other)
    return FMin.apply(left, right) if is_floating(left.dtype) else minimum(left, right)


larger = elementwise("larger", "a != a || a > b ? a : b", lambda y, a, b: np.maximum(a, b, out=y), 2)
smaller = elementwise("smaller", "a != a || a < b ? a : b", lambda y, a, b: np.minimum(a, b, out=y), 2)


def _larger_slope_cpu(dx: Array, a: Array, b: Array, c: Array) -> None:
    dx[...] = np.where(b < c, 0, np.where(b == c, a / 2, a))


def _smaller_slope_cpu(dx: Array, a: Array, b: Array, c: Array) -> None:
    dx[...] = np.where(b > c, 0, np.where(b == c, a / 2, a))


# a is dY, b the operand, c the other one; equal ones share the gradient
larger_slope = elementwise("larger_slope", "b < c ? 0 : b == c ? a / 2 : a", _larger_slope_cpu, 3)
smaller_slope = elementwise("smaller_slope", "b > c ? 0 : b == c ? a / 2 : a", _smaller_slope_cpu, 3)


class _Choice(Function):
    """The larger or the smaller of two operands."""

    operator: ClassVar[str]
    primitive: ClassVar[Primitive]
    slope: ClassVar[Primitive]

    def forward(self, A: Array, B: Array) -> Array:
        self.operands = operand_of(A), operand_of(B)
        self.save(A, B)
        return self.primitive(*broadcast_operands(self.operator, A, B))

    def backward(self, dY: Array) -> Any:
        A, B = self.saved
        return tuple(
            sum_to(self.slope(*broadcast_operands(self.operator, dY, *pair)), operand) if needed else None
            for pair, operand, needed in zip(((A, B), (B, A)), self.operands, self.needs_input_grad, strict=True)
        )


class Maximum(_Choice):
    """Y = max(A, B) with broadcasting   A (...), B (...) -> the broadcast shape"""

    operator, primitive, slope = "maximum", larger, larger_slope


class Minimum(_Choice):
    """Y = min(A, B) with broadcasting   A (...), B (...) -> the broadcast shape"""

    operator, primitive, slope = "minimum", smaller, smaller_slope


@check_arguments
def maximum(x: AnyTensor, other: AnyTensor) -> Tensor:
    """The larger of two elements with broadcasting; NaN if one is NaN, and equal ones share the gradient.

    x (...), other (...) -> the broadcast shape
    """
    return Maximum.apply(*promoted(x, other))


@check_arguments
def minimum(x: AnyTensor, other: AnyTensor) -> Tensor:
    """The smaller of two elements with broadcasting; NaN if one is NaN, and equal ones share the gradient.

    x (...), other (...) -> the broadcast shape
    """
    return Minimum.apply(*promoted(x, other))
