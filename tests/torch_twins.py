"""The paper's networks written for PyTorch (NCHW), and Alpha's weights carried over."""

from __future__ import annotations

import small_nets
import torch
from torch import nn
from torch.nn import functional as F

from alpha.nn import Module

torch.set_num_threads(1)  # small networks: more threads only wait for each other


class Block(nn.Module):
    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = None
        if stride != 1 or in_channels != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(F.leaky_relu(self.bn1(self.conv1(x)))))
        return F.leaky_relu(y + (x if self.downsample is None else self.downsample(x)))


class TorchResNet(nn.Module):
    def __init__(self, stages, num_classes, hidden, stem=7, width=64) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, stem, 2, stem // 2, bias=stem == 3)
        self.bn1 = nn.BatchNorm2d(width)
        blocks = []
        channels = width
        for stage, count in enumerate(stages):
            for block in range(count):
                stride = 2 if stage and not block else 1
                blocks.append(Block(channels, width << stage, stride))
                channels = width << stage
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.ModuleDict({"2": nn.Linear(channels, hidden), "5": nn.Linear(hidden, num_classes)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(F.leaky_relu(self.bn1(self.conv1(x)))).mean((2, 3))
        return self.fc["5"](F.leaky_relu(self.fc["2"](x)))


class TorchVGG(nn.Module):
    def __init__(self, convolutions, normalised, head, channels) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for stage, count in enumerate(convolutions):
            for index in range(count):
                layers.append(nn.Conv2d(before, channels[stage], 3, 1, 1, bias=False))
                layers.append(nn.LeakyReLU())
                if index == 1 and stage < normalised:
                    layers.append(nn.BatchNorm2d(channels[stage]))
                before = channels[stage]
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.ModuleDict(
            {
                "1": nn.Linear(head[0], head[1], bias=False),
                "4": nn.Linear(head[1], head[2], bias=False),
                "7": nn.Linear(head[2], head[3]),
            }
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.features(x).permute(0, 2, 3, 1).flatten(1)
        x = F.leaky_relu(self.classifier["1"](x))
        return self.classifier["7"](F.leaky_relu(self.classifier["4"](x)))


def copy_weights(source: Module, target: nn.Module) -> nn.Module:
    """Alpha's state into PyTorch's module of the same names; filters (O, H, W, I) become OIHW."""
    state = {
        name: torch.from_numpy(value.transpose(0, 3, 1, 2).copy() if value.ndim == 4 else value)
        for name, value in source.state_dict().items()
    }
    result = target.load_state_dict(state, strict=False)
    assert not result.unexpected_keys
    assert all(key.endswith("num_batches_tracked") for key in result.missing_keys)
    return target


def twin(name: str) -> nn.Module:
    """PyTorch's form of `small_nets.build(name)`, with the same initial weights."""
    if name in small_nets.RESNET:
        target: nn.Module = TorchResNet(num_classes=small_nets.CLASSES, **small_nets.RESNET[name])
    else:
        target = TorchVGG(**small_nets.VGGS[name], **small_nets.VGG_SHAPE)
    return copy_weights(small_nets.build(name), target)


def train(model: nn.Module) -> list[float]:
    """PyTorch's losses over what `small_nets.train` does."""
    optimizer = torch.optim.Adam(model.parameters(), lr=small_nets.LR)
    images, labels = (torch.from_numpy(values) for values in small_nets.batch())
    losses = []
    for _ in range(small_nets.STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images.permute(0, 3, 1, 2)), labels.long())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
