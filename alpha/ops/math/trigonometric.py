"""Trigonometric and hyperbolic functions, and angles; of integers in float32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.core.numerics import FLOAT32, is_floating
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.elementwise import activation, affine, divide, elementwise, multiply
from alpha.ops.kernel.operands import OfTwo, as_floating, common_dtype, promoted
from alpha.ops.kernel.options import real
from alpha.ops.kernel.views import broadcast_operands
from alpha.ops.math.rounding import abs

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "cot",
    "csc",
    "deg2rad",
    "half_sin",
    "hypot",
    "rad2deg",
    "sec",
    "sin",
    "sinh",
    "tan",
]

_SIN = activation(
    "sin",
    ("sin(a)", lambda y, a: np.sin(a, out=y)),
    ("a * cos(b)", lambda dx, a, b: np.multiply(a, np.cos(b), out=dx)),
    holds="X",
)
_COS = activation(
    "cos",
    ("cos(a)", lambda y, a: np.cos(a, out=y)),
    ("a * -sin(b)", lambda dx, a, b: np.multiply(a, -np.sin(b), out=dx)),
    holds="X",
)
_TAN = activation(
    "tan",
    ("tan(a)", lambda y, a: np.tan(a, out=y)),
    ("a * (1 + b * b)", lambda dx, a, b: np.multiply(a, 1 + b * b, out=dx)),
    holds="Y",
)
_ASIN = activation(
    "asin",
    ("asin(a)", lambda y, a: np.arcsin(a, out=y)),
    ("a / sqrt(1 - b * b)", lambda dx, a, b: np.divide(a, np.sqrt(1 - b * b), out=dx)),
    holds="X",
)
_ACOS = activation(
    "acos",
    ("acos(a)", lambda y, a: np.arccos(a, out=y)),
    ("-a / sqrt(1 - b * b)", lambda dx, a, b: np.divide(-a, np.sqrt(1 - b * b), out=dx)),
    holds="X",
)
_ATAN = activation(
    "atan",
    ("atan(a)", lambda y, a: np.arctan(a, out=y)),
    ("a / (1 + b * b)", lambda dx, a, b: np.divide(a, 1 + b * b, out=dx)),
    holds="X",
)
_SINH = activation(
    "sinh",
    ("sinh(a)", lambda y, a: np.sinh(a, out=y)),
    ("a * cosh(b)", lambda dx, a, b: np.multiply(a, np.cosh(b), out=dx)),
    holds="X",
)
_COSH = activation(
    "cosh",
    ("cosh(a)", lambda y, a: np.cosh(a, out=y)),
    ("a * sinh(b)", lambda dx, a, b: np.multiply(a, np.sinh(b), out=dx)),
    holds="X",
)
_ASINH = activation(
    "asinh",
    ("asinh(a)", lambda y, a: np.arcsinh(a, out=y)),
    ("a / sqrt(b * b + 1)", lambda dx, a, b: np.divide(a, np.sqrt(b * b + 1), out=dx)),
    holds="X",
)
_ACOSH = activation(
    "acosh",
    ("acosh(a)", lambda y, a: np.arccosh(a, out=y)),
    ("a / sqrt(b * b - 1)", lambda dx, a, b: np.divide(a, np.sqrt(b * b - 1), out=dx)),
    holds="X",
)
_ATANH = activation(
    "atanh",
    ("atanh(a)", lambda y, a: np.arctanh(a, out=y)),
    ("a / (1 - b * b)", lambda dx, a, b: np.divide(a, 1 - b * b, out=dx)),
    holds="X",
)

# which are methods such as sin_
IN_PLACE = (_SIN, _COS, _TAN, _ASIN, _ACOS, _ATAN, _SINH, _COSH, _ASINH, _ACOSH, _ATANH)

angle = elementwise("angle", "atan2(a, b)", lambda y, a, b: np.arctan2(a, b, out=y), 2)
hypotenuse = elementwise("hypotenuse", "hypot(a, b)", lambda y, a, b: np.hypot(a, b, out=y), 2)


def _angle_slope_cpu(dx: Array, a: Array, b: Array, c: Array) -> None:
    np.copyto(dx, np.where((b == 0) & (c == 0), 0, a * (c / (b * b + c * c))))


# a is dY, b the operand, and c the other one
angle_slope = elementwise("angle_slope", "b == 0 && c == 0 ? 0 : a * (c / (b * b + c * c))", _angle_slope_cpu, 3)


class Atan2(OfTwo):
    """Y = the angle of the point (B, A)   A (...), B (...) -> the broadcast shape"""

    operator, primitive = "atan2", angle

    def slopes(self, dY: Array, A: Array, B: Array, Y: Array) -> Any:
        yield lambda: angle_slope(*broadcast_operands("atan2", dY, A, B))
        yield lambda: affine(angle_slope(*broadcast_operands("atan2", dY, B, A)), p=-1.0)


class Hypot(OfTwo):
    """Y = sqrt(A A + B B)   A (...), B (...) -> the broadcast shape"""

    operator, primitive = "hypot", hypotenuse

    def slopes(self, dY: Array, A: Array, B: Array, Y: Array) -> Any:
        for operand in (A, B):
            yield lambda leg=operand: multiply(dY, divide(*broadcast_operands("hypot", leg, Y)))


@check_arguments
def sin(x: AnyTensor) -> Tensor:
    """The sine, elementwise   x (...) -> (...)"""
    return _SIN(as_floating(x))


@check_arguments
def cos(x: AnyTensor) -> Tensor:
    """The cosine, elementwise   x (...) -> (...)"""
    return _COS(as_floating(x))


@check_arguments
def tan(x: AnyTensor) -> Tensor:
    """The tangent, elementwise   x (...) -> (...)"""
    return _TAN(as_floating(x))


@check_arguments
def asin(x: AnyTensor) -> Tensor:
    """The angle whose sine is x, in [-pi/2, pi/2], elementwise   x (...) -> (...)"""
    return _ASIN(as_floating(x))


@check_arguments
def acos(x: AnyTensor) -> Tensor:
    """The angle whose cosine is x, in [0, pi], elementwise   x (...) -> (...)"""
    return _ACOS(as_floating(x))


@check_arguments
def atan(x: AnyTensor) -> Tensor:
    """The angle whose tangent is x, in [-pi/2, pi/2], elementwise   x (...) -> (...)"""
    return _ATAN(as_floating(x))


@check_arguments
def sinh(x: AnyTensor) -> Tensor:
    """The hyperbolic sine, elementwise   x (...) -> (...)"""
    return _SINH(as_floating(x))


@check_arguments
def cosh(x: AnyTensor) -> Tensor:
    """The hyperbolic cosine, elementwise   x (...) -> (...)"""
    return _COSH(as_floating(x))


@check_arguments
def asinh(x: AnyTensor) -> Tensor:
    """The inverse of the hyperbolic sine, elementwise   x (...) -> (...)"""
    return _ASINH(as_floating(x))


@check_arguments
def acosh(x: AnyTensor) -> Tensor:
    """The inverse of the hyperbolic cosine, elementwise   x (...) -> (...)"""
    return _ACOSH(as_floating(x))


@check_arguments
def atanh(x: AnyTensor) -> Tensor:
    """The inverse of the hyperbolic tangent, elementwise   x (...) -> (...)"""
    return _ATANH(as_floating(x))


@check_arguments
def sec(x: AnyTensor) -> Tensor:
    """1 / cos(x), elementwise   x (...) -> (...)"""
    return 1 / cos(x)


@check_arguments
def csc(x: AnyTensor) -> Tensor:
    """1 / sin(x), elementwise   x (...) -> (...)"""
    return 1 / sin(x)


@check_arguments
def cot(x: AnyTensor) -> Tensor:
    """1 / tan(x), elementwise   x (...) -> (...)"""
    return 1 / tan(x)


@check_arguments
def half_sin(x: AnyTensor, amplitude: float = 1.0) -> Tensor:
    """2 amplitude |sin(x)| - amplitude, elementwise   x (...) -> (...)"""
    height = real("half_sin", "amplitude", amplitude)
    return abs(sin(x)) * (2 * height) - height


@check_arguments
def deg2rad(x: AnyTensor) -> Tensor:
    """An angle in degrees as one in radians, elementwise   x (...) -> (...)"""
    return as_floating(x) * (math.pi / 180)


@check_arguments
def rad2deg(x: AnyTensor) -> Tensor:
    """An angle in radians as one in degrees, elementwise   x (...) -> (...)"""
    return as_floating(x) * (180 / math.pi)


@check_arguments
def atan2(x: AnyTensor, other: AnyTensor) -> Tensor:
    """The angle of the point (other, x), in [-pi, pi], with broadcasting; the gradient at (0, 0) is 0

    x (...), other (...) -> the broadcast shape
    """
    dtype = common_dtype(x, other)
    dtype = dtype if is_floating(dtype) else FLOAT32
    return Atan2.apply(x.astype(dtype), other.astype(dtype))


@check_arguments
def hypot(x: Tensor, other: Tensor) -> Tensor:
    """sqrt(x x + other other) without overflow, with broadcasting   x (...), other (...) -> the broadcast shape"""
    return Hypot.apply(*promoted(x, other))
