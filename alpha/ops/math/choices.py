"""Elements of one tensor that another one chooses or gives a sign: fmax, fmin, copysign, heaviside."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import BFLOAT16, FLOAT32, is_floating
from alpha.core.primitive import Array, Primitive
from alpha.core.tensor import Tensor
from alpha.ops.indexing.where import select, where
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.elementwise import elementwise, subtract
from alpha.ops.kernel.operands import NUMBERS, OfTwo, floating_pair, operand_of, promoted, sum_to
from alpha.ops.kernel.views import broadcast_operands
from alpha.ops.math.compare import compare, relate

__all__ = ["copysign", "fmax", "fmin", "heaviside", "maximum", "minimum", "nan_to_num"]


def _further_cpu(y: Array, a: Array, b: Array, p: float) -> None:
    np.copyto(y, np.where(np.isnan(b) | (p * a >= p * b), a, b))


def _further_slope_cpu(dx: Array, a: Array, b: Array, c: Array, p: float) -> None:
    np.copyto(dx, np.where(np.isnan(c) | (p * b >= p * c), a, 0))


def _other_slope_cpu(dx: Array, a: Array, b: Array, c: Array, p: float) -> None:
    np.copyto(dx, np.where(np.isnan(c) | (p * b >= p * c), 0, a))


def _copysign_slope_cpu(dx: Array, a: Array, b: Array, c: Array) -> None:
    np.copyto(dx, np.where(b == 0, 0, a * (np.copysign(b, c) / b)))


# p is 1 for the larger one and -1 for the smaller one; b and c of the slopes are both operands, and a is dY
further = elementwise("further", "b != b || p * a >= p * b ? a : b", _further_cpu, 2)
further_slope = elementwise("further_slope", "c != c || p * b >= p * c ? a : 0", _further_slope_cpu, 3)
other_slope = elementwise("other_slope", "c != c || p * b >= p * c ? 0 : a", _other_slope_cpu, 3)
with_sign = elementwise("with_sign", "copysign(a, b)", lambda y, a, b: np.copysign(a, b, out=y), 2)
with_sign_slope = elementwise("with_sign_slope", "b == 0 ? 0 : a * (copysign(b, c) / b)", _copysign_slope_cpu, 3)


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


class CopySign(OfTwo):
    """Y = |A| with the sign of B   A (...), B (...) -> the broadcast shape"""

    operator, primitive = "copysign", with_sign

    def slopes(self, dY: Array, A: Array, B: Array, Y: Array) -> Any:
        yield lambda: self.run(with_sign_slope, dY, A, B)
        yield lambda: Tensor(dY).device.zeros(dY.shape, dY.dtype)


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


@check_arguments
def copysign(x: AnyTensor, other: Any) -> Tensor:
    """|x| with the sign of other, with broadcasting; of integers in float32

    x (...), other (...) or a number -> the broadcast shape
    """
    return CopySign.apply(*floating_pair("copysign", x, other))


@check_arguments
def heaviside(x: AnyTensor, values: AnyTensor) -> Tensor:
    """1 where x is positive, the element of `values` where x is 0, else 0; without a gradient

    x (...), values (...) of one dtype -> the broadcast shape
    """
    if x.dtype != values.dtype:
        raise TypeError(f"heaviside: x has dtype {x.dtype.name} and values {values.dtype.name}; use .astype")
    chosen: Tensor = where(relate(x, 0, "=="), values.detach(), relate(x, 0, ">").astype(x.dtype))
    return chosen


larger = elementwise("larger", "a != a || a > b ? a : b", lambda y, a, b: np.maximum(a, b, out=y), 2)


smaller = elementwise("smaller", "a != a || a < b ? a : b", lambda y, a, b: np.minimum(a, b, out=y), 2)


def _larger_slope_cpu(dx: Array, a: Array, b: Array, c: Array) -> None:
    dx[...] = np.where(b == c, a / 2, np.where(b < c, 0, a))


def _smaller_slope_cpu(dx: Array, a: Array, b: Array, c: Array) -> None:
    dx[...] = np.where(b == c, a / 2, np.where(b > c, 0, a))


# a is dY, b the operand, c the other one; equal ones share the gradient
larger_slope = elementwise("larger_slope", "b == c ? a / 2 : b < c ? 0 : a", _larger_slope_cpu, 3)


smaller_slope = elementwise("smaller_slope", "b == c ? a / 2 : b > c ? 0 : a", _smaller_slope_cpu, 3)


LARGEST = {BFLOAT16: (2 - 2.0**-7) * 2.0**127, **{t: float(np.finfo(t).max) for t in (FLOAT32, np.dtype(np.float64))}}


def _finite_cpu(y: Array, a: Array, p: float, q: float, r: float) -> None:
    number = a.dtype.type
    np.copyto(y, np.where(np.isfinite(a), a, np.where(a > 0, number(q), np.where(a < 0, number(r), number(p)))))


# a - a is NaN unless a is finite
made_finite = elementwise("made_finite", "a - a == 0 ? a : a > 0 ? q : a < 0 ? r : p", _finite_cpu, 1)


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
            for pair, operand, needed in zip(((A, B), (B, A)), self.operands, self.needs, strict=True)
        )


class Maximum(_Choice):
    """Y = max(A, B) with broadcasting   A (...), B (...) -> the broadcast shape"""

    operator, primitive, slope = "maximum", larger, larger_slope


class Minimum(_Choice):
    """Y = min(A, B) with broadcasting   A (...), B (...) -> the broadcast shape"""

    operator, primitive, slope = "minimum", smaller, smaller_slope


class NanToNum(Function):
    """Y = X with numbers in place of NaN and of infinities   X (...) -> Y (...)"""

    def forward(self, X: Array, *, p: float, q: float, r: float) -> Array:
        self.save(X)
        return made_finite(X, p=p, q=q, r=r)

    def backward(self, dY: Array) -> Any:
        (X,) = self.saved
        zero = Tensor(dY).device.zeros((), X.dtype)
        finite = compare(subtract(X, X), zero, "==")
        return select(finite, dY, zero, out=None)


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


@check_arguments
def nan_to_num(
    x: AnyTensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """x with numbers in place of NaN and of infinities, whose gradient is 0   x (...) -> (...)

    Args:
        nan: None is 0.
        posinf, neginf: by default the largest and the least number of the dtype.
    """
    if not is_floating(x.dtype):
        return x.clone()
    most = LARGEST[x.dtype]
    numbers = {"nan": (nan, 0.0), "posinf": (posinf, most), "neginf": (neginf, -most)}
    for name, (number, _) in numbers.items():
        if number is not None and (isinstance(number, bool) or not isinstance(number, NUMBERS)):
            raise TypeError(f"nan_to_num: {name}={number!r} is not a number")
    p, q, r = (usual if number is None else float(number) for number, usual in numbers.values())
    return NanToNum.apply(x, p=p, q=q, r=r)
