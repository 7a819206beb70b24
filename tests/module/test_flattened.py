"""Weights that count the features of a flattened map: PyTorch's outputs with them, and warnings without."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import CheckpointError, nn
from alpha.models import torchvision
from alpha.module.state_dict import may_be_flattened

pytestmark = pytest.mark.torch


def head(lib: Any) -> Any:
    nets = lib.Sequential(lib.Conv2d(3, 8, 3), lib.Conv2d(8, 8, 3), lib.Flatten(), lib.Linear(8 * 4 * 5, 4))
    return nets, {"flattened": {"3": (8, 4, 5)}}, (2, 3, 8, 9)


def normalized(lib: Any) -> Any:
    parts = [lib.Conv2d(3, 6, 3), lib.MaxPool2d(2), lib.Flatten(), lib.BatchNorm1d(6 * 3 * 4), lib.Dropout(0.5)]
    parts += [lib.Linear(72, 72), lib.ReLU(), lib.Linear(72, 72)]
    return lib.Sequential(*parts), {"flattened": {"3": (6, 3, 4), "5": (6, 3, 4)}}, (4, 3, 8, 10)


def sequence(lib: Any) -> Any:
    net = lib.Sequential(lib.Conv1d(3, 6, 3), lib.ReLU(), lib.Flatten(), lib.Linear(30, 2))
    return net, {"flattened": {"3.weight": (6, 5)}}, (2, 3, 7)


def volume(lib: Any) -> Any:
    net = lib.Sequential(lib.Conv3d(2, 3, 2), lib.BatchNorm3d(3), lib.Flatten(), lib.Linear(3 * 2 * 3 * 4, 2))
    return net, {"flattened": {"3": (3, 2, 3, 4)}}, (2, 2, 3, 4, 5)


def generator(lib: Any) -> Any:
    size = (6, 3, 4) if lib.__name__.startswith("torch") else (3, 4, 6)
    parts = [lib.Linear(5, 72), lib.BatchNorm1d(72), lib.ReLU(), lib.Unflatten(1, size), lib.BatchNorm2d(6)]
    net = lib.Sequential(*parts, lib.ConvTranspose2d(6, 3, 2))
    return net, {"unflattened": {"0": (6, 3, 4), "1": (6, 3, 4)}}, (4, 5)


NETS = (head, normalized, sequence, volume, generator)


def both(make: Any) -> tuple[Any, Any, dict[str, Any], Any]:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    theirs, how, shape = make(torch.nn)
    ours = make(nn)[0]
    for parameter in theirs.parameters():  # also weights and biases of norms
        parameter.data.normal_(0.5)
    return theirs, ours, how, torch.randn(shape)


@pytest.mark.parametrize("make", NETS, ids=lambda make: make.__name__)
def test_outputs_are_pytorchs(make: Any) -> None:
    theirs, ours, how, x = both(make)
    theirs.train(), theirs(x), theirs.eval()
    ours.eval().load_state_dict(theirs.state_dict(), layout="NCHW", **how)
    last = lambda values: np.moveaxis(values, 1, -1) if values.ndim > 2 else values  # noqa: E731
    found = ours(alpha.tensor(np.ascontiguousarray(last(x.numpy())))).numpy()
    wanted = last(theirs(x).detach().numpy())
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", NETS, ids=lambda make: make.__name__)
def test_a_warning_names_the_layers_and_what_to_give(make: Any) -> None:
    theirs, ours, how, _ = both(make)
    with pytest.warns(UserWarning, match="whose features PyTorch counts in another order") as found:
        ours.load_state_dict(theirs.state_dict(), layout="NCHW")
    for name in next(iter(how.values())):
        assert repr(name.removesuffix(".weight")) in str(found[0].message)
    ours.load_state_dict(theirs.state_dict(), layout="NCHW", flattened={})
    ours.load_state_dict(ours.state_dict())


@pytest.mark.parametrize(
    "make",
    [
        torchvision.resnet18,
        torchvision.resnext50_32x4d,
        torchvision.mobilenet_v2,
        torchvision.densenet121,
        torchvision.convnext_tiny,
        partial(torchvision.googlenet, aux_logits=False),
        partial(torchvision.vit_b_16, image_size=32),
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 16)),
        lambda: nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 16), nn.BatchNorm1d(16)),
    ],
)
def test_no_warning_where_no_map_is_flattened(make: Callable[[], nn.Module]) -> None:
    assert may_be_flattened(make()) == {}


def test_a_network_that_flattens_maps() -> None:
    assert may_be_flattened(torchvision.alexnet()) == {"classifier.1": ("flattened", 256, 36)}


def test_a_recurrent_layer_may_take_the_columns_of_a_map() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.LSTM(12, 5))
    assert may_be_flattened(net) == {"1": ("flattened", 4, 3)}


def test_names_and_shapes_that_do_not_fit_are_refused() -> None:
    theirs, ours, _, _ = both(head)
    state = theirs.state_dict()
    for flattened, message in (
        ({"fc": (8, 4, 5)}, "flattened   fc: the model has no layer and no tensor of this name"),
        ({"3": (8, 4, 4)}, r"flattened   3: 3\.\w+ has .*, and none of them is 8 x 4 x 4"),
    ):
        with pytest.raises(CheckpointError, match=message):
            ours.load_state_dict(state, layout="NCHW", flattened=flattened)
    for flattened in ({"3": 8}, {3: (8, 4)}, {"3": (160,)}, {"3": (8, 0)}):
        with pytest.raises(TypeError, match=r"is not the name of a layer and the shape \(C, H, W\) of a map"):
            ours.load_state_dict(state, layout="NCHW", flattened=flattened)
    with pytest.raises(CheckpointError, match=r"flattened= is for weights of PyTorch"):
        ours.load_state_dict(ours.state_dict(), flattened={"3": (8, 4, 5)})


def test_no_warning_for_layers_that_get_no_values_of_pytorch() -> None:
    theirs, ours, _, _ = both(head)
    state = {name: value for name, value in theirs.state_dict().items() if not name.startswith("3")}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours.load_state_dict(state, strict=False, layout="NCHW")
