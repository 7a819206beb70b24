"""Dtype in which tensors of several dtypes meet, by PyTorch's rules for the dtypes that Alpha has.

Floating dtypes come before integers, integers before bools, and tensors with axes before 0-d tensors and numbers of the
same kind. The wider one of two dtypes of a kind wins: float64 before float32 before bfloat16.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from alpha.core.numerics import FLOAT32, is_floating
from alpha.core.tensor import Tensor
from alpha.ops.kernel.casts import DType

FLOAT64 = np.dtype(np.float64)
BOOL, INT64 = np.dtype(np.bool_), np.dtype(np.int64)


def kind_of(dtype: DType) -> int:
    """0 for bools, 1 for integers, 2 for floating numbers."""
    return 2 if is_floating(dtype) else int(dtype != BOOL)


def as_floating(x: Tensor) -> Tensor:
    """x itself if it is floating, else in float32."""
    return x if is_floating(x.dtype) else x.astype(FLOAT32)


def promoted(*operands: Tensor) -> list[Tensor]:
    """The tensors in their common dtype; gradients flow back to floating ones."""
    dtype = common_dtype(*operands)
    return [x if x.dtype == dtype else x.astype(dtype) for x in operands]


def common_dtype(*operands: Any) -> DType:
    """The common dtype of tensors and Python numbers."""
    groups: list[list[DType]] = [[], [], []]  # of tensors with axes, of 0-d tensors, of numbers
    for operand in operands:
        if isinstance(operand, Tensor):
            groups[0 if operand.ndim else 1].append(operand.dtype)
        else:
            groups[2].append(_number_dtype(operand))
    result: DType | None = None
    for dtypes in groups:
        if dtypes:
            met = functools.reduce(_pair, dtypes)
            if result is None or kind_of(met) > kind_of(result):
                result = met
    assert result is not None, "no operands"
    return result


def _number_dtype(number: Any) -> DType:
    if isinstance(number, (bool, np.bool_)):
        return BOOL
    return INT64 if isinstance(number, (int, np.integer)) else FLOAT32


def _pair(a: DType, b: DType) -> DType:
    if a == b:
        return a
    if kind_of(a) != kind_of(b):
        return a if kind_of(a) > kind_of(b) else b
    if kind_of(a) == 2:
        return FLOAT64 if FLOAT64 in (a, b) else FLOAT32
    return np.promote_types(a, b)
