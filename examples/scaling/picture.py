"""Pictures of the efficiency over the number of GPUs, computed and measured."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.charts import INK, OURS, PEER

from alpha.io.files import write_atomically
from scaling.step import Outcome

Curves = Mapping[tuple[str, str], Sequence[Outcome]]  # (algorithm, gradients) -> one for each number of GPUs
COLOURS = {"ring": PEER, "tree": "#3c8d40", "fastest": OURS}
STYLES = {"float32": "-", "bf16": (0, (1, 1.5))}
WIDTHS = {"ring": 2.0, "tree": 1.2, "fastest": 3.0}  # the tree's line lies on that of the fastest


def save_picture(path: Path, panels: Mapping[str, Curves]) -> str:
    """Draw a panel for each network; the path, or why there is no picture."""
    return _save(path, panels, _draw, "efficiency, computed")


def efficiency_picture(path: Path, panels: Mapping[str, Mapping[str, Sequence[tuple[int, float]]]]) -> str:
    """Draw a panel for each network of measured (GPUs, efficiency); the path, or why there is no picture."""
    return _save(path, panels, _draw_measured, "efficiency, measured")


def _save(path: Path, panels: Mapping[str, Any], draw: Callable[[Any, Any], None], label: str) -> str:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return "no picture: pip install matplotlib"
    # The canvas is made by hand: pyplot would choose a backend for the whole program.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    figure = Figure(figsize=(max(6.4, 4.6 * len(panels)), 4.4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, (title, curves) in zip(grid, panels.items(), strict=True):
        draw(axes, curves)
        axes.set_title(title, loc="left", fontsize=10, color=INK)
        axes.set_xlabel("GPUs", color=INK)
        axes.set_ylim(0, 1.05)
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.grid(color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=INK, labelsize=8)
    grid[0].set_ylabel(label, color=INK)
    lines = {line.get_label(): line for axes in grid for line in axes.get_lines()}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    png = io.BytesIO()
    figure.savefig(png, format="png")
    write_atomically(path, png.getvalue())
    return str(path)


def _draw_measured(axes: Any, curves: Mapping[str, Sequence[tuple[int, float]]]) -> None:
    for name, points in curves.items():
        side, precision, scaling = name.split(", ")
        gpus, values = zip(*sorted({(1, 1.0), *points}), strict=True)
        axes.plot(
            gpus,
            values,
            color=OURS if side == "Alpha" else PEER if side == "DDP" else INK,
            linestyle={"float32": "-", "tf32": "--"}.get(precision, ":"),
            marker="o" if scaling == "weak" else "s",
            markersize=4,
            label=name,
        )
    axes.set_xscale("log", base=2)
    ticks = sorted({1, *(gpus for points in curves.values() for gpus, _ in points)})
    axes.set_xticks(ticks, [f"{gpus:,}" for gpus in ticks])
    axes.minorticks_off()


def _draw(axes: Any, curves: Curves) -> None:
    for (algorithm, gradients), outcomes in curves.items():
        axes.plot(
            [outcome.gpus for outcome in outcomes],
            [outcome.efficiency for outcome in outcomes],
            color=COLOURS[algorithm],
            linestyle=STYLES[gradients],
            linewidth=WIDTHS[algorithm],
            marker="o",
            markersize=1.5 + WIDTHS[algorithm],
            label=f"{algorithm}, {gradients} gradients",
        )
    axes.set_xscale("log", base=2)
    ticks = [outcome.gpus for outcome in next(iter(curves.values()))]
    axes.set_xticks(ticks, [f"{gpus:,}" for gpus in ticks], rotation=45)
