"""VGG with 11, 13, 16 and 19 layers (Simonyan & Zisserman 2015), with and without batch normalisation."""

from __future__ import annotations

from alpha import nn
from alpha.core.tensor import Tensor
from alpha.models.torchvision.pretrained import Weights, with_weights
from alpha.module.flattened_layers import remember
from alpha.nn import functional as F

__all__ = ["VGG", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn"]

CHANNELS = (64, 128, 256, 512, 512)
CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


class VGG(nn.Module):
    """Five stages of 3x3 convolutions, each with a max pool, and three linear layers

    (N, H, W, 3) -> (N, num_classes), H and W at least 32

    Args:
        convolutions: how many in each of the five stages.
        batch_norm: whether a batch normalisation follows each convolution.
        dropout: its probability after the first two linear layers.
    """

    def __init__(
        self, convolutions: tuple[int, ...], batch_norm: bool, num_classes: int = 1000, dropout: float = 0.5
    ) -> None:
        layers: list[nn.Module] = []
        in_channels = 3
        for channels, count in zip(CHANNELS, convolutions, strict=True):
            for _ in range(count):
                layers.append(nn.Conv2d(in_channels, channels, 3, padding=1))
                if batch_norm:
                    layers.append(nn.BatchNorm2d(channels))
                layers.append(nn.ReLU(inplace=True))
                in_channels = channels
            layers.append(nn.MaxPool2d(2, stride=2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(in_channels * 7 * 7, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(4096, num_classes),
        )
        remember(self, "classifier.0", (in_channels, 7, 7))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.flatten(self.avgpool(self.features(x)), 1))  # type: ignore[no-any-return]


def vgg11(num_classes: int = 1000, dropout: float = 0.5, *, weights: Weights = None) -> VGG:
    """VGG11, 132,863,336 parameters   (N, 224, 224, 3) -> (N, num_classes)"""
    return with_weights(VGG(CONVOLUTIONS[11], False, num_classes, dropout), weights)


def vgg11_bn(num_classes: int = 1000, dropout: float = 0.5, *, weights: Weights = None) -> VGG:
    """VGG11 with batch normalisation, 132,868,840 parameters   (N, 224, 224, 3) -> (N, num_classes)"""
    return with_weights(VGG(CONVOLUTIONS[11], True, num_classes, dropout), weights)


def vgg13(num_classes: int = 1000, dropout: float = 0.5, *, weights: Weights = None) -> VGG:
    """VGG13, 133,047,848 parameters   (N, 224, 224, 3) -> (N, num_classes)"""
    return with_weights(VGG(CONVOLUTIONS[13], False, num_classes, dropout), weights)


def vgg13_bn(num_classes: int = 1000, dropout: float = 0.5, *, weights: Weights = None) -> VGG:
    """VGG13 with batch normalisation, 133,053,736 parameters   (N, 224, 224, 3) -> (N, num_classes)"""
    return with_weights(VGG(CONVOLUTIONS[13], True, num_classes, dropout), weights)


def vgg16(num_classes: int = 1000, dropout: float = 0.5, *, weights: Weights = None) -> VGG:
    """VGG16, 138,357,544 parameters   (N, 224, 224, 3) -> (N, num_classes)"""
    return with_weights(VGG(CONVOLUTIONS[16], False, num_classes, dropout), weights)


def vgg16_bn(num_classes: int = 1000, dropout: float = 0.5, *, weights: Weights = None) -> VGG:
    """VGG16 with batch normalisation, 138,365,992 parameters   (N, 224, 224, 3) -> (N, num_classes)"""
    return with_weights(VGG(CONVOLUTIONS[16], True, num_classes, dropout), weights)


def vgg19(num_classes: int = 1000, dropout: float = 0.5, *, weights: Weights = None) -> VGG:
    """VGG19, 143,667,240 parameters   (N, 224, 224, 3) -> (N, num_classes)"""
    return with_weights(VGG(CONVOLUTIONS[19], False, num_classes, dropout), weights)


def vgg19_bn(num_classes: int = 1000, dropout: float = 0.5, *, weights: Weights = None) -> VGG:
    """VGG19 with batch normalisation, 143,678,248 parameters   (N, 224, 224, 3) -> (N, num_classes)"""
    return with_weights(VGG(CONVOLUTIONS[19], True, num_classes, dropout), weights)
