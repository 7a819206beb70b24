"""Activities of a device are matched with what it was asked for, whatever else runs in the process."""

from __future__ import annotations

import pytest

from alpha.runtime.cuda.compile import properties_of
from alpha.runtime.cuda.times.timeline import ON_DEVICE, TO_DEVICE, TO_HOST, Activity, Timeline
from alpha.runtime.recording import NO_LAYER, Asked, Layer
from alpha.runtime.work import Work
from alpha.step.profiling.event_report import Report
from alpha.step.profiling.events import Event, Limits
from alpha.step.profiling.matching import matched

LIMITS = Limits(properties_of("sm_90a", "NVIDIA H200", 1 << 37))
A, B = Layer(1, "Net", "a"), Layer(1, "Net", "b")


def asked(entry: str, layer: Layer = A, kind: str = "kernel") -> Asked:
    return Asked("forward", layer, kind, entry, "folder/file.cu", f"operator {entry}", "", Work(read=8, written=4))


def timeline(*activities: tuple[str, str, int, int, int, bool]) -> Timeline:
    """Activities of (kind, name, start, end, call, in_graph), in microseconds."""
    found = [Activity(kind, name, 1000 * a, 1000 * b, call, graph, 16) for kind, name, a, b, call, graph in activities]
    return Timeline(0, 100_000, found)


def test_eager_launches_by_their_names_and_order() -> None:
    times = timeline(
        ("kernel", "map", 0, 10, 1, False),
        ("copy", TO_DEVICE, 5, 6, 2, False),
        ("kernel", "map", 10, 30, 3, False),
        ("kernel", "of_another_library", 30, 60, 4, False),
        ("fill", "fill", 60, 61, 5, False),
        ("copy", ON_DEVICE, 61, 62, 6, False),
        ("copy", TO_HOST, 62, 63, 7, False),
    )
    launches = [asked("map", A), asked("map", B), asked("fill", B, "fill"), asked("copy", A, "copy"), asked("lost")]
    events, unseen = matched(times, launches, [], LIMITS)
    assert [event.layer for event in events] == ["a", "", "b", "", "b", "a", ""]
    assert [event.operator for event in events][3:] == ["(not Alpha's)", "operator fill", "operator copy", TO_HOST]
    assert events[1].work == Work(written=16)
    assert events[6].work == Work(read=16)
    assert unseen == 1
    report = Report("", events, 0.1)
    assert report.unknown_ms == 0.03
    assert round(report.explained, 9) == 0.7
    assert round(report.busy_ms, 9) == 0.063
    assert round(report.idle_ms, 9) == 0.037
    lines = Report("", events, 0.1).table().splitlines()
    assert any(line.startswith("(at the same time)") and "-0.001" in line for line in lines)
    assert lines[-1].startswith("explained: 70.0% of 0.100 ms")
    report.unseen = unseen
    assert report.table().endswith("no time is known of 1 launches")


def test_replays_by_their_calls() -> None:
    """Each replay has the launches of its own graph, and graphs of other libraries are left out."""
    times = timeline(
        ("kernel", "map", 0, 1, 1, False),
        ("kernel", "torch_kernel", 1, 2, 2, True),
        ("kernel", "map", 2, 3, 3, True),
        ("kernel", "gemm", 3, 4, 3, True),
        ("kernel", "map", 5, 6, 4, True),
        ("kernel", "map", 6, 7, 5, False),
        ("kernel", "ncclDevKernel_AllReduce", 7, 8, 6, False),
    )
    first, second = (asked("map", A), asked("gemm", B)), (asked("map", B),)
    launches = [asked("map", NO_LAYER), asked("map", B), asked("all_reduce", NO_LAYER, "exchange")]
    events, unseen = matched(times, launches, [first, second], LIMITS)
    assert [event.layer for event in events] == ["", "", "a", "b", "b", "b", ""]
    assert [event.captured for event in events] == [False, True, True, True, True, False, False]
    assert [event.kind for event in events][-1] == "exchange"
    assert [event.is_known for event in events] == [True, False, *[True] * 5]
    assert unseen == 0


def test_launches_of_a_graph_that_ran_beside_others() -> None:
    """Two launches of one kernel began in another order than that in which they were recorded."""
    activities = [
        Activity("kernel", "map", 2, 3, 3, True, node=9),
        Activity("kernel", "gemm", 4, 5, 3, True, node=8),
        Activity("kernel", "map", 6, 7, 3, True, node=7),
    ]
    graph = asked("map", A), asked("gemm", B), asked("map", B)
    events, unseen = matched(Timeline(0, 10, activities), [], [graph], LIMITS)
    assert [event.layer for event in events] == ["b", "b", "a"]
    assert unseen == 0


def test_a_graph_whose_nodes_are_not_known_as_such() -> None:
    """CUPTI may not say that a kernel belongs to a graph; several kernels of one call do."""
    times = timeline(("kernel", "map", 0, 1, 1, False), ("kernel", "gemm", 1, 2, 1, False))
    events, unseen = matched(times, [], [(asked("map", A), asked("gemm", B))], LIMITS)
    assert [(event.layer, event.captured) for event in events] == [("a", True), ("b", True)]
    assert unseen == 0


def test_layers_of_several_networks() -> None:
    other = Layer(2, "Linear", "")
    times = timeline(("kernel", "map", 0, 1, 1, False), ("kernel", "map", 1, 2, 2, False))
    events, _ = matched(times, [asked("map", A), asked("map", other)], [], LIMITS)
    assert [event.layer for event in events] == ["Net.a", "Linear"]


def test_limits_of_an_h200() -> None:
    """The limits are those of tensor cores at the clock of the fitted table."""
    assert LIMITS.tflops("BF16") == 2 * LIMITS.tflops("TF32")
    assert LIMITS.tflops("BF16") == pytest.approx(3 * LIMITS.tflops("FP16X3"))
    assert 900 < LIMITS.tflops("BF16") < 1000
    assert 3500 < LIMITS.gb_per_s < 4800
    assert LIMITS.products_ms(Work(flop=LIMITS.tflops("BF16") * 1e9, math="BF16")) == 1
    event = Event("kernel", "forward", "a", "conv", "conv", 0.0, 2.0, Work(3e12, 1e12, 5, 6, "BF16"), 1.0, 0.5)
    (row,) = Report("", [event], 4.0).rows("kernel")
    assert (row.flop, row.skipped, row.read, row.written, row.products_ms) == (3e12, 1e12, 5, 6, 1.0)
    line = Report("", [event], 4.0).table("kernel").splitlines()[2]
    assert line.split() == ["conv", "1", "2.000", "50%", "1.5P", "50%", "5.5k", "25%", "25%", "5", "6"]
