"""Command alpha-train with weights of another training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from photo_room import COLORS, SMALL, photos, tiny, train

import alpha
from alpha.models import saved
from alpha.train import load_metadata
from alpha.train.commands import photo_options, train_photos


@pytest.mark.slow
def test_fine_tuning_takes_all_but_the_last_layer(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos(room / "colors")
    photos(room / "two", ("red", "blue"))
    assert train("colors", "--model", "tiny", "--epochs", "1", *SMALL) == 0
    assert train("two", "--weights", "runs/colors", "--epochs", "1", "--device", "cpu") == 0
    out = capsys.readouterr().out
    assert "weights.safetensors: all layers but the last, 5.bias, 5.weight, which begins anew" in out
    described = saved.described(room / "runs/two/weights.safetensors")
    assert (described.model, described.image_size, tuple(described.classes)) == ("tiny", 32, ("blue", "red"))
    assert train("colors", "--weights", "runs/colors", "--epochs", "1", "--device", "cpu") == 0
    assert "weights.safetensors: all layers\n" in capsys.readouterr().out
    assert float(load_metadata(room / "runs/two/weights.safetensors")["lr"]) == photo_options.FINE_TUNING_LR


def ends_in_a_convolution(num_classes: int) -> alpha.nn.Module:
    nn = alpha.nn
    layers = [nn.Conv2d(3, 4, 3, stride=4), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, num_classes, 2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


@pytest.mark.slow
@pytest.mark.parametrize("made", [tiny, ends_in_a_convolution])
@pytest.mark.parametrize("written", ["start.pth", "start.pt", "start.safetensors", "own.pth"])
def test_weights_of_another_program(
    room: Path, made: Any, written: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Filters are (OC, IC, FH, FW) in them; a file says neither network nor layout, but that of alpha.save."""
    monkeypatch.setattr(saved, "NETWORKS", {**saved.NETWORKS, "torchvision.made": made})
    photos(room / "colors")
    start = made(num_classes=7).state_dict()
    theirs = {name: np.moveaxis(v, -1, 1) if v.ndim == 4 else v for name, v in start.numpy().items()}
    theirs = {name: np.ascontiguousarray(v) for name, v in theirs.items()}
    if written == "own.pth":
        alpha.save(start, written)
    elif written.endswith(".safetensors"):
        pytest.importorskip("safetensors.numpy").save_file(theirs, written)
    else:
        torch = pytest.importorskip("torch")
        torch.save({name: torch.tensor(v) for name, v in theirs.items()}, written)

    taken = made(num_classes=3)
    last = list(taken.state_dict())[-1].partition(".")[0]
    text = train_photos.take_weights(taken, room / written, "torchvision.made", tuple(COLORS))
    assert f"all layers but the last, {last}.bias, {last}.weight" in text
    for name, value in taken.state_dict().numpy().items():
        if not name.startswith(f"{last}."):
            np.testing.assert_array_equal(value, start.numpy()[name], err_msg=name)
    assert train("colors", "--weights", written, "--epochs", "1", *SMALL) == 2
    assert f"{written}: does not say which network it has; name it with --model" in capsys.readouterr().err
    assert train("colors", "--model", "torchvision.made", "--weights", written, "--epochs", "1", *SMALL) == 0


def test_a_checkpoint_is_no_state_dict(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos(room / "colors")
    alpha.save({"epoch": 3, "model": tiny(3).state_dict()}, "all.pth")
    assert train("colors", "--model", "tiny", "--weights", "all.pth", "--epochs", "1", *SMALL) == 2
    assert "all.pth: holds a dict with 'epoch', 'model', and no weights by name" in capsys.readouterr().err


@pytest.mark.slow
def test_weights_that_do_not_fit(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is a line, also of a network with hundreds of weights."""
    photos(room / "colors")
    alpha.train.save_weights(room / "start.safetensors", {f"layer{n}.weight": np.zeros(3) for n in range(200)})
    assert train("colors", "--model", "tiny", "--epochs", "1", *SMALL) == 0
    capsys.readouterr()
    for weights, model, message in (
        ("nowhere", "tiny", "nowhere: there is no such run or file of weights"),
        ("runs/nope", "tiny", "nope: there is no such run or file of weights"),
        (
            "start.safetensors",
            "tiny",
            "start.safetensors: 208 mismatches between the weights and Sequential: missing 0.weight",
        ),
        ("runs/colors", "resnet18", "weights.safetensors: has the weights of tiny, not of resnet18"),
    ):
        assert train("colors", "--weights", weights, "--model", model, *SMALL) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
