"""The paper's VGGs (Simonyan & Zisserman 2015), for 32x32 and 128x128 images; they are not torchvision's."""

from __future__ import annotations

from alpha import nn
from alpha.core.tensor import Tensor
from alpha.models.resnet import IMAGE_SIZES, check_form

CHANNELS = (64, 128, 256, 512, 512)


class VGG(nn.Module):
    """Five stages of 3x3 convolutions without bias, then three linear layers, the last with bias.

    An activation follows each convolution, a BN the second activation of a stage, a 2x2 max pool
    each stage, an activation and dropout the first two linear layers.
    (N, H, W, 3) -> (N, num_classes)

    Args:
        convolutions: how many in each of the five stages.
        normalised: how many stages have a BN, from the first on.
        head: widths of the linear layers, from the flattened map to the classes.
        dropout: its probability.
        channels: of the five stages.

    Attributes:
        image_size: for which the network is made, 32 or 128; None for that which its head fits.
    """

    image_size: int | None = None
    _namesake = (
        "classifier.0.",
        "these are weights of torchvision's VGG, which is another network: use alpha.models.torchvision.vgg16, vgg19, "
        "or one whose name ends with _bn",
    )

    def __init__(
        self,
        convolutions: tuple[int, ...],
        normalised: int,
        head: tuple[int, int, int, int],
        dropout: float = 0.1,
        channels: tuple[int, ...] = CHANNELS,
    ) -> None:
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
        check_form(self, x)
        return self.classifier(self.features(x))  # type: ignore[no-any-return]


def _vgg(name: str, convolutions: tuple[int, ...], normalised: int, num_classes: int, image_size: int) -> VGG:
    if image_size not in IMAGE_SIZES:
        raise ValueError(f"{name}: image_size={image_size} is not one of {IMAGE_SIZES}")
    head = (512, 256, 128, num_classes) if image_size == 32 else (8192, 4096, 2048, num_classes)
    model = VGG(convolutions, normalised, head)
    model.image_size = image_size
    return model


def vgg16(num_classes: int = 10, image_size: int = 32) -> VGG:
    """The paper's VGG16, not torchvision's: (N, 32, 32, 3) or (N, 128, 128, 3) -> (N, num_classes)

    `alpha.models.torchvision.vgg16_bn` is torchvision's.
    """
    return _vgg("vgg16", (2, 2, 3, 3, 3), 4, num_classes, image_size)


def vgg19(num_classes: int = 10, image_size: int = 32) -> VGG:
    """The paper's VGG19, not torchvision's: (N, 32, 32, 3) or (N, 128, 128, 3) -> (N, num_classes)

    `alpha.models.torchvision.vgg19_bn` is torchvision's.
    """
    return _vgg("vgg19", (2, 2, 4, 4, 4), 5, num_classes, image_size)
