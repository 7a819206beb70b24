"""State dicts: layouts that must not be mistaken, PyTorch's weights, values of every shape."""

from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import CheckpointError, nn
from alpha.train import load_metadata, load_weights, save_weights


class Net(nn.Module):
    """Filters that fit both layouts, one only NHWC, a transposed one, a batch norm, a linear layer after a Flatten."""

    def __init__(self) -> None:
        self.both = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.wide = nn.Conv2d(8, 4, (3, 2))
        self.back = nn.ConvTranspose2d(4, 2, 2, stride=2)
        self.fc = nn.Linear(2 * 6 * 8, 5)

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        y = self.norm(self.both(x))
        return self.fc(self.back(self.wide(y)).flatten(1))


def torch_twin() -> Any:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Module()
    net.both = torch.nn.Conv2d(3, 8, 3, padding=1)
    net.norm = torch.nn.BatchNorm2d(8)
    net.wide = torch.nn.Conv2d(8, 4, (3, 2))
    net.back = torch.nn.ConvTranspose2d(4, 2, 2, stride=2)
    net.fc = torch.nn.Linear(2 * 6 * 8, 5)
    return net


X = np.random.default_rng(0).standard_normal((2, 5, 5, 3)).astype(np.float32)


@pytest.mark.torch
def test_pytorchs_weights_give_pytorchs_results(device: str) -> None:
    torch = pytest.importorskip("torch")
    twin = torch_twin()
    with torch.no_grad():
        y = twin.norm(twin.both(torch.from_numpy(X).permute(0, 3, 1, 2)))
        y = twin.back(twin.wide(y))
        (C, H, W), expected = y.shape[1:], twin.fc(y.flatten(1)).numpy()
    net = Net().to(device)
    net.load_state_dict(twin.state_dict(), layout="NCHW", flattened={"fc": (C, H, W)})
    np.testing.assert_allclose(net(alpha.tensor(X, device=device)).numpy(), expected, atol=1e-5)


@pytest.mark.torch
@pytest.mark.parametrize("plain", [False, True])
def test_pytorchs_weights_without_a_layout_are_refused(plain: bool) -> None:
    net, state = Net(), torch_twin().state_dict()
    if plain:
        state = {name: value.numpy() for name, value in state.items() if "num_batches" not in name}
    before = net.state_dict().numpy()
    with pytest.raises(
        CheckpointError, match=r"layout +both.weight.*pass layout='NCHW' for PyTorch's weights"
    ) as error:
        net.load_state_dict(state, strict=not plain)
    if plain:  # in each layout it would have another shape
        assert "(4, 8, 3, 2), the model (4, 3, 2, 8); they fit with layout='NCHW'" in str(error.value)
    for name, value in net.state_dict().numpy().items():
        np.testing.assert_array_equal(value, before[name])


@pytest.mark.torch
class Masked(nn.Module):
    """A filter, and buffers of four axes that have no channels."""

    def __init__(self, mask: tuple[int, ...] = (1, 1, 5, 5)) -> None:
        self.conv = nn.Conv2d(2, 3, 3)
        self.mask, self.table = nn.Buffer(np.zeros(mask)), nn.Parameter(np.zeros((1, 2, 4, 4)))


def masked_state(mask: tuple[int, ...] = (1, 1, 5, 5)) -> dict[str, np.ndarray]:
    shapes = {"conv.weight": (3, 2, 3, 3), "conv.bias": (3,), "mask": mask, "table": (1, 2, 4, 4)}
    return {name: np.arange(math.prod(shape), dtype=np.float32).reshape(shape) for name, shape in shapes.items()}


def test_what_has_four_axes_and_no_channels_is_read_as_it_is() -> None:
    """A mask and a table of attention beside a filter, all of PyTorch's."""
    net, state = Masked(), masked_state()
    net.load_state_dict(state, layout="NCHW")
    np.testing.assert_array_equal(net.conv.weight.numpy(), state["conv.weight"].transpose(0, 2, 3, 1))
    for name in ("mask", "table"):
        np.testing.assert_array_equal(getattr(net, name).numpy(), state[name])


