"""Python's operator signs as functions under PyTorch's names: binary, powers and comparisons."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from alpha.core.numerics import is_floating
from alpha.core.tensor import Tensor
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.operands import NUMBERS, OPERANDS, beside, like, no_operand
from alpha.ops.math import binary, power
from alpha.ops.math.comparison import relate

__all__ = ["div", "eq", "float_power", "ge", "gt", "le", "lt", "ne", "neg", "pow", "rsub", "sub", "true_divide"]


P = ParamSpec("P")

FLOAT64 = np.dtype(np.float64)


@check_arguments
def neg(x: AnyTensor) -> Tensor:
    """-x; integers wrap around   x (...) -> (...)"""
    return binary.neg(x)


@check_arguments
def sub(x: AnyTensor, other: Any, *, alpha: float = 1) -> Tensor:
    """x - alpha other with broadcasting; integers give integers, which wrap around

    x (...), other (...) or a number -> the broadcast shape
    """
    return binary.sub(x, other, alpha=alpha)


@check_arguments
def rsub(x: AnyTensor, other: Any, *, alpha: float = 1) -> Tensor:
    """other - alpha x with broadcasting; integers give integers, which wrap around

    x (...), other (...) or a number -> the broadcast shape
    """
    if isinstance(alpha, NUMBERS) and alpha == 1:
        return binary.reversed_sub(x, other)
    return binary.sub(beside("rsub", x, _like_floats(x, other)), x, alpha=alpha)


@check_arguments
def div(x: AnyTensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """x / other with broadcasting; division by zero gives infinities and NaN, and integers give float32

    x (...), other (...) or a number -> the broadcast shape

    Args:
        rounding_mode: "floor" or "trunc" rounds the quotient down or towards 0; integers then give integers.
    """
    return binary.div(x, other, rounding_mode=rounding_mode)


@check_arguments
def true_divide(x: AnyTensor, other: Any) -> Tensor:
    """`div` without rounding."""
    return binary.div(x, other)


def _or_a_number(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """The power, whose base may be a number if the exponent is a tensor."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        if len(args) == 2 and isinstance(args[0], NUMBERS) and isinstance(args[1], Tensor):
            return power.reversed_pow(args[1], args[0])
        return function(*args, **kwargs)

    return call


@_or_a_number
@check_arguments
def pow(x: AnyTensor, exponent: Any) -> Tensor:
    """x to the power of a number or a tensor with broadcasting; integers give integers, which wrap around

    x (...) or a number, exponent (...) or a number; one of them is a tensor -> the broadcast shape

    Raises:
        ValueError: x is of integers, and the exponent is an integer below 0.
    """
    return power.pow(x, exponent)


@check_arguments
def float_power(x: AnyTensor, exponent: Any) -> Tensor:
    """x to the power of a number or a tensor with broadcasting, computed in float64

    x (...), exponent (...) or a number -> the broadcast shape, float64
    """
    wide = x.astype(FLOAT64)
    return power.pow(wide, exponent.astype(FLOAT64) if isinstance(exponent, Tensor) else exponent)


def _like_floats(x: Tensor, other: Any) -> Any:
    """An array or a list in the dtype of x if that is floating, as the signs take it; anything else as it is."""
    return like(x, other) if is_floating(x.dtype) and isinstance(other, (np.ndarray, list)) else other


def _related(operator: str, sign: str, x: Tensor, other: Any) -> Tensor:
    if not isinstance(other, OPERANDS):
        raise no_operand(operator, other)
    return relate(x, other, sign)


@check_arguments
def eq(x: AnyTensor, other: Any) -> Tensor:
    """x == other   x (...), other (...) or a number -> the broadcast shape, bool"""
    return _related("eq", "==", x, other)


@check_arguments
def ne(x: AnyTensor, other: Any) -> Tensor:
    """x != other   x (...), other (...) or a number -> the broadcast shape, bool"""
    return _related("ne", "!=", x, other)


@check_arguments
def lt(x: AnyTensor, other: Any) -> Tensor:
    """x < other   x (...), other (...) or a number -> the broadcast shape, bool"""
    return _related("lt", "<", x, other)


@check_arguments
def le(x: AnyTensor, other: Any) -> Tensor:
    """x <= other   x (...), other (...) or a number -> the broadcast shape, bool"""
    return _related("le", "<=", x, other)


@check_arguments
def gt(x: AnyTensor, other: Any) -> Tensor:
    """x > other   x (...), other (...) or a number -> the broadcast shape, bool"""
    return _related("gt", ">", x, other)


@check_arguments
def ge(x: AnyTensor, other: Any) -> Tensor:
    """x >= other   x (...), other (...) or a number -> the broadcast shape, bool"""
    return _related("ge", ">=", x, other)
