"""Special functions of two tensors: angles, hypotenuses, logarithms of sums and x log y; and logit of one."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.core.numerics import FLOAT32, is_floating
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.broadcasting import broadcast_operands
from alpha.ops.kernel.common_dtype import as_floating, common_dtype, promoted
from alpha.ops.kernel.elementwise import activation, affine, divide, elementwise, multiply
from alpha.ops.kernel.of_two import OfTwo, floating_pair
from alpha.ops.kernel.options import real

__all__ = ["atan2", "hypot", "logaddexp", "logaddexp2", "logit", "xlogy"]


def _logit_slope_cpu(dx: Array, a: Array, b: Array) -> None:
    np.copyto(dx, np.where((b < 0) | (b > 1), np.nan, a / (np.abs(b) * (1 - b))))


def _bounded_logit_cpu(y: Array, a: Array, p: float, q: float) -> None:
    number = a.dtype.type
    z = np.where(a < number(p), number(p), np.where(a > number(q), number(q), a))
    np.log(z / (1 - z), out=y)


def _bounded_logit_slope_cpu(dx: Array, a: Array, b: Array, p: float, q: float) -> None:
    number = a.dtype.type
    np.copyto(dx, np.where((b < number(p)) | (b > number(q)), 0, a / (np.abs(b) * (1 - b))))


def _angle_slope_cpu(dx: Array, a: Array, b: Array, c: Array) -> None:
    np.copyto(dx, np.where((b == 0) & (c == 0), 0, a * (c / (b * b + c * c))))


def _xlogy_cpu(y: Array, a: Array, b: Array) -> None:
    np.copyto(y, np.where(np.isnan(b), b, np.where(a == 0, 0, a * np.log(b))))


def _xlogy_slope_cpu(dx: Array, a: Array, b: Array, c: Array) -> None:
    slope = np.where(np.isnan(c), c, np.where(a == 0, 0, a * np.log(c)))
    np.copyto(dx, np.where((b == 0) & (c <= 0), 0, slope))


_LOGIT = activation(
    "logit",
    ("log(a / (1 - a))", lambda y, a: np.log(a / (1 - a), out=y)),
    # NaN outside of [0, 1], and at -0 as at 0
    ("b < 0 || b > 1 ? log(b * (1 - b)) : a / (fabs(b) * (1 - b))", _logit_slope_cpu),
    saves="input",
)
_WITHIN = "(a < p ? p : a > q ? q : a)"
_BOUNDED_LOGIT = activation(
    "bounded_logit",
    (f"log({_WITHIN} / (1 - {_WITHIN}))", _bounded_logit_cpu),
    ("b < p || b > q ? 0 : a / (fabs(b) * (1 - b))", _bounded_logit_slope_cpu),
    saves="input",
)

angle = elementwise("angle", "atan2(a, b)", lambda y, a, b: np.arctan2(a, b, out=y), 2)
hypotenuse = elementwise("hypotenuse", "hypot(a, b)", lambda y, a, b: np.hypot(a, b, out=y), 2)
# a is dY, b the operand, and c the other one
angle_slope = elementwise("angle_slope", "b == 0 && c == 0 ? 0 : a * (c / (b * b + c * c))", _angle_slope_cpu, 3)
# equal operands may be infinite, and their difference NaN
log_sum = elementwise(
    "log_sum",
    "a == b && a - a != 0 ? a : fmax(a, b) + log1p(exp(-fabs(a - b)))",
    lambda y, a, b: np.logaddexp(a, b, out=y),
    2,
)
log2_sum = elementwise(
    "log2_sum",
    "a == b && a - a != 0 ? a : fmax(a, b) + log1p(exp2(-fabs(a - b))) * Real(1.4426950408889634)",
    lambda y, a, b: np.logaddexp2(a, b, out=y),
    2,
)
# a is dY, b the operand, c the other one
log_sum_slope = elementwise(
    "log_sum_slope", "a / (1 + exp(c - b))", lambda dx, a, b, c: np.divide(a, 1 + np.exp(c - b), out=dx), 3
)
log2_sum_slope = elementwise(
    "log2_sum_slope", "a / (1 + exp2(c - b))", lambda dx, a, b, c: np.divide(a, 1 + np.exp2(c - b), out=dx), 3
)
x_log_y = elementwise("x_log_y", "b != b ? b : a == 0 ? 0 : a * log(b)", _xlogy_cpu, 2)
# a is dY, b is A and c is B
x_log_y_slope = elementwise(
    "x_log_y_slope", "b == 0 && c <= 0 ? 0 : c != c ? c : a == 0 ? 0 : a * log(c)", _xlogy_slope_cpu, 3
)
scaled_quotient = elementwise("scaled_quotient", "a * b / c", lambda dx, a, b, c: np.divide(a * b, c, out=dx), 3)


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


class LogAddExp(OfTwo):
    """Y = log(exp(A) + exp(B))   A (...), B (...) -> the broadcast shape"""

    operator, primitive, share = "logaddexp", log_sum, log_sum_slope

    def slopes(self, dY: Array, A: Array, B: Array, Y: Array) -> Any:
        for pair in ((A, B), (B, A)):
            yield lambda pair=pair: self.run(self.share, dY, *pair)


class LogAddExp2(LogAddExp):
    """Y = log2(2^A + 2^B)   A (...), B (...) -> the broadcast shape"""

    operator, primitive, share = "logaddexp2", log2_sum, log2_sum_slope


class XLogY(OfTwo):
    """Y = A log(B), which is 0 if A is 0   A (...), B (...) -> the broadcast shape"""

    operator, primitive = "xlogy", x_log_y

    def slopes(self, dY: Array, A: Array, B: Array, Y: Array) -> Any:
        yield lambda: self.run(x_log_y_slope, dY, A, B)
        yield lambda: self.run(scaled_quotient, dY, A, B)


@check_arguments
def logit(x: AnyTensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), the inverse of the sigmoid, elementwise   x (...) -> (...)

    Args:
        eps: clamps x to [eps, 1 - eps] first, outside of which the gradient is 0. With None, what is outside of [0, 1]
            gives NaN.
    """
    if eps is None:
        return _LOGIT(as_floating(x))
    bound = real("logit", "eps", eps)
    if not 0 <= bound <= 0.5:
        raise ValueError(f"logit: eps={bound} must be within 0 and 0.5")
    return _BOUNDED_LOGIT(as_floating(x), bound, q=1 - bound)


@check_arguments
def logaddexp(x: AnyTensor, other: AnyTensor) -> Tensor:
    """log(exp(x) + exp(other)) without overflow, with broadcasting   x (...), other (...) -> the broadcast shape"""
    return LogAddExp.apply(*floating_pair("logaddexp", x, other))


@check_arguments
def logaddexp2(x: AnyTensor, other: AnyTensor) -> Tensor:
    """log2(2^x + 2^other) without overflow, with broadcasting   x (...), other (...) -> the broadcast shape"""
    return LogAddExp2.apply(*floating_pair("logaddexp2", x, other))


@check_arguments
def xlogy(x: AnyTensor, other: Any) -> Tensor:
    """x log(other) with broadcasting, which is 0 where x is 0, and NaN where other is NaN

    x (...), other (...) or a number -> the broadcast shape
    """
    return XLogY.apply(*floating_pair("xlogy", x, other))


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
