"""ConvNeXt (Liu et al. 2022): depthwise 7x7 convolutions with the layers of a transformer around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpha import nn
from alpha.core.tensor import Tensor
from alpha.models.torchvision.pretrained import Weights, with_weights

__all__ = ["ConvNeXt", "convnext_tiny"]

EPS = 1e-6  # of the layer norms


class CNBlock(nn.Module):
    """A depthwise 7x7 convolution, a norm, two linear layers with GELU, and a factor of each channel, added to x

    (N, H, W, channels) -> the same

    Args:
        layer_scale: the first value of the factors.
        stochastic_depth_prob: probability with which an image passes by.
    """

    def __init__(self, channels: int, layer_scale: float, stochastic_depth_prob: float) -> None:
        self.block = nn.Sequential(
            nn.Conv2d(channels, channels, 7, padding=3, groups=channels),
            nn.Identity(),  # torchvision permutes the axes here
            nn.LayerNorm(channels, EPS),
            nn.Linear(channels, 4 * channels),
            nn.GELU(),
            nn.Linear(4 * channels, channels),
            nn.Identity(),
        )
        self.layer_scale = nn.Parameter(np.full((channels, 1, 1), layer_scale, np.float32))
        self.stochastic_depth = nn.DropPath(stochastic_depth_prob)

    def forward(self, x: Tensor) -> Tensor:
        y = self.block(x)
        y = y * self.layer_scale.reshape(x.shape[-1]).astype(y.dtype)  # a float32 factor would give float32
        return x + self.stochastic_depth(y)  # type: ignore[no-any-return]


class ConvNeXt(nn.Module):
    """A stem of patches, stages of blocks with a halving before each but the first, the global average, a linear layer

    (N, H, W, 3) -> (N, num_classes)

    Args:
        channels, blocks: of each stage.
        stochastic_depth_prob: that of the last block; it grows from 0 in equal steps.
        layer_scale: the first value of the factors of all blocks.
        stem_size: height and width of the patches of the first layer; 1 or 2 for small images.
    """

    def __init__(
        self,
        channels: Sequence[int],
        blocks: Sequence[int],
        stochastic_depth_prob: float = 0.0,
        layer_scale: float = 1e-6,
        num_classes: int = 1000,
        stem_size: int = 4,
    ) -> None:
        stem = nn.Sequential(nn.Conv2d(3, channels[0], stem_size, stem_size), nn.LayerNorm(channels[0], EPS))
        self.features = nn.Sequential(stem)
        step = stochastic_depth_prob / max(1, sum(blocks) - 1)
        before = 0
        for stage, (width, count) in enumerate(zip(channels, blocks, strict=True)):
            if stage:
                last = channels[stage - 1]
                self.features.append(nn.Sequential(nn.LayerNorm(last, EPS), nn.Conv2d(last, width, 2, 2)))
            made = [CNBlock(width, layer_scale, step * (before + i)) for i in range(count)]
            self.features.append(nn.Sequential(*made))
            before += count
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        last = channels[-1]
        self.classifier = nn.Sequential(nn.LayerNorm(last, EPS), nn.Flatten(), nn.Linear(last, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)))  # type: ignore[no-any-return]


def convnext_tiny(
    num_classes: int = 1000, stochastic_depth_prob: float = 0.1, stem_size: int = 4, *, weights: Weights = None
) -> ConvNeXt:
    """ConvNeXt-T, 28,589,128 parameters   (N, 224, 224, 3) -> (N, num_classes); stem_size 1 or 2 for small images"""
    shape = ((96, 192, 384, 768), (3, 3, 9, 3))
    return with_weights(ConvNeXt(*shape, stochastic_depth_prob, num_classes=num_classes, stem_size=stem_size), weights)
