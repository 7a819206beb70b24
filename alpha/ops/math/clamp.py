"""Elements kept within bounds: clamp, and its parts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.common_dtype import BOOL, common_dtype
from alpha.ops.kernel.elementwise import elementwise
from alpha.ops.kernel.of_two import OfTwo
from alpha.ops.kernel.operands import NUMBERS, like
from alpha.ops.math.maximum_minimum import larger, smaller

__all__ = ["clamp", "clamp_max", "clamp_min"]


def _bounded_cpu(y: Array, a: Array, p: float, q: float) -> None:
    np.copyto(y, np.where(a < p, a.dtype.type(p), np.where(a > q, a.dtype.type(q), a)))


def _bounded_slope_cpu(dx: Array, a: Array, b: Array, p: float, q: float) -> None:
    np.copyto(dx, np.where((b >= p) & (b <= q), a, 0))


bounded = elementwise("bounded", "a < p ? p : a > q ? q : a", _bounded_cpu, 1)
bounded_slope = elementwise("bounded_slope", "b >= p && b <= q ? a : 0", _bounded_slope_cpu, 2)  # a is dY, b is X

# a is dY, b is X and c the bound; a bound that is NaN has no gradient, and neither has X beside it
within_slope = elementwise(
    "within_slope", "b >= c ? a : 0", lambda dx, a, b, c: np.copyto(dx, np.where(b >= c, a, 0)), 3
)
outside_slope = elementwise(
    "outside_slope", "b < c ? a : 0", lambda dx, a, b, c: np.copyto(dx, np.where(b < c, a, 0)), 3
)


class Clamp(Function):
    """Y = X within two numbers   X (...) -> Y (...)"""

    def forward(self, X: Array, *, low: float, high: float) -> Array:
        self.bounds = low, high
        self.save(X)
        return bounded(X, p=min(low, high), q=high)

    def backward(self, dY: Array) -> Any:
        low, high = self.bounds
        return bounded_slope(dY, self.saved[0], p=low, q=high)


class AtLeast(OfTwo):
    """Y = max(X, B), B a bound; the gradient of equal ones is that of X   X (...), B (...) -> the broadcast shape"""

    operator, primitive = "clamp", larger

    def slopes(self, dY: Array, X: Array, B: Array, Y: Array) -> Any:
        yield lambda: self.run(within_slope, dY, X, B)
        yield lambda: self.run(outside_slope, dY, X, B)


class AtMost(OfTwo):
    """Y = min(X, B), B a bound; the gradient of equal ones is that of X   X (...), B (...) -> the broadcast shape"""

    operator, primitive = "clamp", smaller

    def slopes(self, dY: Array, X: Array, B: Array, Y: Array) -> Any:
        yield lambda: self.run(within_slope, dY, B, X)
        yield lambda: self.run(outside_slope, dY, B, X)


@check_arguments
def clamp(x: AnyTensor, min: Any = None, max: Any = None) -> Tensor:
    """x within bounds: `min` where it is less, `max` where it is more   x (...) -> (...)

    The gradient is 0 where x is out of bounds. NaN stays NaN.

    Args:
        min, max: numbers, or tensors that broadcast with x; None: no bound.
    """
    return _clamp("clamp", x, min, max)


@check_arguments
def clamp_min(x: AnyTensor, min: Any) -> Tensor:
    """`clamp` with a lower bound, a number or a tensor."""
    return _clamp("clamp_min", x, min, None)


@check_arguments
def clamp_max(x: AnyTensor, max: Any) -> Tensor:
    """`clamp` with an upper bound, a number or a tensor."""
    return _clamp("clamp_max", x, None, max)


def _clamp(operator: str, x: Tensor, low: Any, high: Any) -> Tensor:
    bounds = [bound for bound in (low, high) if bound is not None]
    if not bounds:
        raise ValueError(f"{operator}: min or max is needed")
    if any(not isinstance(bound, (Tensor, *NUMBERS)) for bound in bounds):
        raise TypeError(f"{operator}: min={low!r} and max={high!r} must be numbers, Tensors or None")
    dtype = common_dtype(x, *bounds)
    x = x.astype(dtype)
    if not any(isinstance(bound, Tensor) for bound in bounds):
        least, most = (-math.inf, math.inf) if is_floating(x.dtype) else _range(x.dtype)
        return Clamp.apply(x, low=least if low is None else low, high=most if high is None else high)
    for kind, bound in ((AtLeast, low), (AtMost, high)):
        if bound is not None:
            x = kind.apply(x, like(x, bound).astype(dtype))
    return x


def _range(dtype: Any) -> tuple[int, int]:
    return (False, True) if dtype == BOOL else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
