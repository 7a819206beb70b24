"""Networks that are not the paper's: torchvision's parameters and names, shapes, and one backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import ShapeError, Tensor, models, nn
from alpha.models import torchvision
from alpha.models.torchvision import densenet
from alpha.models.torchvision.convnext import CNBlock
from alpha.models.torchvision.vision_transformer import Encoder

Make = Callable[[], nn.Module]

# of torchvision, whose documentation lists them; GoogLeNet there is counted without its classifiers for training
PARAMETERS = {
    "alexnet": 61_100_840,
    "convnext_tiny": 28_589_128,
    "densenet121": 7_978_856,
    "densenet161": 28_681_000,
    "densenet169": 14_149_480,
    "densenet201": 20_013_928,
    "googlenet": 13_004_888,
    "mobilenet_v2": 3_504_872,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnext50_32x4d": 25_028_904,
    "vgg11": 132_863_336,
    "vgg11_bn": 132_868_840,
    "vgg13": 133_047_848,
    "vgg13_bn": 133_053_736,
    "vgg16": 138_357_544,
    "vgg16_bn": 138_365_992,
    "vgg19": 143_667_240,
    "vgg19_bn": 143_678_248,
    "vit_b_16": 86_567_656,
}
OTHERS: list[tuple[Make, int]] = [
    (lambda: torchvision.googlenet(aux_logits=False), 6_624_904),
    (models.lenet, 61_706),
    (models.vit_tiny, 5_717_416),
    (lambda: models.se_resnet(50), 28_088_024),
    (lambda: models.unet(num_classes=1, width=32), 7_763_041),
]
# a name of each network's state dict in torchvision
NAMES = {
    "alexnet": "classifier.6.weight",
    "convnext_tiny": "features.5.8.block.5.bias",
    "densenet121": "features.denseblock4.denselayer16.conv2.weight",
    "googlenet": "inception3a.branch2.1.bn.running_var",
    "mobilenet_v2": "features.17.conv.3.running_mean",
    "resnet18": "layer2.0.downsample.1.bias",
    "resnext50_32x4d": "layer4.2.conv3.weight",
    "vgg19_bn": "features.50.running_mean",
    "vit_b_16": "encoder.layers.encoder_layer_11.mlp.3.weight",
}


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters of any size that take no memory; 140 million numbers are not what is tested."""
    monkeypatch.setattr(alpha.core.rng, "uniform", lambda shape, *_: np.broadcast_to(np.float32(0), shape))
    monkeypatch.setattr(alpha.module.parameter, "tensor", lambda values: Tensor(np.asarray(values)))


def count(model: nn.Module) -> int:
    return sum(parameter.size for parameter in model.parameters())


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_of_torchvision(name: str) -> None:
    assert count(getattr(torchvision, name)()) == PARAMETERS[name]


def test_every_function_of_torchvision_is_counted() -> None:
    assert set(PARAMETERS) == {name for name in torchvision.__all__ if name == name.lower()}


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize(("make", "parameters"), OTHERS)
def test_parameters_of_others(make: Make, parameters: int) -> None:
    assert count(make()) == parameters


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize("name", NAMES)
def test_names_are_those_of_torchvision(name: str) -> None:
    assert NAMES[name] in dict(getattr(torchvision, name)().named_tensors())


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize(("name", "size"), [("alexnet", 63), ("vgg11_bn", 32)])
def test_shape_of_a_large_network(name: str, size: int) -> None:
    """The network is computed up to its linear layers, which have most of the parameters."""
    model = getattr(torchvision, name)(num_classes=7).eval()
    with alpha.no_grad():
        y = model.avgpool(model.features(alpha.zeros(1, size, size, 3)))
    assert y.size == model.classifier[0 if name == "vgg11_bn" else 1].in_features


SMALL: dict[str, tuple[Make, tuple[int, ...], tuple[int, ...]]] = {
    "convnext": (lambda: torchvision.ConvNeXt((4, 8), (1, 2), 0.1, 0.5, 5, stem_size=2), (2, 16, 16, 3), (2, 5)),
    "densenet": (lambda: torchvision.DenseNet(4, (2, 3), 8, 2, 0.1, 5), (2, 32, 32, 3), (2, 5)),
    "googlenet": (lambda: torchvision.googlenet(5, aux_logits=False), (2, 32, 32, 3), (2, 5)),
    "lenet": (models.lenet, (2, 32, 32, 1), (2, 10)),
    "mobilenet_v2": (lambda: torchvision.mobilenet_v2(5, width_mult=0.25), (2, 32, 32, 3), (2, 5)),
    "resnet18": (lambda: torchvision.resnet18(5), (2, 32, 32, 3), (2, 5)),
    "resnext": (lambda: torchvision.ResNet(torchvision.Bottleneck, (1, 1, 1, 1), 5, 4, 8), (2, 32, 32, 3), (2, 5)),
    "se_resnet": (lambda: models.se_resnet(18, 5), (2, 32, 32, 3), (2, 5)),
    "vit": (lambda: torchvision.VisionTransformer(16, 4, 2, 2, 8, 16, 0.1, 0.1, 5), (2, 16, 16, 3), (2, 5)),
    "unet": (lambda: models.unet(4, 3, width=4), (1, 32, 48, 3), (1, 32, 48, 4)),
}


