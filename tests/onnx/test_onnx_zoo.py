"""Export of every network of the zoo, run by onnxruntime: within 1e-5 of Alpha, for any batch."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_models import PIXELS, SMALL, images
from onnx_runs import LIMIT, apart, exported, operators, with_statistics

import alpha
from alpha import models, nn
from alpha.models import torchvision

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

PLAIN = sorted(set(SMALL) - {"convnext", "vision_transformer"})  # whose layers are all of maps
NAMES = sorted(name for name in torchvision.__all__ if name.islower())
OWN = ["lenet", "resnet18", "resnet34", "se_resnet", "unet", "vgg16", "vgg19", "vit_tiny"]


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
    """Both ways: the file computes what the model does, and so does the network that is made of the file."""
    alpha.manual_seed(1)
    model, x = with_statistics(SMALL[name]()), images(name, PIXELS.get(name, 32))
    proto = exported(model, x)
    assert {"Dropout", "Identity"}.isdisjoint(operators(proto))
    network = alpha.onnx.load(proto)
    assert apart(network, proto, [np.concatenate([x, -x])]) < LIMIT
    if name in PLAIN:
        assert not operators(proto)["Transpose"]
        assert not any(call.run in ("Permute", "Unflatten") for call in network.calls)
        wanted = {key: value for key, value in model.state_dict().items() if not key.startswith("aux")}
        found = network.state_dict()
        assert found.keys() == wanted.keys()
        for key, value in wanted.items():
            np.testing.assert_array_equal(found[key].numpy(), value.numpy(), err_msg=key)


@pytest.mark.gate
@pytest.mark.parametrize("name", NAMES)
def test_every_network_of_torchvision(name: str, narrow: None) -> None:
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
