"""Tables of events: a line for each layer, operator or kernel, the one that takes most of the time first.

A table is 80 characters wide. TFLOP/s count the products that were computed, and "lim" is the share of what the
device could do in that time; so is the one behind GB/s. "skip" is the share of the products that trimming has left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from alpha.errors import ConfigError
from alpha.ops.kernel.options import positive_integer
from alpha.step.profiling.events import Event
from alpha.step.profiling.table_text import shortened

NAME, BEGINNING = 20, 8  # characters of a name with the space behind it, and of the beginning of a shortened one
MS = 8  # characters of milliseconds at most
COLUMNS = "{:>6}{:>9}{:>5}{:>7}{:>5}{:>6}{:>5}{:>5}{:>6}{:>6}"
HEAD = ("calls", "ms", "time", "FLOP/s", "lim", "B/s", "lim", "skip", "read", "wrote")
LETTERS = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
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
    if not isinstance(by, str) or by not in KEYS:
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

    Raises:
        ConfigError: `by` is no column.
        TypeError, ValueError: `most` is neither None nor an integer of at least 1.
    """
    most = None if most is None else positive_integer("table", "most", most)
    found = rows(events, by)
    if most is not None and len(found) > most:
        rest = {row.name for row in found[most:]}
        others = row_of(f"({len(rest)} others)", [event for event in events if KEYS[by](event) in rest])
        found = [*found[:most], others]
    names = shortened([row.name for row in found], NAME - 1, BEGINNING)
    lines = [line(replace(row, name=name), whole_ms, steps) for row, name in zip(found, names, strict=True)]
    return [f"{by:{NAME}}" + COLUMNS.format(*HEAD), *lines]


def line(row: Row, whole_ms: float, steps: int = 1) -> str:
    """The line of a row with a short name."""
    per_s = 1e3 / row.ms if row.ms else 0.0
    moved = row.read + row.written
    return f"{row.name:{NAME}}" + COLUMNS.format(
        _count(row.calls / steps),
        _ms(row.ms / steps),
        _percent(row.ms, whole_ms),
        _unit(row.flop * per_s),
        _percent(row.products_ms, row.ms),
        _unit(moved * per_s),
        _percent(row.bytes_ms, row.ms),
        _percent(row.skipped, row.flop + row.skipped),
        _unit(row.read / steps),
        _unit(row.written / steps),
    )


def _count(calls: float) -> str:
    """A number of calls in six characters at most: 9999, 12k, and 0.0033 of a mean."""
    if not calls:
        return ""
    if calls < 1:
        return f"{calls:.4f}".rstrip("0").rstrip(".") if calls >= 0.001 else "<0.001"
    return f"{calls:.4g}" if calls < 9999.5 else _unit(calls)


def _ms(ms: float) -> str:
    """Milliseconds with as many of three decimals as there is room for: 1.234, 123456.7, 123M."""
    texts = [f"{ms:.{decimals}f}" for decimals in (3, 2, 1, 0)]
    return next((text for text in texts if len(text) <= MS), _unit(ms))


def _percent(part: float, whole: float) -> str:
    """A share, in five characters at most."""
    if not (part and whole):
        return ""
    text = f"{part / whole:.0%}"
    return text if len(text.lstrip("-")) <= 4 else ">9x" if part > 0 else "<-9x"


def _unit(value: float) -> str:
    """A number with a letter for its thousands: 1.2T, 123G."""
    if not value:
        return ""
    power = 0
    while abs(value) >= 999.5 and power < len(LETTERS) - 1:
        value, power = value / 1000, power + 1
    digits = 1 if power and value < 9.95 else 0
    return f"{value:.{digits}f}{LETTERS[power]}"
