"""Activation layers; `inplace` writes the result into the input's memory."""

from __future__ import annotations

from alpha.nn import functional as F
from alpha.nn.module import Module
from alpha.ops.options import real
from alpha.tensor import Tensor


class ReLU(Module):
    """Y = max(X, 0)"""

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x, self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class LeakyReLU(Module):
    """Y = X > 0 ? X : negative_slope X"""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        self.negative_slope, self.inplace = real("LeakyReLU", "negative_slope", negative_slope), inplace

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class ELU(Module):
    """Y = X > 0 ? X : alpha (exp(X) - 1)"""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha, self.inplace = real("ELU", "alpha", alpha), inplace

    def forward(self, x: Tensor) -> Tensor:
        return F.elu(x, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class GELU(Module):
    """Y = X Phi(X)

    Args:
        approximate: "none" is the exact form by erf, "tanh" its approximation.
    """

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            raise ValueError(f"GELU: approximate={approximate!r} is not 'none' or 'tanh'")
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Sigmoid(Module):
    """Y = 1 / (1 + exp(-X))"""

    def forward(self, x: Tensor) -> Tensor:
        return F.sigmoid(x)


class Softplus(Module):
    """Y = log(1 + exp(beta X)) / beta, and X itself if beta X is above threshold"""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta, self.threshold = real("Softplus", "beta", beta), real("Softplus", "threshold", threshold)

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(x, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Tanh(Module):
    """Y = tanh(X)"""

    def forward(self, x: Tensor) -> Tensor:
        return F.tanh(x)
