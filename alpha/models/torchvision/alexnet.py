"""AlexNet (Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks")."""

from __future__ import annotations

from alpha import nn
from alpha.core.tensor import Tensor
from alpha.models.torchvision.pretrained import Weights, with_weights
from alpha.module.flattened_layers import remember
from alpha.nn import functional as F

__all__ = ["AlexNet", "alexnet"]


class AlexNet(nn.Module):
    """Five convolutions, three max pools, three linear layers   (N, H, W, 3) -> (N, num_classes), H and W at least 63

    Args:
        dropout: its probability before the first two linear layers.
    """

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Linear(4096, num_classes),
        )
        remember(self, "classifier.1", (256, 6, 6))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.flatten(self.avgpool(self.features(x)), 1))  # type: ignore[no-any-return]


def alexnet(num_classes: int = 1000, dropout: float = 0.5, *, weights: Weights = None) -> AlexNet:
    """AlexNet, 61,100,840 parameters   (N, 224, 224, 3) -> (N, num_classes)"""
    return with_weights(AlexNet(num_classes, dropout), weights)