def test_a_buffer_that_may_have_channels_or_not_is_refused() -> None:
    """Both readings of (1, 4, 4, 4) would be wrong for somebody."""
    net, state = Masked((1, 4, 4, 4)), masked_state((1, 4, 4, 4))
    with pytest.raises(CheckpointError, match=r"layout +mask: a Buffer \(1, 4, 4, 4\) may have channels or not"):
        net.load_state_dict(state, layout="NCHW")
    state["mask"][:] = 7  # both readings are the same
    net.load_state_dict(state, layout="NCHW")
    assert (net.mask.numpy() == 7).all()
    net.load_state_dict(masked_state((1, 4, 4, 4)) | {"conv.weight": np.zeros((3, 3, 3, 2))}, layout="NHWC")
    assert net.mask.numpy()[0, 1, 0, 0] == 16


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_a_layout_is_what_it_says(layout: str) -> None:
    torch = pytest.importorskip("torch")
    values = np.arange(8 * 27, dtype=np.float32).reshape(8, 3, 3, 3)
    bias = np.arange(8, dtype=np.float32)
    expected = values if layout == "NHWC" else values.transpose(0, 2, 3, 1)
    for make in (
        np.asarray,
        torch.from_numpy,
        alpha.tensor,
        lambda a: torch.nn.Parameter(torch.from_numpy(a).bfloat16()),
    ):
        layer = nn.Conv2d(3, 8, 3)
        layer.load_state_dict({"weight": make(values), "bias": make(bias)}, layout=layout)
        np.testing.assert_array_equal(layer.weight.numpy(), expected)
        np.testing.assert_array_equal(layer.bias.numpy(), bias)


def test_what_alpha_made_loads_as_it_is(tmp_path: Path) -> None:
    source = Net()
    state = source.state_dict().numpy()
    save_weights(tmp_path / "w", state, {"epoch": 3})
    assert load_metadata(tmp_path / "w") == {"epoch": "3", "layout": "NHWC"}
    for known in (
        state,
        state.copy(),
        copy.deepcopy(state),
        pickle.loads(pickle.dumps(state)),
        load_weights(tmp_path / "w"),
    ):
        assert known.layout == "NHWC"
        target = Net()
        target.load_state_dict(known)
        for name, value in target.state_dict().numpy().items():
            np.testing.assert_array_equal(value, state[name])
    with pytest.raises(CheckpointError, match="layout='NCHW' was given, but the weights have the layout 'NHWC'"):
        Net().load_state_dict(state, layout="NCHW")
    with pytest.raises(ValueError, match="layout='CHWN' is not one of 'NHWC', 'NCHW'"):
        Net().load_state_dict(state, layout="CHWN")


def test_a_file_of_another_program_has_no_layout(tmp_path: Path) -> None:
    state = Net().state_dict()
    save_weights(tmp_path / "w", dict(state))
    loaded = load_weights(tmp_path / "w")
    assert loaded.layout is None
    with pytest.raises(CheckpointError, match=r"both.weight and 1 more: NHWC or NCHW cannot"):
        Net().load_state_dict({name: loaded[name] for name in loaded if name != "wide.weight"}, strict=False)
    Net().load_state_dict(loaded)
    Net().load_state_dict(loaded, layout="NHWC")
    with pytest.raises(CheckpointError, match="the metadata say layout='x', the weights have 'NHWC'"):
        save_weights(tmp_path / "w", state, {"layout": "x"})


