"""Activations without a kink, as `relu_family.py` describes them: relatives of the sigmoid, of tanh and of ELU."""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.kernel.elementwise import activation, elementwise
from alpha.ops.kernel.function_layer import FunctionLayer, function_layer
from alpha.ops.kernel.options import number

__all__ = [
    "CELU",
    "GELU",
    "SELU",
    "LogSigmoid",
    "Mish",
    "SiLU",
    "Sigmoid",
    "Softplus",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "celu",
    "gelu",
    "logsigmoid",
    "mish",
    "selu",
    "sigmoid",
    "silu",
    "softplus",
    "softsign",
    "tanh",
    "tanhshrink",
]


def _sigmoid_cpu(y: Array, a: Array) -> None:
    with np.errstate(over="ignore"):  # 1 / inf is the 0 that is wanted
        e = np.exp(-a)
    e += 1
    np.divide(1, e, out=y)


_SIGMOID = activation(
    "sigmoid",
    ("1 / (1 + exp(-a))", _sigmoid_cpu),
    ("a * (1 - b) * b", lambda dx, a, b: np.multiply(a * (1 - b), b, out=dx)),
    saves="output",
)


@check_arguments
def sigmoid(x: Tensor) -> Tensor:
    """Y = 1 / (1 + exp(-X))   x (...) -> (...)"""
    return _SIGMOID(x)


@function_layer(sigmoid)
class Sigmoid(FunctionLayer):
    """Y = 1 / (1 + exp(-X))"""


_TANH = activation(
    "tanh",
    ("tanh(a)", lambda y, a: np.tanh(a, out=y)),
    ("a * (1 - b * b)", lambda dx, a, b: np.multiply(a, 1 - b * b, out=dx)),
    saves="output",
)
tanh_forward, tanh_backward = _TANH.forward, _TANH.backward


@check_arguments
def tanh(x: Tensor) -> Tensor:
    """Y = tanh(X)   x (...) -> (...)"""
    return _TANH(x)


@function_layer(tanh)
class Tanh(FunctionLayer):
    """Y = tanh(X)"""


IN_PLACE = (_SIGMOID, _TANH)  # which are methods such as tanh_


def _softplus_cpu(y: Array, a: Array, p: float, q: float) -> None:
    z = a if p == 1 else a * a.dtype.type(p)
    linear = z > q
    kept = a[linear] if linear.any() else None
    soft = np.abs(z)
    np.log1p(np.exp(np.negative(soft, out=soft), out=soft), out=soft)
    np.add(np.maximum(z, 0), soft, out=y)
    if p != 1:
        y /= a.dtype.type(p)
    if kept is not None:
        y[linear] = kept


def _softplus_gradient_cpu(dx: Array, a: Array, b: Array, p: float, q: float) -> None:
    z = b if p == 1 else b * b.dtype.type(p)
    slope = np.exp(np.minimum(z, 0)) / (1 + np.exp(-np.abs(z)))
    slope[z > q] = 1
    np.multiply(a, slope, out=dx)


_SOFTPLUS = activation(
    "softplus",
    ("softplus(a, p, q)", _softplus_cpu),
    ("softplus_gradient(a, b, p, q)", _softplus_gradient_cpu),
    saves="input",  # Y does not tell on which side of the threshold X was
)


@check_arguments
def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Y = beta X > threshold ? X : log(1 + exp(beta X)) / beta   x (...) -> (...)"""
    beta, threshold = number("softplus", "beta", beta), number("softplus", "threshold", threshold)
    return _SOFTPLUS(x, beta, q=threshold)


@function_layer(softplus)
class Softplus(FunctionLayer):
    """Y = log(1 + exp(beta X)) / beta, and X itself if beta X is above threshold"""

    beta: float = 1.0
    threshold: float = 20.0


def _erfc(x: Array) -> Array:
    from scipy.special import erfc  # takes half a second to import, more than all of Alpha

    return cast(Array, erfc(x))


def _gelu_cpu(y: Array, a: Array) -> None:
    np.multiply(0.5 * a, _erfc(-math.sqrt(0.5) * a), out=y)


def _gelu_gradient_cpu(dx: Array, a: Array, b: Array) -> None:
    with np.errstate(over="ignore"):  # b * b; exp(-inf) is the 0 that is wanted
        density = np.exp(-0.5 * b * b) * (1 / math.sqrt(2 * math.pi))
    np.multiply(a, 0.5 * _erfc(-math.sqrt(0.5) * b) + b * density, out=dx)


_TANH_SCALE, _TANH_CUBE = math.sqrt(2 / math.pi), 0.044715  # Hendrycks & Gimpel 2016


def _gelu_tanh_cpu(y: Array, a: Array) -> None:
    with np.errstate(over="ignore"):  # tanh(inf) is the 1 that is wanted
        inner = _TANH_SCALE * (a + _TANH_CUBE * a * a * a)
    np.multiply(0.5 * a, 1 + np.tanh(inner), out=y)


def _gelu_tanh_gradient_cpu(dx: Array, a: Array, b: Array) -> None:
    with np.errstate(over="ignore"):
        square = b * b
        t = np.tanh(_TANH_SCALE * (b + _TANH_CUBE * square * b))
        inner_slope = _TANH_SCALE * (1 + 3 * _TANH_CUBE * square)
    np.multiply(a, 0.5 * (1 + t) + 0.5 * b * (1 - t * t) * inner_slope, out=dx)


_GELU = activation("gelu", ("gelu<T>(a)", _gelu_cpu), ("a * gelu_slope<T>(b)", _gelu_gradient_cpu))
_GELU_TANH = activation(
    "gelu_tanh", ("gelu_tanh(a)", _gelu_tanh_cpu), ("a * gelu_tanh_slope(b)", _gelu_tanh_gradient_cpu)
)


@check_arguments
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """Y = X Phi(X), Phi the normal distribution function   x (...) -> (...)

    Args:
        approximate: "none", or "tanh" for the form of Hendrycks & Gimpel 2016, which differs by up to 5e-4.
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate={approximate!r} is neither 'none' nor 'tanh'")
    return (_GELU if approximate == "none" else _GELU_TANH)(x)


