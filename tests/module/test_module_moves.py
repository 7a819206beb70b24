"""Modules move to another device or dtype: parameters, buffers, gradients, and models of several devices."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from module_trees import Net

import alpha
from alpha import Tensor, nn


def test_to_and_astype(device: str) -> None:
    net = Net().to(device)
    assert net.device.name == device
    if device == "cpu":
        net.astype("float64")
        assert {value.dtype.name for _, value in net.named_tensors()} == {"float64"}
        net(alpha.tensor(np.ones((1, 3)))).sum().backward()
        with pytest.raises(TypeError, match="int32 is not a floating dtype"):
            net.astype("int32")
    assert nn.ReLU().device.name == "cpu"


@pytest.mark.parametrize(
    "change", [lambda net: net.to("cuda"), lambda net: net.astype("float64")], ids=["to", "astype"]
)
def test_gradients_of_the_device_or_dtype_before_are_dropped(change: Any) -> None:
    net = nn.Linear(2, 2)
    net(alpha.tensor(np.ones((1, 2), np.float32))).sum().backward()
    assert [p.grad for p in change(net).parameters()] == [None, None]


def test_to_takes_devices_dtypes_and_tensors(device: str) -> None:
    def found(net: nn.Module) -> set[tuple[str, str]]:
        return {(value.device.name, value.dtype.name) for value in net.parameters()}

    net = nn.Linear(2, 3)
    net.count = nn.Buffer(np.zeros((), np.int64))
    assert net.to(device) is net
    assert found(net) == {(device, "float32")}
    for dtype in ("float64", np.float64, np.dtype("float64")):
        assert found(net.to(dtype)) == {(device, "float64")}
        assert found(net.to(device, "float32")) == {(device, "float32")}
    assert found(net.double()) == {(device, "float64")}
    assert found(net.float()) == {(device, "float32")}
    assert found(net.to(alpha.zeros(1, dtype="float64", device="cpu"))) == {("cpu", "float64")}
    assert found(net.to(alpha.zeros(1, dtype="float64", device=device), "float32")) == {(device, "float32")}
    assert found(net.cpu().to(alpha.get_device(device))) == {(device, "float32")}
    assert found(net.to()) == {(device, "float32")}
    assert net.count.dtype == np.int64
    with pytest.raises(TypeError, match=r"'gpu' is neither a device .* nor a dtype"):
        net.to("gpu")
    with pytest.raises(TypeError, match="int64 is not a floating dtype"):
        net.to("cpu", "int64")
    assert found(net) == {(device, "float32")}


def test_cuda_and_cpu() -> None:
    net = nn.Linear(2, 3)
    assert net.cuda() is net
    assert net.device.name == "cuda"
    assert net.cpu().device.name == "cpu"


def test_a_model_may_have_a_device_of_its_own() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            self.device = "anywhere"  # type: ignore[assignment]
            self.is_hooked = None  # type: ignore[assignment]
            self.body = nn.Sequential(nn.Linear(2, 3), nn.ReLU())

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x)

    net = Own()
    assert (net.device, net.is_hooked, net.body.device.name) == ("anywhere", None, "cpu")
    assert "9 parameters" in net.summary((1, 2))
    assert (copy.deepcopy(net).device, nn.Sequential(net, nn.ReLU())[0].device) == ("anywhere", "anywhere")
    assert isinstance(nn.Module.device.__doc__, str)


def test_bfloat16_parameters_are_refused() -> None:
    with pytest.raises(TypeError, match=r"parameters stay float32; under alpha\.precision\('bf16'\)"):
        nn.Linear(2, 2).bfloat16()
