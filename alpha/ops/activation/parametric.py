"""Activations with slopes that are trained (PReLU) or drawn (RReLU), and the gated linear unit (GLU)."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core import rng
from alpha.core.primitive import Array, device_of
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Module, Parameter
from alpha.ops.activation.relu_family import leaky_relu
from alpha.ops.activation.smooth import sigmoid
from alpha.ops.array.axes import axis_of
from alpha.ops.array.joining import chunk
from alpha.ops.array.random_tensors import UNIFORM, fill_random
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.kernel.casts import as_dtype
from alpha.ops.kernel.elementwise import elementwise
from alpha.ops.kernel.function_layer import FunctionLayer, function_layer
from alpha.ops.kernel.options import integer, real
from alpha.ops.kernel.sums import sum_axis1

__all__ = ["GLU", "PReLU", "RReLU", "glu", "prelu", "rrelu"]


def _sloped_cpu(y: Array, a: Array, b: Array) -> None:
    y[...] = np.where(a > 0, a, b * a)


def _sloped_input_cpu(dx: Array, a: Array, b: Array, c: Array) -> None:
    dx[...] = np.where(b > 0, a, c * a)


def _sloped_slope_cpu(dw: Array, a: Array, b: Array) -> None:
    dw[...] = np.where(b > 0, 0, a * b)


# in the gradients a is dY, b is X and c the slopes
sloped = elementwise("sloped", "a > 0 ? a : b * a", _sloped_cpu, 2)
sloped_input = elementwise("sloped_input_gradient", "b > 0 ? a : c * a", _sloped_input_cpu, 3)
sloped_slope = elementwise("sloped_slope_gradient", "b > 0 ? 0 : a * b", _sloped_slope_cpu, 2)


class PReLUStep(Function):
    """Y = X > 0 ? X : weight X   X (..., C), weight (C,) or (1,) -> Y (..., C)"""

    def forward(self, X: Array, weight: Array) -> Array:
        self.save(X, weight)
        return sloped(X, weight, out=device_of(X).empty(X.shape, X.dtype))

    def backward(self, dY: Array) -> Any:
        X, weight = self.saved
        dX = dW = None
        if self.needs_input_grad[0]:
            dX = sloped_input(dY, X, weight, out=device_of(X).empty(X.shape, X.dtype))
        if self.needs_input_grad[1]:
            slopes = max(1, weight.size)
            dw = sum_axis1(sloped_slope(dY, X).reshape((1, X.size // slopes, weight.size)))
            dW = as_dtype(dw.reshape(tuple(weight.shape)), weight.dtype)
        return dX, dW


@check_arguments
def prelu(x: Tensor, weight: Tensor) -> Tensor:
    """Y = X > 0 ? X : weight X   x (..., C), weight (C,) or (1,) -> (..., C)

    Raises:
        ShapeError: weight has another shape.
    """
    channels = x.shape[-1] if x.ndim else 1
    if weight.ndim > 1 or weight.size not in (1, channels):
        raise ShapeError(
            f"prelu: weight has shape {weight.shape}, x {x.shape} needs ({channels},), the channels last, or (1,)"
        )
    return PReLUStep.apply(x, weight)


class PReLU(Module):
    """Y = X > 0 ? X : weight X   (..., C) -> (..., C)

    Args:
        num_parameters: 1, or the number C of channels, the last axis.
        init: the slopes at first.

    Attributes:
        weight: (num_parameters,).
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        self.num_parameters = integer("PReLU", "num_parameters", num_parameters, least=1)
        self.init = real("PReLU", "init", init)
        self.weight = Parameter(np.full(self.num_parameters, self.init, np.float32))

    def forward(self, x: Tensor) -> Tensor:
        return prelu(x, self.weight)

    def reset_parameters(self) -> None:
        """Let the slopes be what they were at first, in place."""
        self.weight.data.fill_(self.init)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}, init={self.init}"


class RReLUStep(Function):
    """Y = X > 0 ? X : U X, U uniform in [lower, upper)   X (...) -> Y (...); the backward pass draws U again"""

    def forward(self, X: Array, *, lower: float, upper: float) -> Array:
        self.lower, self.upper = lower, upper
        self.stream = rng.default.step_stream()
        slopes = self._slopes(X)
        if not self.inplace:
            self.save(X)
            return sloped(X, slopes)
        if self.needs_input_grad[0]:
            self.save(device_of(X).copy(X))
        return sloped(X, slopes, out=X)

    def backward(self, dY: Array) -> Any:
        (X,) = self.saved
        return sloped_input(dY, X, self._slopes(X))

    def _slopes(self, X: Array) -> Array:
        U = device_of(X).empty(tuple(X.shape), X.dtype)
        fill_random(U, self.stream, UNIFORM, self.lower, self.upper - self.lower)
        return U


class RReLUInPlace(RReLUStep):
    inplace = True


@check_arguments
def rrelu(
    x: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Y = X > 0 ? X : U X   x (...) -> (...)

    Args:
        lower, upper: in training each U is drawn from [lower, upper), otherwise it is their mean.
        inplace: True writes Y into x. In training a copy of X is kept if a gradient is needed.

    Raises:
        ValueError: lower is above upper, or one of them is not finite.
    """
    if real("rrelu", "lower", lower) > real("rrelu", "upper", upper):
        raise ValueError(f"rrelu: lower={lower} is above upper={upper}")
    if not training:
        return leaky_relu(x, (lower + upper) / 2, inplace)
    step = RReLUInPlace if inplace else RReLUStep
    return step.apply(x, lower=float(lower), upper=float(upper))


class RReLU(Module):
    """Y = X > 0 ? X : U X, U drawn from [lower, upper) in training, otherwise their mean

    Args:
        inplace: True writes Y into x, as in `rrelu`.
    """

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        self.inplace = inplace
        self.lower, self.upper = real("RReLU", "lower", lower), real("RReLU", "upper", upper)
        if self.lower > self.upper:
            raise ValueError(f"RReLU: lower={lower} is above upper={upper}")

    def forward(self, x: Tensor) -> Tensor:
        return rrelu(x, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" if self.inplace else "")


@check_arguments
def glu(x: Tensor, dim: int = -1) -> Tensor:
    """Y = A sigmoid(B), A and B the halves of X along an axis   x (.., 2 C, ..) -> (.., C, ..)

    Raises:
        ShapeError: the axis is missing, or its length is odd.
    """
    axis = axis_of("glu", x, dim)
    if not x.ndim or x.shape[axis] % 2:
        raise ShapeError(f"glu: axis {dim} of x {x.shape} has no two equal halves")
    if not x.shape[axis]:
        return x * 1.0
    a, b = chunk(x, 2, axis)
    return a * sigmoid(b)


@function_layer(glu)
class GLU(FunctionLayer):
    """Y = A sigmoid(B), A and B the halves of X along an axis   (.., 2 C, ..) -> (.., C, ..)"""

    dim: int = -1