def _check_approximate(layer: str, name: str, value: str) -> str:
    if value not in ("none", "tanh"):
        raise ValueError(f"{layer}: {name}={value!r} is not 'none' or 'tanh'")
    return value


@function_layer(gelu, approximate=_check_approximate)
class GELU(FunctionLayer):
    """Y = X Phi(X)

    Args:
        approximate: "none" is the exact form by erf, "tanh" its approximation.
    """

    approximate: str = "none"


def _silu_gradient_cpu(dx: Array, a: Array, b: Array) -> None:
    s = 1 / (1 + np.exp(-b))
    np.multiply(a * s, 1 + b * (1 - s), out=dx)


_SILU = activation(
    "silu",
    ("a / (1 + exp(-a))", lambda y, a: np.divide(a, 1 + np.exp(-a), out=y)),
    ("silu_gradient(a, b)", _silu_gradient_cpu),
)


@check_arguments
def silu(x: Tensor, inplace: bool = False) -> Tensor:
    """Y = X / (1 + exp(-X)), also called swish   x (...) -> (...)

    Args:
        inplace: True writes Y into x. The gradient reads X, so a copy of X is kept if a gradient is needed.
    """
    return _SILU(x, inplace=inplace)


@function_layer(silu)
class SiLU(FunctionLayer):
    """Y = X / (1 + exp(-X)), also called swish

    Args:
        inplace: True writes Y into x. The gradient reads X, so a copy of X is kept if a gradient is needed.
    """

    inplace: bool = False


def _mish_gradient_cpu(dx: Array, a: Array, b: Array) -> None:
    s, t = 1 / (1 + np.exp(-b)), np.tanh(np.log1p(np.exp(b)))
    np.multiply(a, t + b * s * (1 - t * t), out=dx)


_MISH = activation(
    "mish",
    ("a * tanh(log1p(exp(a)))", lambda y, a: np.multiply(a, np.tanh(np.log1p(np.exp(a))), out=y)),
    ("mish_gradient(a, b)", _mish_gradient_cpu),
)


@check_arguments
def mish(x: Tensor, inplace: bool = False) -> Tensor:
    """Y = X tanh(log(1 + exp(X)))   x (...) -> (...)

    Args:
        inplace: True writes Y into x. The gradient reads X, so a copy of X is kept if a gradient is needed.
    """
    return _MISH(x, inplace=inplace)


@function_layer(mish)
class Mish(FunctionLayer):
    """Y = X tanh(log(1 + exp(X)))

    Args:
        inplace: True writes Y into x. The gradient reads X, so a copy of X is kept if a gradient is needed.
    """

    inplace: bool = False


def _logsigmoid_cpu(y: Array, a: Array) -> None:
    np.subtract(np.minimum(a, 0), np.log1p(np.exp(-np.abs(a))), out=y)


def _logsigmoid_gradient_cpu(dx: Array, a: Array, b: Array) -> None:
    e = np.exp(-np.abs(b))
    np.multiply(a, np.where(b < 0, 1, e) / (1 + e), out=dx)


_LOGSIGMOID = activation(
    "logsigmoid",
    ("(a < 0 ? a : 0) - log1p(exp(-fabs(a)))", _logsigmoid_cpu),
    ("a * ((b < 0 ? 1 : exp(-fabs(b))) / (1 + exp(-fabs(b))))", _logsigmoid_gradient_cpu),
)


@check_arguments
def logsigmoid(x: Tensor) -> Tensor:
    """Y = -log(1 + exp(-X))   x (...) -> (...)"""
    return _LOGSIGMOID(x)


@function_layer(logsigmoid)
class LogSigmoid(FunctionLayer):
    """Y = -log(1 + exp(-X))"""


def _softsign_gradient_cpu(dx: Array, a: Array, b: Array) -> None:
    d = 1 + np.abs(b)
    np.divide(a - a * (np.abs(b) / d), d, out=dx)


