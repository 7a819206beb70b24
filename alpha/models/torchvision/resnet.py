"""ResNet (He et al. 2016) and ResNeXt (Xie et al. 2017), with the stride of a bottleneck in its 3x3 convolution."""

from __future__ import annotations

from typing import ClassVar

from alpha import nn
from alpha.core.tensor import Tensor
from alpha.models.torchvision.pretrained import Weights, with_weights
from alpha.nn import functional as F

__all__ = [
    "BasicBlock",
    "Bottleneck",
    "ResNet",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnext50_32x4d",
]


class Block(nn.Module):
    """Base of the residual blocks: the shortcut, and the activation after the sum.

    (N, H, W, in_channels) -> (N, H / stride, W / stride, expansion channels)

    Args:
        channels: of the block; the result has `expansion` times as many.
        groups: of the 3x3 convolution of a bottleneck.
        base_width: channels of one group for each 64 of `channels`.

    Attributes:
        downsample: a 1x1 convolution with batch normalisation, if the shortcut changes the shape.
    """

    expansion: ClassVar[int] = 1
    downsample: nn.Sequential | None

    def __init__(self, in_channels: int, channels: int, stride: int, groups: int = 1, base_width: int = 64) -> None:
        self.relu = nn.ReLU(inplace=True)

    def add_shortcut(self, in_channels: int, channels: int, stride: int) -> None:
        """Make the shortcut; behind the other layers, so that parameters have torchvision's order."""
        out_channels = channels * self.expansion
        self.downsample = None
        if stride != 1 or in_channels != out_channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride, bias=False), nn.BatchNorm2d(out_channels)
            )

    def begin(self, x: Tensor) -> tuple[nn.Conv2d, nn.BatchNorm2d, Tensor]:
        """The last convolution, its batch normalisation, and what they are given."""
        raise TypeError(f"{type(self).__name__} defines no begin(self, x)")

    def shortcut(self, x: Tensor) -> Tensor:
        """Tensor that is added before the last activation: x, or the result of `downsample`."""
        return x if self.downsample is None else self.downsample(x)

    def forward(self, x: Tensor) -> Tensor:
        return nn.conv_batch_norm(*self.begin(x), self.relu, self.shortcut(x))


class BasicBlock(Block):
    """Two 3x3 convolutions, the first with the stride; `groups` and `base_width` are 1 and 64."""

    def __init__(self, in_channels: int, channels: int, stride: int, groups: int = 1, base_width: int = 64) -> None:
        if groups != 1 or base_width != 64:
            raise ValueError(f"BasicBlock: groups={groups} and base_width={base_width} are not offered; only 1 and 64")
        super().__init__(in_channels, channels, stride)
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.add_shortcut(in_channels, channels, stride)

    def begin(self, x: Tensor) -> tuple[nn.Conv2d, nn.BatchNorm2d, Tensor]:
        return self.conv2, self.bn2, nn.conv_batch_norm(self.conv1, self.bn1, x, self.relu)


class Bottleneck(Block):
    """A 1x1, a 3x3 and a 1x1 convolution, the second with the stride and the groups."""

    expansion = 4

    def __init__(self, in_channels: int, channels: int, stride: int, groups: int = 1, base_width: int = 64) -> None:
        super().__init__(in_channels, channels, stride)
        width = channels * base_width // 64 * groups
        out_channels = channels * self.expansion
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.add_shortcut(in_channels, channels, stride)

    def begin(self, x: Tensor) -> tuple[nn.Conv2d, nn.BatchNorm2d, Tensor]:
        y = nn.conv_batch_norm(self.conv1, self.bn1, x, self.relu)
        return self.conv3, self.bn3, nn.conv_batch_norm(self.conv2, self.bn2, y, self.relu)


class ResNet(nn.Module):
    """A 7x7 convolution of stride 2, a max pool, four stages of blocks, the global average, a linear layer

    (N, H, W, 3) -> (N, num_classes)

    Args:
        block: the class of the blocks.
        layers: blocks in each of the four stages, which have 64, 128, 256 and 512 channels.
        groups, width_per_group: of the bottlenecks.
    """

    def __init__(
        self,
        block: type[Block],
        layers: tuple[int, int, int, int],
        num_classes: int = 1000,
        groups: int = 1,
        width_per_group: int = 64,
    ) -> None:
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        in_channels = 64
        stages = []
        for stage, count in enumerate(layers):
            channels, blocks = 64 << stage, nn.Sequential()
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(block(in_channels, channels, stride, groups, width_per_group))
                in_channels = channels * block.expansion
            stages.append(blocks)
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(in_channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.conv_batch_norm(self.conv1, self.bn1, x, self.relu, pool=self.maxpool)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(F.flatten(self.avgpool(x), 1))  # type: ignore[no-any-return]


def resnet18(num_classes: int = 1000, *, weights: Weights = None) -> ResNet:
    """ResNet18, 11,689,512 parameters   (N, 224, 224, 3) -> (N, num_classes)"""
    return with_weights(ResNet(BasicBlock, (2, 2, 2, 2), num_classes), weights)


def resnet34(num_classes: int = 1000, *, weights: Weights = None) -> ResNet:
    """ResNet34, 21,797,672 parameters   (N, 224, 224, 3) -> (N, num_classes)"""
    return with_weights(ResNet(BasicBlock, (3, 4, 6, 3), num_classes), weights)


def resnet50(num_classes: int = 1000, *, weights: Weights = None) -> ResNet:
    """ResNet50, 25,557,032 parameters   (N, 224, 224, 3) -> (N, num_classes)"""
    return with_weights(ResNet(Bottleneck, (3, 4, 6, 3), num_classes), weights)


def resnet101(num_classes: int = 1000, *, weights: Weights = None) -> ResNet:
    """ResNet101, 44,549,160 parameters   (N, 224, 224, 3) -> (N, num_classes)"""
    return with_weights(ResNet(Bottleneck, (3, 4, 23, 3), num_classes), weights)


def resnet152(num_classes: int = 1000, *, weights: Weights = None) -> ResNet:
    """ResNet152, 60,192,808 parameters   (N, 224, 224, 3) -> (N, num_classes)"""
    return with_weights(ResNet(Bottleneck, (3, 8, 36, 3), num_classes), weights)


def resnext50_32x4d(num_classes: int = 1000, *, weights: Weights = None) -> ResNet:
    """ResNeXt50 of 32 groups of 4 channels, 25,028,904 parameters   (N, 224, 224, 3) -> (N, num_classes)"""
    return with_weights(ResNet(Bottleneck, (3, 4, 6, 3), num_classes, groups=32, width_per_group=4), weights)
