"""The networks that can be compared, as both sides build them."""

from __future__ import annotations

from typing import Any

from alpha import models
from alpha.errors import ConfigError
from alpha.models import torchvision

PAPER_EPOCHS = {"resnet18": 25, "resnet34": 30, "vgg16": 35, "vgg19": 40}
# beside the paper's, under its protocol; with a smaller stem or patches for images of 32x32
OTHER_EPOCHS = {"googlenet": 25, "mobilenet_v2": 25, "convnext_tiny": 25, "vit_tiny": 25}
EPOCHS = PAPER_EPOCHS | OTHER_EPOCHS
PAPER_EPOCHS_128 = {"resnet18": 50, "resnet34": 50, "vgg16": 30, "vgg19": 40}  # on ILSVRC2012


def epochs(name: str, image_size: int) -> int:
    """The paper's number of epochs for a network and a size of images."""
    return (EPOCHS | PAPER_EPOCHS_128 if image_size == 128 else EPOCHS)[name]


def stem_size(name: str, image_size: int) -> int:
    """Height and width of the patches of ConvNeXt's first layer or of a vision transformer."""
    small = image_size == 32
    return (2 if small else 4) if name == "convnext_tiny" else (4 if small else 16)


def _check(name: str) -> None:
    """`ConfigError` for a name that is none of EPOCHS."""
    if name not in EPOCHS:
        raise ConfigError(f"there is no network {name!r} to compare, but {', '.join(EPOCHS)}")


def network(name: str, num_classes: int, image_size: int) -> Any:
    """Alpha's network, one of EPOCHS, (N, image_size, image_size, 3) -> (N, num_classes)."""
    _check(name)
    if name in PAPER_EPOCHS:
        return getattr(models, name)(num_classes=num_classes, image_size=image_size)
    if name == "googlenet":
        return torchvision.googlenet(num_classes, aux_logits=False)
    if name == "mobilenet_v2":
        return torchvision.mobilenet_v2(num_classes)
    if name == "convnext_tiny":
        return torchvision.convnext_tiny(num_classes, stem_size=stem_size(name, image_size))
    return models.vit_tiny(num_classes, image_size, stem_size(name, image_size))


def twin(name: str, num_classes: int, image_size: int) -> Any:
    """The same network of PyTorch, (N, 3, image_size, image_size) -> (N, num_classes), with weights of its own."""
    from compare import more_twins, twins

    _check(name)
    if name in PAPER_EPOCHS:
        return twins.paper_network(name, num_classes, image_size)
    if name == "googlenet":
        return more_twins.GoogLeNet(num_classes)
    if name == "mobilenet_v2":
        return more_twins.MobileNetV2(num_classes)
    if name == "convnext_tiny":
        return more_twins.ConvNeXt(num_classes, stem_size(name, image_size))
    return more_twins.VisionTransformer(num_classes, image_size, stem_size(name, image_size))
