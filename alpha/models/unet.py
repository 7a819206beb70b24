"""U-Net (Ronneberger, Fischer & Brox 2015), with padding and batch normalisation, so that sizes stay."""

from __future__ import annotations

from alpha import nn
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.joining import cat

LEVELS = 4  # how often the map is halved


def _double_conv(in_channels: int, channels: int) -> nn.Sequential:
    """Two 3x3 convolutions, each with batch normalisation and ReLU   (N, H, W, in_channels) -> (N, H, W, channels)"""
    layers: list[nn.Module] = []
    for inputs in (in_channels, channels):
        layers += [nn.Conv2d(inputs, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)]
        layers.append(nn.ReLU(inplace=True))
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """An encoder of five levels and a decoder that sees the maps of the encoder; a class for each pixel

    (N, H, W, in_channels) -> (N, H, W, num_classes), H and W multiples of 16

    Args:
        width: channels of the first level; each next one has twice as many.
    """

    def __init__(self, num_classes: int = 2, in_channels: int = 3, width: int = 64) -> None:
        widths = [width << level for level in range(LEVELS + 1)]
        self.down = nn.ModuleList(_double_conv(*pair) for pair in zip([in_channels, *widths], widths, strict=False))
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths[:-1]))
        self.merge = nn.ModuleList(_double_conv(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, num_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[1] % 2**LEVELS or x.shape[2] % 2**LEVELS:
            raise ShapeError(f"UNet: x must be (N, H, W, C), H and W multiples of {2**LEVELS}  (x {x.shape})")
        maps: list[Tensor] = []
        for level, convolutions in enumerate(self.down):
            x = convolutions(self.pool(x) if level else x)
            maps.append(x)
        maps.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(cat([maps.pop(), up(x)], dim=-1))
        return self.head(x)  # type: ignore[no-any-return]


def unet(num_classes: int = 2, in_channels: int = 3, width: int = 64) -> UNet:
    """U-Net, 31,037,698 parameters by default   (N, H, W, in_channels) -> (N, H, W, num_classes)"""
    return UNet(num_classes, in_channels, width)