_SOFTSIGN = activation(
    "softsign",
    ("a / (1 + fabs(a))", lambda y, a: np.divide(a, 1 + np.abs(a), out=y)),
    ("(a - a * (fabs(b) / (1 + fabs(b)))) / (1 + fabs(b))", _softsign_gradient_cpu),
)


@check_arguments
def softsign(x: Tensor) -> Tensor:
    """Y = X / (1 + |X|)   x (...) -> (...)"""
    return _SOFTSIGN(x)


@function_layer(softsign)
class Softsign(FunctionLayer):
    """Y = X / (1 + |X|)"""


def _tanhshrink_gradient_cpu(dx: Array, a: Array, b: Array) -> None:
    t = np.tanh(b)
    np.subtract(a, a * (1 - t * t), out=dx)


_TANHSHRINK = activation(
    "tanhshrink",
    ("a - tanh(a)", lambda y, a: np.subtract(a, np.tanh(a), out=y)),
    ("a - a * (1 - tanh(b) * tanh(b))", _tanhshrink_gradient_cpu),
)


@check_arguments
def tanhshrink(x: Tensor) -> Tensor:
    """Y = X - tanh(X)   x (...) -> (...)"""
    return _TANHSHRINK(x)


@function_layer(tanhshrink)
class Tanhshrink(FunctionLayer):
    """Y = X - tanh(X)"""


_SELU_SCALE, _SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717


def _selu_cpu(y: Array, a: Array, p: float, q: float) -> None:
    dtype = a.dtype.type
    y[...] = np.where(a < 0, dtype(q) * np.expm1(a), dtype(p) * a)


def _selu_gradient_cpu(dx: Array, a: Array, b: Array, p: float, q: float) -> None:
    dtype = a.dtype.type
    dx[...] = np.where(b <= 0, a * dtype(q) * np.exp(b), a * dtype(p))


def _selu_gradient_of_output_cpu(dx: Array, a: Array, b: Array, p: float, q: float) -> None:
    dtype = a.dtype.type
    dx[...] = np.where(b <= 0, a * (b + dtype(q)), a * dtype(p))


_SELU = activation(
    "selu", ("a < 0 ? q * expm1(a) : p * a", _selu_cpu), ("b <= 0 ? a * q * exp(b) : a * p", _selu_gradient_cpu)
)


_SELU.add_rule(
    "output",
    elementwise("selu_backward_of_output", "b <= 0 ? a * (b + q) : a * p", _selu_gradient_of_output_cpu, inputs=2),
)


@check_arguments
def selu(x: Tensor, inplace: bool = False) -> Tensor:
    """Y = 1.0507 (X > 0 ? X : 1.6733 (exp(X) - 1)) (Klambauer et al. 2017)   x (...) -> (...)

    The gradient reads X, or with `inplace` Y, which is less accurate for X far below 0.
    """
    return _SELU(x, _SELU_SCALE, inplace, q=_SELU_SCALE * _SELU_ALPHA, saves="output" if inplace else "input")


@function_layer(selu)
class SELU(FunctionLayer):
    """Y = 1.0507 (X > 0 ? X : 1.6733 (exp(X) - 1))"""

    inplace: bool = False


def _celu_cpu(y: Array, a: Array, p: float) -> None:
    y[...] = np.where(a < 0, a.dtype.type(p) * np.expm1(a / a.dtype.type(p)), a)


def _celu_gradient_cpu(dx: Array, a: Array, b: Array, p: float) -> None:
    dx[...] = np.where(b <= 0, a * np.exp(b / b.dtype.type(p)), a)


def _celu_gradient_of_output_cpu(dx: Array, a: Array, b: Array, p: float) -> None:
    dx[...] = np.where(b <= 0, a * ((b + b.dtype.type(p)) / b.dtype.type(p)), a)


_CELU = activation(
    "celu", ("a < 0 ? p * expm1(a / p) : a", _celu_cpu), ("b <= 0 ? a * exp(b / p) : a", _celu_gradient_cpu)
)


_CELU.add_rule(
    "output",
    elementwise("celu_backward_of_output", "b <= 0 ? a * ((b + p) / p) : a", _celu_gradient_of_output_cpu, inputs=2),
)


@check_arguments
def celu(x: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Y = X > 0 ? X : alpha (exp(X / alpha) - 1)   x (...) -> (...)

    The gradient reads X, or with `inplace` Y, which is less accurate for X far below 0.

    Raises:
        ValueError: alpha is 0.
        TypeError: `inplace` with a negative alpha on a tensor that needs a gradient, because the sign of Y does not
            tell the sign of X.
    """
    alpha = number("celu", "alpha", alpha)
    if alpha == 0:
        raise ValueError("celu: alpha must not be 0, because X is divided by it")
    return _CELU(x, alpha, inplace, saves="output" if inplace and alpha > 0 else "input")


@function_layer(celu)
class CELU(FunctionLayer):
    """Y = X > 0 ? X : alpha (exp(X / alpha) - 1)"""

    alpha: float = 1.0
    inplace: bool = False
