"""Activations: a table of expressions. Each gradient rule reads the input X or the output Y, whichever it says.

    silu = activation(
        "silu",
        forward=("a / (1 + exp(-a))", lambda y, a: np.divide(a, 1 + np.exp(-a), out=y)),
        gradient=("b * s..", lambda ...), holds="X")

defines an operator on both devices from its expressions. In the gradient `a` is dY and `b` the held X or Y; `p` is
the activation's number (a slope), where it has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from alpha.autograd import Function
from alpha.numerics import is_floating
from alpha.ops.elementwise import elementwise
from alpha.primitive import Array
from alpha.tensor import Tensor

Rule = tuple[str, Callable[..., Any]]  # (CUDA expression, numpy function filling its first argument)


class Activation:
    """An elementwise operator with one optional number: call it on a tensor, `in_place=True` writes into it.

    Attributes:
        forward, backward: its primitives, Y = forward(X, p=) and dX = backward(dY, X or Y, p=).
    """

    def __init__(self, name: str, forward: Rule, gradient: Rule, holds: str) -> None:
        if holds not in ("X", "Y"):
            raise ValueError(f"{name}: holds={holds!r} is neither 'X' nor 'Y'")
        self.name, self.holds = name, holds
        run = elementwise(f"{name}_forward", *forward, inputs=1)
        back = elementwise(f"{name}_backward", *gradient, inputs=2)
        self.forward, self.backward = run, back

        class Step(Function):
            def forward(self, *arrays: Array, **options: Any) -> Array:
                X, self.p = arrays[0], options["p"]
                Y = run(X, p=self.p, out=X if self.inplace else None)
                self.save(Y if holds == "Y" else X)
                return Y

            def backward(self, dY: Array) -> Any:
                return back(dY, self.saved[0], p=self.p)

        self._step: type[Function] = type(name, (Step,), {})
        self._step_in_place: type[Function] = type(f"{name}_", (Step,), {"inplace": True})

    def __call__(self, x: Tensor, p: float = 0.0, in_place: bool = False) -> Tensor:
        if not is_floating(x.dtype):
            raise TypeError(f"{self.name}: dtype {x.dtype.name}; use .astype('float32')")
        if in_place and self.holds == "X":
            raise TypeError(f"{self.name}: its gradient reads the input, so it has no in-place form")
        return (self._step_in_place if in_place else self._step).apply(x, p=p)


def activation(name: str, forward: Rule, gradient: Rule, holds: str = "X") -> Activation:
    """Define an activation on both devices.

    Args:
        name: unique operator name.
        forward: (C++ expression of `a`, numpy `f(y, a)` that fills y); with a number, `p` and `f(y, a, p)`.
        gradient: (C++ expression of `a` = dY and `b` = the held tensor, numpy `f(dx, a, b)`); likewise with `p`.
        holds: "X" or "Y", what `b` is. Only with "Y" is there an in-place form.
    """
    return Activation(name, forward, gradient, holds)


def _leaky_cpu(y: Array, a: Array, p: float) -> None:
    scaled = a * a.dtype.type(p)
    (np.maximum if p <= 1 else np.minimum)(a, scaled, out=y)


def _leaky_gradient_cpu(dx: Array, a: Array, b: Array, p: float) -> None:
    # 1 or 0, then 1 or p: three times as fast as a look-up or a branch
    slope = (b > 0).astype(a.dtype)
    np.maximum(slope, p, out=slope) if p <= 1 else np.subtract(p, (p - 1) * slope, out=slope)
    np.multiply(a, slope, out=dx)


def _elu_cpu(y: Array, a: Array, p: float) -> None:
    negative = np.expm1(np.minimum(a, 0)) * a.dtype.type(p)
    np.add(np.maximum(a, 0), negative, out=y)


def _sigmoid_cpu(y: Array, a: Array) -> None:
    small = np.exp(-np.abs(a))  # the exponential of a large number would overflow
    np.divide(np.where(a < 0, small, 1), 1 + small, out=y)


def _softplus_cpu(y: Array, a: Array) -> None:
    np.add(np.maximum(a, 0), np.log1p(np.exp(-np.abs(a))), out=y)


def _gelu_slope(x: Array) -> Array:
    inner = 0.7978845608028654 * (x + 0.044715 * x**3)
    t = np.tanh(inner)
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * x * x)


_RELU = activation(
    "relu",
    ("a < 0 ? 0 : a", lambda y, a: np.maximum(a, 0, out=y)),  # NaN stays NaN
    ("b > 0 ? a : 0", lambda dx, a, b: np.multiply(a, b > 0, out=dx)),
    holds="Y",
)
_LEAKY = activation(
    "leaky_relu", ("a > 0 ? a : p * a", _leaky_cpu), ("b > 0 ? a : p * a", _leaky_gradient_cpu), holds="Y"
)
leaky_relu_forward, leaky_relu_backward = _LEAKY.forward, _LEAKY.backward
_ELU = activation(
    "elu",
    ("a > 0 ? a : p * expm1(a)", _elu_cpu),
    ("b > 0 ? a : a * (b + p)", lambda dx, a, b, p: np.multiply(a, np.where(b > 0, 1, b + p), out=dx)),
    holds="Y",
)
_SIGMOID = activation(
    "sigmoid",
    ("1 / (1 + exp(-a))", _sigmoid_cpu),
    ("a * b * (1 - b)", lambda dx, a, b: np.multiply(a, b * (1 - b), out=dx)),
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
    ("a > 0 ? a + log1p(exp(-a)) : log1p(exp(a))", _softplus_cpu),
    ("a * (1 - exp(-b))", lambda dx, a, b: np.multiply(a, -np.expm1(-b), out=dx)),
    holds="Y",
)
_GELU = activation(
    "gelu",
    (
        "a * (Real)0.5 * (1 + tanh((Real)0.7978845608028654 * (a + (Real)0.044715 * a * a * a)))",
        lambda y, a: np.multiply(0.5 * a, 1 + np.tanh(0.7978845608028654 * (a + 0.044715 * a**3)), out=y),
    ),
    ("a * gelu_slope(b)", lambda dx, a, b: np.multiply(a, _gelu_slope(b), out=dx)),
    holds="X",
)


def relu(x: Tensor, in_place: bool = False) -> Tensor:
    """Y = max(X, 0)   x (...) -> (...)"""
    return _RELU(x, in_place=in_place)


def leaky_relu(x: Tensor, negative_slope: float = 0.01, in_place: bool = False) -> Tensor:
    """Y = X > 0 ? X : negative_slope X   x (...) -> (...)

    The gradient reads the sign of Y, so the slope is positive (0 is `relu`).
    """
    if negative_slope <= 0:
        raise ValueError(f"leaky_relu: negative_slope={negative_slope} is not positive")
    return _LEAKY(x, negative_slope, in_place)


def elu(x: Tensor, alpha: float = 1.0, in_place: bool = False) -> Tensor:
    """Y = X > 0 ? X : alpha (exp(X) - 1)   x (...) -> (...)"""
    if alpha <= 0:
        raise ValueError(f"elu: alpha={alpha} is not positive")
    return _ELU(x, alpha, in_place)


def sigmoid(x: Tensor) -> Tensor:
    """Y = 1 / (1 + exp(-X))   x (...) -> (...)"""
    return _SIGMOID(x)


def tanh(x: Tensor) -> Tensor:
    """Y = tanh(X)   x (...) -> (...)"""
    return _TANH(x)


def softplus(x: Tensor) -> Tensor:
    """Y = log(1 + exp(X))   x (...) -> (...)"""
    return _SOFTPLUS(x)


def gelu(x: Tensor) -> Tensor:
    """Y = X Phi(X), Phi by its tanh form (Hendrycks & Gimpel 2016)   x (...) -> (...)"""
    return _GELU(x)
