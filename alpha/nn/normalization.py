"""Layers of layer, group, root-mean-square and instance normalisation, as PyTorch's; channels are the last axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Buffer, Parameter
from alpha.nn import functional as F
from alpha.nn import init
from alpha.nn.batchnorm import check_axes
from alpha.nn.init import Resets
from alpha.ops.kernel.options import integer, real
from alpha.ops.normalization.batch_norm import check_eps
from alpha.ops.normalization.group import shape_of_axes

__all__ = ["GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm", "RMSNorm"]


class LayerNorm(Resets):
    """Layer normalisation over the last axes   (..., *normalized_shape) -> the same

    Args:
        normalized_shape: the lengths of the last axes; an integer is the length of the last one.
        eps: added to the variance.
        elementwise_affine: False has no weight and no bias.
        bias: False has no bias.

    Attributes:
        weight, bias: (*normalized_shape), at first 1 and 0, or None.

    Examples:
        >>> import alpha
        >>> alpha.nn.LayerNorm(8)(alpha.rand(2, 5, 8)).shape
        (2, 5, 8)
    """

    weight: Parameter | None
    bias: Parameter | None

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
        self.register_parameter("weight", Parameter(init.ones(self.normalized_shape)) if elementwise_affine else None)
        self.register_parameter(
            "bias", Parameter(init.zeros(self.normalized_shape)) if elementwise_affine and bias else None
        )

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

    weight: Parameter | None

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True
    ) -> None:
        self.normalized_shape = shape_of_axes("RMSNorm", normalized_shape)
        if eps is not None:
            check_eps("RMSNorm", eps)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.register_parameter("weight", Parameter(init.ones(self.normalized_shape)) if elementwise_affine else None)

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

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, *, bias: bool = True
    ) -> None:
        self.num_groups = integer("GroupNorm", "num_groups", num_groups, least=1)
        self.num_channels = integer("GroupNorm", "num_channels", num_channels, least=1)
        if self.num_channels % self.num_groups:
            raise ValueError(f"GroupNorm: num_channels={num_channels} is no multiple of num_groups={num_groups}")
        check_eps("GroupNorm", eps)
        self.eps, self.affine = eps, affine
        self.register_parameter("weight", Parameter(init.ones((self.num_channels,))) if affine else None)
        self.register_parameter("bias", Parameter(init.zeros((self.num_channels,))) if affine and bias else None)

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(x, Tensor) and x.shape[-1:] != (self.num_channels,):
            raise ShapeError(f"GroupNorm: x (N, .., {self.num_channels}) is needed, the channels last  (x {x.shape})")
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = ", affine=False" if self.weight is None else ", bias=False" if self.bias is None else ""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}{affine}"


class _InstanceNorm(Resets):
    """Base of the layers of instance normalisation; `forms` are the shapes of one image and of several."""

    forms: ClassVar[tuple[str, ...]]
    running_mean: Buffer | None
    running_var: Buffer | None
    fewest: ClassVar[int] = 1  # channels; a lazy layer has 0 before its first forward

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        *,
        bias: bool = True,
    ) -> None:
        name = type(self).__name__
        if momentum is None:
            raise ValueError(f"{name}: momentum=None is not offered; only a number")
        self.num_features = integer(name, "num_features", num_features, least=self.fewest)
        check_eps(name, eps)
        self.eps, self.momentum = eps, real(name, "momentum", momentum)
        self.affine, self.track_running_stats = affine, track_running_stats
        self._make(affine, affine and bias, track_running_stats)

    def _make(self, weight: bool, bias: bool, tracks: bool) -> None:
        """Make the parameters and the running statistics, or None in their places."""
        shape = (self.num_features,)
        self.register_parameter("weight", Parameter(init.ones(shape)) if weight else None)
        self.register_parameter("bias", Parameter(init.zeros(shape)) if bias else None)
        self._hold("running_mean", Buffer(init.zeros(shape)) if tracks else None)
        self._hold("running_var", Buffer(init.ones(shape)) if tracks else None)

    def forward(self, x: Tensor) -> Tensor:
        """Raises `ShapeError` if x has another number of axes than the layer is for."""
        check_axes(self, x, self.forms)
        if self.weight is not None and isinstance(x, Tensor) and x.shape[-1] != self.num_features:
            raise ShapeError(f"{type(self).__name__}: x has {x.shape[-1]} channels, num_features={self.num_features}")
        if self.track_running_stats and self.running_mean is None and not self.training:
            raise ValueError(
                f"{type(self).__name__}: track_running_stats=True was written to a layer that was made without running "
                "statistics; make it with track_running_stats=True"
            )
        alone = isinstance(x, Tensor) and x.ndim == self.forms[0].count(",") + 1
        y = F.instance_norm(
            x.reshape(1, *x.shape) if alone else x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum,
            self.eps,
        )
        return y.reshape(x.shape) if alone else y

    def extra_repr(self) -> str:
        affine = (
            "" if self.weight is None else ", affine=True" if self.bias is not None else ", affine=True, bias=False"
        )
        tracks = "" if self.running_mean is None else ", track_running_stats=True"
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}{affine}{tracks}"


class InstanceNorm1d(_InstanceNorm):
    """Normalisation of each channel of each sequence   (N, L, C), or (L, C) -> the same; as `InstanceNorm2d`"""

    forms = ("(L, C)", "(N, L, C)")


class InstanceNorm2d(_InstanceNorm):
    """Normalisation of each channel of each image   (N, H, W, C), or (H, W, C) of one image -> the same

    Args:
        num_features: the number C of channels, the last axis.
        eps: added to the variance.
        momentum: the share of a training batch in the new running statistics. None is not offered.
        affine: True has a weight and a bias.
        bias: False has no bias.
        track_running_stats: True keeps running statistics, which evaluation uses.

    Attributes:
        weight, bias: (num_features,), at first 1 and 0, or None.
        running_mean, running_var: (num_features,), at first 0 and 1; None without `track_running_stats`.
    """

    forms = ("(H, W, C)", "(N, H, W, C)")


class InstanceNorm3d(_InstanceNorm):
    """Normalisation of each channel of each volume   (N, D, H, W, C) -> the same; as `InstanceNorm2d`"""

    forms = ("(D, H, W, C)", "(N, D, H, W, C)")
