"""Matching of what a device has done with what it was asked for: launches, and graphs that were replayed.

Both come in one order: that of the calls of the host, and within a graph that in which it was recorded, though some of
its kernels run beside others. So each activity is matched with the next launch of its name that has none, among those
of the eager calls, or among those of the replay that it belongs to. A graph was noted when it was captured, also if no
profile was there then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from alpha.runtime.cuda.times.timeline import ON_DEVICE, TO_HOST, Activity, Timeline
from alpha.runtime.recording import Asked, layer_names
from alpha.runtime.work import Work
from alpha.step.profiling.events import UNKNOWN, Event, Limits, event_of

Replay: TypeAlias = Sequence[Asked]


class Queues:
    """The launches that have no activity yet, by the name that an activity of them has."""

    def __init__(self, asked: Iterable[Asked]) -> None:
        self._left: dict[str, deque[Asked]] = {}
        for each in asked:
            self._left.setdefault(_key(each.kind, each.entry), deque()).append(each)

    def has(self, activity: Activity) -> bool:
        """True if there is a launch left that may have caused an activity."""
        return bool(self._left.get(_key(activity.kind, activity.name)))

    def take(self, activity: Activity) -> Asked:
        """The next launch that may have caused an activity."""
        return self._left[_key(activity.kind, activity.name)].popleft()

    @property
    def count(self) -> int:
        """The number of launches that are left."""
        return sum(map(len, self._left.values()))


def _key(kind: str, name: str) -> str:
    """The name that a launch and its activity have in common."""
    if kind == "exchange" or (kind == "kernel" and name.lower().startswith("nccl")):
        return "an exchange"
    return f"kernel {name}" if kind == "kernel" else kind


def matched(
    timeline: Timeline, asked: Sequence[Asked], replays: Sequence[Replay], limits: Limits
) -> tuple[list[Event], int]:
    """Events of what a device has done, and how many launches it was asked for of which no activity is known.

    Args:
        asked: what was asked for outside of graphs.
        replays: what each replay of a graph has launched, in the order of the replays.
    """
    names = layer_names([each.layer for part in (asked, *replays) for each in part])
    eager, captured = Queues(asked), [Queues(replay) for replay in replays]
    of_call = _replays_of(timeline.activities, captured)
    events = []
    for activity in sorted(timeline.activities, key=lambda each: (each.call, each.node)):
        start_ms, ms = (activity.start - timeline.begin) / 1e6, (activity.end - activity.start) / 1e6
        found, in_graph = None, activity.in_graph
        if activity.kind != "copy" or activity.name == ON_DEVICE:
            own = of_call.get(activity.call, eager)
            queue = next((queue for queue in (own, eager, *captured) if queue.has(activity)), None)
            if queue is not None:
                found, in_graph = queue.take(activity), queue is not eager
        if found is None:
            events.append(_unasked(activity, start_ms, ms))
        else:
            events.append(event_of(found, names[found.layer], start_ms, ms, limits, in_graph, activity.stream))
    events.sort(key=lambda event: event.start_ms)
    return events, eager.count + sum(queue.count for queue in captured)


def _replays_of(activities: Sequence[Activity], replays: Sequence[Queues]) -> dict[int, Queues]:
    """The launches of the replay that each call of the host has queued.

    Several kernels of one call are those of a graph. Graphs of other libraries, whose kernels have other names, are
    left out.
    """
    calls: dict[int, list[Activity]] = {}
    for activity in activities:
        calls.setdefault(activity.call, []).append(activity)
    graphs = [calls[call] for call in sorted(calls) if len(calls[call]) > 1 or calls[call][0].in_graph]
    found: dict[int, Queues] = {}
    left = iter(replays)
    replay = next(left, None)
    for group in graphs:
        if replay is not None and any(replay.has(activity) for activity in group):
            found[group[0].call] = replay
            replay = next(left, None)
    return found


def _unasked(activity: Activity, start_ms: float, ms: float) -> Event:
    """Event of something that no layer has asked for: a copy from or to the host, or a kernel of another library."""
    operator = UNKNOWN if activity.kind == "kernel" else activity.name
    to_host = activity.name == TO_HOST
    work = Work(read=activity.nbytes if to_host else 0, written=0 if to_host else activity.nbytes)
    name, captured, stream = activity.name, activity.in_graph, activity.stream
    return Event(activity.kind, "", "", operator, name, start_ms, ms, work, 0.0, 0.0, captured, stream)


def by_events(asked: Sequence[Asked | Replay], times: Sequence[float], limits: Limits) -> list[Event]:
    """Events between time stamps on the stream: each lasts until the next one begins.

    Args:
        asked: launches, and replays of graphs, which are events of their own.
        times: milliseconds from the beginning, of each of them, and of the end.
    """
    flat = [each.layer for each in asked if isinstance(each, Asked)]
    names, events = layer_names(flat), []
    for each, start, end in zip(asked, times, times[1:], strict=False):
        if isinstance(each, Asked):
            events.append(event_of(each, names[each.layer], start, end - start, limits))
            continue
        works = [part.work for part in each]
        work = Work(*(sum(getattr(work, name) for work in works) for name in ("flop", "skipped", "read", "written")))
        title = f"replayed step of {len(each)} launches"
        products, moved = sum(map(limits.products_ms, works)), sum(map(limits.bytes_ms, works))
        events.append(Event("replay", "", "", title, title, start, end - start, work, products, moved, True))
    return events
