"""Activations whose gradient needs no more than the sign of their result, as a part of another operator's kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from alpha.autograd.function import Function
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.module.module import Module
from alpha.ops.activation.piecewise import ReLU6, hardtanh_backward, hardtanh_forward, relu6
from alpha.ops.activation.relu_family import (
    LeakyReLU,
    ReLU,
    leaky_relu,
    leaky_relu_backward,
    leaky_relu_forward,
    relu,
    relu_backward,
    relu_forward,
)
from alpha.ops.kernel.dtypes import as_dtype
from alpha.ops.kernel.elementwise import elementwise, multiply
from alpha.ops.kernel.operands import operand_of, sum_to


class Rectifier(NamedTuple):
    """ReLU, ReLU6 or leaky ReLU: Y = Z > 0 ? min(Z, bound) : slope Z

    Attributes:
        slope: not negative, so that Y has the sign of Z.
        bound: of Y; infinite unless the slope is 0.
    """

    slope: float = 0.0
    bound: float = math.inf

    def rectify(self, Z: Array) -> Array:
        """Y, written to Z."""
        if self.slope:
            return leaky_relu_forward(Z, p=self.slope, out=Z)
        return relu_forward(Z, out=Z) if self.bound == math.inf else hardtanh_forward(Z, p=self.bound, out=Z)

    def gradient(self, dY: Array, Z: Array) -> Array:
        """dZ; Y has the same sign as Z and may stand for it."""
        if self.slope:
            return leaky_relu_backward(dY, Z, p=self.slope)
        return relu_backward(dY, Z) if self.bound == math.inf else hardtanh_backward(dY, Z, p=self.bound)


# -- with the arithmetic before it ----------------------------------------------------------------


_FORM = "p == 0 ? ({z} < 0 ? 0 : {z} > q ? q : {z}) : {z} > 0 ? {z} : p * {z}"  # of Rectifier(p, q)


def _add_cpu(y: Array, a: Array, b: Array, p: float, q: float) -> None:
    Rectifier(p, q).rectify(np.add(a, b, out=y))


def _multiply_add_cpu(y: Array, a: Array, b: Array, c: Array, p: float, q: float) -> None:
    Rectifier(p, q).rectify(np.add(a * b, c, out=y))


add_rectified = elementwise("add_rectified", _FORM.format(z="(a + b)"), _add_cpu, inputs=2)
multiply_add_rectified = elementwise(
    "multiply_add_rectified", _FORM.format(z="(a * b + c)"), _multiply_add_cpu, inputs=3
)


class AddRectified(Function):
    """Y = rectifier(A + B)   A, B, Y (...)"""

    def forward(self, A: Array, B: Array, *, rectifier: Rectifier) -> Array:
        self.rectifier = rectifier
        Y = add_rectified(A, B, p=rectifier.slope, q=rectifier.bound)
        self.save(Y)
        return Y

    def backward(self, dY: Array) -> Any:
        dZ = self.rectifier.gradient(dY, self.saved[0])
        return dZ, dZ


class AffineRectified(Function):
    """Y = rectifier(W X + b)   X, Y (..., *D), W, b (*D)"""

    def forward(self, X: Array, W: Array, b: Array, *, rectifier: Rectifier) -> Array:
        self.rectifier, self.offset = rectifier, operand_of(b)
        Y = multiply_add_rectified(X, W, b, p=rectifier.slope, q=rectifier.bound)
        self.save(X, W) if rectifier == IDENTITY else self.save(X, W, Y)
        return Y

    def backward(self, dY: Array) -> Any:
        X, W, *result = self.saved
        dZ = self.rectifier.gradient(dY, *result) if result else dY
        dX = as_dtype(multiply(dZ, W), X.dtype) if self.needs[0] else None
        dW = sum_to(multiply(dZ, X), operand_of(W)) if self.needs[1] else None
        return dX, dW, sum_to(dZ, self.offset) if self.needs[2] else None


IDENTITY = Rectifier(1.0)


class Rectified(NamedTuple):
    """What the gradient of batch normalisation needs of the rectifier behind it: Y, or the bias to compute Z again."""

    rectifier: Rectifier
    bias: Array | None
    Y: Array | None


_FUNCTIONS: dict[Callable[..., Tensor], Rectifier] = {
    relu: Rectifier(),
    relu6: Rectifier(bound=6.0),
    leaky_relu: Rectifier(slope=0.01),
}


def rectifier_of(activation: Callable[[Tensor], Tensor] | None) -> Rectifier | None:
    """The rectifier that a layer or a function of `alpha.nn.functional` is; None for any other activation.

    A layer whose `forward` was assigned is another activation.

    Raises:
        TypeError: the activation is neither None nor a function, for example its name.
    """
    if activation is not None and not callable(activation):
        raise TypeError(f"activation={activation!r} is no layer and no function of a tensor")
    kind = type(activation)
    if isinstance(activation, Module) and "forward" in vars(activation):
        return None
    if kind is ReLU:
        return Rectifier()
    if kind is ReLU6:
        return Rectifier(bound=6.0)
    if isinstance(activation, LeakyReLU) and kind is LeakyReLU:
        # a slope of 0 makes -inf NaN, which a rectifier makes 0
        return Rectifier(activation.negative_slope) if activation.negative_slope > 0 else None
    try:
        return _FUNCTIONS.get(activation)  # type: ignore[arg-type]
    except TypeError:  # a callable that has no hash
        return None
