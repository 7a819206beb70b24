"""Activations: a table of expressions. Each gradient rule reads the input X or the output Y, whichever it says.

    silu = activation(
        "silu",
        forward=("a / (1 + exp(-a))", lambda y, a: np.divide(a, 1 + np.exp(-a), out=y)),
        gradient=("b * s..", lambda ...), holds="X")

defines an operator on both devices from its expressions. In the gradient `a` is dY and `b` the held X or Y; `p` and `q`
are the activation's numbers (a slope), where it has any. Its function and its layer stand below it. The activations
without a kink are in `activation_smooth.py`.

Values and gradients are PyTorch's for every input, infinities and NaN included. A gradient rule that drops dY
selects 0; it does not multiply by 0, because inf * 0 is NaN.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array, Primitive
from alpha.core.tensor import Tensor
from alpha.module.module import Module
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.kernel.elementwise import elementwise
from alpha.ops.kernel.options import real

__all__ = ["ELU", "LeakyReLU", "ReLU", "elu", "leaky_relu", "relu"]

Rule = tuple[str, Callable[..., Any]]  # (CUDA expression, numpy function filling its first argument)


class Activation:
    """An elementwise operator with up to two numbers: call it on a tensor, `inplace=True` writes into it.

    If the gradient reads X, an in-place call on a tensor that needs a gradient keeps a copy of X. So it saves no
    memory, but x has the new values, as in PyTorch.

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
                held = X
                if self.inplace and holds == "X" and self.needs[0]:
                    held = Tensor(X).device.copy(X)
                Y = run(X, p=p, q=q, out=X if self.inplace else None)
                self.save(Y if holds == "Y" else held)
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
        return self._steps[holds or self.holds, bool(inplace)].apply(x, p=p, q=q)


def activation(name: str, forward: Rule, gradient: Rule, holds: str = "X") -> Activation:
    """Define an activation on both devices.

    Args:
        name: unique operator name.
        forward: (C++ expression of `a`, numpy `f(y, a)` that fills y); with numbers, `p`, `q` and `f(y, a, p, q)`.
        gradient: (C++ expression of `a` = dY and `b` = the held tensor, numpy `f(dx, a, b)`); likewise with numbers.
        holds: "X" or "Y", what `b` is. With "Y", the in-place form saves memory where a gradient is needed, too.
    """
    return Activation(name, forward, gradient, holds)


class ActivationLayer(Module):
    """Base of the layers of activations: the attributes of a layer are the arguments of its function."""

    def extra_repr(self) -> str:
        arguments = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        return ", ".join(f"{name}={value!r}" for name, value in arguments.items() if name != "inplace" or value)


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


_RELU = activation(
    "relu",
    ("a < 0 ? 0 : a", lambda y, a: np.maximum(a, 0, out=y)),  # NaN stays NaN, and so passes its gradient
    ("b <= 0 ? 0 : a", lambda dx, a, b: _drop(dx, a, b <= 0)),
    holds="Y",
)
relu_forward, relu_backward = _RELU.forward, _RELU.backward


@check_arguments
def relu(x: Tensor, inplace: bool = False) -> Tensor:
    """Y = max(X, 0)   x (...) -> (...)"""
    return _RELU(x, inplace=inplace)


class ReLU(ActivationLayer):
    """Y = max(X, 0)"""

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        return relu(x, self.inplace)


def _leaky_cpu(y: Array, a: Array, p: float) -> None:
    scaled = a * a.dtype.type(p)
    if _TINY < abs(p) < 1 / _TINY:
        (np.maximum if p <= 1 else np.minimum)(a, scaled, out=y)
    else:  # 0 * inf is NaN, which only a <= 0 may give
        y[...] = np.where(a > 0, a, scaled)


_LEAKY = activation(
    "leaky_relu",
    ("a > 0 ? a : p * a", _leaky_cpu),
    ("b > 0 ? a : p * a", lambda dx, a, b, p: np.multiply(a, _one_or(p, b > 0, a.dtype), out=dx)),
    holds="Y",
)
leaky_relu_forward, leaky_relu_backward = _LEAKY.forward, _LEAKY.backward
_LEAKY.add_rule("X", leaky_relu_backward)


@check_arguments
def leaky_relu(x: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Y = X > 0 ? X : negative_slope X   x (...) -> (...)

    Args:
        inplace: True writes Y into x. With a negative slope, a copy of X is kept if a gradient is needed, because the
            sign of Y does not tell the sign of X.
    """
    return _LEAKY(x, negative_slope, inplace, holds="Y" if negative_slope >= 0 else "X")


class LeakyReLU(ActivationLayer):
    """Y = X > 0 ? X : negative_slope X"""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        self.negative_slope, self.inplace = real("LeakyReLU", "negative_slope", negative_slope), inplace

    def forward(self, x: Tensor) -> Tensor:
        return leaky_relu(x, self.negative_slope, self.inplace)


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


_ELU = activation(
    "elu",
    ("a < 0 ? p * expm1(a) : a", _elu_cpu),
    ("b <= 0 ? a * p * exp(b) : a", _elu_gradient_cpu),
    holds="X",  # exp(X), where Y + p cancels
)
_ELU.add_rule(
    "Y", elementwise("elu_backward_of_output", "b <= 0 ? a * (b + p) : a", _elu_gradient_of_output_cpu, inputs=2)
)


@check_arguments
def elu(x: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Y = X > 0 ? X : alpha (exp(X) - 1)   x (...) -> (...)

    The gradient reads X, or with `inplace` Y, which is less accurate for X far below 0.

    Args:
        inplace: True writes Y into x. With a negative alpha, a copy of X is kept if a gradient is needed, because the
            sign of Y does not tell the sign of X.
    """
    return _ELU(x, alpha, inplace, holds="Y" if inplace and alpha >= 0 else "X")


class ELU(ActivationLayer):
    """Y = X > 0 ? X : alpha (exp(X) - 1)"""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha, self.inplace = real("ELU", "alpha", alpha), inplace

    def forward(self, x: Tensor) -> Tensor:
        return elu(x, self.alpha, self.inplace)
