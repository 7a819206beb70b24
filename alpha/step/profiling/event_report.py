"""Reports: events, and the tables and traces that are made of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from alpha.errors import ConfigError
from alpha.ops.kernel.options import integer
from alpha.step.profiling import chrome_trace
from alpha.step.profiling.event_table import Row, line, row_of, rows, table
from alpha.step.profiling.events import Event
from alpha.step.profiling.table_text import wrapped

LEAST_OVERLAP_MS = 1e-3  # that is printed


class Report:
    """Events of a step, and tables of them.

    Attributes:
        title: what was timed, and how.
        events: in the order in which they began.
        total_ms: the time of which the events are parts: that of the clock, or what a dry run predicts in all.
        is_predicted: True if the times are those of a model.
        in_turn: True if no two events run at the same time.
        between: the name of the time in which nothing ran.
        unseen: how many launches there were of which no time is known.
    """

    def __init__(
        self, title: str = "", events: Sequence[Event] = (), total_ms: float = 0.0, is_predicted: bool = False
    ) -> None:
        self.is_predicted = self.in_turn = is_predicted
        self.title, self.events, self.total_ms = title, list(events), total_ms
        self.between, self.unseen = "(idle)", 0

    def _why_unknown(self) -> str:
        """A sentence that says why there are no times yet; empty if there are."""
        return ""

    def _check_known(self) -> None:
        """Raises RuntimeError if there are no times yet."""
        if why := self._why_unknown():
            raise RuntimeError(why)

    @property
    def busy_ms(self) -> float:
        """The time in which at least one event was running, in milliseconds."""
        self._check_known()
        if self.in_turn:
            return sum(event.ms for event in self.events)
        busy, reached = 0.0, 0.0
        for event in sorted(self.events, key=lambda event: event.start_ms):
            end = event.start_ms + event.ms
            busy += max(0.0, end - max(event.start_ms, reached))
            reached = max(reached, end)
        return busy

    @property
    def idle_ms(self) -> float:
        """The rest of the time, in milliseconds: the device waited for Python, for data or for its next launch."""
        return max(0.0, self.total_ms - self.busy_ms)

    @property
    def unknown_ms(self) -> float:
        """The time of kernels that Alpha has not asked for, in milliseconds."""
        self._check_known()
        return sum(event.ms for event in self.events if not event.is_known)

    @property
    def explained(self) -> float:
        """The share of the time, from 0 to 1, that is an operator of Alpha's, a copy, or idle."""
        unknown = self.unknown_ms
        return 1 - min(1.0, unknown / self.total_ms) if self.total_ms else 1.0

    def rows(self, by: str = "layer") -> list[Row]:
        """The lines of `table` as records, without those of idle time and of all.

        Raises:
            ConfigError, RuntimeError: as `table`.
        """
        self._check_known()
        return rows(self.events, by)

    def table(self, by: str = "layer", most: int | None = None, steps: int = 1) -> str:
        """Table with a line for each name, the one that takes most of the time first; 80 characters wide.

        `ms` is the time, and `time` its share of all. `FLOP/s` counts the products that are computed, and the `lim`
        behind it is the share of what the device could compute in that time; so for `B/s`, the bytes read and written.
        `skip` is the share of the products that trimming leaves out, `read` and `wrote` are bytes.

        Args:
            by: "layer", "operator", "kernel" or "phase".
            most: so many lines at most; the others are added up in one.
            steps: by which calls, times and bytes are divided.

        Raises:
            ConfigError: `by` is another word, or `steps` is less than 1.
            TypeError: `steps` or `most` is no integer.
            ValueError: `most` is less than 1.
            RuntimeError: a profile has not begun, or it has not ended.
        """
        self._check_known()
        if integer("table", "steps", steps) < 1:
            raise ConfigError(f"table: steps={steps} is less than 1")
        lines = [*wrapped(self.title), *table(self.events, by, self.total_ms, most, steps)]
        whole = row_of("all", self.events)
        overlap = whole.ms - self.busy_ms
        if overlap > LEAST_OVERLAP_MS:
            lines.append(line(Row("(at the same time)", 0, -overlap), self.total_ms, steps))
        if self.idle_ms:
            lines.append(line(Row(self.between, 0, self.idle_ms), self.total_ms, steps))
        lines.append(line(Row(**{**vars(whole), "ms": self.total_ms}), self.total_ms, steps))
        return "\n".join([*lines, *self._remarks()])

    def _remarks(self) -> list[str]:
        """Lines below a table: how much of a measured time it explains."""
        if self.is_predicted:
            return []
        found = ["no time was measured"]
        if self.total_ms:
            busy = self.busy_ms / self.total_ms
            found = [f"explained: {self.explained:.1%} of {self.total_ms:,.3f} ms, {busy:.1%} busy"]
        if self.unseen:
            found.append(f"no time is known of {self.unseen} launches")
        return found

    def __str__(self) -> str:
        return self._why_unknown() or self.table()

    def save_trace(self, path: str | Path) -> None:
        """Write a trace that Perfetto (ui.perfetto.dev) opens: rows for phases, for layers, and for the kernels.

        Raises:
            OSError: the file cannot be written.
            RuntimeError: as `table`.
        """
        self._check_known()
        chrome_trace.save(path, self.events, self.title)
