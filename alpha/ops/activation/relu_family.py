"""Activations: a table of expressions. Each gradient rule reads the input X or the output Y, whichever it says.

    silu = activation(
        "silu",
        forward=("a / (1 + exp(-a))", lambda y, a: np.divide(a, 1 + np.exp(-a), out=y)),
        gradient=("b * s..", lambda ...), saves="input")

defines an operator on both devices from its expressions. In the gradient `a` is dY and `b` the held X or Y; `p` and `q`
are the activation's numbers (a slope), where it has any. Its function and its layer stand below it. The activations
without a kink are in `smooth.py`.

Values and gradients are PyTorch's for every input, infinities and NaN included. A gradient rule that drops dY
selects 0; it does not multiply by 0, because inf * 0 is NaN.
"""

from __future__ import annotations

import numpy as np

from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.kernel.elementwise import activation, elementwise
from alpha.ops.kernel.function_layer import FunctionLayer, function_layer
from alpha.ops.kernel.options import number
from alpha.ops.kernel.rectifier import FUNCTIONS, LAYERS, LEAKY_RELU, RELU, TINY, Rectifier, one_or

__all__ = ["ELU", "LeakyReLU", "ReLU", "elu", "leaky_relu", "relu"]


@check_arguments
def relu(x: Tensor, inplace: bool = False) -> Tensor:
    """Y = max(X, 0)   x (...) -> (...)

    Examples:
        >>> import alpha
        >>> alpha.relu(alpha.tensor([-1.0, 2.0])).tolist()
        [0.0, 2.0]
    """
    return RELU(x, inplace=inplace)


@function_layer(relu)
class ReLU(FunctionLayer):
    """Y = max(X, 0)

    Examples:
        >>> import alpha
        >>> alpha.nn.ReLU()(alpha.tensor([-1.0, 2.0])).tolist()
        [0.0, 2.0]
    """

    inplace: bool = False


@check_arguments
def leaky_relu(x: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Y = X > 0 ? X : negative_slope X   x (...) -> (...)

    Args:
        inplace: True writes Y into x. With a negative slope, a copy of X is kept if a gradient is needed, because the
            sign of Y does not tell the sign of X.
    """
    negative_slope = number("leaky_relu", "negative_slope", negative_slope)
    return LEAKY_RELU(x, negative_slope, inplace, saves="output" if negative_slope >= 0 else "input")


@function_layer(leaky_relu)
class LeakyReLU(FunctionLayer):
    """Y = X > 0 ? X : negative_slope X"""

    negative_slope: float = 0.01
    inplace: bool = False


FUNCTIONS.update({relu: Rectifier(), leaky_relu: Rectifier(slope=0.01)})
LAYERS[ReLU] = lambda layer: Rectifier()
# a slope of 0 makes -inf NaN, which a rectifier makes 0
LAYERS[LeakyReLU] = lambda layer: Rectifier(layer.negative_slope) if layer.negative_slope > 0 else None


def _elu_cpu(y: Array, a: Array, p: float) -> None:
    negative = np.expm1(np.fmin(a, 0)) * a.dtype.type(p)
    if abs(p) < 1 / TINY:
        np.add(np.maximum(a, 0), negative, out=y)
    else:
        y[...] = np.where(a < 0, negative, a)


def _elu_gradient_cpu(dx: Array, a: Array, b: Array, p: float) -> None:
    scaled = a if p == 1 else a * one_or(p, ~(b <= 0), a.dtype)
    np.multiply(scaled, np.exp(np.fmin(b, 0)), out=dx)  # fmin(NaN, 0) is 0


def _elu_gradient_of_output_cpu(dx: Array, a: Array, b: Array, p: float) -> None:
    slope = np.fmin(b, 0) + 1 if p == 1 else np.where(b <= 0, b + a.dtype.type(p), a.dtype.type(1))
    np.multiply(a, slope, out=dx)


_ELU = activation(
    "elu",
    ("a < 0 ? p * expm1(a) : a", _elu_cpu),
    ("b <= 0 ? a * p * exp(b) : a", _elu_gradient_cpu),
    saves="input",  # exp(X), where Y + p cancels
)
_ELU.add_rule(
    "output", elementwise("elu_backward_of_output", "b <= 0 ? a * (b + p) : a", _elu_gradient_of_output_cpu, inputs=2)
)


@check_arguments
def elu(x: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Y = X > 0 ? X : alpha (exp(X) - 1)   x (...) -> (...)

    The gradient reads X, or with `inplace` Y, which is less accurate for X far below 0.

    Args:
        inplace: True writes Y into x. With a negative alpha, a copy of X is kept if a gradient is needed, because the
            sign of Y does not tell the sign of X.
    """
    alpha = number("elu", "alpha", alpha)
    return _ELU(x, alpha, inplace, saves="output" if inplace and alpha >= 0 else "input")


@function_layer(elu)
class ELU(FunctionLayer):
    """Y = X > 0 ? X : alpha (exp(X) - 1)"""

    alpha: float = 1.0
    inplace: bool = False
