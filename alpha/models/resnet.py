"""The paper's ResNets (He et al. 2016, basic blocks), for 32x32 and 128x128 images; they are not torchvision's."""

from __future__ import annotations

from typing import Any

from alpha import nn
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.kernel.options import integer

IMAGE_SIZES = (32, 128)  # CIFAR-10 and the paper's reduced ILSVRC2012, for each of which a network has a form
LARGEST_SMALL = 64  # pixels; larger images need the form for 128


def _conv3x3(in_channels: int, channels: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)


class BasicBlock(nn.Module):
    """Convolution 3x3 (stride s), BN, act, convolution 3x3, BN, plus the shortcut, act.

    Where shape changes the shortcut is a 3x3 convolution of the same stride with BN.
    """

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        self.conv1 = _conv3x3(in_channels, channels, stride)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = _conv3x3(channels, channels, 1)
        self.bn2 = nn.BatchNorm2d(channels)
        self.act = nn.LeakyReLU(inplace=True)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or in_channels != channels:
            self.downsample = nn.Sequential(_conv3x3(in_channels, channels, stride), nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        y = nn.conv_batch_norm(self.conv1, self.bn1, x, self.act)
        shortcut = x if self.downsample is None else self.downsample(x)
        return nn.conv_batch_norm(self.conv2, self.bn2, y, self.act, shortcut)


class ResNet(nn.Module):
    """Stem of stride 2, four stages of basic blocks, global average, two linear layers.

    (N, H, W, 3) -> (N, num_classes)

    Args:
        stages: blocks in each of the four stages, which have width, 2, 4 and 8 width channels.
        num_classes: outputs.
        hidden: width of the first linear layer.
        stem: kernel size of the first convolution; a 3x3 one has a bias (ResNet34 on CIFAR-10).
        dropout: its probability before both linear layers.
        width: channels of the stem and the first stage.

    Attributes:
        image_size: for which the network has its form, 32 or 128; None for any images.
    """

    image_size: int | None = None
    _namesake = (
        "layer1.",
        "these are weights of torchvision's ResNet, which is another network: use alpha.models.torchvision.resnet18 "
        "or resnet34",
    )

    def __init__(
        self,
        stages: tuple[int, ...],
        num_classes: int,
        hidden: int,
        stem: int = 7,
        dropout: float = 0.1,
        width: int = 64,
    ) -> None:
        self.conv1 = nn.Conv2d(3, width, stem, 2, stem // 2, bias=stem == 3)
        self.bn1 = nn.BatchNorm2d(width)
        self.act = nn.LeakyReLU(inplace=True)
        blocks = []
        in_channels = width
        for stage, count in enumerate(stages):
            channels = width << stage
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(BasicBlock(in_channels, channels, stride))
                in_channels = channels
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(in_channels, hidden),
            nn.LeakyReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        check_form(self, x)
        x = nn.conv_batch_norm(self.conv1, self.bn1, x, self.act)
        return self.fc(self.pool(self.blocks(x)))  # type: ignore[no-any-return]


def form_of(image_size: int) -> int:
    """Size for which a network has the form that suits images: 32 up to 64 pixels, 128 above."""
    return IMAGE_SIZES[0] if image_size <= LARGEST_SMALL else IMAGE_SIZES[1]


def check_form(model: nn.Module, x: Tensor) -> None:
    """Raises ShapeError if images have a size for which a network would need its other form."""
    built = getattr(model, "image_size", None)
    if built is not None and x.ndim == 4 and form_of(max(x.shape[1:3])) != built:
        raise ShapeError(
            f"{type(model).__name__}: the network has the form for images of {built}x{built}; images of "
            f"{x.shape[1]}x{x.shape[2]} need image_size={max(x.shape[1:3])} when it is made  (x {x.shape})"
        )


def checked_form(model: str, image_size: Any) -> int:
    """The form for images of this size. Raises ValueError unless it is a whole number of at least 1."""
    return form_of(integer(model, "image_size", image_size, 1))


def _resnet(name: str, stages: tuple[int, ...], num_classes: int, image_size: int, **forms: dict[int, Any]) -> ResNet:
    """A ResNet of the form for images of a size; `forms` are its arguments, by that size."""
    form = checked_form(name, image_size)
    model = ResNet(stages, num_classes, **{argument: values[form] for argument, values in forms.items()})
    model.image_size = form
    return model


def resnet18(num_classes: int = 10, image_size: int = 32) -> ResNet:
    """The paper's ResNet18, not torchvision's: (N, 32, 32, 3) or (N, 128, 128, 3) -> (N, num_classes)

    With 10 classes and 32x32 images it has 12.62 million parameters, for its shortcuts are 3x3 convolutions and it ends
    with two linear layers; torchvision's, `alpha.models.torchvision.resnet18`, has 11.18 million. Images of up to 64
    pixels need the form for 32, larger ones that for 128; `image_size` may be any size.

    Examples:
        >>> import alpha
        >>> model = alpha.models.resnet18(num_classes=10)
        >>> model(alpha.rand(1, 32, 32, 3)).shape
        (1, 10)
    """
    return _resnet("resnet18", (2, 2, 2, 2), num_classes, image_size, hidden={32: 128, 128: 512})


def resnet34(num_classes: int = 10, image_size: int = 32) -> ResNet:
    """The paper's ResNet34, not torchvision's: (N, 32, 32, 3) or (N, 128, 128, 3) -> (N, num_classes)

    `alpha.models.torchvision.resnet34` is torchvision's. Its first stage has four blocks; on 32x32 images the stem is a
    3x3 convolution with bias. `image_size` may be any size, as of `resnet18`.
    """
    return _resnet("resnet34", (4, 4, 6, 3), num_classes, image_size, hidden={32: 256, 128: 512}, stem={32: 3, 128: 7})
