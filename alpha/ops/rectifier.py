"""Activations whose gradient needs no more than the sign of their result, as a part of another operator's kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from alpha.ops.activation import (
    LeakyReLU,
    ReLU,
    leaky_relu,
    leaky_relu_backward,
    leaky_relu_forward,
    relu,
    relu_backward,
    relu_forward,
)
from alpha.ops.activation_piecewise import ReLU6, hardtanh_backward, hardtanh_forward, relu6
from alpha.primitive import Array
from alpha.tensor import Tensor


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
    """The rectifier that a layer or a function of `alpha.nn.functional` is; None for any other activation."""
    kind = type(activation)
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
