"""Maps that a forward flattens on ways of its own: found by one forward and turned, or named in a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.module.flattened_layers import may_be_flattened
from alpha.nn.utils import find_flattened

pytestmark = pytest.mark.torch

IMAGES = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)
Forward = Callable[[Any, Any, Any], Any]  # of the library, the module, and the map (2, 4, 4, 4) of its convolution


def network(lib: Any, forward: Forward, layers: Callable[[Any], dict[str, Any]]) -> Any:
    """A network with a convolution, whose output goes through a forward with layers of its own."""

    class Net(lib.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv = lib.nn.Sequential(lib.nn.Conv2d(3, 4, 3, padding=1), lib.nn.Tanh(), lib.nn.AvgPool2d(2))
            for name, layer in layers(lib.nn).items():
                setattr(self, name, layer)

        def forward(self, x: Any) -> Any:
            return forward(lib, self, self.conv(x))

    return Net()


def weight_norm(nn: Any) -> dict[str, Any]:
    return {"fc": nn.utils.parametrizations.weight_norm(nn.Linear(64, 3))}


def spectral_norm(nn: Any) -> dict[str, Any]:
    return {"fc": nn.utils.parametrizations.spectral_norm(nn.Linear(64, 64))}


def fc(nn: Any) -> dict[str, Any]:
    return {"fc": nn.Linear(64, 3)}


def normed(norm: str) -> Callable[[Any], dict[str, Any]]:
    return lambda nn: {"norm": getattr(nn, norm)(64), "fc": nn.Linear(64, 3)}


def lstm(nn: Any) -> dict[str, Any]:
    return {"rnn": nn.LSTM(64, 64, 2, batch_first=True, bidirectional=True)}  # states as many as inputs


def lazy(nn: Any) -> dict[str, Any]:
    return {"fc": nn.LazyLinear(3)}


def joined(nn: Any) -> dict[str, Any]:
    return {"fc": nn.Linear(64 + 5, 3)}


def straight(lib: Any, net: Any, y: Any) -> Any:
    return net.fc(y.flatten(1))


TURNED: dict[str, tuple[Forward, Callable[[Any], dict[str, Any]]]] = {
    "a lazy layer": (straight, lazy),
    "weight norm": (straight, weight_norm),
    "spectral norm": (straight, spectral_norm),
    "normalize": (lambda lib, net, y: net.fc(lib.nn.functional.normalize(y.flatten(1), dim=1)), fc),
    "a difference": (lambda lib, net, y: net.fc((y.flatten(1) - (y * y).flatten(1)).abs()), fc),
    "rows cut off": (lambda lib, net, y: net.fc(lib.cat([y, y], CUT[lib][0])[CUT[lib][1]].flatten(1)), fc),
    "frames": (lambda lib, net, y: net.fc(lib.stack([y, y * 2], 1).flatten(2)).sum(1), fc),
    "frames of a batch": (lambda lib, net, y: net.fc(y.view(1, 2, 4, 4, 4).flatten(2)).sum(1), fc),
    "features of frames": (lambda lib, net, y: net.rnn(y.flatten(1).view(1, 2, -1))[0], lstm),
    **{
        norm: (lambda lib, net, y: net.fc(net.norm(y.flatten(1)).tanh()), normed(norm))
        for norm in ("LayerNorm", "RMSNorm", "PReLU", "BatchNorm1d")
    },
}
CUT: dict[Any, Any] = {alpha: (1, np.s_[:, 2:6])}  # the axis of rows, and rows in the middle

NOT_TURNED: dict[str, tuple[Forward, Callable[[Any], dict[str, Any]], str]] = {
    "joined with others": (lambda lib, net, y: net.fc(lib.cat([y.flatten(1), lib.ones(2, 5)], 1)), joined, "fc"),
    "two maps": (
        lambda lib, net, y: net.fc(lib.cat([y.flatten(1), (y * y).flatten(1)], 1)),
        lambda nn: {"fc": nn.Linear(128, 3)},
        "fc",
    ),
    "a parameter": (
        lambda lib, net, y: lib.nn.functional.linear(y.flatten(1), net.own),
        lambda nn: {"own": nn.Parameter(nn.Linear(64, 3).weight.detach().clone())},
        "own",
    ),
    "a factor": (
        lambda lib, net, y: net.fc(y.flatten(1) * net.own),
        lambda nn: {"fc": nn.Linear(64, 3), "own": nn.Parameter(nn.Linear(64, 1).weight[0].detach().clone())},
        "own",
    ),
    "a gate": (
        lambda lib, net, y: net.fc(y.flatten(1) * net.gate(lib.ones(2, 5))),
        lambda nn: {"fc": nn.Linear(64, 3), "gate": nn.Linear(5, 64)},
        "gate",
    ),
    "groups": (
        lambda lib, net, y: net.fc(net.norm(y.flatten(1))),
        lambda nn: {"fc": nn.Linear(64, 3), "norm": nn.GroupNorm(4, 64)},
        "norm",
    ),
    "half of them": (
        lambda lib, net, y: net.fc(lib.nn.functional.glu(y.flatten(1), 1)),
        lambda nn: {"fc": nn.Linear(32, 3)},
        "fc",
    ),
    "two factors": (
        lambda lib, net, y: net.fc(y.flatten(1), lib.ones(2, 5)),
        lambda nn: {"fc": nn.Bilinear(64, 5, 3)},
        "fc",
    ),
}


def both(forward: Forward, layers: Callable[[Any], dict[str, Any]]) -> tuple[Any, Any, np.ndarray]:
    """PyTorch's network with drawn weights, Alpha's, and PyTorch's outputs."""
    torch = pytest.importorskip("torch")
    CUT[torch] = (2, np.s_[:, :, 2:6])
    torch.manual_seed(0)
    theirs, ours = network(torch, forward, layers).eval(), network(alpha, forward, layers).eval()
    theirs(torch.from_numpy(IMAGES))
    for parameter in theirs.parameters():
        parameter.data.normal_(0, 0.3)
    return theirs, ours, theirs(torch.from_numpy(IMAGES)).detach().numpy()


