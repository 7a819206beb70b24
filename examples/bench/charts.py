"""Line charts as the paper's Figures 9 to 14: speed over the cases, one an operator and filter size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alpha.ops.conv2d.shape import ConvShape
from bench.report import Row

OURS, PEER, INK = "#1f5fa8", "#d1681c", "#444444"
STYLES = {"float32": "-", "tf32": "--", "bf16": ":"}
CASE_WIDTH, EDGES = 0.42, 2.5  # inches


def save_charts(folder: Path, rows: Sequence[Row], peer: str | None) -> list[str]:
    """PNG files such as paper-forward-3x3.png, with a panel a stride; their names, or why there is none."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return ["no charts: pip install matplotlib"]
    charts: dict[str, list[Row]] = {}
    for row in rows:
        s = row.case.shape
        stem = f"{row.operator.name}-{s.FH}x{s.FW}"
        if row.case.in_paper:
            charts.setdefault(f"paper-{stem}.png", []).append(row)
        if row.case.sources != ("paper",):
            charts.setdefault(f"layers-{stem}.png", []).append(row)
    for name, found in charts.items():
        _save_chart(folder / name, found, peer)
    return list(charts)


def _save_chart(path: Path, rows: Sequence[Row], peer: str | None) -> None:
    # The canvas is made by hand: pyplot would choose a backend for the whole program.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    by_stride: dict[int, list[Row]] = {}
    for row in sorted(rows, key=_place):
        by_stride.setdefault(row.case.shape.sh, []).append(row)
    widths = [len({row.case for row in panel}) * CASE_WIDTH + EDGES for panel in by_stride.values()]
    figure = Figure(figsize=(max(9.0, sum(widths)), 4.6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    first = rows[0]
    s = first.case.shape
    figure.suptitle(f"{first.operator.title}: filter {s.FH}x{s.FW}, padding {s.ph}", fontsize=13, color=INK)
    panels = figure.subplots(1, len(by_stride), squeeze=False, width_ratios=widths)[0]
    for axes, (stride, panel) in zip(panels, by_stride.items(), strict=True):
        _draw(axes, panel, peer)
        axes.set_title(f"stride {stride}", loc="left", fontsize=11, color=INK)
    panels[0].set_ylabel("TFLOP/s (nominal, Table III)", color=INK)
    lines = {line.get_label(): line for axes in panels for line in axes.get_lines()}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=6, frameon=False, fontsize=9)
    figure.savefig(path, format="png")


def _draw(axes: Any, rows: Sequence[Row], peer: str | None) -> None:
    """A line a contestant and precision."""
    cases = list(dict.fromkeys(row.case for row in rows))
    for precision in dict.fromkeys(row.precision for row in rows):
        found = {row.case: row for row in rows if row.precision == precision}
        lines = [("Alpha", OURS, [row.tflops(row.ours) for row in found.values()])]
        if peer:
            speeds = [row.tflops(row.peer) for row in found.values() if row.peer]
            lines.append((peer, PEER, speeds))
        places = [cases.index(case) for case in found]
        for name, color, speeds in lines:
            axes.plot(
                places,
                speeds,
                color=color,
                linestyle=STYLES[precision],
                linewidth=2,
                marker="o",
                markersize=4.5,
                label=f"{name}, {precision}",
            )
    axes.set_ylim(bottom=0)
    axes.set_xlim(-0.5, len(cases) - 0.5)
    labels = [_label(case.shape) for case in cases]
    axes.set_xticks(range(len(cases)), labels, rotation=60, ha="right", rotation_mode="anchor")
    axes.set_xlabel("H, channels, N", color=INK)
    axes.grid(color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, labelsize=8)


def _place(row: Row) -> tuple[int, ...]:
    """Key to sort rows by: the stride; in a panel from large maps of few channels to small ones of many."""
    s = row.case.shape
    return s.sh, -s.IH, s.IC, s.OC, s.N


def _label(s: ConvShape) -> str:
    channels = str(s.IC) if s.IC == s.OC else f"{s.IC}>{s.OC}"
    return f"{s.IH}, {channels}, {s.N}"
