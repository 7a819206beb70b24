"""Elements kept within bounds: clamp, and its parts.

This file also has: elements of one tensor that another one chooses or gives a sign: fmax, fmin, copysign, heaviside.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import BFLOAT16, FLOAT32, is_floating
from alpha.core.primitive import Array, Primitive
from alpha.core.tensor import Tensor
from alpha.ops.indexing.where import select, where
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.elementwise import elementwise, subtract
from alpha.ops.kernel.operands import (
    BOOL,
    NUMBERS,
    OfTwo,
    common_dtype,
    floating_pair,
    like,
    operand_of,
    promoted,
    sum_to,
)
from alpha.ops.kernel.views import broadcast_operands
from alpha.ops.math.comparison import compare, relate

__all__ = [
    "clamp",
    "clamp_max",
    "clamp_min",
    "copysign",
    "fmax",
    "fmin",
    "heaviside",
    "maximum",
    "minimum",
    "nan_to_num",
]


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
    dx[...] = np.where(b < c, 0, np.where(b == c, a / 2, a))


def _smaller_slope_cpu(dx: Array, a: Array, b: Array, c: Array) -> None:
    dx[...] = np.where(b > c, 0, np.where(b == c, a / 2, a))


# a is dY, b the operand, c the other one; equal ones share the gradient
larger_slope = elementwise("larger_slope", "b < c ? 0 : b == c ? a / 2 : a", _larger_slope_cpu, 3)


smaller_slope = elementwise("smaller_slope", "b > c ? 0 : b == c ? a / 2 : a", _smaller_slope_cpu, 3)


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
            for pair, operand, needed in zip(((A, B), (B, A)), self.operands, self.needs_input_grad, strict=True)
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


def _bounded_cpu(y: Array, a: Array, p: float, q: float) -> None:
    np.copyto(y, np.where(a < p, a.dtype.type(p), np.where(a > q, a.dtype.type(q), a)))


def _bounded_slope_cpu(dx: Array, a: Array, b: Array, p: float, q: float) -> None:
    np.copyto(dx, np.where((b >= p) & (b <= q), a, 0))


bounded = elementwise("bounded", "a < p ? p : a > q ? q : a", _bounded_cpu, 1)
bounded_slope = elementwise("bounded_slope", "b >= p && b <= q ? a : 0", _bounded_slope_cpu, 2)  # a is dY, b is X

# a is dY, b is X and c the bound; a bound that is NaN has no gradient, and neither has X beside it
within_slope = elementwise(
    "within_slope", "b >= c ? a : 0", lambda dx, a, b, c: np.copyto(dx, np.where(b >= c, a, 0)), 3
)
outside_slope = elementwise(
    "outside_slope", "b < c ? a : 0", lambda dx, a, b, c: np.copyto(dx, np.where(b < c, a, 0)), 3
)


class Clamp(Function):
    """Y = X within two numbers   X (...) -> Y (...)"""

    def forward(self, X: Array, *, low: float, high: float) -> Array:
        self.bounds = low, high
        self.save(X)
        return bounded(X, p=min(low, high), q=high)

    def backward(self, dY: Array) -> Any:
        low, high = self.bounds
        return bounded_slope(dY, self.saved[0], p=low, q=high)


class AtLeast(OfTwo):
    """Y = max(X, B), B a bound; the gradient of equal ones is that of X   X (...), B (...) -> the broadcast shape"""

    operator, primitive = "clamp", larger

    def slopes(self, dY: Array, X: Array, B: Array, Y: Array) -> Any:
        yield lambda: self.run(within_slope, dY, X, B)
        yield lambda: self.run(outside_slope, dY, X, B)


class AtMost(OfTwo):
    """Y = min(X, B), B a bound; the gradient of equal ones is that of X   X (...), B (...) -> the broadcast shape"""

    operator, primitive = "clamp", smaller

    def slopes(self, dY: Array, X: Array, B: Array, Y: Array) -> Any:
        yield lambda: self.run(within_slope, dY, B, X)
        yield lambda: self.run(outside_slope, dY, B, X)


@check_arguments
def clamp(x: AnyTensor, min: Any = None, max: Any = None) -> Tensor:
    """x within bounds: `min` where it is less, `max` where it is more   x (...) -> (...)

    The gradient is 0 where x is out of bounds. NaN stays NaN.

    Args:
        min, max: numbers, or tensors that broadcast with x; None: no bound.
    """
    return _clamp("clamp", x, min, max)


@check_arguments
def clamp_min(x: AnyTensor, min: Any) -> Tensor:
    """`clamp` with a lower bound, a number or a tensor."""
    return _clamp("clamp_min", x, min, None)


@check_arguments
def clamp_max(x: AnyTensor, max: Any) -> Tensor:
    """`clamp` with an upper bound, a number or a tensor."""
    return _clamp("clamp_max", x, None, max)


def _clamp(operator: str, x: Tensor, low: Any, high: Any) -> Tensor:
    bounds = [bound for bound in (low, high) if bound is not None]
    if not bounds:
        raise ValueError(f"{operator}: min or max is needed")
    if any(not isinstance(bound, (Tensor, *NUMBERS)) for bound in bounds):
        raise TypeError(f"{operator}: min={low!r} and max={high!r} must be numbers, Tensors or None")
    dtype = common_dtype(x, *bounds)
    x = x.astype(dtype)
    if not any(isinstance(bound, Tensor) for bound in bounds):
        least, most = (-math.inf, math.inf) if is_floating(x.dtype) else _range(x.dtype)
        return Clamp.apply(x, low=least if low is None else low, high=most if high is None else high)
    for kind, bound in ((AtLeast, low), (AtMost, high)):
        if bound is not None:
            x = kind.apply(x, like(x, bound).astype(dtype))
    return x


def _range(dtype: Any) -> tuple[int, int]:
    return (False, True) if dtype == BOOL else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
