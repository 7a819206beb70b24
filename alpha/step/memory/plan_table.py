"""The text of a plan of memory: its totals, and the peak by kind and by layer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from alpha.step.memory.simulation import Share
from alpha.step.profiling.table_text import shortened, wrapped

NAME, LAYER, CELL = 32, 22, 8  # characters of a kind, of the name of a layer, and of its numbers at most
COLUMNS = ("weights", "gradients", "state", "kept", "temporary", "total")
COLUMN_OF = {
    "parameters": "weights",
    "buffers": "weights",
    "bfloat16 copies": "weights",
    "gradients": "gradients",
    "optimizer state": "state",
    "kept for backward": "kept",
}


def mb(nbytes: float) -> str:
    """A number of bytes in MB, of a million each."""
    return f"{nbytes / 1e6:,.1f}"


def grows(nbytes: int) -> str:
    """Text on a step that takes more memory with each call."""
    return f"each call leaves {mb(nbytes)} MB more in use than the one before; it may keep results with their graphs"


def table_of(plan: Any, rows: int | None) -> str:
    """The table of a plan, a `StepMemory`, with the `rows` largest layers; None: with all."""
    head = [part for line in _head(plan) for part in wrapped(line)]
    return "\n".join([*head, "", *_kinds(plan), "", *_layers(plan, rows)])


def _head(plan: Any) -> list[str]:
    how = "captured in a CUDA graph" if plan.captured else "run as usual"
    first, later = plan.steps[0].peak, max([stats.peak for stats in plan.steps[1:]], default=0)
    last = plan.steps[-1].peak
    peaks = f"peak of the first step {mb(first)}, of later ones {mb(later)}"
    if mb(last) != mb(later):
        peaks += f", of the last {mb(last)}"
    lines = [
        f"Memory of a step on {plan.gpu}, {how}; MB of 10^6 bytes",
        f"precision {plan.precision}, memory mode {plan.mode}",
        f"live at the peak {mb(plan.live)}, reserved {mb(plan.reserved)}, process {mb(plan.process)}",
        f"{peaks}; in {plan.when}",
        f"the process: {mb(plan.overhead)} for context and kernels, {plan.overhead_from}",
    ]
    if plan.growth:
        lines.append(f"THIS GOES ON: {grows(plan.growth)}")
    if not plan.updated:
        lines.append(f"AN OPTIMIZER CHANGED NO PARAMETER in {len(plan.steps)} calls: what its state takes is missing")
    if plan.room is not None:
        left = plan.room - plan.reserved
        what = f"{mb(left)} stay free" if left >= 0 else f"{mb(-left)} more than there are"
        lines.append(f"Alpha may hold {mb(plan.room)} of this GPU: {what}")
    return lines


def _kinds(plan: Any) -> list[str]:
    kinds = by_kind(plan.shares)
    lines = [f"{'at the peak':{NAME}}{'MB':>10}{'share':>8}"]
    for kind, nbytes in sorted(kinds.items(), key=lambda item: -item[1]):
        lines.append(f"{kind:{NAME}}{mb(nbytes):>10}{nbytes / max(1, plan.live):>8.1%}")
    return lines


def _layers(plan: Any, rows: int | None) -> list[str]:
    layers: dict[str, dict[str, int]] = {}
    for share in plan.shares:
        row = layers.setdefault(share.layer, {})
        column = COLUMN_OF.get(share.kind, "temporary")
        row[column] = row.get(column, 0) + share.nbytes
        row["total"] = row.get("total", 0) + share.nbytes
    ordered = sorted(layers.items(), key=lambda item: -item[1]["total"])
    shown = ordered[:rows]
    others = ordered[len(shown) :]
    names = shortened([name or "(of no layer)" for name, _ in shown], LAYER)
    lines = [_row("layer, MB", COLUMNS)]
    lines += [_row(name, _cells([row])) for name, (_, row) in zip(names, shown, strict=True)]
    if others:
        lines.append(_row(f"({len(others)} others)", _cells([row for _, row in others])))
    return [*lines, _row("total", _cells(layers.values()))]


def _cells(rows: Iterable[dict[str, int]]) -> list[str]:
    rows = list(rows)
    sums = [sum(row.get(column, 0) for row in rows) for column in COLUMNS]
    return [_cell(nbytes) if nbytes else "" for nbytes in sums]


def _cell(nbytes: int) -> str:
    """A number of bytes in MB, without a decimal if there is no room for it."""
    text = mb(nbytes)
    return text if len(text) <= CELL else f"{nbytes / 1e6:,.0f}"


def _row(name: str, cells: Iterable[str]) -> str:
    widths = (9, 10, 9, 9, 10, 10)
    return (f"{name:{LAYER}}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))).rstrip()


def by_kind(shares: Iterable[Share]) -> dict[str, int]:
    """Bytes by kind."""
    kinds: dict[str, int] = {}
    for share in shares:
        kinds[share.kind] = kinds.get(share.kind, 0) + share.nbytes
    return kinds
