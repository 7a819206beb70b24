"""Arguments of `alpha.dry_run` and `alpha.memory_plan` that mean nothing: the error names them, and what is needed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.data import ArrayDataset, DataLoader
from alpha.errors import DeviceError, ShapeError
from alpha.runtime import registry
from alpha.step import StepMemory
from alpha.step.memory.simulation import KINDS
from alpha.train import Trainer

FUNCTIONS = [alpha.dry_run, alpha.memory_plan]
NAMES = ["dry_run", "memory_plan"]


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))


@pytest.fixture(scope="module")
def plan() -> StepMemory:
    return alpha.memory_plan(model(), (8, 16), gpu="sm_90a", memory=1e9)


@pytest.fixture(params=["pycuda", "emulated"])
def without(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The driver of a machine on which the cuda device cannot be opened."""
    monkeypatch.setattr(registry, "_devices", {})
    monkeypatch.setenv("ALPHA_CUDA_DRIVER", request.param)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setitem(sys.modules, "pycuda", None)  # type: ignore[arg-type]
    monkeypatch.delitem(sys.modules, "alpha.runtime.cuda.driver_pycuda", raising=False)
    return str(request.param)


@pytest.mark.parametrize("gpu", [None, "cuda", "cuda:0"])
def test_a_machine_without_a_gpu(without: str, gpu: str | None) -> None:
    """The advice is an argument that the function has."""
    net = model()
    data = DataLoader(ArrayDataset(np.zeros((8, 16), np.float32), np.zeros(8, np.int64)), 4)
    trainer = Trainer(net, alpha.optim.SGD(net.parameters(), lr=0.1), "cpu")
    calls: list[tuple[str, Callable[[], Any]]] = [
        (name, lambda function=function: function(net, (8, 16), gpu=gpu))  # type: ignore[misc]
        for name, function in zip(NAMES, FUNCTIONS, strict=True)
    ]
    calls.append(("memory_plan", lambda: trainer.memory_plan(data, gpu=gpu)))
    for name, call in calls:
        with pytest.raises(DeviceError, match=rf"^{name}: the GPU of this machine cannot be used: ") as caught:
            call()
        text = str(caught.value)
        assert "pass gpu='sm_90a' or another architecture: 'sm_75', 'sm_80'" in text
        assert "device=" not in text
        assert ("no pycuda" if without == "pycuda" else "needs Linux, not darwin") in text
    assert alpha.dry_run(net, (8, 16), gpu="sm_90a").launches
    with pytest.raises(DeviceError, match="or use device='cpu'"):  # of a function that has it
        alpha.zeros(2, device="cuda")


@pytest.mark.parametrize("memory", [10**9, 1e9, np.int64(10**9), np.float32(1e9), np.float64(1e9), np.uint32(10**9)])
def test_numbers_of_bytes(plan: StepMemory, memory: Any) -> None:
    assert alpha.memory_plan(model(), (8, 16), gpu="sm_90a", memory=memory).room == plan.room
    assert plan.room is not None
    assert plan.largest_batch(memory) == plan.largest_batch(1e9)


@pytest.mark.parametrize(
    "value", [True, np.True_, "8", [8], -1, np.int64(-1), float("inf"), -np.inf, np.float32("nan"), 10**400], ids=repr
)
def test_no_numbers_of_bytes(plan: StepMemory, value: Any) -> None:
    with pytest.raises(ValueError, match=r"memory_plan: memory=.* is no positive number of bytes, such as 80e9"):
        alpha.memory_plan(model(), (8, 16), gpu="sm_90a", memory=value)
    with pytest.raises(ValueError, match=r"largest_batch: limit=.* is no number of bytes of at least 0, such as 80e9"):
        plan.largest_batch(value)


def test_a_limit_of_nothing(plan: StepMemory) -> None:
    assert plan.largest_batch(0) == 0


@pytest.mark.parametrize("function", FUNCTIONS, ids=NAMES)
def test_shapes(function: Callable[..., Any]) -> None:
    name = function.__name__
    for shape in ((-8, 16), (8, -16), (np.int64(-1), 16)):
        with pytest.raises(ValueError, match=rf"^{name}: the input's shape \(.*16\): size=-.* must be at least 0"):
            function(model(), shape, gpu="sm_90a")
    with pytest.raises(TypeError, match=rf"^{name}: the input's shape \(True, 16\): size=True is not an integer"):
        function(model(), (True, 16), gpu="sm_90a")
    with pytest.raises(ShapeError, match=r"no tensor can have the shape \(4611686018427387904, 16\)"):
        function(model(), (2**62, 16), gpu="sm_90a")
    assert function(model(), (np.int64(8), 16), gpu="sm_90a")


@pytest.mark.parametrize(
    ("batch", "error", "text"),
    [
        (-1, ValueError, "at_batch: batch=-1 must be at least 1"),
        (0, ValueError, "at_batch: batch=0 must be at least 1"),
        (2.5, TypeError, r"at_batch: batch=2\.5 is not an integer"),
        ("8", TypeError, "at_batch: batch='8' is not an integer"),
        (True, TypeError, "at_batch: batch=True is not an integer"),
        (None, TypeError, "at_batch: batch=None is not an integer"),
        (2**63, ShapeError, r"no tensor can have the shape \(9223372036854775808, 16\)"),
    ],
)
def test_batches(plan: StepMemory, batch: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        plan.at_batch(batch)
    assert plan.at_batch(np.int64(4)).batch == 4  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", None, 0, "Fast", "fp8", ["fast"], np.array(["fast"])], ids=repr)
def test_settings_of_a_plan(plan: StepMemory, name: Any) -> None:
    with pytest.raises(ValueError, match=r"memory mode .* is not one of fast, balanced, least"):
        plan.in_mode(name)
    with pytest.raises(ValueError, match=r"precision .* is not one of float32, tf32, bf16"):
        plan.in_precision(name)
    assert plan.in_mode("least").mode == "least"
    assert plan.in_precision("bf16").precision == "bf16"


def test_kinds(plan: StepMemory) -> None:
    for kind in ("nonsense", "parameter", "", None, ["parameters"]):
        with pytest.raises(ValueError, match=r"of_kind: kind=.* is none of 'parameters', 'buffers', "):
            plan.of_kind(kind)  # type: ignore[arg-type]
    assert {share.kind for share in plan.shares} <= set(KINDS)
    assert sum(plan.of_kind(kind) for kind in KINDS) == plan.live


def test_rows_of_a_table(plan: StepMemory) -> None:
    for rows, error in ((-1, ValueError), (0, ValueError), (2.5, TypeError), ("3", TypeError), (True, TypeError)):
        with pytest.raises(error, match=rf"table: rows={rows!r} "):
            plan.table(rows)  # type: ignore[arg-type]
    layers = len({share.layer for share in plan.shares})
    assert f"({layers - 1} others)" in plan.table(1)
    assert "others)" not in plan.table(None)
    assert plan.table(layers) == plan.table(None)
