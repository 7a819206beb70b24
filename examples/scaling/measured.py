"""Results of bench_scaling.py: a table as Markdown and CSV, and a picture."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from alpha.io.files import write_atomically
from scaling.picture import efficiency_picture


@dataclass(frozen=True)
class Row:
    """A step on some GPUs, in milliseconds of the slowest of them.

    Attributes:
        scaling: "weak" if each GPU has a batch of its own, or "strong" if they share one.
        batch: images of each GPU.
        alone_ms: a step that exchanges nothing, on all GPUs at once; with "strong" of the whole batch.
        together_ms: a step of this batch that exchanges one number, so that the GPUs keep step.
        ms: a step that averages the gradients.
        all_reduce_ms: of an array of the size of all gradients, alone.
        weights: a digest of the weights after some steps, the same on all GPUs.
    """

    network: str
    precision: str
    side: str
    scaling: str
    gpus: int
    batch: int
    alone_ms: float
    together_ms: float
    ms: float
    all_reduce_ms: float
    weights: str

    @property
    def images_per_second(self) -> float:
        return 1e3 * self.gpus * self.batch / self.ms

    @property
    def efficiency(self) -> float:
        """Images per second of a GPU, as a share of those of one GPU that exchanges nothing."""
        return self.alone_ms / self.ms / (self.gpus if self.scaling == "strong" else 1)

    @property
    def exposed(self) -> float:
        """Time that the gradients add to a step that keeps step, as a share of that of their all-reduce."""
        return max(0.0, self.ms - self.together_ms) / self.all_reduce_ms if self.all_reduce_ms else 0.0


HEAD = (
    "| network | precision | side | scaling | GPUs | images/GPU | ms alone | ms in step | ms | images/s | efficiency | "
    "all-reduce ms, not hidden |"
)


def table(rows: Sequence[Row]) -> str:
    """The rows as a table of Markdown."""
    lines = [HEAD, "|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for row in rows:
        times = f"{row.alone_ms:.3f} | {row.together_ms:.3f} | {row.ms:.3f}"
        lines.append(
            f"| {row.network} | {row.precision} | {row.side} | {row.scaling} | {row.gpus} | {row.batch} | {times} | "
            f"{row.images_per_second:,.0f} | {row.efficiency:.3f} | {row.all_reduce_ms:.3f}, {row.exposed:.0%} |"
        )
    return "\n".join(lines)


def save(folder: Path, rows: Sequence[Row]) -> list[str]:
    """Write table.md, table.csv and scaling.png; the names, or why there is no picture."""
    text = io.StringIO(newline="")
    derived = ["images_per_second", "efficiency", "exposed"]
    writer = csv.DictWriter(text, [*(field.name for field in fields(Row)), *derived], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) | {name: getattr(row, name) for name in derived} for row in rows)
    write_atomically(folder / "table.csv", text.getvalue().encode())
    write_atomically(folder / "table.md", f"{table(rows)}\n".encode())
    panels: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for row in rows:
        curves = panels.setdefault(row.network, {})
        curves.setdefault(f"{row.side}, {row.precision}, {row.scaling}", []).append((row.gpus, row.efficiency))
    return ["table.md", "table.csv", efficiency_picture(folder / "scaling.png", panels)]
