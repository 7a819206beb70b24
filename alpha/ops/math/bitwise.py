"""Operators of bits, for integers and bools, and of truth, for every dtype; all of them broadcast."""

from __future__ import annotations

from typing import Any

from alpha.core.numerics import is_floating
from alpha.core.tensor import Tensor, full
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.common_dtype import BOOL
from alpha.ops.kernel.operands import OPERANDS, beside, no_operand
from alpha.ops.math.integers import combined, integral

__all__ = [
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
]


def _bits(operator: str, sign: str, x: Tensor, other: Any) -> Tensor:
    if not isinstance(other, OPERANDS):
        raise no_operand(operator, other)
    if not integral(x, other):
        kind = x.dtype.name if is_floating(x.dtype) else getattr(getattr(other, "dtype", None), "name", "float")
        raise TypeError(f"{operator}: integers or bools are needed, not dtype {kind}; use .astype('int64')")
    return combined(operator, sign, x, beside(operator, x, other))


@check_arguments
def bitwise_and(x: AnyTensor, other: Any) -> Tensor:
    """x & other   x (...), other (...) or a number, integers or bools -> the broadcast shape"""
    return _bits("bitwise_and", "&", x, other)


@check_arguments
def bitwise_or(x: AnyTensor, other: Any) -> Tensor:
    """x | other   x (...), other (...) or a number, integers or bools -> the broadcast shape"""
    return _bits("bitwise_or", "|", x, other)


@check_arguments
def bitwise_xor(x: AnyTensor, other: Any) -> Tensor:
    """x ^ other   x (...), other (...) or a number, integers or bools -> the broadcast shape"""
    return _bits("bitwise_xor", "^", x, other)


@check_arguments
def bitwise_not(x: AnyTensor) -> Tensor:
    """~x: every bit exchanged, or of bools the other one   x (...) -> (...)"""
    if is_floating(x.dtype):
        raise TypeError(f"bitwise_not: integers or bools are needed, not dtype {x.dtype.name}; use .astype('int64')")
    return _bits("bitwise_not", "^", x, x.dtype == BOOL or -1)


@check_arguments
def bitwise_left_shift(x: AnyTensor, other: Any) -> Tensor:
    """x << other   x (...), other (...) or a number, integers -> the broadcast shape

    A shift by all bits of the dtype or more, or by less than 0, gives 0.
    """
    return _bits("bitwise_left_shift", "<<", x, other)


@check_arguments
def bitwise_right_shift(x: AnyTensor, other: Any) -> Tensor:
    """x >> other, which keeps the sign   x (...), other (...) or a number, integers -> the broadcast shape

    A shift by all bits of the dtype or more, or by less than 0, gives 0, or -1 if x is negative.
    """
    return _bits("bitwise_right_shift", ">>", x, other)


def _truth(operator: str, sign: str, x: Tensor, other: Tensor) -> Tensor:
    return combined(operator, sign, x.astype(BOOL), other.astype(BOOL))


@check_arguments
def logical_and(x: AnyTensor, other: AnyTensor) -> Tensor:
    """True where both are not 0   x (...), other (...) -> the broadcast shape, bool"""
    return _truth("logical_and", "&", x, other)


@check_arguments
def logical_or(x: AnyTensor, other: AnyTensor) -> Tensor:
    """True where one of them is not 0   x (...), other (...) -> the broadcast shape, bool"""
    return _truth("logical_or", "|", x, other)


@check_arguments
def logical_xor(x: AnyTensor, other: AnyTensor) -> Tensor:
    """True where exactly one of them is not 0   x (...), other (...) -> the broadcast shape, bool"""
    return _truth("logical_xor", "^", x, other)


@check_arguments
def logical_not(x: AnyTensor) -> Tensor:
    """True where x is 0   x (...) -> (...), bool"""
    return combined("logical_not", "^", x.astype(BOOL), full((), True, BOOL, x.device))
