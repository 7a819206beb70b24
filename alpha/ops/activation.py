"""Activations: a table of expressions. Each gradient rule reads the input X or the output Y, whichever it says.

    silu = activation(
        "silu",
        forward=("a / (1 + exp(-a))", lambda y, a: np.divide(a, 1 + np.exp(-a), out=y)),
        gradient=("b * s..", lambda ...), holds="X")

defines an operator on both devices from its expressions. In the gradient `a` is dY and `b` the held X or Y; `p` and `q`
are the activation's numbers (a slope), where it has any.

Values and gradients are PyTorch's for every input, infinities and NaN included. A gradient rule that drops dY
selects 0; it does not multiply by 0, because inf * 0 is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from alpha.autograd import Function
from alpha.grad_mode import is_grad_enabled
from alpha.numerics import is_floating
from alpha.ops.elementwise import elementwise
from alpha.primitive import Array, Primitive
from alpha.tensor import Tensor

Rule = tuple[str, Callable[..., Any]]  # (CUDA expression, numpy function filling its first argument)


class Activation:
    """An elementwise operator with up to two numbers: call it on a tensor, `inplace=True` writes into it.

    Attributes:
        forward, backward: its primitives, Y = forward(X, p=, q=) and dX = backward(dY, X or Y, p=, q=).
    """

    def __init__(self, name: str, forward: Rule, gradient: Rule, holds: str) -> None:
        if holds not in ("X", "Y"):
            raise ValueError(f"{name}: holds={holds!r} is neither 'X' nor 'Y'")
        self.name, self.holds = name, holds
        self.forward = elementwise(f"{name}_forward", *forward, inputs=1)
        self.backward = elementwise(f"{name}_backward", *gradient, inputs=2)
        self._steps: dict[tuple[str, bool], type[Function]] = {}
        self.add_rule(holds, self.backward)

    def add_rule(self, holds: str, backward: Primitive) -> None:
        """Offer a gradient that reads `holds`; a call chooses it by `holds=`."""
        run = self.forward

        class Step(Function):
            def forward(self, X: Array, *, p: float, q: float) -> Array:
                self.p, self.q = p, q
                Y = run(X, p=p, q=q, out=X if self.inplace else None)
                self.save(Y if holds == "Y" else X)
                return Y

            def backward(self, dY: Array) -> Any:
                return backward(dY, self.saved[0], p=self.p, q=self.q)

        self._steps[holds, False] = type(self.name, (Step,), {})
        self._steps[holds, True] = type(f"{self.name}_", (Step,), {"inplace": True})

    def __call__(
        self, x: Tensor, p: float = 0.0, inplace: bool = False, *, q: float = 0.0, holds: str | None = None
    ) -> Tensor:
        if not is_floating(x.dtype):
            raise TypeError(f"{self.name}: x has dtype {x.dtype.name}; use .astype('float32')")
        held = holds or self.holds
        if inplace and held == "X" and x.requires_grad and is_grad_enabled():
            numbers = f" with {p}" if p else ""
            raise TypeError(f"{self.name}{numbers}: its gradient reads the input, so it has no in-place form")
        return self._steps[held, bool(inplace)].apply(x, p=p, q=q)


def activation(name: str, forward: Rule, gradient: Rule, holds: str = "X") -> Activation:
    """Define an activation on both devices.

    Args:
        name: unique operator name.
        forward: (C++ expression of `a`, numpy `f(y, a)` that fills y); with numbers, `p`, `q` and `f(y, a, p, q)`.
        gradient: (C++ expression of `a` = dY and `b` = the held tensor, numpy `f(dx, a, b)`); likewise with numbers.
        holds: "X" or "Y", what `b` is. With "X" there is no in-place form for tensors that need a gradient.
    """
    return Activation(name, forward, gradient, holds)


# -- numpy: np.where costs ten passes, because its branches are mispredicted, so arithmetic selects -----------------


_TINY = 1e-30  # a number between it and 1 / _TINY is neither 0 nor infinite in float32


def _drop(y: Array, a: Array, mask: Array) -> None:
    """y = mask ? 0 : a, exact for every a: the bits of a and those of 0 or -1."""
    bits = f"i{a.itemsize}"
    keep = mask.view(np.int8)
    keep -= np.int8(1)
    np.bitwise_and(a.view(bits), keep, out=y.view(bits))


def _one_or(p: float, one: Array, dtype: np.dtype[Any]) -> Array:
    """one ? 1 : p"""
    if 0 <= p <= 1:
        slope = one.astype(dtype)
        return np.maximum(slope, p, out=slope)
    if 1 < p < math.inf:
        slope = np.multiply(~one, p, dtype=dtype)
        return np.maximum(slope, 1, out=slope)
    return np.where(one, dtype.type(1), dtype.type(p))


def _leaky_cpu(y: Array, a: Array, p: float) -> None:
    scaled = a * a.dtype.type(p)
    if _TINY < abs(p) < 1 / _TINY:
        (np.maximum if p <= 1 else np.minimum)(a, scaled, out=y)
    else:  # 0 * inf is NaN, which only a <= 0 may give
        y[...] = np.where(a > 0, a, scaled)


def _elu_cpu(y: Array, a: Array, p: float) -> None:
    negative = np.expm1(np.fmin(a, 0)) * a.dtype.type(p)
    if abs(p) < 1 / _TINY:
        np.add(np.maximum(a, 0), negative, out=y)
    else:
        y[...] = np.where(a < 0, negative, a)


def _elu_gradient_cpu(dx: Array, a: Array, b: Array, p: float) -> None:
    scaled = a if p == 1 else a * _one_or(p, ~(b <= 0), a.dtype)
    np.multiply(scaled, np.exp(np.fmin(b, 0)), out=dx)  # fmin(NaN, 0) is 0


def _elu_gradient_of_output_cpu(dx: Array, a: Array, b: Array, p: float) -> None:
    slope = np.fmin(b, 0) + 1 if p == 1 else np.where(b <= 0, b + a.dtype.type(p), a.dtype.type(1))
    np.multiply(a, slope, out=dx)


def _sigmoid_cpu(y: Array, a: Array) -> None:
    with np.errstate(over="ignore"):  # 1 / inf is the 0 that is wanted
        e = np.exp(-a)
    e += 1
    np.divide(1, e, out=y)


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


_RELU = activation(
    "relu",
    ("a < 0 ? 0 : a", lambda y, a: np.maximum(a, 0, out=y)),  # NaN stays NaN, and so passes its gradient
    ("b <= 0 ? 0 : a", lambda dx, a, b: _drop(dx, a, b <= 0)),
    holds="Y",
)
relu_forward, relu_backward = _RELU.forward, _RELU.backward
_LEAKY = activation(
    "leaky_relu",
    ("a > 0 ? a : p * a", _leaky_cpu),
    ("b > 0 ? a : p * a", lambda dx, a, b, p: np.multiply(a, _one_or(p, b > 0, a.dtype), out=dx)),
    holds="Y",
)
leaky_relu_forward, leaky_relu_backward = _LEAKY.forward, _LEAKY.backward
_LEAKY.add_rule("X", leaky_relu_backward)
_ELU = activation(
    "elu",
    ("a < 0 ? p * expm1(a) : a", _elu_cpu),
    ("b <= 0 ? a * p * exp(b) : a", _elu_gradient_cpu),
    holds="X",  # exp(X), where Y + p cancels
)
_ELU.add_rule(
    "Y", elementwise("elu_backward_of_output", "b <= 0 ? a * (b + p) : a", _elu_gradient_of_output_cpu, inputs=2)
)
_SIGMOID = activation(
    "sigmoid",
    ("1 / (1 + exp(-a))", _sigmoid_cpu),
    ("a * (1 - b) * b", lambda dx, a, b: np.multiply(a * (1 - b), b, out=dx)),
    holds="Y",
)
_TANH = activation(
    "tanh",
    ("tanh(a)", lambda y, a: np.tanh(a, out=y)),
    ("a * (1 - b * b)", lambda dx, a, b: np.multiply(a, 1 - b * b, out=dx)),
    holds="Y",
)
_SOFTPLUS = activation(
    "softplus",
    ("softplus(a, p, q)", _softplus_cpu),
    ("softplus_gradient(a, b, p, q)", _softplus_gradient_cpu),
    holds="X",  # Y does not tell on which side of the threshold X was
)
_GELU = activation("gelu", ("gelu(a)", _gelu_cpu), ("a * gelu_slope(b)", _gelu_gradient_cpu))
_GELU_TANH = activation(
    "gelu_tanh", ("gelu_tanh(a)", _gelu_tanh_cpu), ("a * gelu_tanh_slope(b)", _gelu_tanh_gradient_cpu)
)


def relu(x: Tensor, inplace: bool = False) -> Tensor:
    """Y = max(X, 0)   x (...) -> (...)"""
    return _RELU(x, inplace=inplace)


def leaky_relu(x: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Y = X > 0 ? X : negative_slope X   x (...) -> (...)

    Raises:
        TypeError: `inplace` with a negative slope on a tensor that needs a gradient, because the sign of Y does not
            tell the sign of X.
    """
    return _LEAKY(x, negative_slope, inplace, holds="Y" if negative_slope >= 0 else "X")


def elu(x: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Y = X > 0 ? X : alpha (exp(X) - 1)   x (...) -> (...)

    The gradient reads X, or with `inplace` Y, which is less accurate for X far below 0.

    Raises:
        TypeError: `inplace` with a negative alpha on a tensor that needs a gradient, because the sign of Y does not
            tell the sign of X.
    """
    return _ELU(x, alpha, inplace, holds="Y" if inplace and alpha >= 0 else "X")


def sigmoid(x: Tensor) -> Tensor:
    """Y = 1 / (1 + exp(-X))   x (...) -> (...)"""
    return _SIGMOID(x)


def tanh(x: Tensor) -> Tensor:
    """Y = tanh(X)   x (...) -> (...)"""
    return _TANH(x)


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Y = beta X > threshold ? X : log(1 + exp(beta X)) / beta   x (...) -> (...)"""
    return _SOFTPLUS(x, beta, q=threshold)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """Y = X Phi(X), Phi the normal distribution function   x (...) -> (...)

    Args:
        approximate: "none", or "tanh" for the form of Hendrycks & Gimpel 2016, which differs by up to 5e-4.
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate={approximate!r} is neither 'none' nor 'tanh'")
    return (_GELU if approximate == "none" else _GELU_TANH)(x)