@pytest.mark.parametrize("name", SMALL)
def test_every_parameter_gets_a_gradient(name: str) -> None:
    make, given, wanted = SMALL[name]
    alpha.manual_seed(0)
    model = make()
    y = model(alpha.tensor(alpha.core.rng.normal(given)))
    assert y.shape == wanted
    (y * y).sum().backward()
    for where, parameter in model.named_parameters():
        assert parameter.grad is not None, where
        assert np.isfinite(parameter.grad.numpy()).all(), where
        assert parameter.grad.numpy().any() or "bias" in where, where  # that of a bias before a BN is 0


def test_googlenet_has_three_results_in_training() -> None:
    model = torchvision.googlenet(5)
    x = alpha.tensor(np.ones((2, 32, 32, 3), np.float32))
    found = model(x)
    assert [found.logits.shape, found.aux_logits2.shape, found.aux_logits1.shape] == [(2, 5)] * 3
    assert model.eval()(x).shape == (2, 5)


def test_a_memory_efficient_densenet_has_the_same_bits() -> None:
    def gradients(memory_efficient: bool) -> list[np.ndarray[Any, Any]]:
        alpha.manual_seed(0)
        model = torchvision.DenseNet(4, (2, 3), 8, 2, 0.2, 5, memory_efficient)
        loss = F.cross_entropy(model(alpha.tensor(alpha.core.rng.normal((2, 32, 32, 3)))), alpha.tensor([1, 3]))
        found = alpha.grad(loss, list(model.parameters()))
        return [loss.numpy(), *(grad.numpy() for grad in found if grad is not None)]

    for first, second in zip(gradients(False), gradients(True), strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize("name", [name for name in PARAMETERS if name.startswith("densenet")])
def test_every_densenet_may_be_memory_efficient(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(densenet, "checkpoint", lambda function, maps: calls.append(function) or function(maps))
    model = getattr(torchvision, name)(2, memory_efficient=True)
    layer = model.features.denseblock1.denselayer1
    layer([alpha.zeros(1, 2, 2, layer.norm1.num_features)])
    assert calls == [layer.bottleneck]


def test_shares_and_scales_reach_their_layers() -> None:
    vit = torchvision.VisionTransformer(4, 2, 1, 1, 4, 8, dropout=0.25, attention_dropout=0.5)
    block = vit.encoder.layers["encoder_layer_0"]
    assert (block.dropout.p, block.self_attention.dropout) == (0.25, 0.5)
    aux = torchvision.GoogLeNet(2, dropout=0.25, dropout_aux=0.5)
    assert (aux.dropout.p, aux.aux1.dropout.p, aux.aux2.dropout.p) == (0.25, 0.5, 0.5)
    convnext = torchvision.ConvNeXt((4,), (1,), layer_scale=0.5)
    np.testing.assert_array_equal(convnext.features[1][0].layer_scale.numpy(), np.full((4, 1, 1), 0.5))


@pytest.mark.usefixtures("no_memory")
def test_the_share_of_a_vision_transformer_of_torchvision() -> None:
    assert torchvision.vit_b_16(dropout=0.25).encoder.dropout.p == 0.25


def test_deeper_blocks_are_passed_by_more_often() -> None:
    model = torchvision.convnext_tiny(stochastic_depth_prob=0.17)
    found = [layer.drop_prob for layer in model.modules() if isinstance(layer, nn.DropPath)]
    assert len(found) == 18
    np.testing.assert_allclose(found, np.linspace(0, 0.17, 18))


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="VisionTransformer: image_size=30 is no multiple of patch_size=16"):
        models.vit_tiny(image_size=30)
    with pytest.raises(ShapeError, match=r"VisionTransformer: x \(N, 16, 16, 3\) is needed  \(x \(1, 24, 32, 3\)\)"):
        torchvision.VisionTransformer(16, 8, 1, 1, 4, 4)(alpha.zeros(1, 24, 32, 3))
    with pytest.raises(ValueError, match=r"se_resnet: depth=20 is not one of \(18, 34, 50, 101, 152\)"):
        models.se_resnet(20)
    with pytest.raises(ValueError, match="BasicBlock: groups=2"):
        torchvision.BasicBlock(8, 8, 1, groups=2)
    with pytest.raises(ShapeError, match=r"multiples of 16  \(x \(1, 24, 32, 3\)\)"):
        models.unet(width=1)(alpha.zeros(1, 24, 32, 3))


def test_float32_parameters_leave_activations_in_bfloat16(device: str) -> None:
    """A factor or a summand of float32 would give float32, and twice the memory, to all that follows."""
    x = alpha.randn(2, 8, 8, 8, device=device).bfloat16()
    assert CNBlock(8, 1e-6, 0.0).to(device)(x).dtype == "bfloat16"
    assert Encoder(4, 8, 0.0, []).to(device)(x[:, :4, 0]).dtype == "bfloat16"
