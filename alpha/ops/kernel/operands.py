"""Operand beside a tensor in an operator of two: a number, an array or another tensor; and the way back to it.

This file also has: the dtype in which tensors of several dtypes meet, by PyTorch's rules for the dtypes that Alpha has.

Floating dtypes come before integers, integers before bools, and tensors with axes before 0-d tensors and numbers of the
same kind. The wider one of two dtypes of a kind wins: float64 before float32 before bfloat16.

This file also has: functions of two floating operands with broadcasting, whose gradients read the operands and the
result.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import FLOAT32, is_floating
from alpha.core.primitive import Array, Primitive
from alpha.core.tensor import Tensor, full, tensor
from alpha.errors import type_name
from alpha.ops.kernel.broadcasting import broadcast_operands
from alpha.ops.kernel.casts import DType, as_dtype
from alpha.ops.kernel.sums import sum_axes

FLOAT64 = np.dtype(np.float64)
Operand = tuple[tuple[int, ...], DType]  # the shape and dtype that its gradient has
NUMBERS = (int, float, np.integer, np.floating, np.bool_, ml_dtypes.bfloat16)
OPERANDS = (Tensor, *NUMBERS, np.ndarray, list)


def operand_of(x: Array) -> Operand:
    return tuple(x.shape), x.dtype


def sum_to(dY: Array, operand: Operand) -> Array:
    """Sum a broadcast gradient back to the operand's shape, in its dtype."""
    shape, dtype = operand
    if tuple(dY.shape) == shape:
        return as_dtype(dY, dtype)
    lead = dY.ndim - len(shape)
    axes = tuple(range(lead)) + tuple(lead + i for i, n in enumerate(shape) if n == 1 and dY.shape[lead + i] != 1)
    return as_dtype(sum_axes(dY, axes) if axes else dY, dtype).reshape(shape)


def like(x: Tensor, value: Any) -> Tensor:
    """A number, list or numpy array as a tensor of the device and dtype of `x`; a Tensor as it is."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, NUMBERS):
        return full((), value, x.dtype, x.device)
    return tensor(np.asarray(value, x.dtype), device=x.device)


def without_axes(x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Both floating tensors in their common dtype, if one of them is float64: one without axes in that of the other.

    PyTorch's rule. float32 and bfloat16 meet in the operators themselves (`result_type`), which round once.
    """
    first, second = x.dtype, other.dtype
    if first is second or FLOAT64 not in (first, second):
        return x, other
    if bool(x.ndim) == bool(other.ndim):  # on cuda, which has no float64, the operator refuses them
        return (x.astype(FLOAT64), other.astype(FLOAT64)) if isinstance(x.array, np.ndarray) else (x, other)
    return (x, other.astype(first)) if x.ndim else (x.astype(second), other)


def room_in(dtype: DType, first: Array) -> Array | None:
    """Array for an elementwise result of that dtype, if the first operand is float32 and the result is not; else None.

    The first operand is then one number, repeated, beside bfloat16. A kernel would take it for an array of float32.
    """
    return Tensor(first).device.empty(first.shape, dtype) if first.dtype == FLOAT32 != dtype else None


def no_operand(operator: str, value: Any) -> TypeError:
    """The error for a value that is not one of `OPERANDS`."""
    return TypeError(f"{operator}: {type_name(value)} is no operand; a Tensor, a number or a numpy array is needed")


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


class OfTwo(Function):
    """A function of two operands   A (...), B (...) -> the broadcast shape"""

    operator: ClassVar[str]
    primitive: ClassVar[Primitive]
    numbers: ClassVar[dict[str, float]] = {}  # that the primitive and its slopes take

    def forward(self, A: Array, B: Array) -> Array:
        self.operands = operand_of(A), operand_of(B)
        Y = self.run(self.primitive, A, B)
        self.save(A, B, Y)
        return Y

    def backward(self, dY: Array) -> Any:
        slopes = zip(self.slopes(dY, *self.saved), self.operands, self.needs_input_grad, strict=True)
        return tuple(sum_to(slope(), operand) if needed else None for slope, operand, needed in slopes)

    def slopes(self, dY: Array, A: Array, B: Array, Y: Array) -> Any:
        """Functions that compute the gradient of A and that of B, both of the shape of dY."""
        raise NotImplementedError

    def run(self, primitive: Primitive, *operands: Array) -> Array:
        """A primitive of operands that are broadcast."""
        result: Array = primitive(*broadcast_operands(self.operator, *operands), **self.numbers)
        return result


def floating_pair(operator: str, x: Tensor, other: Any) -> list[Tensor]:
    """x and what stands beside it, a tensor, an array or a number, as floating tensors of one dtype."""
    if isinstance(other, NUMBERS) or (is_floating(x.dtype) and isinstance(other, (np.ndarray, list))):
        x = as_floating(x)
        other = like(x, other)
    pair = x, beside(operator, x, other)
    if not any(is_floating(operand.dtype) for operand in pair):
        return [as_floating(operand) for operand in pair]  # not of their common dtype, in which -1 may be 255
    return promoted(*pair)


def beside(operator: str, x: Tensor, other: Any) -> Tensor:
    """The other operand as a tensor; a number has the dtype in which it meets x."""
    if isinstance(other, Tensor):
        return other
    if isinstance(other, (np.ndarray, list)):
        return tensor(other, device=x.device)
    if not isinstance(other, NUMBERS):
        raise no_operand(operator, other)
    dtype = common_dtype(x, other)
    value = other if is_floating(dtype) else np.int64(other).astype(dtype)  # -1 is 255 as uint8
    return full((), value, dtype, x.device)


def floating_operands(operator: str, x: Tensor, other: Any) -> tuple[Tensor, float | Tensor]:
    """x and the second operand as floating numbers; `TypeError` for what is no operand."""
    if not is_floating(x.dtype):
        beside_x = beside(operator, x, other)
        dtype = common_dtype(x, beside_x)
        dtype = dtype if is_floating(dtype) else FLOAT32
        return x.astype(dtype), float(other) if isinstance(other, NUMBERS) else beside_x.astype(dtype)
    if isinstance(other, Tensor):
        return without_axes(x, other if is_floating(other.dtype) else other.astype(x.dtype))
    if isinstance(other, NUMBERS):
        return x, float(other)
    if isinstance(other, OPERANDS):
        return x, like(x, other)
    raise no_operand(operator, other)
