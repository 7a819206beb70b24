"""GoogLeNet (Szegedy et al. 2015) with batch normalisation; its 5x5 convolutions are 3x3 ones, as in torchvision."""

from __future__ import annotations

from typing import NamedTuple

from alpha import nn
from alpha.core.tensor import Tensor
from alpha.models.torchvision.pretrained import Weights, with_weights
from alpha.module.flattened_layers import remember
from alpha.nn import functional as F
from alpha.ops.array.joining import cat

__all__ = ["GoogLeNet", "GoogLeNetOutputs", "googlenet"]


class GoogLeNetOutputs(NamedTuple):
    """Results of GoogLeNet in training, (N, num_classes) each; the last two come from inner layers."""

    logits: Tensor
    aux_logits2: Tensor
    aux_logits1: Tensor


class BasicConv2d(nn.Module):
    """A convolution without bias, BN and ReLU   (N, H, W, in_channels) -> (N, OH, OW, out_channels)"""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, padding: int = 0
    ) -> None:
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(out_channels, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return nn.conv_batch_norm(self.conv, self.bn, x, F.relu)


class Inception(nn.Module):
    """Four branches side by side: 1x1; 1x1, 3x3; 1x1, 3x3; max pool, 1x1

    (N, H, W, in_channels) -> (N, H, W, sum of the branches' channels)

    Args:
        first, pooled: channels of the first and of the last branch.
        second, third: channels of both convolutions of the other branches.
    """

    def __init__(
        self, in_channels: int, first: int, second: tuple[int, int], third: tuple[int, int], pooled: int
    ) -> None:
        self.branch1 = BasicConv2d(in_channels, first, 1)
        self.branch2 = nn.Sequential(BasicConv2d(in_channels, second[0], 1), BasicConv2d(*second, 3, padding=1))
        self.branch3 = nn.Sequential(BasicConv2d(in_channels, third[0], 1), BasicConv2d(*third, 3, padding=1))
        self.branch4 = nn.Sequential(
            nn.MaxPool2d(3, stride=1, padding=1, ceil_mode=True), BasicConv2d(in_channels, pooled, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], dim=-1)


class InceptionAux(nn.Module):
    """A classifier on an inner map, for training   (N, H, W, in_channels) -> (N, num_classes)"""

    def __init__(self, in_channels: int, num_classes: int, dropout: float) -> None:
        self.avgpool = nn.AdaptiveAvgPool2d(4)
        self.conv = BasicConv2d(in_channels, 128, 1)
        self.fc1 = nn.Linear(128 * 4 * 4, 1024)
        self.fc2 = nn.Linear(1024, num_classes)
        self.dropout = nn.Dropout(dropout)
        remember(self, "fc1", (128, 4, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.fc1(F.flatten(self.conv(self.avgpool(x)), 1)), inplace=True)
        return self.fc2(self.dropout(x))  # type: ignore[no-any-return]


class GoogLeNet(nn.Module):
    """Three convolutions, nine inceptions, the global average, a linear layer   (N, H, W, 3) -> (N, num_classes)

    In training with `aux_logits` the result is `GoogLeNetOutputs`.

    Args:
        aux_logits: whether there are two more classifiers for training.
        dropout, dropout_aux: the probability before the last linear layer, of the network and of those classifiers.
    """

    def __init__(
        self, num_classes: int = 1000, aux_logits: bool = True, dropout: float = 0.2, dropout_aux: float = 0.7
    ) -> None:
        self.conv1 = BasicConv2d(3, 64, 7, stride=2, padding=3)
        self.maxpool1 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.conv2 = BasicConv2d(64, 64, 1)
        self.conv3 = BasicConv2d(64, 192, 3, padding=1)
        self.maxpool2 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.inception3a = Inception(192, 64, (96, 128), (16, 32), 32)
        self.inception3b = Inception(256, 128, (128, 192), (32, 96), 64)
        self.maxpool3 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.inception4a = Inception(480, 192, (96, 208), (16, 48), 64)
        self.inception4b = Inception(512, 160, (112, 224), (24, 64), 64)
        self.inception4c = Inception(512, 128, (128, 256), (24, 64), 64)
        self.inception4d = Inception(512, 112, (144, 288), (32, 64), 64)
        self.inception4e = Inception(528, 256, (160, 320), (32, 128), 128)
        self.maxpool4 = nn.MaxPool2d(2, stride=2, ceil_mode=True)
        self.inception5a = Inception(832, 256, (160, 320), (32, 128), 128)
        self.inception5b = Inception(832, 384, (192, 384), (48, 128), 128)
        self.aux1 = InceptionAux(512, num_classes, dropout_aux) if aux_logits else None
        self.aux2 = InceptionAux(528, num_classes, dropout_aux) if aux_logits else None
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(1024, num_classes)

    def forward(self, x: Tensor) -> Tensor | GoogLeNetOutputs:
        x = self.conv3(self.conv2(self.maxpool1(self.conv1(x))))
        x = self.maxpool3(self.inception3b(self.inception3a(self.maxpool2(x))))
        after_4a = self.inception4a(x)
        after_4d = self.inception4d(self.inception4c(self.inception4b(after_4a)))
        x = self.inception5b(self.inception5a(self.maxpool4(self.inception4e(after_4d))))
        logits: Tensor = self.fc(self.dropout(F.flatten(self.avgpool(x), 1)))
        if not self.training or self.aux1 is None or self.aux2 is None:
            return logits
        return GoogLeNetOutputs(logits, self.aux2(after_4d), self.aux1(after_4a))


def googlenet(num_classes: int = 1000, aux_logits: bool = True, *, weights: Weights = None) -> GoogLeNet:
    """GoogLeNet, 6,624,904 parameters and 6,379,984 of the classifiers for training

    (N, 224, 224, 3) -> (N, num_classes)

    The weights that torchvision offers are for images of (pixel / 255 - 0.5) / 0.5, which torchvision's network makes
    of those that are scaled by ImageNet's mean.
    """
    return with_weights(GoogLeNet(num_classes, aux_logits), weights)
