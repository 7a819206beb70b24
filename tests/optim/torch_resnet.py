"""A ResNet in PyTorch, written from the paper and from the names of torchvision's weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Block(nn.Module):
    """A basic block, or a bottleneck with the stride in its 3x3 convolution."""

    def __init__(self, in_channels: int, channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        out, three = channels * expansion, expansion > 1
        first = (1, 1, 0) if three else (3, stride, 1)
        self.conv1 = nn.Conv2d(in_channels, channels, *first, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride if three else 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        if three:
            self.conv3 = nn.Conv2d(channels, out, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or in_channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(in_channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Any) -> Any:
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if hasattr(self, "conv3"):
            y = self.bn3(self.conv3(self.relu(y)))
        return self.relu(y + shortcut)


class TorchResNet(nn.Module):
    """(N, 3, H, W) -> (N, num_classes)

    Args:
        expansion: 1 for basic blocks, 4 for bottlenecks.
        layers: blocks in each of the four stages.
    """

    def __init__(self, expansion: int, layers: tuple[int, int, int, int], num_classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        channels = 64
        for stage, count in enumerate(layers):
            width, blocks = 64 << stage, []
            for index in range(count):
                blocks.append(Block(channels, width, 2 if stage and not index else 1, expansion))
                channels = width * expansion
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(channels, num_classes)

    def forward(self, x: Any) -> Any:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))
