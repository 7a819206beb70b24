"""Activations without a kink, as `activation.py` describes them."""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.activation.relu_family import ActivationLayer
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.kernel.elementwise import activation
from alpha.ops.kernel.options import real

__all__ = ["GELU", "Sigmoid", "Softplus", "Tanh", "gelu", "sigmoid", "softplus", "tanh"]


def _sigmoid_cpu(y: Array, a: Array) -> None:
    with np.errstate(over="ignore"):  # 1 / inf is the 0 that is wanted
        e = np.exp(-a)
    e += 1
    np.divide(1, e, out=y)


_SIGMOID = activation(
    "sigmoid",
    ("1 / (1 + exp(-a))", _sigmoid_cpu),
    ("a * (1 - b) * b", lambda dx, a, b: np.multiply(a * (1 - b), b, out=dx)),
    holds="Y",
)


@check_arguments
def sigmoid(x: Tensor) -> Tensor:
    """Y = 1 / (1 + exp(-X))   x (...) -> (...)"""
    return _SIGMOID(x)


class Sigmoid(ActivationLayer):
    """Y = 1 / (1 + exp(-X))"""

    def forward(self, x: Tensor) -> Tensor:
        return sigmoid(x)


_TANH = activation(
    "tanh",
    ("tanh(a)", lambda y, a: np.tanh(a, out=y)),
    ("a * (1 - b * b)", lambda dx, a, b: np.multiply(a, 1 - b * b, out=dx)),
    holds="Y",
)
tanh_forward, tanh_backward = _TANH.forward, _TANH.backward


@check_arguments
def tanh(x: Tensor) -> Tensor:
    """Y = tanh(X)   x (...) -> (...)"""
    return _TANH(x)


class Tanh(ActivationLayer):
    """Y = tanh(X)"""

    def forward(self, x: Tensor) -> Tensor:
        return tanh(x)


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
    holds="X",  # Y does not tell on which side of the threshold X was
)


@check_arguments
def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Y = beta X > threshold ? X : log(1 + exp(beta X)) / beta   x (...) -> (...)"""
    return _SOFTPLUS(x, beta, q=threshold)


class Softplus(ActivationLayer):
    """Y = log(1 + exp(beta X)) / beta, and X itself if beta X is above threshold"""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta, self.threshold = real("Softplus", "beta", beta), real("Softplus", "threshold", threshold)

    def forward(self, x: Tensor) -> Tensor:
        return softplus(x, self.beta, self.threshold)


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


class GELU(ActivationLayer):
    """Y = X Phi(X)

    Args:
        approximate: "none" is the exact form by erf, "tanh" its approximation.
    """

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            raise ValueError(f"GELU: approximate={approximate!r} is not 'none' or 'tanh'")
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return gelu(x, self.approximate)
