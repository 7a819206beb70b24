"""The exponential and the natural logarithm of a tensor."""

from __future__ import annotations

from typing import Any

from alpha.autograd.function import Function
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.kernel import elementwise as ew
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.kernel.dtypes import require_floating
from alpha.ops.kernel.elementwise import in_place, kept, place

__all__: list[str] = []  # not of alpha.nn.functional, but of alpha


class Exponential(Function):
    """Y = exp(X)   X (...) -> Y (...)"""

    def forward(self, X: Array) -> Array:
        Y = ew.exponential(X, out=place(self, X))
        self.save(Y)
        return Y

    def backward(self, dY: Array) -> Any:
        return ew.multiply(dY, self.saved[0])


class Logarithm(Function):
    """Y = log(X)   X (...) -> Y (...)"""

    def forward(self, X: Array) -> Array:
        self.save(kept(self, X))
        return ew.logarithm(X, out=place(self, X))

    def backward(self, dY: Array) -> Any:
        return ew.divide(dY, self.saved[0])


ExponentialInPlace = in_place(Exponential, "exp_")
LogarithmInPlace = in_place(Logarithm, "log_")


@check_arguments
def exp(x: Tensor) -> Tensor:
    """e to the power of x, elementwise"""
    require_floating("exp", x.dtype)
    return Exponential.apply(x)


@check_arguments
def log(x: Tensor) -> Tensor:
    """The natural logarithm, elementwise"""
    require_floating("log", x.dtype)
    return Logarithm.apply(x)


def exp_(x: Tensor) -> Tensor:
    """`exp` written into x."""
    require_floating("exp_", x.dtype)
    return ExponentialInPlace.apply(x)


def log_(x: Tensor) -> Tensor:
    """`log` written into x; a copy of x is kept if a gradient is needed."""
    require_floating("log_", x.dtype)
    return LogarithmInPlace.apply(x)