def test_weights_that_fit_in_one_way_need_no_layout() -> None:
    for layer in (nn.Conv2d(4, 3, 3), nn.Conv2d(1, 5, 1), nn.Linear(3, 3), nn.Conv2d(3, 3, (3, 2))):
        state = dict(layer.state_dict().numpy())
        layer.load_state_dict(state)
    with pytest.raises(CheckpointError, match=r"weights have \(3, 4, 3, 3\), the model \(3, 3, 3, 4\); they fit with"):
        nn.Conv2d(4, 3, 3).load_state_dict({"weight": np.zeros((3, 4, 3, 3))}, strict=False)
    with pytest.raises(CheckpointError, match=r"they fit with layout='NHWC'"):
        nn.Conv2d(4, 3, 3).load_state_dict({"weight": np.zeros((3, 3, 3, 4))}, strict=False, layout="NCHW")


CONVOLUTIONS = [
    (kind, (4, 4) if "Transpose" in kind else (3, 4), 4 if "Transpose" in kind else 3)
    for kind in ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
]


@pytest.mark.torch
@pytest.mark.parametrize(("kind", "channels", "taps"), CONVOLUTIONS)
def test_filters_of_any_number_of_axes(kind: str, channels: tuple[int, int], taps: int, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    twin, layer = getattr(torch.nn, kind)(*channels, taps), getattr(nn, kind)(*channels, taps)
    state = twin.state_dict()
    expected = np.moveaxis(state["weight"].numpy(), 1, -1)
    save_weights(tmp_path / "w", {name: value.numpy() for name, value in state.items()})
    for weights in (state, load_weights(tmp_path / "w"), {name: value.numpy() for name, value in state.items()}):
        with pytest.raises(CheckpointError, match="layout      weight: NHWC or NCHW cannot be told"):
            layer.load_state_dict(weights)
        layer.load_state_dict(weights, layout="NCHW")
        np.testing.assert_array_equal(layer.weight.numpy(), expected)
        layer.load_state_dict(weights, layout="NHWC")
        np.testing.assert_array_equal(layer.weight.numpy(), state["weight"].numpy())
    other = getattr(torch.nn, kind)(*channels, taps + 1).state_dict()
    with pytest.raises(CheckpointError, match="they fit with layout='NCHW'"):
        getattr(nn, kind)(*channels, taps + 1).load_state_dict({n: v.numpy() for n, v in other.items()})


@pytest.mark.torch
def test_parameters_of_three_and_five_axes_stay_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    for shape in ((1, 3, 3), (3, 3, 3), (2, 3, 3, 3, 3)):
        net, values = nn.Sequential(nn.Linear(2, 2)), np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        net.position = nn.Parameter(np.zeros(shape, np.float32))
        for given in (values, torch.from_numpy(values)):
            for layout in (None, "NCHW"):
                net.load_state_dict({"position": given}, strict=False, layout=layout)
                np.testing.assert_array_equal(net.position.numpy(), values)


def test_a_part_of_a_state_dict_knows_its_layout() -> None:
    source, target = Net(), Net()
    part = source.state_dict().numpy().filter(lambda name: name.startswith("both"))
    assert (list(part), part.layout) == (["both.weight", "both.bias"], "NHWC")
    assert len(target.load_state_dict(part, strict=False).missing_keys) == len(source.state_dict().numpy()) - 2
    np.testing.assert_array_equal(target.both.weight.numpy(), source.both.weight.numpy())
    assert nn.StateDict(layout="NCHW").filter(bool).layout == "NCHW"


class Tied(nn.Module):
    """A table whose values are the weight of the last layer, too, and a layer under two names."""

    def __init__(self) -> None:
        self.table = nn.Embedding(5, 3)
        self.first = self.second = nn.Linear(3, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.table.weight


TIED = ["table.weight", "first.weight", "first.bias", "second.weight", "second.bias", "head.weight"]


def test_a_shared_tensor_has_each_of_its_names(device: str, tmp_path: Path) -> None:
    source = Tied().to(device)
    state = source.state_dict().numpy()
    assert list(state) == TIED
    assert state["head.weight"] is state["table.weight"]
    save_weights(tmp_path / "w", state)
    for given in (state, load_weights(tmp_path / "w"), state.filter(lambda name: name not in TIED[3:])):
        target = Tied().to(device)
        assert target.load_state_dict(given) == ([], [])
        assert target.head.weight is target.table.weight
        for name, value in target.state_dict().numpy().items():
            np.testing.assert_array_equal(value, state[name])
    before = target.state_dict().numpy()
    state["head.weight"] = state["table.weight"] + 1
    with pytest.raises(CheckpointError, match=r"values +head\.weight: not those of table\.weight, which"):
        target.load_state_dict(state, strict=False)
    np.testing.assert_array_equal(target.head.weight.numpy(), before["head.weight"])
    del state["head.weight"], state["table.weight"]
    with pytest.raises(CheckpointError, match=r"missing     table.weight \(5, 3\)\n.*missing     head.weight"):
        target.load_state_dict(state)


@pytest.mark.torch
def test_shared_weights_come_from_pytorch_and_go_there() -> None:
    torch = pytest.importorskip("torch")
    twin = torch.nn.Module()
    twin.table, twin.head = torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False)
    twin.first = twin.second = torch.nn.Linear(3, 3)
    twin.head.weight = twin.table.weight
    net = Tied()
    net.load_state_dict(twin.state_dict())
    np.testing.assert_array_equal(net.head.weight.numpy(), twin.head.weight.detach().numpy())
    twin.load_state_dict({name: torch.from_numpy(value) for name, value in Tied().state_dict().numpy().items()})


def test_several_unclear_weights_are_one_line() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(3, 3, 3))
    with pytest.raises(CheckpointError) as error:
        net.load_state_dict(dict(net.state_dict().numpy()))
    assert "1 mismatch" in str(error.value)
    assert "layout      0.weight and 1 more: NHWC or NCHW" in str(error.value)


