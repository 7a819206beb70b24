"""Weights for PyTorch: state dicts of its layout, files that it reads, whole checkpoints, and networks of a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import CheckpointError, nn
from alpha.models import torchvision

pytestmark = pytest.mark.torch


def layers(lib: Any) -> Any:
    """A network with each kind of filter, a mask, and a scale of four axes."""

    class Net(lib.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.stem = lib.Sequential(lib.Conv2d(3, 8, 3), lib.BatchNorm2d(8), lib.Conv2d(8, 8, 3, groups=4))
            self.up = lib.ConvTranspose2d(8, 4, 2)
            self.line = lib.Conv1d(5, 3, 4)
            self.volume = lib.Conv3d(2, 3, (1, 2, 3))
            self.fc = lib.Linear(5, 4)
            self.tied = self.fc

    return Net()


def test_every_kind_of_filter_goes_out_and_comes_back() -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = layers(nn), layers(torch.nn)
    state = ours.state_dict(layout="NCHW", prefix="")
    assert state.layout == "NCHW"
    given = state.torch()
    assert given["fc.weight"] is given["tied.weight"]
    theirs.load_state_dict({**theirs.state_dict(), **given})
    before = ours.state_dict().numpy()
    other = layers(nn)
    other.load_state_dict(theirs.state_dict(), layout="NCHW")
    for name, value in other.state_dict().numpy().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)
    other.load_state_dict(state)  # which knows its layout
    assert ours.state_dict(layout="NCHW", prefix="net.").keys() == {f"net.{name}" for name in state}


def test_values_of_four_axes_that_are_no_filters() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            self.scale = nn.Parameter(np.arange(5.0).reshape(1, 1, 1, 5))
            self.position = nn.Parameter(np.arange(24.0).reshape(1, 2, 3, 4))
            self.mask = nn.Buffer(np.tril(np.ones((1, 1, 4, 4))))
            self.heads = nn.Parameter(np.arange(24.0).reshape(1, 6, 2, 2))

    torch, model = pytest.importorskip("torch"), Own()
    state = model.state_dict(layout="NCHW").torch()
    shapes = {"scale": (1, 5, 1, 1), "position": (1, 4, 2, 3), "mask": (1, 1, 4, 4), "heads": (1, 2, 6, 2)}
    assert {name: tuple(value.shape) for name, value in state.items()} == shapes
    state["heads"] = torch.arange(24.0).view(1, 6, 2, 2)  # as a program of PyTorch has them
    model.load_state_dict(state, layout="NCHW")
    assert tuple(model.state_dict(layout="NCHW")["heads"].shape) == (1, 6, 2, 2)  # the model has noted it


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_safetensors_and_torch_read_what_alpha_saves(tmp_path: Path, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    read = pytest.importorskip("safetensors.torch").load_file
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 9, 2)).astype(dtype)
    state = model.state_dict(layout="NCHW")
    alpha.save(state, tmp_path / "model.safetensors")
    torch.save(state.torch(), tmp_path / "model.pt")
    for loaded in (read(tmp_path / "model.safetensors"), torch.load(tmp_path / "model.pt", weights_only=True)):
        assert loaded.keys() == state.keys()
        for name, value in state.torch().items():
            assert value.dtype == loaded[name].dtype
            np.testing.assert_array_equal(value.numpy(), loaded[name].numpy())
    for file in ("model.safetensors", "model.pt"):
        back = alpha.load(tmp_path / file)
        assert back.layout == "NCHW"
        other = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 9, 2)).astype(dtype)
        other.load_state_dict(back)
        for a, b in zip(other.state_dict().numpy().values(), model.state_dict().numpy().values(), strict=True):
            np.testing.assert_array_equal(a, b)


def test_bfloat16_is_bfloat16() -> None:
    torch = pytest.importorskip("torch")
    values = alpha.nn.StateDict({"x": alpha.tensor([1.5, -2.0]).bfloat16()}).torch()
    assert values["x"].dtype == torch.bfloat16
    assert values["x"].tolist() == [1.5, -2.0]


def test_arguments_that_mean_nothing_are_refused() -> None:
    model = nn.Linear(2, 3)
    for options, message in (
        ({"layout": "HWIO"}, "layout='HWIO' is not one of"),
        ({"layout": "NCHW", "keep_vars": True}, "keep_vars gives the parameters themselves"),
        ({"flattened": {}}, "are for layout='NCHW'"),
        ({"layout": "NCHW", "flattened": {"fc": (3, 4)}}, "fc: the model has no layer"),
    ):
        with pytest.raises(ValueError, match=message):
            model.state_dict(**options)  # type: ignore[arg-type]


# -- whole checkpoints


WRAPS: list[Callable[[Any], Any]] = [
    lambda s: s,
    lambda s: {"model": s, "epoch": 3, "optimizer": {"state": {}, "param_groups": []}},
    lambda s: {"state_dict": s, "hyper_parameters": {"lr": 0.1}},
    lambda s: {"net": s, "acc": 0.5},
    lambda s: {f"module.{name}": value for name, value in s.items()},
    lambda s: {"state_dict": {f"model._orig_mod.{name}": value for name, value in s.items()}},
]


@pytest.mark.parametrize("number", range(len(WRAPS)))
def test_whole_checkpoints_and_prefixes_are_understood(tmp_path: Path, number: int) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 3), torch.nn.BatchNorm2d(3))
    checkpoint = WRAPS[number](dict(theirs.state_dict()))
    torch.save(checkpoint, tmp_path / "run.pt")
    expected = np.moveaxis(theirs[0].weight.detach().numpy(), 1, -1)
    for state, layout in ((checkpoint, "NCHW"), (alpha.load(tmp_path / "run.pt"), None)):
        ours = nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3))
        keys = ours.load_state_dict(state, layout=layout)
        assert keys == ([], [])
        np.testing.assert_array_equal(ours[0].weight.numpy(), expected)


def test_checkpoints_that_are_not_clear_are_refused() -> None:
    model = nn.Linear(2, 3)
    state = model.state_dict()
    with pytest.raises(CheckpointError, match=r"weights of this model under 'model', 'ema'; give one of them"):
        model.load_state_dict({"model": state, "ema": state})
    with pytest.raises(CheckpointError, match="missing     weight"):
        model.load_state_dict({"module.bias": state["bias"], "other.weight": state["weight"]})
    with pytest.raises(CheckpointError, match="unexpected  epoch"):
        model.load_state_dict({"epoch": 3})


# -- networks of a file


@pytest.mark.slow
def test_a_network_of_a_file(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    first = torchvision.mobilenet_v2(5, 0.25)
    state = first.state_dict(layout="NCHW").torch()
    torch.save(state, tmp_path / "net.pth")
    safetensors.save_file(state, tmp_path / "foreign.safetensors")
    alpha.save(first.state_dict(), tmp_path / "alpha.safetensors")
    for file in ("net.pth", "foreign.safetensors", "alpha.safetensors"):
        model = torchvision.mobilenet_v2(5, 0.25, weights=tmp_path / file)
        for a, b in zip(model.parameters(), first.parameters(), strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
    with pytest.raises(
        CheckpointError, match=r"classifier.1.weight: the weights have \(5, 1280\), the model \(7, 1280\)"
    ):
        torchvision.mobilenet_v2(7, 0.25, weights=str(tmp_path / "net.pth"))
    for weights, error in (("DEFAULT", CheckpointError), (True, TypeError)):
        with pytest.raises(error, match="Alpha downloads no weights"):
            torchvision.resnet18(weights=weights)  # type: ignore[arg-type]
