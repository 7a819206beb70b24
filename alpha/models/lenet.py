"""LeNet-5 (LeCun et al. 1998), with full connections between its two convolutions."""

from __future__ import annotations

from alpha import nn
from alpha.core.tensor import Tensor
from alpha.module.flattened_layers import remember


class LeNet(nn.Module):
    """Two 5x5 convolutions with tanh and a mean over 2x2, then three linear layers

    (N, 32, 32, in_channels) -> (N, num_classes)
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 1) -> None:
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 6, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2)
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(16 * 5 * 5, 120),
            nn.Tanh(),
            nn.Linear(120, 84),
            nn.Tanh(),
            nn.Linear(84, num_classes),
        )
        remember(self, "classifier.1", (16, 5, 5))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))  # type: ignore[no-any-return]


def lenet(num_classes: int = 10, in_channels: int = 1) -> LeNet:
    """LeNet-5, 61,706 parameters   (N, 32, 32, in_channels) -> (N, num_classes)"""
    return LeNet(num_classes, in_channels)
