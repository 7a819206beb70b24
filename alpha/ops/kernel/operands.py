"""Operand beside a tensor in an operator of two: a number, an array or another tensor; and the way back to it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from alpha.core.numerics import FLOAT32, is_floating
from alpha.core.primitive import Array, device_of
from alpha.core.tensor import Tensor, full, tensor
from alpha.errors import type_name
from alpha.ops.kernel.casts import DType, as_dtype
from alpha.ops.kernel.common_dtype import FLOAT64, common_dtype
from alpha.ops.kernel.sums import sum_axes

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
    return device_of(first).empty(first.shape, dtype) if first.dtype == FLOAT32 != dtype else None


def no_operand(operator: str, value: Any) -> TypeError:
    """The error for a value that is not one of `OPERANDS`."""
    return TypeError(f"{operator}: {type_name(value)} is no operand; a Tensor, a number or a numpy array is needed")


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
