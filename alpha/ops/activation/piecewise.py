"""Activations made of straight pieces, as `relu_family.py` describes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.module.module import Module
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.kernel.elementwise import activation
from alpha.ops.kernel.function_layer import FunctionLayer, function_layer
from alpha.ops.kernel.options import number, only_offered, real
from alpha.ops.kernel.rectifier import FUNCTIONS, HARDTANH, LAYERS, Rectifier

__all__ = [
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "ReLU6",
    "Softshrink",
    "Threshold",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "relu6",
    "softshrink",
    "threshold",
]


def _where(y: Array, condition: Array, a: Any, b: Any) -> None:
    """y = condition ? a : b"""
    y[...] = np.where(condition, a, b)


@check_arguments
def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """Y = X within [min_val, max_val], else the bound that is nearer   x (...) -> (...)

    Dragon-Alpha's reluN is `hardtanh(x, 0, N)`.

    Raises:
        ValueError: min_val is above max_val.
    """
    min_val, max_val = number("hardtanh", "min_val", min_val), number("hardtanh", "max_val", max_val)
    if min_val > max_val:
        raise ValueError(f"hardtanh: min_val={min_val} is above max_val={max_val}")
    return HARDTANH(x, max_val, inplace, q=min_val)


class Hardtanh(Module):
    """Y = X within [min_val, max_val], else the bound that is nearer

    Args:
        min_value, max_value: PyTorch's old names of both bounds; only None is offered.
    """

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        only_offered("Hardtanh", min_value=(min_value, None), max_value=(max_value, None))
        self.min_val, self.max_val = real("Hardtanh", "min_val", min_val), real("Hardtanh", "max_val", max_val)
        if self.min_val >= self.max_val:
            raise ValueError(f"Hardtanh: min_val={min_val} must be below max_val={max_val}")
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        return hardtanh(x, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}{', inplace=True' if self.inplace else ''}"


@check_arguments
def relu6(x: Tensor, inplace: bool = False) -> Tensor:
    """Y = min(max(X, 0), 6)   x (...) -> (...)"""
    return HARDTANH(x, 6.0, inplace, q=0.0)


@function_layer(relu6)
class ReLU6(FunctionLayer):
    """Y = min(max(X, 0), 6)"""

    inplace: bool = False


FUNCTIONS[relu6] = Rectifier(bound=6.0)
LAYERS[ReLU6] = lambda layer: Rectifier(bound=6.0)


def _hardswish_gradient_cpu(dx: Array, a: Array, b: Array) -> None:
    dx[...] = np.where(b <= -3, 0, np.where(b < 3, a * (b / 3 + b.dtype.type(0.5)), a))


_HARDSWISH = activation(
    "hardswish",
    ("a * (a + 3 < 0 ? 0 : a + 3 > 6 ? 6 : a + 3) / 6", lambda y, a: np.divide(a * np.clip(a + 3, 0, 6), 6, out=y)),
    ("b <= -3 ? 0 : b < 3 ? a * (b / 3 + Real(0.5)) : a", _hardswish_gradient_cpu),
)


@check_arguments
def hardswish(x: Tensor, inplace: bool = False) -> Tensor:
    """Y = X min(max(X + 3, 0), 6) / 6   x (...) -> (...)

    Args:
        inplace: True writes Y into x. The gradient reads X, so a copy of X is kept if a gradient is needed.
    """
    return _HARDSWISH(x, inplace=inplace)


@function_layer(hardswish)
class Hardswish(FunctionLayer):
    """Y = X min(max(X + 3, 0), 6) / 6

    Args:
        inplace: True writes Y into x. The gradient reads X, so a copy of X is kept if a gradient is needed.
    """

    inplace: bool = False


_HARDSIGMOID = activation(
    "hardsigmoid",
    ("(a + 3 < 0 ? 0 : a + 3 > 6 ? 6 : a + 3) / 6", lambda y, a: np.divide(np.clip(a + 3, 0, 6), 6, out=y)),
    ("b > -3 && b < 3 ? a / 6 : 0", lambda dx, a, b: _where(dx, (b > -3) & (b < 3), a / 6, 0)),
)


@check_arguments
def hardsigmoid(x: Tensor, inplace: bool = False) -> Tensor:
    """Y = min(max(X + 3, 0), 6) / 6   x (...) -> (...)

    Args:
        inplace: True writes Y into x. The gradient reads X, so a copy of X is kept if a gradient is needed.
    """
    return _HARDSIGMOID(x, inplace=inplace)


@function_layer(hardsigmoid)
class Hardsigmoid(FunctionLayer):
    """Y = min(max(X + 3, 0), 6) / 6

    Args:
        inplace: True writes Y into x. The gradient reads X, so a copy of X is kept if a gradient is needed.
    """

    inplace: bool = False


def _within(b: Array, p: float) -> Array:
    """True where b is in [-p, p], in the precision of b."""
    bound = b.dtype.type(p)
    return np.asarray((b >= -bound) & (b <= bound))


def _softshrink_cpu(y: Array, a: Array, p: float) -> None:
    bound = a.dtype.type(p)
    y[...] = np.where(_within(a, p), 0, np.where(a > bound, a - bound, a + bound))


_SHRINK_GRADIENT = ("b >= -p && b <= p ? 0 : a", lambda dx, a, b, p: _where(dx, _within(b, p), 0, a))
_SOFTSHRINK = activation(
    "softshrink", ("a >= -p && a <= p ? 0 : a > p ? a - p : a + p", _softshrink_cpu), _SHRINK_GRADIENT
)
_HARDSHRINK = activation(
    "hardshrink", ("a >= -p && a <= p ? 0 : a", lambda y, a, p: _where(y, _within(a, p), 0, a)), _SHRINK_GRADIENT
)


@check_arguments
def softshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """Y = X moved towards 0 by lambd, and 0 where it would pass it   x (...) -> (...)

    Raises:
        ValueError: lambd is negative.
    """
    lambd = number("softshrink", "lambd", lambd)
    if lambd < 0:
        raise ValueError(f"softshrink: lambd={lambd} is negative")
    return _SOFTSHRINK(x, lambd)


@function_layer(softshrink)
class Softshrink(FunctionLayer):
    """Y = X moved towards 0 by lambd, and 0 where it would pass it"""

    lambd: float = 0.5


@check_arguments
def hardshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """Y = 0 if X is in [-lambd, lambd], else X   x (...) -> (...)"""
    return _HARDSHRINK(x, number("hardshrink", "lambd", lambd))


@function_layer(hardshrink)
class Hardshrink(FunctionLayer):
    """Y = 0 if X is in [-lambd, lambd], else X"""

    lambd: float = 0.5


_THRESHOLD = activation(
    "threshold",
    ("a <= p ? q : a", lambda y, a, p, q: _where(y, a <= a.dtype.type(p), a.dtype.type(q), a)),
    ("b <= p ? 0 : a", lambda dx, a, b, p: _where(dx, b <= b.dtype.type(p), 0, a)),
)
_THRESHOLD.add_rule("output", _THRESHOLD.backward)


@check_arguments
def threshold(x: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """Y = X > threshold ? X : value   x (...) -> (...)

    Args:
        inplace: True writes Y into x. With a value above the threshold, a copy of X is kept if a gradient is needed,
            because Y does not tell on which side X was.
    """
    threshold, value = number("threshold", "threshold", threshold), number("threshold", "value", value)
    return _THRESHOLD(x, threshold, inplace, q=value, saves="output" if value <= threshold else "input")


@function_layer(threshold)
class Threshold(FunctionLayer):
    """Y = X > threshold ? X : value"""

    threshold: float
    value: float
    inplace: bool = False
