"""A picture of a run: its loss and its accuracies by epoch."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from alpha.io.files import write_atomically
from alpha.train.history import Row

_TRAIN, _TEST, _INK = "#1f5fa8", "#d1681c", "#444444"


def save_curves(path: str | Path, rows: Sequence[Row], title: str) -> str:
    """Draws `rows` to a PNG at `path`; returns its name, or why there is no picture.

    Raises CheckpointError where the file cannot be written.
    """
    try:
        # The canvas is made by hand: pyplot would choose a backend for the whole program.
        from matplotlib.axes import Axes
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator, PercentFormatter
    except ImportError:
        return "no curves: pip install matplotlib"
    if not rows:
        return "no curves: no epoch was finished"

    figure = Figure(figsize=(10, 4.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=13, color=_INK)
    epochs = [row.epoch for row in rows]

    def line(axes: Axes, values: list[float], label: str, color: str, last: str) -> None:
        marker = "o" if len(rows) <= 12 else ""
        axes.plot(
            epochs, values, color=color, linewidth=2, marker=marker or None, markersize=4.5, label=f"{label}  {last}"
        )

    loss, accuracy = figure.subplots(1, 2)
    losses = [row.train_loss for row in rows]
    line(loss, losses, "train", _TRAIN, f"{losses[-1]:.3f}")
    for label, color, values in (
        ("train", _TRAIN, [row.train_accuracy for row in rows]),
        ("test", _TEST, [row.test_accuracy for row in rows]),
    ):
        line(accuracy, values, label, color, f"{values[-1]:.1%}")

    loss.set_ylim(bottom=0)
    accuracy.set_ylim(0, 1)
    accuracy.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    for axes, name, corner in ((loss, "loss", "lower left"), (accuracy, "accuracy", "lower right")):
        axes.set_title(name, loc="left", fontsize=11, color=_INK)
        axes.set_xlabel("epoch", color=_INK)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_xlim(epochs[0] - 0.5, epochs[-1] + 0.5)
        axes.grid(color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=_INK)
        axes.legend(loc=corner, frameon=False)

    png = io.BytesIO()
    figure.savefig(png, format="png")
    write_atomically(Path(path), png.getvalue())
    return Path(path).name
