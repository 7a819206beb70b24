"""Layers under PyTorch's names; images are NHWC.

Convolutions are in `convolution.py`, pools in `pooling.py`, normalisations in `normalization.py`.
"""

from __future__ import annotations

from alpha.module import Module, Parameter
from alpha.nn import functional as F
from alpha.nn import init
from alpha.ops.dropout import check_probability
from alpha.ops.options import integer, only_offered
from alpha.tensor import Tensor

__all__ = ["Dropout", "Flatten", "Identity", "Linear"]


class Linear(Module):
    """Y = X W^T + b   (..., in_features) -> (..., out_features)

    Attributes:
        weight: (out_features, in_features), kaiming uniform.
        bias: (out_features,) or None.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.in_features = integer("Linear", "in_features", in_features, least=1)
        self.out_features = integer("Linear", "out_features", out_features, least=1)
        self.weight = Parameter(init.kaiming_uniform((self.out_features, self.in_features)))
        self.bias: Parameter | None = None
        if bias:
            self.bias = Parameter(init.bias_uniform((self.out_features,), self.in_features))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class Dropout(Module):
    """Zero each element with probability p in training, scale the rest by 1 / (1 - p).

    Args:
        p: in [0, 1].
        inplace: only False is offered.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        check_probability("Dropout", p)
        only_offered("Dropout", inplace=(inplace, False))
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, training=self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Flatten(Module):
    """(D0, .., Dk) -> the same with the axes from start_dim to end_dim as one"""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim = integer("Flatten", "start_dim", start_dim)
        self.end_dim = integer("Flatten", "end_dim", end_dim)

    def forward(self, x: Tensor) -> Tensor:
        return F.flatten(x, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Identity(Module):
    """Y = X, in place of a layer that a model leaves out   (...) -> the same"""

    def forward(self, x: Tensor) -> Tensor:
        return x
