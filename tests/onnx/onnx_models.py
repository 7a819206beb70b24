"""Models and inputs of the tests of ONNX: the networks of the zoo in small, and modules as users write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import alpha
import alpha.nn.functional as F
from alpha import Tensor, models, nn
from alpha.models import torchvision
from alpha.models.torchvision.convnext import ConvNeXt
from alpha.models.torchvision.densenet import DenseNet
from alpha.models.torchvision.resnet import BasicBlock, Bottleneck, ResNet
from alpha.models.torchvision.vision_transformer import VisionTransformer

IMAGE = np.random.default_rng(0).normal(size=(1, 8, 8, 3)).astype(np.float32)
ROW = np.random.default_rng(1).normal(size=(1, 5)).astype(np.float32)

# every class of networks, most of them narrower than those that the zoo has names for
SMALL: dict[str, Callable[[], nn.Module]] = {
    "resnet18": lambda: models.ResNet((1, 1, 1, 1), 10, 16, width=4),
    "resnet34": lambda: models.ResNet((2, 1, 1, 1), 10, 16, stem=3, width=4),
    "vgg16": lambda: models.VGG((2, 2, 3, 2, 1), 4, (16, 16, 8, 10), channels=(4, 8, 8, 16, 16)),
    "se_resnet": lambda: models.se_resnet(18, 10),
    "lenet": models.lenet,
    "unet": lambda: models.unet(width=4),
    "alexnet": lambda: torchvision.alexnet(10),
    "vgg11": lambda: torchvision.vgg11(10),
    "vgg11_bn": lambda: torchvision.vgg11_bn(10),
    "basic": lambda: ResNet(BasicBlock, (1, 1, 1, 1), 10),
    "bottleneck": lambda: ResNet(Bottleneck, (1, 1, 0, 0), 10),
    "resnext": lambda: ResNet(Bottleneck, (1, 1, 0, 0), 10, groups=32, width_per_group=4),
    "densenet": lambda: DenseNet(8, (2, 2, 2, 2), 16, num_classes=10),
    "googlenet": lambda: torchvision.googlenet(10),
    "mobilenet_v2": lambda: torchvision.mobilenet_v2(10),
    "convnext": lambda: ConvNeXt((8, 16, 24, 32), (1, 1, 1, 1), num_classes=10),
    "vision_transformer": lambda: VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=10),
}
PIXELS = {"alexnet": 64, "googlenet": 64}


def images(name: str, size: int) -> np.ndarray:
    channels = 1 if name == "lenet" else 3
    return np.random.default_rng(0).normal(size=(1, size, size, channels)).astype(np.float32)


class Residual(nn.Module):
    """A map that is halved, made larger again, and added, as a user writes it."""

    def __init__(self) -> None:
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.drop = nn.Conv2d(8, 8, 3, padding=1), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Any:
        x = F.relu(self.norm(self.first(x)))
        x = x + F.gelu(self.second(x))
        small = F.max_pool2d(x, 2)
        larger = F.interpolate(small, scale_factor=2, mode="bilinear")
        return self.drop(alpha.cat([x + larger, F.interpolate(small, size=(8, 8))], -1)[..., 2:12])


class TwoInTwoOut(nn.Module):
    def __init__(self) -> None:
        self.conv, self.facts, self.head = nn.Conv2d(3, 4, 3), nn.Linear(5, 4), nn.Linear(4, 2)

    def forward(self, image: Tensor, facts: Tensor) -> dict[str, Tensor]:
        maps = self.conv(image) * self.facts(facts)[:, None, None, :]
        return {"map": maps.softmax(-1), "scores": self.head(maps.mean((1, 2)))}


class Flattened(nn.Module):
    def __init__(self) -> None:
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.AvgPool2d(2))
        self.classifier = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.GELU(), nn.Linear(36, 2))

    def forward(self, x: Tensor) -> Any:
        return self.classifier(self.features(x))


class Volumes(nn.Module):
    def __init__(self) -> None:
        self.conv, self.norm, self.pool = nn.Conv3d(3, 4, 3, padding=1), nn.BatchNorm3d(4), nn.AvgPool3d(2)

    def forward(self, x: Tensor) -> Any:
        return self.pool(F.relu(self.norm(self.conv(x))))
