"""Layout of the filters in a dict of tensors: it follows from where they come from, whatever was done to them."""

from __future__ import annotations

import copy
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import CheckpointError, Tensor, nn

VALUES = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(np.float32)  # it fits in both layouts
Weights = dict[str, Any]
Change = Callable[[Tensor], Tensor]


def layer() -> nn.Conv2d:
    return nn.Conv2d(3, 8, 3, bias=False)


def through_file(value: Tensor) -> Tensor:
    file = io.BytesIO()
    alpha.save([value], file)
    file.seek(0)
    return alpha.load(file)[0]


COPIES: dict[str, Change] = {
    "itself": lambda v: v,
    "clone": lambda v: v.clone(),
    "detach": lambda v: v.detach(),
    "data": lambda v: v.data,
    "cpu": lambda v: v.cpu(),
    "to": lambda v: v.to("cpu", "float64").to("float32"),
    "double": lambda v: v.double(),
    "alpha.tensor": alpha.tensor,
    "deepcopy": lambda v: copy.deepcopy(v.detach()),
    "pickle": lambda v: pickle.loads(pickle.dumps(v)),
    "file": through_file,
    "Parameter": nn.Parameter,
    "detach_": lambda v: v.clone().detach_(),
}
COMPUTED: dict[str, Change] = {
    "scaled": lambda v: v * 1.0,
    "average": lambda v: v * 0.5 + (1 - 0.5) * v,
    "lerp": lambda v: v.lerp(v, 0.5),
    "in place": lambda v: v.clone().mul_(0.5).add_(v, alpha=0.5),
    "into zeros": lambda v: alpha.zeros_like(v).add_(v),
    "stacked": lambda v: alpha.stack([v, v]).mean(0),
    "joined": lambda v: alpha.cat([v[:4], v[4:]]),
    "where": lambda v: alpha.where(v > 0, v, v),
    "reshaped": lambda v: v.reshape(-1).reshape(8, 3, 3, 3),
    "permuted": lambda v: v.permute(0, 3, 2, 1),
    "computed and detached": lambda v: (v * 1.0).detach(),
}


def read(weights: Weights, **how: Any) -> np.ndarray:
    net = layer()
    net.load_state_dict(weights, **how)
    return net.weight.numpy()


@pytest.mark.parametrize("name", [*COPIES, *COMPUTED])
def test_what_comes_from_a_module_is_read_as_it_is(name: str) -> None:
    """The best epoch, moving averages, names without "module.", the mean of several runs."""
    net = layer()
    change = (COPIES | COMPUTED)[name]
    for state in (net.state_dict(), net.state_dict(keep_vars=True)):
        with alpha.no_grad():
            weights = {key: change(value) for key, value in state.items()}
            for given in (weights, OrderedDict(weights), nn.StateDict(weights)):
                np.testing.assert_array_equal(read(given), weights["weight"].numpy())


@pytest.mark.torch
@pytest.mark.parametrize("name", [*COPIES, *COMPUTED])
def test_a_file_of_pytorch_is_turned_or_refused(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"module.weight": torch.from_numpy(VALUES)}, tmp_path / "w.pth")
    change = (COPIES | COMPUTED)[name]
    file = alpha.load(tmp_path / "w.pth")
    weights = {key.removeprefix("module."): change(value) for key, value in file.items()}
    if name in COPIES:
        np.testing.assert_array_equal(read(weights), VALUES.transpose(0, 2, 3, 1))
        own = layer().state_dict()
        own.update(weights)
        for mixed in (own, copy.deepcopy(own), pickle.loads(pickle.dumps(own)), own.copy(), layer().state_dict() | own):
            np.testing.assert_array_equal(read(mixed), VALUES.transpose(0, 2, 3, 1))
    else:
        for given in (weights, layer().state_dict() | weights):
            with pytest.raises(CheckpointError, match="NHWC or NCHW cannot be told"):
                read(given)
    found = read(weights, layout="NCHW")
    np.testing.assert_array_equal(found, weights["weight"].numpy().transpose(0, 2, 3, 1))


SOURCES: dict[str, Callable[[np.ndarray], Any]] = {
    "numpy": lambda a: a,
    "alpha.tensor": alpha.tensor,
    "as_tensor": alpha.as_tensor,
    "from_numpy": alpha.from_numpy,
    "a list": lambda a: alpha.tensor(a.tolist()),
    "Tensor of a list": lambda a: Tensor(a.tolist()),
    "FloatTensor": lambda a: alpha.FloatTensor(a.tolist()),
    "new_tensor": lambda a: alpha.zeros(1).new_tensor(a),
    "Parameter": nn.Parameter,
}


@pytest.mark.parametrize("source", SOURCES)
def test_values_of_unknown_origin_are_refused_however_they_were_changed(source: str) -> None:
    value = SOURCES[source](VALUES)
    changes = COPIES | COMPUTED if isinstance(value, Tensor) else {"itself": COPIES["itself"]}
    for name, change in changes.items():
        with alpha.no_grad():
            weights = {"weight": change(value)}
        own = layer().state_dict()
        own["weight"] = weights["weight"]
        for given in (weights, own):
            with pytest.raises(CheckpointError, match="NHWC or NCHW cannot be told"):
                pytest.fail(f"{name}: {read(given)}")
        for layout in ("NHWC", "NCHW"):
            read(weights, layout=layout)


def test_tensors_of_a_module_are_not_read_as_pytorchs() -> None:
    """A dict `{**model.state_dict(), **pretrained}` with layout="NCHW" would read them so."""
    with pytest.raises(
        CheckpointError, match=r"layout +weight: is a tensor that Alpha has made, so its filters are NHWC"
    ):
        read(dict(layer().state_dict()), layout="NCHW")
    read(nn.StateDict(layer().state_dict(), "NCHW"))


def test_a_parameter_of_a_module_is_alphas(tmp_path: Path) -> None:
    net = nn.Module()
    net.table = nn.Parameter(VALUES)
    net.other = nn.Buffer(VALUES)
    net.register_buffer("third", alpha.tensor(VALUES))
    for value in dict(net.state_dict()).values():
        np.testing.assert_array_equal(read({"weight": value.clone()}), VALUES)


@pytest.mark.torch
def test_filters_of_pytorch_cannot_become_a_layers_weight(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"weight": torch.from_numpy(VALUES)}, tmp_path / "w.pth")
    net, file = layer(), alpha.load(tmp_path / "w.pth")
    with pytest.raises(ValueError, match=r"Conv2d\.weight: these filters \(8, 3, 3, 3\) come from a file of PyTorch"):
        net.weight = nn.Parameter(file["weight"])
    net.weight = nn.Parameter(file["weight"].movedim(1, -1))
    np.testing.assert_array_equal(net.weight.numpy(), VALUES.transpose(0, 2, 3, 1))


def test_activations_have_no_origin() -> None:
    """No origin is kept, so that a network whose images happen to have the shape of filters is not slower."""
    x = alpha.tensor(VALUES)
    y = layer()(x)
    assert y._base_version == 0
    assert alpha.tensor(VALUES[..., :2])._base_version == 0
    assert alpha.tensor(VALUES[:, 0, 0])._base_version == 0
