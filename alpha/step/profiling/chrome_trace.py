"""Traces in the JSON of Chrome, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

The fields are those of the "Trace Event Format": complete events ("ph": "X") with "ts" and "dur" in microseconds, and
metadata ("ph": "M") with the names of the rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from alpha.step.profiling.events import Event

PROCESS = 1
PHASES, LAYERS, DEVICE = 1, 2, 3  # rows; the streams of the device follow one another from the last one on


def trace_of(events: Sequence[Event], title: str) -> dict[str, Any]:
    """The content of a file: a row for phases, one for layers, and one for each stream of the device."""
    streams = sorted({event.stream for event in events})
    names = {PHASES: "phases", LAYERS: "layers", **{DEVICE + i: f"stream {s}" for i, s in enumerate(streams)}}
    found = [_metadata("process_name", 0, {"name": title})]
    found += [_metadata("thread_name", row, {"name": name}) for row, name in names.items()]
    found += [_metadata("thread_sort_index", row, {"sort_index": row}) for row in names]
    found += _spans(events, PHASES, lambda event: event.phase)
    found += _spans(events, LAYERS, lambda event: event.layer)
    found += [_kernel(event, DEVICE + streams.index(event.stream)) for event in events]
    return {"traceEvents": found, "displayTimeUnit": "ms"}


def save(path: str | Path, events: Sequence[Event], title: str) -> None:
    """Write a trace."""
    Path(path).write_text(json.dumps(trace_of(events, title)), encoding="utf-8")


def _metadata(name: str, row: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": PROCESS, "tid": row, "args": args}


def _complete(name: str, row: int, start_ms: float, end_ms: float, **args: Any) -> dict[str, Any]:
    start, end = round(start_ms * 1e3, 3), round(end_ms * 1e3, 3)  # so what follows at once does not overlap, either
    times = {"ts": start, "dur": round(end - start, 3)}
    return {"name": name, "ph": "X", "cat": "alpha", "pid": PROCESS, "tid": row, **times, "args": args}


def _spans(events: Sequence[Event], row: int, key: Callable[[Event], str]) -> Iterator[dict[str, Any]]:
    """One span for neighbouring events of the same phase or layer. Those that have none are left out.

    A span ends where the next one begins, if its events go on beside those of the next one: the spans of a row that
    overlap are no row, and Perfetto drops them.
    """
    named = [event for event in sorted(events, key=lambda event: event.start_ms) if key(event)]
    groups = [list(group) for _, group in groupby(named, lambda event: (key(event), event.phase))]
    starts = [group[0].start_ms for group in groups[1:]]
    for group, following in zip(groups, [*starts, math.inf], strict=True):
        first, end = group[0], max(event.end_ms for event in group)
        yield _complete(key(first), row, first.start_ms, min(end, following), phase=first.phase)


def _kernel(event: Event, row: int) -> dict[str, Any]:
    work = event.work
    args = {
        "kernel": event.kernel,
        "layer": event.layer,
        "phase": event.phase,
        "captured": event.captured,
        "flop": work.flop,
        "flop_skipped": work.skipped,
        "bytes_read": work.read,
        "bytes_written": work.written,
    }
    return _complete(event.operator, row, event.start_ms, event.end_ms, **args)
