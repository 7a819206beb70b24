"""The paper's networks written for PyTorch, under the names of alpha.models, and Alpha's weights carried over."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

CHANNELS = (64, 128, 256, 512, 512)


class Block(nn.Module):
    """alpha.models.resnet.BasicBlock."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.act = nn.LeakyReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or in_channels != channels:
            shortcut = nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.act(self.bn1(self.conv1(x)))))
        return self.act(y + (x if self.downsample is None else self.downsample(x)))  # type: ignore[no-any-return]


class ResNet(nn.Module):
    """alpha.models.resnet.ResNet."""

    def __init__(
        self,
        stages: tuple[int, ...],
        num_classes: int,
        hidden: int,
        stem: int = 7,
        width: int = 64,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, stem, 2, stem // 2, bias=stem == 3)
        self.bn1 = nn.BatchNorm2d(width)
        self.act = nn.LeakyReLU(inplace=True)
        blocks = []
        in_channels = width
        for stage, count in enumerate(stages):
            for block in range(count):
                blocks.append(Block(in_channels, width << stage, 2 if stage and not block else 1))
                in_channels = width << stage
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(in_channels, hidden),
            nn.LeakyReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.blocks(self.act(self.bn1(self.conv1(x)))).mean((2, 3)))  # type: ignore[no-any-return]


class VGG(nn.Module):
    """alpha.models.vgg.VGG; a map is flattened row by row with its channels last, as there."""

    def __init__(
        self,
        convolutions: tuple[int, ...],
        normalised: int,
        head: tuple[int, int, int, int],
        dropout: float = 0.1,
        channels: tuple[int, ...] = CHANNELS,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        in_channels = 3
        for stage, (width, count) in enumerate(zip(channels, convolutions, strict=True)):
            for index in range(count):
                layers += [nn.Conv2d(in_channels, width, 3, 1, 1, bias=False), nn.LeakyReLU(inplace=True)]
                if index == 1 and stage < normalised:
                    layers.append(nn.BatchNorm2d(width))
                in_channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(head[0], head[1], bias=False),
            nn.LeakyReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(head[1], head[2], bias=False),
            nn.LeakyReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(head[2], head[3]),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).permute(0, 2, 3, 1))  # type: ignore[no-any-return]


def copy_weights(source: Any, target: nn.Module) -> nn.Module:
    """Alpha's state into PyTorch's module of the same names; filters (OC, FH, FW, IC) become (OC, IC, FH, FW)."""
    state = {
        name: torch.from_numpy(value.transpose(0, 3, 1, 2).copy() if value.ndim == 4 else value)
        for name, value in source.state_dict().numpy().items()
    }
    result = target.load_state_dict(state, strict=False)
    wrong = [*result.unexpected_keys, *(k for k in result.missing_keys if not k.endswith("num_batches_tracked"))]
    if wrong:
        raise KeyError(f"the networks differ in {', '.join(wrong)}")
    return target


def paper_network(name: str, num_classes: int, image_size: int) -> nn.Module:
    """PyTorch's form of alpha.models.<name>(num_classes, image_size)."""
    small = image_size == 32
    if name == "resnet18":
        return ResNet((2, 2, 2, 2), num_classes, 128 if small else 512)
    if name == "resnet34":
        return ResNet((4, 4, 6, 3), num_classes, 256 if small else 512, stem=3 if small else 7)
    head = (512, 256, 128, num_classes) if small else (8192, 4096, 2048, num_classes)
    if name == "vgg16":
        return VGG((2, 2, 3, 3, 3), 4, head)
    return VGG((2, 2, 4, 4, 4), 5, head)
