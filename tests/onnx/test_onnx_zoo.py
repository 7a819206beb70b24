"""Export of every network of the zoo, run by onnxruntime: within 1e-5 of Alpha, for any batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx_runs import exported, operators, with_statistics

import alpha
from alpha import models, nn
from alpha.models import torchvision
from alpha.models.torchvision.convnext import ConvNeXt
from alpha.models.torchvision.densenet import DenseNet
from alpha.models.torchvision.resnet import BasicBlock, Bottleneck, ResNet
from alpha.models.torchvision.vision_transformer import VisionTransformer

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

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
PLAIN = sorted(set(SMALL) - {"convnext", "vision_transformer"})  # whose layers are all of maps
NAMES = sorted(name for name in torchvision.__all__ if name.islower())
OWN = ["lenet", "resnet18", "resnet34", "se_resnet", "unet", "vgg16", "vgg19", "vit_tiny"]
PIXELS = {"alexnet": 64, "googlenet": 64}


def images(name: str, size: int) -> np.ndarray:
    channels = 1 if name == "lenet" else 3
    return np.random.default_rng(0).normal(size=(1, size, size, channels)).astype(np.float32)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the wide linear layers of AlexNet and VGG, and the channels of VGG, be few."""
    linear = nn.Linear

    def made(in_features: int, out_features: int, **options: bool) -> nn.Module:
        widths = {4096: 32}
        return linear(widths.get(in_features, in_features), widths.get(out_features, out_features), **options)

    monkeypatch.setattr(nn, "Linear", made)
    monkeypatch.setattr("alpha.models.torchvision.vgg.CHANNELS", (4, 8, 8, 16, 16))


@pytest.mark.parametrize("name", sorted(SMALL))
def test_small_networks(name: str, narrow: None) -> None:
    alpha.manual_seed(1)
    proto = exported(with_statistics(SMALL[name]()), images(name, PIXELS.get(name, 32)))
    if name in PLAIN:
        assert not operators(proto)["Transpose"]
    assert {"Dropout", "Identity"}.isdisjoint(operators(proto))


@pytest.mark.gate
@pytest.mark.parametrize("name", NAMES)
def test_every_network_of_torchvision(name: str) -> None:
    alpha.manual_seed(1)
    model = torchvision.vit_b_16(10, 32) if name == "vit_b_16" else getattr(torchvision, name)(10)
    exported(with_statistics(model), images(name, PIXELS.get(name, 32)))


@pytest.mark.gate
@pytest.mark.parametrize("name", OWN)
def test_every_other_network(name: str) -> None:
    alpha.manual_seed(1)
    arguments = {"se_resnet": (50,), "vit_tiny": (10, 32, 4)}.get(name, ())
    exported(with_statistics(getattr(models, name)(*arguments)), images(name, 32))


def test_every_name_of_the_zoo_is_exported() -> None:
    assert set(OWN) == {name for name in models.__all__ if name.islower()} - {"load", "torchvision"}
