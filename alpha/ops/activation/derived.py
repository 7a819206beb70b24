"""More activations without a kink: relatives of the sigmoid, of tanh and of ELU."""

from __future__ import annotations

import numpy as np

from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.activation.relu_family import ActivationLayer
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.kernel.elementwise import activation, elementwise
from alpha.ops.kernel.options import real

__all__ = [
    "CELU",
    "SELU",
    "LogSigmoid",
    "Mish",
    "SiLU",
    "Softsign",
    "Tanhshrink",
    "celu",
    "logsigmoid",
    "mish",
    "selu",
    "silu",
    "softsign",
    "tanhshrink",
]


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


class SiLU(ActivationLayer):
    """Y = X / (1 + exp(-X)), also called swish

    Args:
        inplace: True writes Y into x. The gradient reads X, so a copy of X is kept if a gradient is needed.
    """

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        return silu(x, self.inplace)


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


class Mish(ActivationLayer):
    """Y = X tanh(log(1 + exp(X)))

    Args:
        inplace: True writes Y into x. The gradient reads X, so a copy of X is kept if a gradient is needed.
    """

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        return mish(x, self.inplace)


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


class LogSigmoid(ActivationLayer):
    """Y = -log(1 + exp(-X))"""

    def forward(self, x: Tensor) -> Tensor:
        return logsigmoid(x)


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


class Softsign(ActivationLayer):
    """Y = X / (1 + |X|)"""

    def forward(self, x: Tensor) -> Tensor:
        return softsign(x)


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


class Tanhshrink(ActivationLayer):
    """Y = X - tanh(X)"""

    def forward(self, x: Tensor) -> Tensor:
        return tanhshrink(x)


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
    "Y", elementwise("selu_backward_of_output", "b <= 0 ? a * (b + q) : a * p", _selu_gradient_of_output_cpu, inputs=2)
)


@check_arguments
def selu(x: Tensor, inplace: bool = False) -> Tensor:
    """Y = 1.0507 (X > 0 ? X : 1.6733 (exp(X) - 1)) (Klambauer et al. 2017)   x (...) -> (...)

    The gradient reads X, or with `inplace` Y, which is less accurate for X far below 0.
    """
    return _SELU(x, _SELU_SCALE, inplace, q=_SELU_SCALE * _SELU_ALPHA, holds="Y" if inplace else "X")


class SELU(ActivationLayer):
    """Y = 1.0507 (X > 0 ? X : 1.6733 (exp(X) - 1))"""

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        return selu(x, self.inplace)


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
    "Y",
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
    if alpha == 0:
        raise ValueError("celu: alpha must not be 0, because X is divided by it")
    return _CELU(x, alpha, inplace, holds="Y" if inplace and alpha > 0 else "X")


class CELU(ActivationLayer):
    """Y = X > 0 ? X : alpha (exp(X / alpha) - 1)"""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha, self.inplace = real("CELU", "alpha", alpha), inplace

    def forward(self, x: Tensor) -> Tensor:
        return celu(x, self.alpha, self.inplace)
