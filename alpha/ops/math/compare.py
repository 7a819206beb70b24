"""Comparisons of tensors, elementwise with broadcasting; they give bools and have no gradient."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array, primitive
from alpha.core.tensor import Tensor, full, tensor
from alpha.errors import ShapeError
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.dtypes import BLOCK, CUDA_TYPES, DType, as_dtype
from alpha.ops.kernel.operands import NUMBERS
from alpha.ops.kernel.options import real
from alpha.ops.kernel.plan import Buffer, KernelLaunch, Named, Plan
from alpha.ops.kernel.views import broadcast_operands
from alpha.runtime.cpu import empty as cpu_empty

RELATIONS = {  # in the order that the kernel numbers them
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
FLOAT64, INT64, BOOL = np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.bool_)


@primitive
def compare(A: Array, B: Array, relation: str) -> Array:
    """Y = A relation B as bools   A (...), B of one dtype with A, of its shape or repeating along it -> Y (...)"""


@compare.impl("cpu")
@np.errstate(all="ignore")
def _(A: Array, B: Array, relation: str) -> Array:
    Y = cpu_empty(A.shape, BOOL)
    RELATIONS[relation](A, B, out=Y)
    return Y


@compare.impl("cuda")
def _(A: Array, B: Array, relation: str) -> Array:
    if A.size == 0:
        return A.device.empty(A.shape, BOOL)
    return _plan(A.shape, B.size, A.dtype, relation).launch(A.device, {"A": A, "B": B})["Y"]


@functools.lru_cache(maxsize=4096)
def _plan(shape: tuple[int, ...], period: int, dtype: np.dtype[Any], relation: str) -> Plan:
    result = Buffer(shape, BOOL)
    launch = KernelLaunch(
        "elementwise/compare.cu",
        "compare",
        -(-result.size // BLOCK),
        BLOCK,
        (*map(Named, "YAB"), list(RELATIONS).index(relation), np.int64(period), np.int64(result.size)),
        {"TYPE": CUDA_TYPES[dtype]},
    )
    return Plan("compare", (launch,), {"Y": result})


class Compare(Function):
    """Y = A relation B   A (...), B (...) -> the broadcast shape, bool"""

    def forward(self, A: Array, B: Array, *, relation: str) -> Array:
        dtype = _common(A.dtype, B.dtype)
        return compare(*broadcast_operands("comparison", as_dtype(A, dtype), as_dtype(B, dtype)), relation)


def _common(a: DType, b: DType) -> DType:
    """A dtype in which values of both can be compared."""
    if a == b:
        return a
    return FLOAT64 if is_floating(a) or is_floating(b) else INT64


def relate(x: Tensor, other: Any, relation: str) -> Tensor:
    """x relation other   x (...), other a Tensor, a numpy array, a list or a number -> the broadcast shape, bool"""
    if isinstance(other, NUMBERS):
        other = full((), other, _number_dtype(x.dtype, other), x.device)
    elif not isinstance(other, Tensor):
        other = tensor(other, device=x.device)
    return Compare.apply(x, other, relation=relation)


@check_arguments
def isnan(x: AnyTensor) -> Tensor:
    """Whether an element is NaN, which no integer is   x (...) -> (...) of bools"""
    return Compare.apply(x, x, relation="!=")


@check_arguments
def allclose(x: AnyTensor, other: AnyTensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether |x - other| <= atol + rtol |other| for all elements, with broadcasting; waits for the device

    Args:
        equal_nan: whether NaN is equal to NaN.
    """
    if x.dtype != other.dtype:
        raise TypeError(f"allclose: x has dtype {x.dtype.name} and other {other.dtype.name}; use .astype")
    a, b = (v.numpy().astype(FLOAT64) if is_floating(v.dtype) else v.numpy() for v in (x, other))
    try:
        return np.allclose(a, b, real("allclose", "rtol", rtol), real("allclose", "atol", atol), bool(equal_nan))
    except ValueError:
        raise ShapeError(f"allclose: the shapes do not broadcast  (x {x.shape}, other {other.shape})") from None


def _number_dtype(dtype: DType, number: Any) -> DType:
    """The dtype of a tensor if that can hold the number, so that nothing is cast; else float64."""
    if is_floating(dtype):
        return dtype
    value = float(number)
    lowest, highest = (0, 1) if dtype == BOOL else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return dtype if value.is_integer() and lowest <= number <= highest else FLOAT64
