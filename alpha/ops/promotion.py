"""The dtype in which tensors of several dtypes meet, by PyTorch's rules for the dtypes that Alpha has.

Floating dtypes come before integers, integers before bools, and tensors with axes before 0-d tensors and numbers of the
same kind. float64 meets no other floating dtype.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from alpha.numerics import BFLOAT16, FLOAT32, is_floating
from alpha.ops.dtypes import DType
from alpha.tensor import Tensor

BOOL, INT64 = np.dtype(np.bool_), np.dtype(np.int64)


def kind_of(dtype: DType) -> int:
    """0 for bools, 1 for integers, 2 for floating numbers."""
    return 2 if is_floating(dtype) else int(dtype != BOOL)


def as_floating(x: Tensor) -> Tensor:
    """x itself if it is floating, else in float32."""
    return x if is_floating(x.dtype) else x.astype(FLOAT32)


def promoted(operator: str, *operands: Tensor) -> list[Tensor]:
    """The tensors in their common dtype; gradients flow back to floating ones."""
    dtype = common_dtype(operator, *operands)
    return [x if x.dtype == dtype else x.astype(dtype) for x in operands]


def common_dtype(operator: str, *operands: Any) -> DType:
    """The common dtype of tensors and Python numbers.

    Raises:
        TypeError: float64 meets another floating dtype among tensors with axes.
    """
    groups: list[list[DType]] = [[], [], []]  # of tensors with axes, of 0-d tensors, of numbers
    for operand in operands:
        if isinstance(operand, Tensor):
            groups[0 if operand.ndim else 1].append(operand.dtype)
        else:
            groups[2].append(_number_dtype(operand))
    result: DType | None = None
    for dtypes in groups:
        if dtypes:
            met = functools.reduce(lambda a, b: _pair(operator, a, b), dtypes)
            if result is None or kind_of(met) > kind_of(result):
                result = met
    assert result is not None, "no operands"
    return result


def _number_dtype(number: Any) -> DType:
    if isinstance(number, (bool, np.bool_)):
        return BOOL
    return INT64 if isinstance(number, (int, np.integer)) else FLOAT32


def _pair(operator: str, a: DType, b: DType) -> DType:
    if a == b:
        return a
    if kind_of(a) != kind_of(b):
        return a if kind_of(a) > kind_of(b) else b
    if {a, b} == {FLOAT32, BFLOAT16}:
        return FLOAT32
    if kind_of(a) == 2:
        raise TypeError(f"{operator}: dtypes {a.name} and {b.name} differ; use .astype")
    return np.promote_types(a, b)