def test_other_filters_tell_the_layout_of_a_plain_dict() -> None:
    """The dict may be an average of weights that a program keeps itself."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    average = {name: value.clone() * 0.5 for name, value in net.state_dict().items()}
    expected = {name: value.numpy() for name, value in average.items()}
    net.load_state_dict(average)
    for name, value in net.state_dict().numpy().items():
        np.testing.assert_array_equal(value, expected[name])
    in_nchw = {name: np.moveaxis(v, -1, 1) if v.ndim == 4 else v for name, v in expected.items()}
    with pytest.raises(CheckpointError, match=r"layout +0.weight: NHWC or NCHW cannot be told"):
        net.load_state_dict(in_nchw)
    with pytest.raises(CheckpointError, match=r"layout +0.weight: NHWC or NCHW cannot be told"):
        net.load_state_dict({name: value for name, value in expected.items() if name != "2.weight"}, strict=False)


@pytest.mark.torch
def test_only_a_batch_norms_counter_is_passed_over() -> None:
    torch = pytest.importorskip("torch")
    layer = nn.BatchNorm2d(3)
    layer.load_state_dict(torch.nn.BatchNorm2d(3).state_dict())
    with pytest.raises(CheckpointError, match="unexpected  num_batches_tracked"):
        nn.Linear(3, 3).load_state_dict(nn.Linear(3, 3).state_dict() | {"num_batches_tracked": np.zeros(())})


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 3), (2, 3, 4, 5)])
@pytest.mark.parametrize("kind", ["Parameter", "Buffer"])
def test_shapes_survive(device: str, shape: tuple[int, ...], kind: str) -> None:
    class Holder(nn.Module):
        def __init__(self, fill: float) -> None:
            self.value = getattr(nn, kind)(np.full(shape, fill, np.float32))

    source, target = Holder(2.0).to(device), Holder(1.0).to(device)
    for _ in range(2):  # the second load sees what the first one left
        target.load_state_dict(source.state_dict())
        assert target.value.shape == shape
        np.testing.assert_array_equal(target.value.numpy(), np.full(shape, 2.0))
    target.astype("float64") if device == "cpu" else None
    assert target.value.shape == shape
