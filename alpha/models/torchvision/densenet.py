"""DenseNet (Huang et al. 2017): each layer sees the maps of all layers before it."""

from __future__ import annotations

from alpha import nn
from alpha.autograd.checkpointing import checkpoint
from alpha.core.tensor import Tensor
from alpha.models.torchvision.pretrained import Weights, with_weights
from alpha.nn import functional as F
from alpha.ops.array.joining import cat

__all__ = ["DenseNet", "densenet121", "densenet161", "densenet169", "densenet201"]


class DenseLayer(nn.Module):
    """BN, ReLU, 1x1 convolution, BN, ReLU, 3x3 convolution   (N, H, W, C) of each input -> (N, H, W, growth_rate)

    Args:
        bottleneck: channels between the convolutions, for each channel of the result.
        drop_rate: the probability of dropout after the second convolution.
        memory_efficient: keep only the inputs, and compute the rest again in the backward pass.
    """

    def __init__(
        self, in_channels: int, growth_rate: int, bottleneck: int, drop_rate: float, memory_efficient: bool
    ) -> None:
        width = bottleneck * growth_rate
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, growth_rate, 3, padding=1, bias=False)
        self.dropout = nn.Dropout(drop_rate)
        self.memory_efficient = memory_efficient

    def bottleneck(self, maps: list[Tensor]) -> Tensor:
        """(N, H, W, C) of each map -> (N, H, W, width)"""
        x = nn.batch_norm_activation(self.norm1, cat(maps, dim=-1), self.relu1)
        return nn.conv_batch_norm(self.conv1, self.norm2, x, self.relu2)

    def forward(self, maps: list[Tensor]) -> Tensor:
        x = checkpoint(self.bottleneck, maps) if self.memory_efficient else self.bottleneck(maps)
        return self.dropout(self.conv2(x))  # type: ignore[no-any-return]


class DenseBlock(nn.Module):
    """Layers, each of which sees x and the results of all before   (N, H, W, C) -> (N, H, W, C + layers growth_rate)"""

    def __init__(
        self, layers: int, in_channels: int, growth_rate: int, bottleneck: int, drop_rate: float, memory_efficient: bool
    ) -> None:
        for index in range(layers):
            layer = DenseLayer(in_channels + index * growth_rate, growth_rate, bottleneck, drop_rate, memory_efficient)
            setattr(self, f"denselayer{index + 1}", layer)

    def forward(self, x: Tensor) -> Tensor:
        maps = [x]
        for _, layer in self._named_parts():
            maps.append(layer(maps))
        return cat(maps, dim=-1)


class Transition(nn.Module):
    """BN, ReLU, 1x1 convolution, mean over 2x2   (N, H, W, in_channels) -> (N, H / 2, W / 2, out_channels)"""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        self.norm = nn.BatchNorm2d(in_channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(in_channels, out_channels, 1, bias=False)
        self.pool = nn.AvgPool2d(2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.conv(nn.batch_norm_activation(self.norm, x, self.relu)))  # type: ignore[no-any-return]


class DenseNet(nn.Module):
    """A 7x7 convolution of stride 2, a max pool, dense blocks with transitions in between, the mean, a linear layer

    (N, H, W, 3) -> (N, num_classes)

    Args:
        growth_rate: channels of each layer's result.
        block_config: layers of each block.
        num_init_features: channels of the first convolution.
        bn_size: channels of a bottleneck, for each channel of `growth_rate`.
        drop_rate: the probability of dropout after each layer.
        memory_efficient: run the first half of each layer again in the backward pass (`alpha.checkpoint`), so that
            memory grows with the depth and not with its square.
    """

    def __init__(
        self,
        growth_rate: int = 32,
        block_config: tuple[int, ...] = (6, 12, 24, 16),
        num_init_features: int = 64,
        bn_size: int = 4,
        drop_rate: float = 0.0,
        num_classes: int = 1000,
        memory_efficient: bool = False,
    ) -> None:
        channels = num_init_features
        parts: dict[str, nn.Module] = {
            "conv0": nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False),
            "norm0": nn.BatchNorm2d(channels),
            "relu0": nn.ReLU(inplace=True),
            "pool0": nn.MaxPool2d(3, stride=2, padding=1),
        }
        for number, layers in enumerate(block_config, 1):
            block = DenseBlock(layers, channels, growth_rate, bn_size, drop_rate, memory_efficient)
            parts[f"denseblock{number}"] = block
            channels += layers * growth_rate
            if number < len(block_config):
                parts[f"transition{number}"] = Transition(channels, channels // 2)
                channels //= 2
        parts["norm5"] = nn.BatchNorm2d(channels)
        self.features = nn.Sequential()
        for name, part in parts.items():
            setattr(self.features, name, part)
        self.relu = nn.ReLU(inplace=True)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.avgpool(self.relu(self.features(x)))
        return self.classifier(F.flatten(x, 1))  # type: ignore[no-any-return]


def densenet121(
    num_classes: int = 1000, drop_rate: float = 0.0, memory_efficient: bool = False, *, weights: Weights = None
) -> DenseNet:
    """DenseNet121, 7,978,856 parameters   (N, 224, 224, 3) -> (N, num_classes)"""
    return with_weights(DenseNet(32, (6, 12, 24, 16), 64, 4, drop_rate, num_classes, memory_efficient), weights)


def densenet161(
    num_classes: int = 1000, drop_rate: float = 0.0, memory_efficient: bool = False, *, weights: Weights = None
) -> DenseNet:
    """DenseNet161, 28,681,000 parameters   (N, 224, 224, 3) -> (N, num_classes)"""
    return with_weights(DenseNet(48, (6, 12, 36, 24), 96, 4, drop_rate, num_classes, memory_efficient), weights)


def densenet169(
    num_classes: int = 1000, drop_rate: float = 0.0, memory_efficient: bool = False, *, weights: Weights = None
) -> DenseNet:
    """DenseNet169, 14,149,480 parameters   (N, 224, 224, 3) -> (N, num_classes)"""
    return with_weights(DenseNet(32, (6, 12, 32, 32), 64, 4, drop_rate, num_classes, memory_efficient), weights)


def densenet201(
    num_classes: int = 1000, drop_rate: float = 0.0, memory_efficient: bool = False, *, weights: Weights = None
) -> DenseNet:
    """DenseNet201, 20,013,928 parameters   (N, 224, 224, 3) -> (N, num_classes)"""
    return with_weights(DenseNet(32, (6, 12, 48, 32), 64, 4, drop_rate, num_classes, memory_efficient), weights)
