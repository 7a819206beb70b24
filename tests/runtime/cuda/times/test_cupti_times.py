"""Times of kernels by CUPTI: over a made-up package, and on a GPU."""

from __future__ import annotations

import sys
from enum import IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import nn
from alpha.errors import DeviceError
from alpha.runtime.cuda.times.cupti_times import CuptiTimes
from alpha.runtime.cuda.times.timeline import ON_DEVICE, TO_DEVICE, TO_HOST, Activity


class Kinds(IntEnum):
    MEMCPY, MEMSET, CONCURRENT_KERNEL, OVERHEAD = 1, 2, 10, 17


class Copies(IntEnum):
    HTOD, DTOH, DTOD = 1, 2, 8


class MadeUp(ModuleType):
    """The calls of `cupti.cupti` that Alpha makes; its records come back when they are flushed."""

    ActivityKind, ActivityMemcpyKind = Kinds, Copies

    def __init__(self, records: list[Any]) -> None:
        super().__init__("cupti.cupti")
        self.records, self.enabled, self.now = records, [], 100
        self.refused: Kinds | None = None
        self.completed: Any = None

    def activity_register_callbacks(self, requested: Any, completed: Any) -> None:
        if self.completed is not None:
            raise RuntimeError("CUPTI_ERROR_INVALID_OPERATION")
        assert requested() == (8 << 20, 0)
        self.completed = completed

    def activity_enable(self, kind: Kinds) -> None:
        if kind is self.refused:
            raise RuntimeError("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")
        self.enabled.append(kind)

    def activity_disable(self, kind: Kinds) -> None:
        self.enabled.remove(kind)

    def get_timestamp(self) -> int:
        self.now += 900
        return self.now

    def activity_flush_all(self, flag: int) -> None:
        assert flag == 1
        for start in range(0, len(self.records), 2):
            self.completed(self.records[start : start + 2])
        self.records = []


def record(kind: Kinds, start: int, **other: Any) -> SimpleNamespace:
    usual = {"correlation_id": 7, "graph_node_id": 0, "stream_id": 13, "bytes": 64, "name": "map"}
    return SimpleNamespace(kind=kind, start=start, end=start + 5, **{**usual, **other})


def install(monkeypatch: pytest.MonkeyPatch, made: MadeUp) -> None:
    package = ModuleType("cupti")
    package.cupti = made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupti", package)
    monkeypatch.setitem(sys.modules, "cupti.cupti", made)


def test_records_become_activities(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [
        record(Kinds.MEMCPY, 1300, copy_kind=Copies.HTOD),
        record(Kinds.CONCURRENT_KERNEL, 1200, name="conv_v2_sm90", graph_node_id=4, correlation_id=3),
        record(Kinds.CONCURRENT_KERNEL, 990),  # the clocks may differ a little
        record(Kinds.OVERHEAD, 1400),
        record(Kinds.MEMCPY, 1500, copy_kind=Copies.DTOD),
        record(Kinds.MEMCPY, 1600, copy_kind=Copies.DTOH),
        record(Kinds.MEMSET, 1700),
    ]
    made = MadeUp(records)
    install(monkeypatch, made)
    times = CuptiTimes()
    assert made.enabled == [Kinds.CONCURRENT_KERNEL, Kinds.MEMCPY, Kinds.MEMSET]
    found = times.finish()
    assert made.enabled == []
    assert (found.begin, found.end) == (990, 1900)
    assert found.activities == [
        Activity("kernel", "map", 990, 995, 7, False, 0, 13),
        Activity("kernel", "conv_v2_sm90", 1200, 1205, 3, True, 0, 13, 4),
        Activity("copy", TO_DEVICE, 1300, 1305, 7, False, 64, 13),
        Activity("copy", ON_DEVICE, 1500, 1505, 7, False, 64, 13),
        Activity("copy", TO_HOST, 1600, 1605, 7, False, 64, 13),
        Activity("fill", "fill", 1700, 1705, 7, False, 64, 13),
    ]


def test_a_second_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUPTI may refuse to be told of the same functions once more, and has them already."""
    made = MadeUp([])
    install(monkeypatch, made)
    assert CuptiTimes().finish().activities == []
    made.records = [record(Kinds.CONCURRENT_KERNEL, 3000)]
    times = CuptiTimes()
    assert [activity.start for activity in times.finish().activities] == [3000]
    made.completed([record(Kinds.CONCURRENT_KERNEL, 4000)])  # which comes too late
    assert [activity.start for activity in times.finish().activities] == [3000]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti", None)
    with pytest.raises(DeviceError, match=r"no times of kernels by CUPTI \(.*cupti.*\): pip install .*\[profile\]"):
        CuptiTimes()
    made = MadeUp([])
    made.refused = Kinds.MEMSET
    install(monkeypatch, made)
    with pytest.raises(DeviceError, match="CUPTI notes no times of kernels: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS"):
        CuptiTimes()
    assert made.enabled == []


@pytest.mark.cuda
@pytest.mark.parametrize("captured", [False, True])
def test_a_step_is_explained_on_a_gpu(captured: bool) -> None:
    """Nearly all of its time, with each launch once, and shorter kernels than the whole."""
    pytest.importorskip("cupti")
    alpha.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(8, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(), nn.Linear(4096, 8))
    net.to("cuda")
    optimizer = alpha.optim.SGD(net.parameters(), lr=0.01)

    def plain(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step = alpha.capture(plain) if captured else plain
    x = alpha.ones(64, 8, 8, 8, device="cuda")
    y = alpha.tensor(np.zeros(64, np.int32), device="cuda")
    for _ in range(6):
        step(x, y)
    with alpha.profile() as p:
        for _ in range(10):
            step(x, y)
    assert "by CUPTI" in p.title
    assert p.unseen == 0
    assert p.explained >= 0.98
    assert 0 < p.busy_ms <= p.total_ms
    counts = {row.name: row.calls for row in p.rows("kernel")}
    assert counts["sgd"] == 10
    kernels = [event for event in p.events if event.kind == "kernel"]
    assert all(event.captured is captured for event in kernels)
    assert len(kernels) == 10 * len(alpha.dry_run(plain, x, y).launches)
