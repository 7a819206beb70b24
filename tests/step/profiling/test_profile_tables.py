"""Tables of a profile: 80 columns whatever the numbers and names, and an answer before there are any times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import alpha
from alpha import nn
from alpha.errors import ConfigError
from alpha.runtime.work import Work
from alpha.step import Profile
from alpha.step.profiling import chrome_trace
from alpha.step.profiling.event_report import Report
from alpha.step.profiling.event_table import HEAD
from alpha.step.profiling.events import Event

REPORTS: dict[str, Callable[[Profile], Any]] = {
    "table": lambda p: p.table(),
    "rows": lambda p: p.rows("operator"),
    "busy": lambda p: p.busy_ms,
    "idle": lambda p: p.idle_ms,
    "unknown": lambda p: p.unknown_ms,
    "explained": lambda p: p.explained,
    "trace": lambda p: p.save_trace("never.json"),
}


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_a_profile_that_has_no_times_yet(report: Callable[[Profile], Any]) -> None:
    p = alpha.profile()
    assert "has not begun" in str(p)
    with pytest.raises(RuntimeError, match=r"alpha\.profile: this profile has not begun"):
        report(p)
    with p:
        alpha.ones(2) + 1
        assert "has not ended" in str(p)
        with pytest.raises(RuntimeError, match=r"alpha\.profile: this profile has not ended"):
            report(p)
    assert "explained: 100.0%" in str(p)
    assert not Path("never.json").exists()


def test_a_profile_of_nothing() -> None:
    with alpha.profile() as p:
        pass
    assert p.rows() == []
    assert str(p).splitlines()[-1].endswith("0.0% busy")
    assert str(Report()).splitlines()[-1] == "no time was measured"


def event(name: str, ms: float = 1.0, start_ms: float = 0.0, **numbers: Any) -> Event:
    return Event("kernel", "forward", name, name, name, start_ms, ms, **numbers)


@pytest.mark.parametrize(
    ("calls", "steps", "shown"),
    [
        (1, 1, "1"),
        (1, 3, "0.3333"),
        (1, 300, "0.0033"),
        (1, 10**6, "<0.001"),
        (4, 3, "1.333"),
        (9999, 1, "9999"),
        (10_000, 1, "10k"),
        (12_345, 1, "12k"),
        (19_999, 2, "10k"),  # 9999.5
        (123_456, 1, "123k"),
    ],
)
def test_numbers_of_calls(calls: int, steps: int, shown: str) -> None:
    lines = Report("", [event("fc")] * calls, calls, True).table(steps=steps).splitlines()
    assert [line.split()[1] for line in lines[2:]] == [shown, shown]
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize("ms", [1e-6, 1.0, 99_999.9996, 123_456.789, 1e9, 1e15])
def test_any_numbers_fit(ms: float) -> None:
    """Times, rates and shares, long ones and such as are out of all proportion."""
    work = Work(1e15, 1e14, 10**15, 10**15)
    events = [event("fc", ms, work=work, products_ms=50.0, bytes_ms=1e4) for _ in range(3)]
    table = Report("a title " * 20, events, 2 * ms)
    for line in [*table.table(steps=7).splitlines(), *table.table().splitlines()]:
        assert len(line) <= 80
    if ms > 0.1:
        (row,) = [line for line in table.table().splitlines() if line.startswith("fc ")]
        assert len(row.split()) == len(("name", *HEAD)), "columns run together"


def test_long_names_stay_different() -> None:
    names = [f"encoder_layers_{i}.inner_group.0" for i in range(12)]
    lines = Report("", [event(name) for name in names], 12.0, True).table(most=11).splitlines()
    assert all(len(line) <= 80 for line in lines)
    shown = [line.split()[0] for line in lines[2:13]]
    assert len(set(shown)) == 11
    assert all(f"_{i}." in name for i, name in enumerate(shown))
    assert lines[13].startswith("(1 others)")


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"most": -1}, ValueError, "table: most=-1 must be at least 1"),
        ({"most": 0}, ValueError, "table: most=0 must be at least 1"),
        ({"most": 2.5}, TypeError, r"table: most=2\.5 is not an integer"),
        ({"most": True}, TypeError, "table: most=True is not an integer"),
        ({"steps": "8"}, TypeError, "table: steps='8' is not an integer"),
        ({"steps": -2}, ConfigError, "table: steps=-2 is less than 1"),
        ({"by": ["layer"]}, ConfigError, r"table: by=\['layer'\] is none of 'layer'"),
    ],
)
def test_arguments_of_a_table(given: dict[str, Any], error: type[Exception], text: str) -> None:
    with alpha.profile() as p:
        alpha.ones(2).relu()
    with pytest.raises(error, match=text):
        p.table(**given)
    if "steps" not in given:
        run = alpha.dry_run(alpha.nn.Linear(2, 2), (3, 2), gpu="sm_90a")
        with pytest.raises(error, match=text):
            run.table(**given)


# -- traces ---------------------------------------------------------------------------------------


def check_rows(trace: dict[str, Any], count: int) -> dict[int, list[tuple[str, int, int]]]:
    """The spans of each row of a trace, in ns; a row has no two of which the second outlives the first (Perfetto)."""
    rows: dict[int, list[tuple[str, int, int]]] = {}
    for part in trace["traceEvents"]:
        if part["ph"] == "X":
            start, end = (round(1e3 * time) for time in (part["ts"], part["ts"] + part["dur"]))
            rows.setdefault(part["tid"], []).append((part["name"], start, end))
    for spans in rows.values():
        around: list[int] = []
        for _, start, end in sorted(spans, key=lambda span: (span[1], -span[2])):
            around = [outer for outer in around if outer > start]
            assert all(end <= outer for outer in around), spans
            around.append(end)
    assert sum(len(spans) for row, spans in rows.items() if row >= chrome_trace.DEVICE) == count
    return rows


@pytest.mark.parametrize(
    "layer",
    [nn.Linear(8, 8), nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU()), nn.LSTM(8, 8)],
    ids=["linear", "norm", "lstm"],
)
def test_operators_within_others_in_a_trace(layer: nn.Module) -> None:
    """An operator of the cpu that calls others lies around them, and its time is what is left of it."""
    x = alpha.ones(4, 8, 8, 8) if isinstance(layer, nn.Sequential) else alpha.ones(4, 2, 8)
    with alpha.profile() as p:
        y = layer(x)
        (y[0] if isinstance(y, tuple) else y).sum().backward()
    outer = [event for event in p.events if event.inner_ms]
    assert outer
    for event in outer:
        parts = [e for e in p.events if event.start_ms <= e.start_ms < event.end_ms]
        assert sum(e.ms for e in parts) == pytest.approx(event.end_ms - event.start_ms)
    check_rows(chrome_trace.trace_of(p.events, "a title"), len(p.events))


def test_events_at_the_same_time_in_a_trace() -> None:
    """Kernels of two streams take turns in the rows of layers and phases; times are those of neighbours to the ns."""
    events = [
        event("a", 5.0),
        event("b", 1.0, 1.0, stream=1),
        event("a", 0.5, 2.0, stream=1),
        event("c", 1 / 3, 5.0, stream=0),
        replace(event("c", 1 / 3, 5 + 1 / 3), phase="backward"),
        replace(event("c", 1 / 3, 5 + 2 / 3), phase="update"),
    ]
    rows = check_rows(chrome_trace.trace_of(events, ""), len(events))
    of_layers = [(name, start // 10**6, -(-end // 10**6)) for name, start, end in rows[chrome_trace.LAYERS][:4]]
    assert of_layers == [("a", 0, 1), ("b", 1, 2), ("a", 2, 3), ("c", 5, 6)]
    assert [name for name, *_ in rows[chrome_trace.PHASES]] == ["forward", "backward", "update"]
