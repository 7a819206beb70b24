"""Networks beside the paper's give PyTorch's results and gradients, with the same weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import alpha
from alpha import models, nn
from alpha.models import torchvision
from alpha.models.senet import SEBottleneck

TWINS: dict[str, tuple[Callable[[], nn.Module], str, dict[str, int]]] = {
    "convnext": (lambda: torchvision.ConvNeXt((4, 8, 6), (1, 2, 1), layer_scale=0.5, num_classes=5), "convnext", {}),
    "convnext, small stem": (
        lambda: torchvision.ConvNeXt((4, 8), (1, 1), layer_scale=0.5, num_classes=5, stem_size=2),
        "convnext",
        {},
    ),
    "densenet": (lambda: torchvision.DenseNet(4, (2, 3), 8, 2, 0.0, 5), "densenet", {}),
    "googlenet": (lambda: torchvision.GoogLeNet(5, aux_logits=False, dropout=0.0), "googlenet", {}),
    "mobilenet_v2": (lambda: torchvision.mobilenet_v2(5, 0.25, dropout=0.0), "mobilenet", {}),
    "resnet": (lambda: torchvision.ResNet(torchvision.BasicBlock, (2, 1, 1, 1), 5), "resnet", {}),
    "resnext": (lambda: torchvision.ResNet(torchvision.Bottleneck, (1, 2, 1, 1), 5, 4, 4), "resnet", {"groups": 4}),
    "se_resnet": (lambda: torchvision.ResNet(SEBottleneck, (1, 1, 1, 1), 5, 1, 16), "resnet", {}),
    "vit": (lambda: torchvision.VisionTransformer(48, 16, 2, 2, 8, 12, num_classes=5), "vit", {"heads": 2}),
    "unet": (lambda: models.unet(4, 3, width=4), "unet", {}),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", TWINS)
def test_results_and_gradients_are_those_of_pytorch(name: str) -> None:
    pytest.importorskip("torch")
    import torch_models

    make, twin, options = TWINS[name]
    alpha.manual_seed(2)
    model = make().astype("float64")
    images = np.random.default_rng(0).normal(size=(3, 48, 48, 3))
    weights = torch_models.Weights(model)
    y = model(alpha.tensor(images))
    theirs = getattr(torch_models, twin)(weights, torch_models.images(images), **options)
    turned = theirs.permute(0, 2, 3, 1) if theirs.ndim == 4 else theirs
    np.testing.assert_allclose(y.numpy(), turned.detach().numpy(), rtol=1e-7, atol=1e-8)
    (y * y).sum().backward()
    (theirs * theirs).sum().backward()
    for where, parameter in model.named_parameters():
        assert parameter.grad is not None
        ours, wanted = parameter.grad.numpy(), weights.all[where].grad.numpy()
        ours = np.moveaxis(ours, -1, 1) if ours.ndim == 4 else ours
        np.testing.assert_allclose(ours, wanted, rtol=1e-6, atol=1e-8 * max(1.0, np.abs(wanted).max()), err_msg=where)
