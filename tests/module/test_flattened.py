"""Weights that count the features of a flattened map: PyTorch's outputs with them, and warnings without."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import CheckpointError, nn
from alpha.models import torchvision
from alpha.module.flattened_layers import known_maps, may_be_flattened
from alpha.nn.utils import find_flattened

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


def last(values: Any) -> np.ndarray:
    """PyTorch's values with channels last."""
    array = values.detach().numpy()
    return np.moveaxis(array, 1, -1) if array.ndim > 2 else array


def turned(x: Any) -> alpha.Tensor:
    return alpha.tensor(np.ascontiguousarray(last(x)))


def outputs(model: nn.Module, x: Any) -> np.ndarray:
    return model(turned(x)).numpy()


@pytest.mark.parametrize("make", NETS, ids=lambda make: make.__name__)
def test_outputs_are_pytorchs(make: Any) -> None:
    theirs, ours, how, x = both(make)
    theirs.train(), theirs(x), theirs.eval()
    ours.eval().load_state_dict(theirs.state_dict(), layout="NCHW", **how)
    np.testing.assert_allclose(outputs(ours, x), last(theirs(x)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", NETS, ids=lambda make: make.__name__)
def test_a_sequential_tells_its_maps_by_itself_both_ways(make: Any) -> None:
    theirs, ours, _, x = both(make)
    theirs.train(), theirs(x), theirs.eval()
    ours.eval().load_state_dict(theirs.state_dict(), layout="NCHW")
    np.testing.assert_allclose(outputs(ours, x), last(theirs(x)), rtol=1e-4, atol=1e-4)
    again = make(pytest.importorskip("torch").nn)[0].eval()
    missing = again.load_state_dict(ours.state_dict(layout="NCHW").torch(), strict=False)
    assert all("num_batches_tracked" in name for name in missing.missing_keys)
    assert not missing.unexpected_keys
    for name, value in again.state_dict().items():
        if "num_batches_tracked" not in name:
            np.testing.assert_array_equal(value.numpy(), theirs.state_dict()[name].numpy(), err_msg=name)


def in_a_module(lib: Any, make: Any) -> Any:
    """The network with its layers as attributes, between which a forward flattens and unflattens."""
    parts = make(lib)[0]

    class Net(lib.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.named_children():
                setattr(self, f"part{name}", part)

        def forward(self, x: Any) -> Any:
            for name, part in self.named_children():
                kind = type(part).__name__
                if kind == "Flatten":
                    x = x.view(x.shape[0], -1)
                elif kind == "Unflatten":
                    x = x.reshape(x.shape[0], *part.unflattened_size)
                else:
                    x = part(x).relu() if kind == "Linear" and name != "part7" else part(x)
            return x

    return Net()


@pytest.mark.parametrize("make", NETS, ids=lambda make: make.__name__)
def test_one_forward_finds_the_maps_of_any_module(make: Any) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    theirs, ours = in_a_module(torch.nn, make), in_a_module(nn, make).requires_grad_(False)
    _, how, shape = make(nn)
    for parameter in theirs.parameters():
        parameter.data.normal_(0.5)
    x = torch.randn(shape)
    ours.train()
    found = find_flattened(ours, turned(x))
    assert all(module.training for module in ours.modules())
    wanted = {f"part{name}".removesuffix(".weight"): value for name, value in next(iter(how.values())).items()}
    assert getattr(found, next(iter(how))) == wanted
    assert found == known_maps(ours)
    theirs.train(), theirs(x), theirs.eval()
    ours.eval().load_state_dict(theirs.state_dict(), layout="NCHW")
    np.testing.assert_allclose(outputs(ours, x), last(theirs(x)), rtol=1e-4, atol=1e-4)
    again = copy.deepcopy(ours).state_dict(layout="NCHW").torch()
    for name, value in again.items():
        np.testing.assert_array_equal(value.numpy(), theirs.state_dict()[name].numpy(), err_msg=name)


@pytest.mark.parametrize("make", NETS, ids=lambda make: make.__name__)
def test_a_warning_names_the_layers_and_what_to_give(make: Any) -> None:
    torch = pytest.importorskip("torch")
    theirs, ours = in_a_module(torch.nn, make), in_a_module(nn, make)
    how = make(nn)[1]
    for call in (
        lambda: ours.load_state_dict(theirs.state_dict(), layout="NCHW"),
        lambda: ours.state_dict(layout="NCHW"),
    ):
        with pytest.warns(UserWarning, match="whose features PyTorch counts in another order") as found:
            call()
        for name in next(iter(how.values())):
            assert repr(f"part{name}".removesuffix(".weight")) in str(found[0].message)
    ours.load_state_dict(theirs.state_dict(), layout="NCHW", flattened={})
    ours.load_state_dict(ours.state_dict())
    named = {argument: {f"part{name}": shape for name, shape in maps.items()} for argument, maps in how.items()}
    ours.load_state_dict(theirs.state_dict(), layout="NCHW", **named)
    ours.load_state_dict(theirs.state_dict(), layout="NCHW")  # which the layers know from now on
    assert_pytorchs(ours.state_dict(layout="NCHW"), theirs)


def assert_pytorchs(state: Any, theirs: Any) -> None:
    for name, value in state.torch().items():
        np.testing.assert_array_equal(value.numpy(), theirs.state_dict()[name].numpy(), err_msg=name)


class Heads(nn.Module):
    """Features that are tokens, permuted maps and single pixels, whose order PyTorch has, too."""

    def __init__(self) -> None:
        self.conv = nn.Conv2d(3, 4, 3, 2)
        self.tokens = nn.Linear(9 * 8, 2)
        self.permuted = nn.Linear(36, 2)
        self.pooled = nn.Linear(4, 2)
        self.project = nn.Linear(4, 8)

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        y = self.conv(x)
        tokens = self.project(y.flatten(1, 2)).flatten(1)
        permuted = y.permute(0, 3, 1, 2).flatten(1)
        return self.tokens(tokens) + self.permuted(permuted) + self.pooled(y.mean((1, 2), keepdim=True).flatten(1))


def test_features_that_have_pytorchs_order_are_not_found() -> None:
    assert find_flattened(Heads(), alpha.randn(2, 7, 7, 3)) == ({}, {})


def test_a_layer_that_changes_channels_ends_what_a_sequential_tells() -> None:
    class Own(nn.Module):
        def forward(self, x: alpha.Tensor) -> alpha.Tensor:
            return x.permute(0, 3, 1, 2)

    tail = [nn.Flatten(), nn.Linear(144, 5)]
    for layers in ([Own()], [nn.PixelShuffle(2)], [nn.GLU()], [nn.Flatten(1, 2)]):
        assert known_maps(nn.Sequential(nn.Conv2d(3, 4, 3), *layers, *tail)) == ({}, {})
    kept = [nn.BatchNorm2d(4), nn.PReLU(), nn.Dropout2d(), nn.Sequential(nn.MaxPool2d(2), nn.ZeroPad2d(1))]
    assert known_maps(nn.Sequential(nn.Conv2d(3, 4, 3), *kept, *tail)).flattened == {"6": (4, 36)}


@pytest.mark.slow
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


@pytest.mark.slow
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
