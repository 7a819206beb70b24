"""Layers take PyTorch's `device=` and `dtype=`."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from rows.every import LAYERS
from trials import trials

import alpha
from alpha import nn
from alpha.module.parameter import Uninitialized

PLACED = [row for row in LAYERS if dict(row.layer(**row.usual).named_tensors())]


@pytest.mark.parametrize("row", PLACED, ids=lambda row: row.name)
def test_a_layer_is_made_where_it_is_wanted(row: Any) -> None:
    alpha.manual_seed(3)
    expected = row.layer(**row.usual)
    for place in ({"device": "cuda"}, {"dtype": "float64"}, {"device": alpha.device("cpu"), "dtype": alpha.float64}):
        alpha.manual_seed(3)
        layer = row.layer(**row.usual, **place)
        moved = dict(expected.to(place.get("device", "cpu"), place.get("dtype", "float32")).named_tensors())
        assert [name for name, _ in layer.named_tensors()] == list(moved)
        for name, value in layer.named_tensors():
            assert (value.device, value.dtype) == (moved[name].device, moved[name].dtype), name
            if not isinstance(value, Uninitialized):
                np.testing.assert_allclose(value.numpy(), moved[name].numpy(), rtol=1e-6, err_msg=name)


def test_the_layers_of_ones_own_decide_themselves() -> None:
    class Own(nn.Module):
        def __init__(self, width: int) -> None:
            self.linear = nn.Linear(width, 2, device="cuda")  # type: ignore[call-arg]

    assert Own(3).linear.weight.device.name == "cuda"
    with pytest.raises(TypeError, match="device"):
        Own(3, device="cuda")  # type: ignore[call-arg]

    class Wide(nn.Linear):
        def __init__(self, width: int) -> None:
            super().__init__(width, 2 * width, dtype="float64")  # type: ignore[call-arg]

    assert Wide(3).weight.dtype == alpha.float64


def test_wrong_places() -> None:
    for place, message in (
        ({"device": "tpu"}, "'tpu' is neither a device"),
        ({"dtype": "int32"}, "int32"),
        ({"place": 1}, "unexpected keyword argument 'place'"),
    ):
        with pytest.raises(TypeError, match=message):
            nn.Linear(2, 3, **place)  # type: ignore[arg-type]
    assert nn.Linear(2, 3, device=None, dtype=None).weight.device.name == "cpu"  # type: ignore[call-arg]


@pytest.mark.torch
def test_layers_take_a_place_where_pytorchs_do() -> None:
    torch = pytest.importorskip("torch")
    taken = []
    for row in LAYERS:
        kind = getattr(torch.nn, row.name, None)
        if kind is not None and "device" in inspect.signature(kind).parameters:
            taken.append(row.layer(**row.usual, device="cpu", dtype="float32"))
    assert len(taken) > 30


# which take *args in PyTorch, or are made of layers that have a place
OTHERS = ("RNN", "GRU", "LSTM", "Identity", "TransformerEncoder", "TransformerDecoder")


@pytest.mark.torch
def test_device_and_dtype_by_position_are_where_pytorch_has_them() -> None:
    """Behind all arguments that Alpha's layer takes by position, which are PyTorch's; and nowhere else."""
    torch = pytest.importorskip("torch")
    with trials() as trial:
        for row in LAYERS:
            kind = getattr(torch.nn, row.name, None)
            if kind is None or row.own or row.name in OTHERS:
                continue
            known = inspect.signature(kind).parameters.values()
            names = [p.name for p in known if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
            own = inspect.signature(row.layer).parameters
            before = [name for name, p in own.items() if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
            values = [row.usual.get(name, own[name].default) for name in before]
            with trial(row.name):
                if "device" in names:
                    assert names == [*before, "device", "dtype"]
                    for place in ((None, None), ("cpu",), ("cpu", "float64"), (None, alpha.float64)):
                        alpha.manual_seed(3)
                        layer = row.layer(*values, *place)
                        dtype = alpha.float64 if len(place) == 2 and place[1] else alpha.float32
                        assert {t.dtype for _, t in layer.named_tensors() if t.dtype.kind == "f"} <= {dtype}
                    with pytest.raises(TypeError, match="twice, by position and by name"):
                        row.layer(*values, "cpu", device="cpu")
                    with pytest.raises(TypeError, match=r"device=.* is no device"):
                        row.layer(*values, alpha.ones(2, dtype="float64"))
                else:
                    with pytest.raises(
                        TypeError, match=f"{len(before)} arguments are taken by position|positional|takes no arguments"
                    ):
                        row.layer(*values, "cpu")
                with pytest.raises(TypeError, match=r"positional|takes no arguments"):
                    row.layer(*values, None, None, None)


def test_signatures_are_those_of_the_layers() -> None:
    assert list(inspect.signature(nn.Linear).parameters) == ["in_features", "out_features", "bias"]
