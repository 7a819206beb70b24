"""Layers under PyTorch's names; images are NHWC. Convolutions are in `convolution.py`, pools in `pooling.py`."""

from __future__ import annotations

from alpha.module import Buffer, Module, Parameter
from alpha.nn import functional as F
from alpha.nn import init
from alpha.nn.convolution import Conv2d
from alpha.ops.batchnorm import check_eps
from alpha.ops.channel_statistics import ChannelStatistics
from alpha.ops.dropout import check_probability
from alpha.ops.options import integer, only_offered, real
from alpha.tensor import Tensor

__all__ = ["BatchNorm2d", "Dropout", "Flatten", "Linear", "conv_batch_norm"]


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


class BatchNorm2d(Module):
    """Batch normalisation over channels   (N, H, W, num_features) -> the same

    Args:
        eps: added to the variance.
        momentum: the share of a training batch in the new running statistics. None, PyTorch's cumulative average,
            is not offered.
        affine: False has no weight and no bias.
        bias: False has no bias.
        track_running_stats: False keeps no running statistics, and evaluation uses those of its batch.

    Attributes:
        weight, bias: (num_features,), at first 1 and 0, or None.
        running_mean, running_var: (num_features,), at first 0 and 1; None without `track_running_stats`.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        bias: bool = True,
    ) -> None:
        if momentum is None:
            raise ValueError("BatchNorm2d: momentum=None is not offered; only a number")
        self.num_features = integer("BatchNorm2d", "num_features", num_features, least=1)
        check_eps("BatchNorm2d", eps)
        self.eps, self.momentum = eps, real("BatchNorm2d", "momentum", momentum)
        shape = (self.num_features,)
        self.weight = Parameter(init.ones(shape)) if affine else None
        self.bias = Parameter(init.zeros(shape)) if affine and bias else None
        self.running_mean = Buffer(init.zeros(shape)) if track_running_stats else None
        self.running_var = Buffer(init.ones(shape)) if track_running_stats else None

    @property
    def uses_batch(self) -> bool:
        """True if it normalises by the mean and variance of the batch."""
        return self.training or self.running_mean is None

    def forward(self, x: Tensor, statistics: ChannelStatistics | None = None) -> Tensor:
        """`statistics`: see `conv_batch_norm`."""
        return F.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training=self.uses_batch,
            momentum=self.momentum,
            eps=self.eps,
            statistics=statistics,
        )

    def extra_repr(self) -> str:
        affine = ", affine=False" if self.weight is None else ", bias=False" if self.bias is None else ""
        tracks = "" if self.running_mean is not None else ", track_running_stats=False"
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}{affine}{tracks}"


def conv_batch_norm(conv: Conv2d, norm: BatchNorm2d, x: Tensor) -> Tensor:
    """`norm(conv(x))`; in training the kernel of the convolution computes the channel statistics, if it can.

    The batch normalisation then reads the result of the convolution one time less. `Sequential` calls this for a Conv2d
    that a BatchNorm2d follows.

    x (N, IH, IW, in_channels) -> (N, OH, OW, out_channels)
    """
    if not norm.uses_batch:
        return norm(conv(x))  # type: ignore[no-any-return]
    statistics = ChannelStatistics()
    return norm(conv(x, statistics), statistics)  # type: ignore[no-any-return]


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
