"""Elements of one tensor that another one chooses or gives a sign: fmax, fmin, copysign, heaviside."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.core.numerics import is_floating
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.array.where import maximum, minimum, where
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.elementwise import elementwise
from alpha.ops.kernel.of_two import OfTwo, floating_pair
from alpha.ops.kernel.promotion import promoted
from alpha.ops.math.compare import relate

__all__ = ["copysign", "fmax", "fmin", "heaviside"]


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
