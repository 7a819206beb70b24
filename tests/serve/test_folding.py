"""Networks whose batch normalisations are folded, against the networks themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.models import ResNet, torchvision
from alpha.models.torchvision.resnet import Bottleneck
from alpha.nn import functional as F
from alpha.nn.joined_calls import Folded
from alpha.serve import fold_batch_norms


class Odd(nn.Module):
    """Two convolutions and a norm, joined in one of several ways."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.conv, self.norm, self.other = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1)
        self.act = nn.ReLU6()

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        y = self.conv(x)
        if self.way == "also read beside the norm":
            return self.other(self.norm(y) + y)
        if self.way == "called twice":
            return self.norm(self.other(self.norm(y)))
        if self.way == "something between":
            return self.norm(y * 2)
        if self.way == "a shortcut":
            return nn.conv_batch_norm(self.other, self.norm, y, F.relu, y)
        if self.way == "an activation with a bound":
            return nn.conv_batch_norm(self.other, self.norm, y, self.act)
        return nn.conv_batch_norm(self.other, self.norm, y, nn.LeakyReLU(0.2))


def with_statistics(model: Any, device: str) -> Any:
    """The model with running statistics and affine parameters that are not those of a new one."""
    rng = np.random.default_rng(2)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for value in (module.weight, module.bias, module.running_mean, module.running_var):
                assert value is not None
                value.data.copy_(alpha.tensor(rng.uniform(0.5, 1.5, value.shape).astype(np.float32)))
    return model.to(device)


def images(device: str, size: int = 32) -> alpha.Tensor:
    return alpha.tensor(np.random.default_rng(1).standard_normal((2, size, size, 3), np.float32), device=device)


NETWORKS: dict[str, tuple[Any, int, int]] = {  # how many norms each has, and how many of them are folded
    "the paper's ResNet": (lambda: ResNet((1, 1, 1, 1), 10, 16, stem=3, width=8), 12, 8),
    "torchvision's ResNet50, a block": (lambda: nn.Sequential(nn.Conv2d(3, 64, 3), Bottleneck(64, 64, 1)), 4, 3),
    "torchvision's MobileNetV2, its begin": (
        lambda: nn.Sequential(*list(torchvision.mobilenet_v2().features)[:4]),
        9,
        9,
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_compute_the_same(name: str) -> None:
    make, norms, folds = NETWORKS[name]
    alpha.manual_seed(0)
    model = with_statistics(make(), "cpu").double().train()
    before = model.state_dict().numpy()
    x = images("cpu", 16).double()
    folded, count = fold_batch_norms(model, x)
    kinds = [type(module) for module in folded.modules()]
    assert (count, kinds.count(Folded), kinds.count(nn.BatchNorm2d)) == (folds, folds, norms - folds)
    assert model.training
    assert not folded.training
    assert {key: value.tolist() for key, value in model.state_dict().numpy().items()} == {
        key: value.tolist() for key, value in before.items()
    }
    with alpha.no_grad():
        expected, found = (m(x).numpy() for m in (model.eval(), folded))
    assert np.abs(found - expected).max() <= 1e-12 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("way", "count"),
    [
        ("one after the other", 1),
        ("also read beside the norm", 0),
        ("called twice", 0),
        ("something between", 0),
        ("a shortcut", 0),
        ("an activation with a bound", 0),
    ],
)
def test_what_cannot_be_folded_stays_as_it_is(device: str, way: str, count: int) -> None:
    alpha.manual_seed(0)
    model = with_statistics(Odd(way), device).eval()
    x = images(device, 6)
    folded, found = fold_batch_norms(model, x)
    assert found == count
    np.testing.assert_allclose(folded(x).numpy(), model(x).numpy(), rtol=1e-4, atol=1e-5)


def test_sequential_takes_the_activation_in(device: str) -> None:
    alpha.manual_seed(0)
    act = nn.LeakyReLU(0.3)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), act, nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU6())
    with_statistics(model, device).eval()
    folded, count = fold_batch_norms(model, images(device, 6))
    kinds = [type(module).__name__ for module in folded.children()]  # type: ignore[attr-defined]
    assert count == 2
    assert kinds == ["Conv2d", "Folded", "Identity", "Conv2d", "Folded", "ReLU6"]
    x = images(device, 6)
    np.testing.assert_allclose(folded(x).numpy(), model(x).numpy(), rtol=1e-4, atol=1e-5)


def test_other_calls_of_a_folded_norm_are_refused() -> None:
    place, x = Folded(F.relu), alpha.ones(2, 3, 3, 4)
    assert place(x, None, None, F.relu) is x
    for arguments in ((None, x, F.relu), (None, None, None), ()):
        with pytest.raises(
            RuntimeError, match=r"Folded: called with activation=.* (a|no) residual, and folded for calls with"
        ):
            place(x, *arguments)
