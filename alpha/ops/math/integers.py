"""Arithmetic and bits of integers and bools, by PyTorch's rules for the dtypes of results; it has no gradient.

Sums and products wrap around. What a quotient by 0 and a power below 0 are is said where the sign is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import BFLOAT16, FLOAT32, is_floating
from alpha.core.primitive import Array, primitive
from alpha.core.tensor import Tensor
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.broadcasting import broadcast_operands
from alpha.ops.kernel.casts import BLOCK, CUDA_TYPES, DType
from alpha.ops.kernel.common_dtype import BOOL, promoted
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan
from alpha.ops.math.unary import abs
from alpha.runtime.cpu import empty as cpu_empty

__all__ = ["gcd", "lcm"]


def _truncated_cpu(A: Array, B: Array, out: Array) -> None:
    if is_floating(A.dtype):
        np.trunc(A / B, out=out)
        return
    np.floor_divide(A, B, out=out)
    out += (A % B != 0) & ((A < 0) != (B < 0))


def _power_cpu(A: Array, B: Array, out: Array) -> None:
    np.power(A, np.maximum(B, 0), out=out)
    if A.dtype.kind == "i":
        below = np.where(A == 1, 1, np.where(A == -1, np.where(B % 2 == 0, 1, -1), 0))
        np.copyto(out, below, where=B < 0, casting="same_kind")


SIGNS: dict[str, Callable[..., Any]] = {  # in the order that the kernel numbers them
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": _truncated_cpu,
    "//": np.floor_divide,
    "%": np.remainder,
    "**": _power_cpu,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "<<": np.left_shift,
    ">>": np.right_shift,
    "fmod": np.fmod,
    "gcd": np.gcd,
}
NOT_OF_BOOLS = ("-", "/", "//", "%", "**", "<<", ">>", "fmod", "gcd")


@primitive
def combine(A: Array, B: Array, sign: str) -> Array:
    """Y = A sign B   A (...), B of one dtype with A, of its shape or repeating along it -> Y (...)

    Of integers, a quotient or a remainder by 0 is 0; a power below 0 is 0, but 1 and -1 stay 1 and -1; a shift by all
    bits or more, or by less than 0, moves all bits out. Floating numbers have /, //, % and fmod only; / is the quotient
    without its decimals, and fmod the remainder beside it, which has the sign of A.
    """


@combine.impl("cpu")
@np.errstate(all="ignore")
def _(A: Array, B: Array, sign: str) -> Array:
    Y = cpu_empty(A.shape, A.dtype)
    if A.dtype == BFLOAT16:
        Y[...] = combine(A.astype(FLOAT32), B.astype(FLOAT32), sign)
    else:
        SIGNS[sign](A, B, out=Y)
    return Y


@combine.impl("cuda")
def _(A: Array, B: Array, sign: str) -> Array:
    if A.size == 0:
        return A.device.empty(A.shape, A.dtype)
    return _plan(A.shape, B.size, A.dtype, sign).launch(A.device, {"A": A, "B": B})["Y"]


@functools.lru_cache(maxsize=4096)
def _plan(shape: tuple[int, ...], period: int, dtype: DType, sign: str) -> Plan:
    result = Buffer(shape, dtype)
    launch = KernelLaunch(
        "elementwise/combine.cu",
        "combine",
        -(-result.size // BLOCK),
        BLOCK,
        (*map(ArrayArg, "YAB"), list(SIGNS).index(sign), np.int64(period), np.int64(result.size)),
        {"TYPE": CUDA_TYPES[dtype]},
    )
    return Plan("combine", (launch,), {"Y": result})


class Combine(Function):
    """Y = A sign B with broadcasting   A (...), B (...) -> the broadcast shape"""

    def forward(self, A: Array, B: Array, *, operator: str, sign: str) -> Array:
        return combine(*broadcast_operands(operator, A, B), sign)


def integral(x: Tensor, other: Any) -> bool:
    """True if both are integers or bools, so that what is computed of them is, too."""
    if is_floating(x.dtype):
        return False
    if isinstance(other, Tensor):
        return not is_floating(other.dtype)
    if isinstance(other, (np.ndarray, list)):
        return np.asarray(other).dtype.kind in "biu"
    return isinstance(other, (int, np.integer, np.bool_))


def combined(operator: str, sign: str, x: Tensor, other: Tensor) -> Tensor:
    """x sign other, for integers and bools, in their common dtype.

    Raises:
        TypeError: both are bools, for which the sign has no meaning.
    """
    left, right = promoted(x, other)
    if left.dtype == BOOL and sign in NOT_OF_BOOLS:
        raise TypeError(f"{operator}: there is no {sign} of dtype bool; use .astype('int32')")
    return Combine.apply(left, right, operator=operator, sign=sign)


def _divisor(operator: str, x: Tensor, other: Tensor) -> Tensor:
    if not integral(x, other):
        names = f"{x.dtype.name} and {other.dtype.name}"
        raise TypeError(f"{operator}: integers are needed, not dtypes {names}; use .astype('int64')")
    return combined(operator, "gcd", x, other)


@check_arguments
def gcd(x: AnyTensor, other: AnyTensor) -> Tensor:
    """The greatest common divisor of integers, at least 0, with broadcasting

    x (...), other (...) of integers -> the broadcast shape
    """
    return _divisor("gcd", x, other)


@check_arguments
def lcm(x: AnyTensor, other: AnyTensor) -> Tensor:
    """The least common multiple of integers, at least 0, with broadcasting; it wraps around

    x (...), other (...) of integers -> the broadcast shape
    """
    divisor = _divisor("lcm", x, other)
    return abs(combined("lcm", "*", combined("lcm", "//", x, divisor), other))