def images() -> alpha.Tensor:
    return alpha.tensor(np.moveaxis(IMAGES, 1, -1).copy())


@pytest.mark.parametrize("kind", TURNED)
def test_outputs_are_pytorchs_and_weights_go_back(kind: str) -> None:
    theirs, ours, expected = both(*TURNED[kind])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_flattened(ours, images()).flattened
        ours.load_state_dict(theirs.state_dict(), layout="NCHW")
    np.testing.assert_allclose(ours(images()).numpy(), expected, rtol=1e-4, atol=1e-5)
    back = ours.state_dict(layout="NCHW").torch()
    for name, value in theirs.state_dict().items():
        if "num_batches_tracked" not in name:
            np.testing.assert_array_equal(back[name].numpy(), value.numpy(), err_msg=name)


@pytest.mark.parametrize("kind", NOT_TURNED)
def test_a_warning_names_what_is_not_turned(kind: str) -> None:
    forward, layers, name = NOT_TURNED[kind]
    theirs, ours, expected = both(forward, layers)
    with pytest.warns(UserWarning, match=rf"'{name}' with the map \(C, H, W\) = \(4, 4, 4\)"):
        find_flattened(ours, images())
    # the advice: PyTorch's order before the flatten
    advised = network(alpha, lambda lib, net, y: forward(lib, net, y.movedim(-1, 1)), layers).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_flattened(advised, images()) == ({}, {})
        advised.load_state_dict(theirs.state_dict(), layout="NCHW")
    np.testing.assert_allclose(advised(images()).numpy(), expected, rtol=1e-4, atol=1e-5)


MADE: dict[str, tuple[Forward, dict[str, tuple[int, ...]]]] = {  # of maps (2, 3, 8, 8) or so that a layer makes
    "given back": (lambda lib, net, view: view(net.one.tanh(), 3, 8).relu(), {"one": (3, 8, 8)}),
    "joined": (
        lambda lib, net, view: net.conv(lib.cat([view(net.one, 3, 8), view(net.two, 2, 8)], LAST[lib])),
        {"one": (3, 8, 8), "two": (2, 8, 8)},
    ),
}
LAST: dict[Any, int] = {alpha: -1}


@pytest.mark.parametrize("kind", MADE)
def test_a_warning_names_layers_that_make_maps_in_other_ways(kind: str) -> None:
    torch = pytest.importorskip("torch")
    LAST[torch] = 1
    forward, maps = MADE[kind]
    torch.manual_seed(0)

    def make(lib: Any, view: Callable[[Any, int, int], Any]) -> Any:
        class Net(lib.nn.Module):  # type: ignore[misc,name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = lib.nn.Linear(7, 192), lib.nn.Linear(7, 128)
                self.conv = lib.nn.Conv2d(5, 2, 3)

            def forward(self, x: Any) -> Any:
                self.one, self.two = self.first(x), self.second(x)
                return forward(lib, self, view)

        return Net()

    theirs = make(torch, lambda h, c, side: h.view(-1, c, side, side))
    ours = make(alpha, lambda h, c, side: h.view(-1, side, side, c))
    advised = make(alpha, lambda h, c, side: h.view(-1, c, side, side).movedim(1, -1))
    x = np.random.default_rng(0).normal(size=(2, 7)).astype(np.float32)
    with pytest.warns(UserWarning, match=r"a map \(C, H, W\) is made") as caught:
        find_flattened(ours, alpha.tensor(x))
    for name, shape in maps.items():
        assert f"{shape} of '{ {'one': 'first', 'two': 'second'}[name] }'" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_flattened(advised, alpha.tensor(x)) == ({}, {})
        advised.load_state_dict(theirs.state_dict(), layout="NCHW")
    expected = theirs(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(np.moveaxis(advised(alpha.tensor(x)).numpy(), -1, 1), expected, rtol=1e-4, atol=1e-5)


def test_a_flattened_image_of_three_colours_is_named() -> None:
    assert may_be_flattened(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 8))) == {"1": ("flattened", 3, 1024)}
    for layers in ([nn.Linear(784, 8)], [nn.Linear(8, 192), nn.Linear(192, 8)], [nn.Linear(16, 8), nn.Linear(12, 8)]):
        assert may_be_flattened(nn.Sequential(nn.Flatten(), *layers)) == {}


