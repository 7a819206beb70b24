"""Layers that normalise, under PyTorch's names; channels are the last axis."""

from __future__ import annotations

from collections.abc import Sequence

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Parameter
from alpha.nn import functional as F
from alpha.nn import init
from alpha.nn.resetting import Resets
from alpha.ops.kernel.options import integer
from alpha.ops.normalization.batch_norm import check_eps
from alpha.ops.normalization.group import shape_of_axes

__all__ = ["GroupNorm", "LayerNorm", "RMSNorm"]


class LayerNorm(Resets):
    """Layer normalisation over the last axes   (..., *normalized_shape) -> the same

    Args:
        normalized_shape: the lengths of the last axes; an integer is the length of the last one.
        eps: added to the variance.
        elementwise_affine: False has no weight and no bias.
        bias: False has no bias.

    Attributes:
        weight, bias: (*normalized_shape), at first 1 and 0, or None.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        self.normalized_shape = shape_of_axes("LayerNorm", normalized_shape)
        check_eps("LayerNorm", eps)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.weight = Parameter(init.ones(self.normalized_shape)) if elementwise_affine else None
        self.bias = Parameter(init.zeros(self.normalized_shape)) if elementwise_affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = ", elementwise_affine=False" if self.weight is None else ", bias=False" if self.bias is None else ""
        return f"{self.normalized_shape}, eps={self.eps}{affine}"


class RMSNorm(Resets):
    """Normalisation by the root of the mean square over the last axes   (..., *normalized_shape) -> the same

    Args:
        normalized_shape: the lengths of the last axes; an integer is the length of the last one.
        eps: added to the mean square; None as of `alpha.nn.functional.rms_norm`.
        elementwise_affine: False has no weight.

    Attributes:
        weight: (*normalized_shape), at first 1, or None.
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True
    ) -> None:
        self.normalized_shape = shape_of_axes("RMSNorm", normalized_shape)
        if eps is not None:
            check_eps("RMSNorm", eps)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.weight = Parameter(init.ones(self.normalized_shape)) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        affine = ", elementwise_affine=False" if self.weight is None else ""
        return f"{self.normalized_shape}, eps={self.eps}{affine}"


class GroupNorm(Resets):
    """Normalisation over groups of neighbouring channels of each image   (N, ..., num_channels) -> the same

    Args:
        num_groups: divides num_channels.
        num_channels: the length of the last axis.
        eps: added to the variance.
        affine: False has no weight and no bias.
        bias: False has no bias.

    Attributes:
        weight, bias: (num_channels,), at first 1 and 0, or None.
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, *, bias: bool = True
    ) -> None:
        self.num_groups = integer("GroupNorm", "num_groups", num_groups, least=1)
        self.num_channels = integer("GroupNorm", "num_channels", num_channels, least=1)
        if self.num_channels % self.num_groups:
            raise ValueError(f"GroupNorm: num_channels={num_channels} is no multiple of num_groups={num_groups}")
        check_eps("GroupNorm", eps)
        self.eps, self.affine = eps, affine
        self.weight = Parameter(init.ones((self.num_channels,))) if affine else None
        self.bias = Parameter(init.zeros((self.num_channels,))) if affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(x, Tensor) and x.shape[-1:] != (self.num_channels,):
            raise ShapeError(f"GroupNorm: x (N, .., {self.num_channels}) is needed, the channels last  (x {x.shape})")
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = ", affine=False" if self.weight is None else ", bias=False" if self.bias is None else ""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}{affine}"
