"""Arithmetic of a tensor and a number, which is an option of the operators and has no gradient."""

from __future__ import annotations

from typing import Any

from alpha.autograd.function import Function
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.kernel import elementwise as ew
from alpha.ops.kernel.casts import require_floating
from alpha.ops.kernel.in_place import kept, place


class Affine(Function):
    """Y = alpha X + beta, the numbers fixed   X (...) -> Y (...)"""

    def forward(self, X: Array, *, alpha: float, beta: float) -> Array:
        self.alpha = alpha
        return ew.affine(X, p=alpha, q=beta, out=X if self.inplace else None)

    def backward(self, dY: Array) -> Any:
        return dY if self.alpha == 1 else ew.affine(dY, p=self.alpha)


class AddNumberInPlace(Affine):
    inplace, written_as = True, "x += number"


class SubtractNumberInPlace(Affine):
    inplace, written_as = True, "x -= number"


class MultiplyNumberInPlace(Affine):
    inplace, written_as = True, "x *= number"


class NegateInPlace(Affine):
    inplace, written_as = True, "neg_"


class DivideByNumber(Function):
    """Y = X / number   X (...) -> Y (...)"""

    def forward(self, X: Array, *, number: float) -> Array:
        self.number = number
        return ew.divide_by_number(X, p=number, out=X if self.inplace else None)

    def backward(self, dY: Array) -> Any:
        return ew.divide_by_number(dY, p=self.number)


class DivideByNumberInPlace(DivideByNumber):
    inplace, written_as = True, "x /= number"


class DivideNumber(Function):
    """Y = number / X   X (...) -> Y (...)"""

    def forward(self, X: Array, *, number: float) -> Array:
        held = kept(self, X)
        Y = ew.divide_number(X, p=number, out=place(self, X))
        self.save(held, Y)
        return Y

    def backward(self, dY: Array) -> Any:
        X, Y = self.saved
        slope = ew.divide(Y, X)
        return ew.multiply(ew.affine(slope, p=-1.0, out=slope), dY, out=slope)


class ReciprocalInPlace(DivideNumber):
    inplace, written_as = True, "reciprocal_"


def reciprocal_(x: Tensor) -> Tensor:
    """`reciprocal` written into x; a copy of x is kept if a gradient is needed."""
    require_floating("reciprocal_", x.dtype)
    return ReciprocalInPlace.apply(x, number=1.0)
