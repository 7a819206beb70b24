"""Layers take PyTorch's `device=` and `dtype=`."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from rows.every import LAYERS

import alpha
from alpha import nn
from alpha.uninitialized import Uninitialized

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


def test_signatures_are_those_of_the_layers() -> None:
    assert list(inspect.signature(nn.Linear).parameters) == ["in_features", "out_features", "bias"]
