"""SENet: ResNets that weigh their channels (Hu, Shen & Sun 2018, "Squeeze-and-Excitation Networks")."""

from __future__ import annotations

from alpha import nn
from alpha.core.tensor import Tensor
from alpha.models.torchvision.resnet import BasicBlock, Block, Bottleneck, ResNet


class SqueezeExcitation(nn.Module):
    """x times a weight for each image and channel, which two 1x1 convolutions find from the mean of the channel

    (N, H, W, C) -> the same
    """

    def __init__(self, input_channels: int, squeeze_channels: int) -> None:
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(input_channels, squeeze_channels, 1)
        self.activation = nn.ReLU(inplace=True)
        self.fc2 = nn.Conv2d(squeeze_channels, input_channels, 1)
        self.scale_activation = nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        scale = self.fc2(self.activation(self.fc1(self.avgpool(x))))
        return x * self.scale_activation(scale)  # type: ignore[no-any-return]


def _weighed(block: Block, x: Tensor, weigh: SqueezeExcitation) -> Tensor:
    """The forward of a block whose residual is weighed before the shortcut is added."""
    y = weigh(nn.conv_batch_norm(*block.begin(x)))
    return block.relu(y.add_(block.shortcut(x)))  # type: ignore[no-any-return]


REDUCTION = 16  # channels of a block for each channel of the squeeze


class SEBasicBlock(BasicBlock):
    """A basic block whose residual is weighed channel by channel."""

    def __init__(self, in_channels: int, channels: int, stride: int, groups: int = 1, base_width: int = 64) -> None:
        super().__init__(in_channels, channels, stride, groups, base_width)
        self.se = SqueezeExcitation(channels, channels // REDUCTION)

    def forward(self, x: Tensor) -> Tensor:
        return _weighed(self, x, self.se)


class SEBottleneck(Bottleneck):
    """A bottleneck whose residual is weighed channel by channel."""

    def __init__(self, in_channels: int, channels: int, stride: int, groups: int = 1, base_width: int = 64) -> None:
        super().__init__(in_channels, channels, stride, groups, base_width)
        out_channels = channels * self.expansion
        self.se = SqueezeExcitation(out_channels, out_channels // REDUCTION)

    def forward(self, x: Tensor) -> Tensor:
        return _weighed(self, x, self.se)


_DEPTHS: dict[int, tuple[type[Block], tuple[int, int, int, int]]] = {
    18: (SEBasicBlock, (2, 2, 2, 2)),
    34: (SEBasicBlock, (3, 4, 6, 3)),
    50: (SEBottleneck, (3, 4, 6, 3)),
    101: (SEBottleneck, (3, 4, 23, 3)),
    152: (SEBottleneck, (3, 8, 36, 3)),
}


def se_resnet(depth: int = 50, num_classes: int = 1000) -> ResNet:
    """SE-ResNet of 18, 34, 50, 101 or 152 layers   (N, 224, 224, 3) -> (N, num_classes)

    It is the ResNet of `alpha.models.torchvision` with a `SqueezeExcitation` in each block. That of 50 layers has
    28,088,024 parameters.
    """
    if depth not in _DEPTHS:
        raise ValueError(f"se_resnet: depth={depth} is not one of {tuple(_DEPTHS)}")
    return ResNet(*_DEPTHS[depth], num_classes)
