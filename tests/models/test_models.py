"""The networks of the paper: sizes, and training that agrees with PyTorch's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import small_nets
from helpers import first_of

import alpha
from alpha import CheckpointError, models

_FILE = Path(__file__).parents[1] / "golden" / "training_losses.json"
GOLDEN = json.loads(_FILE.read_text())["losses"]

PARAMETERS = [
    ("resnet18", 10, 32, 12_619_722),
    ("resnet34", 10, 32, 22_861_194),
    ("vgg16", 10, 32, 14_877_514),
    ("vgg19", 10, 32, 20_186_954),
    ("resnet18", 1000, 128, 13_328_424),
    ("resnet34", 1000, 128, 23_510_568),
    ("vgg16", 1000, 128, 58_704_424),
    ("vgg19", 1000, 128, 64_013_864),
]


@pytest.mark.parametrize(("name", "classes", "size", "count"), PARAMETERS)
def test_parameter_counts(monkeypatch: pytest.MonkeyPatch, name: str, classes: int, size: int, count: int) -> None:
    # drawing 60 million numbers is not what is tested
    monkeypatch.setattr(alpha.core.rng, "uniform", lambda shape, *_: np.zeros(shape, np.float32))
    model = getattr(models, name)(classes, size)
    assert sum(parameter.size for parameter in model.parameters()) == count


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "resnet34", "vgg16", "vgg19"])
def test_logits_of_the_full_network(name: str) -> None:
    alpha.manual_seed(0)
    model = getattr(models, name)().eval()
    with alpha.no_grad():
        logits = model(alpha.tensor(alpha.core.rng.normal((2, 32, 32, 3))))
    assert logits.shape == (2, 10)
    assert np.isfinite(logits.numpy()).all()


def test_image_sizes_that_are_refused() -> None:
    with pytest.raises(ValueError, match=r"vgg16: image_size=64 is not one of \(32, 128\)"):
        models.vgg16(image_size=64)


@pytest.mark.slow
@pytest.mark.parametrize("name", first_of(*small_nets.MAKE))
def test_steps_lose_what_pytorch_loses(device: str, name: str) -> None:
    """Identical weights and batches; the golden losses are PyTorch's (make_training_losses.py)."""
    steps = 10 if device == "cpu" else 4  # the emulator takes a second for each
    losses = small_nets.train(small_nets.build(name), device, steps)
    np.testing.assert_allclose(losses, GOLDEN[name][:steps], rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", first_of("resnet18", "vgg16"))
def test_bf16_loses_what_float32_loses(device: str, name: str) -> None:
    """The parameters of the model stay float32."""
    model = small_nets.build(name)
    with alpha.precision("bf16"):
        losses = small_nets.train(model, device, steps=3)
    np.testing.assert_allclose(losses, GOLDEN[name][:3], rtol=1e-2)
    assert losses[-1] < losses[0]
    assert all(values.dtype == np.float32 for values in model.state_dict().numpy().values())


@pytest.mark.torch
@pytest.mark.parametrize("name", small_nets.MAKE)
def test_the_golden_losses_are_this_pytorchs(name: str) -> None:
    pytest.importorskip("torch")
    import torch_twins

    np.testing.assert_allclose(torch_twins.train(torch_twins.twin(name)), GOLDEN[name], rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", first_of(*small_nets.MAKE))
def test_one_batch_is_memorised(name: str) -> None:
    losses = small_nets.train(small_nets.build(name), "cpu", steps=40)
    assert losses[-1] < 0.5 * losses[0], losses


@pytest.mark.slow
def test_two_runs_agree_bit_for_bit(device: str) -> None:
    runs = [small_nets.train(small_nets.build("resnet18"), device, steps=2) for _ in range(2)]
    assert runs[0] == runs[1]


@pytest.mark.slow
def test_weights_travel_through_state_dict(device: str) -> None:
    source = small_nets.build("vgg16")
    small_nets.train(source, device, steps=1)
    alpha.manual_seed(9)
    target = small_nets.MAKE["vgg16"]().to(device)
    target.load_state_dict(source.state_dict())
    images, _ = small_nets.batch()
    x = alpha.tensor(images, device=device)
    with alpha.no_grad():
        expected, found = source.eval()(x), target.eval()(x)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


@pytest.mark.slow
@pytest.mark.parametrize(("model", "twin"), [("resnet18", "resnet18"), ("vgg16", "vgg11_bn")])
def test_weights_of_torchvisions_namesake_are_named(model: str, twin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alpha.core.rng, "uniform", lambda shape, *_: np.zeros(shape, np.float32))
    ours, theirs = getattr(models, model)(), getattr(models.torchvision, twin)(10).state_dict()
    with pytest.raises(
        CheckpointError, match=r"these are weights of torchvision's .*: use alpha\.models\.torchvision\."
    ):
        ours.load_state_dict(theirs)
    if model == "resnet18":
        with pytest.warns(UserWarning, match="these are weights of torchvision's ResNet"):
            ours.load_state_dict({"layer1.x": theirs["conv1.weight"]}, strict=False)
    ours.load_state_dict(ours.state_dict())