def test_what_runs_without_a_record_is_not_settled() -> None:
    def frozen(lib: Any, net: Any, y: Any) -> Any:
        return net.fc(y.detach().flatten(1))

    theirs, ours, _ = both(frozen, fc)
    assert find_flattened(ours, images()) == ({}, {})
    with pytest.warns(UserWarning, match="'fc' may take a flattened map"):
        ours.load_state_dict(theirs.state_dict(), layout="NCHW")


def test_a_layer_behind_those_of_another_branch_is_named() -> None:
    branch = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(5, 8))
    assert may_be_flattened(nn.Sequential(branch, nn.Linear(64, 8))) == {"1": ("flattened", 4, 16)}
    for given in (64, 128, 32, 56):  # all of what a layer gives, a half, twice as much, and that of two layers
        heads = nn.Sequential(branch, nn.Linear(8, given), nn.Linear(given, 3), nn.Linear(64, 2))
        assert may_be_flattened(heads) == {}


def test_a_lazy_layer_in_a_sequential_is_turned_before_its_first_forward() -> None:
    torch = pytest.importorskip("torch")
    theirs, ours = (
        lib.Sequential(lib.LazyConv2d(4, 3), lib.Flatten(), lib.LazyLinear(8), lib.LazyLinear(3))
        for lib in (torch.nn, nn)
    )
    expected = theirs(torch.from_numpy(IMAGES)).detach().numpy()
    ours.load_state_dict(theirs.state_dict(), layout="NCHW")
    np.testing.assert_allclose(ours(images()).numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", ["weight_norm", "spectral_norm"])
def test_parametrized_layers_in_a_sequential_are_turned(norm: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)

    def make(lib: Any, wrapped: bool) -> Any:
        normed = getattr(lib.utils.parametrizations, norm)
        layers = [normed(lib.Conv2d(3, 4, 3)), lib.Flatten(), normed(lib.Linear(144, 144, bias=False))]
        return lib.ModuleList(layers) if wrapped else lib.Sequential(*layers)

    theirs, ours = make(torch.nn, False).eval(), make(nn, False).eval()
    for parameter in theirs.parameters():
        parameter.data.normal_(0, 0.3)
    ours.load_state_dict(theirs.state_dict(), layout="NCHW")
    np.testing.assert_allclose(
        ours(images()).numpy(), theirs(torch.from_numpy(IMAGES)).detach().numpy(), rtol=1e-4, atol=1e-5
    )
    assert may_be_flattened(make(nn, True)) == {"2": ("flattened", 4, 36)}


def transposed(lib: Any, net: Any, x: Any) -> Any:
    return net.fc(x.transpose(1, 2).flatten(1))


def in_windows(lib: Any, net: Any, x: Any) -> Any:
    parts = x.reshape(2, 2, 2, 2, 2, 4).permute(0, 1, 3, 2, 4, 5)
    return net.fc(parts.reshape(2, 4, 16).flatten(1))


def channels_first(lib: Any, net: Any, x: Any) -> Any:
    return net.fc(x.movedim(-1, 1).flatten(1))


@pytest.mark.parametrize(
    ("forward", "warned"),
    [(transposed, True), (in_windows, True), (channels_first, False)],
    ids=["transposed", "windows", "channels first"],
)
def test_permuted_maps_are_not_taken_for_settled(forward: Forward, warned: bool) -> None:
    """The warning of a load stays for what is neither turned nor in PyTorch's order, with channels first."""
    net = network(alpha, forward, fc)
    found = find_flattened(net, alpha.tensor(np.moveaxis(IMAGES, 1, -1)))
    assert not found.flattened
    state = {name: value.numpy() for name, value in network(alpha, channels_first, fc).state_dict().items()}
    state["conv.0.weight"] = np.moveaxis(state["conv.0.weight"], -1, 1)
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        net.load_state_dict(state, layout="NCHW")
    assert any("'fc' may take a flattened map" in str(entry.message) for entry in log) == warned
