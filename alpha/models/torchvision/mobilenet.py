"""MobileNetV2 (Sandler et al. 2018): inverted residuals with depthwise convolutions."""

from __future__ import annotations

from alpha import nn
from alpha.core.tensor import Tensor
from alpha.models.torchvision.pretrained import Weights, with_weights
from alpha.nn import functional as F

__all__ = ["MobileNetV2", "mobilenet_v2"]

# (expansion, channels, blocks, stride of the first block) of each stage
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
DIVISOR = 8  # of numbers of channels


def _conv_bn(in_channels: int, channels: int, kernel_size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution without bias, BN and ReLU6   (N, H, W, in_channels) -> (N, H / stride, W / stride, channels)"""
    padding = kernel_size // 2
    conv = nn.Conv2d(in_channels, channels, kernel_size, stride, padding, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(channels), nn.ReLU6(inplace=True))


class InvertedResidual(nn.Module):
    """A 1x1 convolution to more channels, a depthwise 3x3 one with the stride, and a 1x1 one

    x is added to the result if shapes are equal.
    (N, H, W, in_channels) -> (N, H / stride, W / stride, channels)

    Args:
        expansion: channels in the middle for each channel of x; with 1 there is no first convolution.
    """

    def __init__(self, in_channels: int, channels: int, stride: int, expansion: int) -> None:
        width = in_channels * expansion
        self.use_res_connect = stride == 1 and in_channels == channels
        self.conv = nn.Sequential()
        if expansion != 1:
            self.conv.append(_conv_bn(in_channels, width, 1))
        self.conv.append(_conv_bn(width, width, 3, stride, groups=width))
        self.conv.append(nn.Conv2d(width, channels, 1, bias=False))
        self.conv.append(nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return x + y if self.use_res_connect else y


class MobileNetV2(nn.Module):
    """A 3x3 convolution of stride 2, seven stages, a 1x1 convolution, the global average, a linear layer

    (N, H, W, 3) -> (N, num_classes)

    Args:
        width_mult: factor of all numbers of channels, which become multiples of 8.
        dropout: its probability before the linear layer.
    """

    def __init__(self, num_classes: int = 1000, width_mult: float = 1.0, dropout: float = 0.2) -> None:
        channels, last = _multiple(32 * width_mult), _multiple(1280 * max(1.0, width_mult))
        self.features = nn.Sequential(_conv_bn(3, channels, 3, stride=2))
        for expansion, width, blocks, first_stride in STAGES:
            for block in range(blocks):
                before, channels = channels, _multiple(width * width_mult)
                stride = first_stride if block == 0 else 1
                self.features.append(InvertedResidual(before, channels, stride, expansion))
        self.features.append(_conv_bn(channels, last, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(last, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.flatten(self.avgpool(self.features(x)), 1))  # type: ignore[no-any-return]


def _multiple(channels: float) -> int:
    """The nearest multiple of 8, at least 8, and not less than 90 % of `channels`."""
    rounded = max(DIVISOR, int(channels + DIVISOR / 2) // DIVISOR * DIVISOR)
    return rounded if rounded >= 0.9 * channels else rounded + DIVISOR


def mobilenet_v2(
    num_classes: int = 1000, width_mult: float = 1.0, dropout: float = 0.2, *, weights: Weights = None
) -> MobileNetV2:
    """MobileNetV2, 3,504,872 parameters   (N, 224, 224, 3) -> (N, num_classes)"""
    return with_weights(MobileNetV2(num_classes, width_mult, dropout), weights)
