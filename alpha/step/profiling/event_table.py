"""Tables of events: a line for each layer, operator or kernel, the one that takes most of the time first.

A table is 80 characters wide. TFLOP/s count the products that were computed, and "lim" is the share of what the
device could do in that time; so is the one behind GB/s. "skip" is the share of the products that trimming has left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from alpha.errors import ConfigError
from alpha.step.profiling.events import Event

NAME = 20  # of 80 characters
COLUMNS = "{:>6}{:>9}{:>5}{:>7}{:>5}{:>6}{:>5}{:>5}{:>6}{:>6}"
HEAD = ("calls", "ms", "time", "FLOP/s", "lim", "B/s", "lim", "skip", "read", "wrote")
LETTERS = ("", "k", "M", "G", "T", "P")
KEYS: dict[str, Callable[[Event], str]] = {
    "layer": lambda event: event.layer or f"({event.phase or event.operator.strip('()')})",
    "operator": lambda event: event.operator,
    "kernel": lambda event: event.kernel,
    "phase": lambda event: event.phase or event.operator,
}


@dataclass(frozen=True)
class Row:
    """The events of one name together.

    Attributes:
        name: of the layer, operator or kernel.
        calls: how many events.
        ms: their time.
        flop, skipped: operations of their products, computed and left out by trimming.
        read, written: their bytes.
        products_ms, bytes_ms: see `Event`.
    """

    name: str
    calls: int
    ms: float
    flop: float = 0.0
    skipped: float = 0.0
    read: int = 0
    written: int = 0
    products_ms: float = 0.0
    bytes_ms: float = 0.0


def rows(events: Iterable[Event], by: str) -> list[Row]:
    """Rows of a table, the one that takes most of the time first.

    Raises:
        ConfigError: `by` is no column.
    """
    if by not in KEYS:
        raise ConfigError(f"table: by={by!r} is none of {', '.join(map(repr, KEYS))}")
    groups: dict[str, list[Event]] = {}
    for event in events:
        groups.setdefault(KEYS[by](event), []).append(event)
    found = [row_of(name, group) for name, group in groups.items()]
    return sorted(found, key=lambda row: -row.ms)


def row_of(name: str, events: Sequence[Event]) -> Row:
    """The row of these events."""
    works = [event.work for event in events]
    return Row(
        name,
        len(events),
        sum(event.ms for event in events),
        sum(work.flop for work in works),
        sum(work.skipped for work in works),
        sum(work.read for work in works),
        sum(work.written for work in works),
        sum(event.products_ms for event in events),
        sum(event.bytes_ms for event in events),
    )


def table(events: Sequence[Event], by: str, whole_ms: float, most: int | None = None, steps: int = 1) -> list[str]:
    """Lines of a table, with its head.

    Args:
        whole_ms: the time of which each line is a share.
        most: how many lines at most; the others are added up in one.
        steps: by which calls, times and bytes are divided.
    """
    found = rows(events, by)
    if most is not None and len(found) > most:
        rest = {row.name for row in found[most:]}
        others = row_of(f"({len(rest)} others)", [event for event in events if KEYS[by](event) in rest])
        found = [*found[:most], others]
    return [f"{by:{NAME}}" + COLUMNS.format(*HEAD), *(line(row, whole_ms, steps) for row in found)]


def line(row: Row, whole_ms: float, steps: int = 1) -> str:
    """The line of a row."""
    per_s = 1e3 / row.ms if row.ms else 0.0
    moved = row.read + row.written
    return f"{_short(row.name):{NAME}}" + COLUMNS.format(
        f"{row.calls / steps:.4g}" if row.calls else "",
        f"{row.ms / steps:.3f}",
        _percent(row.ms, whole_ms),
        _unit(row.flop * per_s),
        _percent(row.products_ms, row.ms),
        _unit(moved * per_s),
        _percent(row.bytes_ms, row.ms),
        _percent(row.skipped, row.flop + row.skipped),
        _unit(row.read / steps),
        _unit(row.written / steps),
    )


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if part and whole else ""


def _unit(value: float) -> str:
    """A number with a letter for its thousands: 1.2T, 123G."""
    if not value:
        return ""
    power = 0
    while abs(value) >= 999.5 and power < len(LETTERS) - 1:
        value, power = value / 1000, power + 1
    digits = 1 if power and value < 9.95 else 0
    return f"{value:.{digits}f}{LETTERS[power]}"


def _short(name: str) -> str:
    return name if len(name) < NAME else f"{name[: NAME // 2 - 2]}..{name[-(NAME // 2 - 1) :]}"
