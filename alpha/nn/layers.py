"""Layers under PyTorch's names; images are NHWC, filters (OC, FH, FW, IC)."""

from __future__ import annotations

from alpha.nn import functional as F
from alpha.nn import init
from alpha.nn.module import Buffer, Module, Parameter
from alpha.ops.conv2d.shape import Pair, pair
from alpha.tensor import Tensor


def _positive(layer: str, **values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{layer}: {name}={value} must be at least 1")


class Conv2d(Module):
    """2-D convolution   (N, IH, IW, in_channels) -> (N, OH, OW, out_channels)

    Args:
        kernel_size, stride, padding: a number, or a pair (height, width).
        bias: add a number to each output channel.
        negative_slope: of a leaky ReLU computed with the convolution: 0 is ReLU, 1 (the default) none.
        moments: in training, where the kernel can, find each channel's mean and variance with the convolution, for a
            BatchNorm2d that is given the very tensor that comes out; it then reads that once less.

    Attributes:
        weight: (out_channels, FH, FW, in_channels), kaiming uniform.
        bias: (out_channels,) or None.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        bias: bool = True,
        negative_slope: float = 1.0,
        moments: bool = False,
    ) -> None:
        self.negative_slope, self.moments = negative_slope, moments
        FH, FW = pair("kernel_size", kernel_size)
        sh, sw = self.stride = pair("stride", stride)
        self.padding = pair("padding", padding)
        _positive("Conv2d", in_channels=in_channels, out_channels=out_channels, FH=FH, FW=FW, sh=sh, sw=sw)
        self.weight = Parameter(init.kaiming_uniform((out_channels, FH, FW, in_channels)))
        self.bias: Parameter | None = None
        if bias:
            self.bias = Parameter(init.bias_uniform((out_channels,), FH * FW * in_channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(
            x, self.weight, self.bias, self.stride, self.padding, self.negative_slope, self.moments and self.training
        )

    def extra_repr(self) -> str:
        OC, FH, FW, IC = self.weight.shape
        slope = f", negative_slope={self.negative_slope}" if self.negative_slope != 1 else ""
        moments = ", moments=True" if self.moments else ""
        return (
            f"{IC}, {OC}, kernel_size=({FH}, {FW}), stride={self.stride}, "
            f"padding={self.padding}, bias={self.bias is not None}{slope}{moments}"
        )


class ConvTranspose2d(Module):
    """Transposed 2-D convolution   (N, IH, IW, in_channels) -> (N, OH, OW, out_channels)

    OH = (IH - 1) sh - 2 ph + FH + output_padding, OW likewise.

    Attributes:
        weight: (in_channels, FH, FW, out_channels), kaiming uniform.
        bias: (out_channels,) or None.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        output_padding: Pair = 0,
        bias: bool = True,
    ) -> None:
        FH, FW = pair("kernel_size", kernel_size)
        sh, sw = self.stride = pair("stride", stride)
        self.padding = pair("padding", padding)
        _positive("ConvTranspose2d", in_channels=in_channels, out_channels=out_channels, FH=FH, FW=FW, sh=sh, sw=sw)
        self.output_padding = pair("output_padding", output_padding)
        self.weight = Parameter(init.kaiming_uniform((in_channels, FH, FW, out_channels)))
        self.bias: Parameter | None = None
        if bias:
            self.bias = Parameter(init.bias_uniform((out_channels,), FH * FW * out_channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv_transpose2d(x, self.weight, self.bias, self.stride, self.padding, self.output_padding)

    def extra_repr(self) -> str:
        IC, FH, FW, OC = self.weight.shape
        return f"{IC}, {OC}, kernel_size=({FH}, {FW}), stride={self.stride}, padding={self.padding}"


class Linear(Module):
    """Y = X W^T + b   (..., in_features) -> (..., out_features)

    Attributes:
        weight: (out_features, in_features), kaiming uniform.
        bias: (out_features,) or None.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        _positive("Linear", in_features=in_features, out_features=out_features)
        self.weight = Parameter(init.kaiming_uniform((out_features, in_features)))
        self.bias: Parameter | None = None
        if bias:
            self.bias = Parameter(init.bias_uniform((out_features,), in_features))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        O, I = self.weight.shape
        return f"{I}, {O}, bias={self.bias is not None}"


class BatchNorm2d(Module):
    """Batch normalisation over channels   (N, H, W, num_features) -> the same

    Attributes:
        weight, bias: (num_features,), at first 1 and 0.
        running_mean, running_var: (num_features,); each training batch moves them by `momentum`.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        _positive("BatchNorm2d", num_features=num_features)
        self.eps, self.momentum = eps, momentum
        self.weight = Parameter(init.ones((num_features,)))
        self.bias = Parameter(init.zeros((num_features,)))
        self.running_mean = Buffer(init.zeros((num_features,)))
        self.running_var = Buffer(init.ones((num_features,)))

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training, self.momentum, self.eps
        )

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}, momentum={self.momentum}"


class Dropout(Module):
    """Zero each element with probability p in training, scale the rest by 1 / (1 - p)."""

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p < 1:
            raise ValueError(f"Dropout: p={p} is not in [0, 1)")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class MaxPool2d(Module):
    """Maximum over windows   (N, IH, IW, C) -> (N, OH, OW, C); stride None is kernel_size"""

    def __init__(self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0) -> None:
        self.kernel_size, self.padding = kernel_size, padding
        self.stride = kernel_size if stride is None else stride

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(x, self.kernel_size, self.stride, self.padding)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(Module):
    """Mean over windows   (N, IH, IW, C) -> (N, OH, OW, C); stride None is kernel_size"""

    def __init__(
        self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0, count_include_pad: bool = True
    ) -> None:
        self.kernel_size, self.padding = kernel_size, padding
        self.stride = kernel_size if stride is None else stride
        self.count_include_pad = count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, self.kernel_size, self.stride, self.padding, self.count_include_pad)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool2d(Module):
    """Mean over windows that cut the map into output_size   (N, IH, IW, C) -> (N, OH, OW, C)"""

    def __init__(self, output_size: Pair) -> None:
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(x, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class Flatten(Module):
    """(N, ...) -> (N, product of the rest)"""

    def forward(self, x: Tensor) -> Tensor:
        return F.flatten(x, 1)


class CrossEntropyLoss(Module):
    """Softmax cross-entropy of logits (N, C) and integer labels (N,)."""

    def __init__(self, reduction: str = "mean", label_smoothing: float = 0.0) -> None:
        self.reduction, self.label_smoothing = reduction, label_smoothing

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(x, labels, self.reduction, self.label_smoothing)

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}, label_smoothing={self.label_smoothing}"
