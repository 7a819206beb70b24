"""The curves of a run as a picture."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path

from alpha.io.files import write_atomically
from alpha.train.files.history import Row

_TRAIN, _TEST, _INK = "#1f5fa8", "#d1681c", "#444444"


def save_curves(path: str | Path, rows: Sequence[Row], title: str) -> str:
    """Draw `rows` to a PNG at `path` and return its name, or why there is no picture.

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

    rated = any(row.train_accuracy is not None or row.test_accuracy is not None for row in rows)
    figure = Figure(figsize=(10 if rated else 6, 4.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=13, color=_INK)
    epochs = [row.epoch for row in rows]

    def line(axes: Axes, values: list[float], label: str, color: str, last: str) -> None:
        marker = "o" if len(rows) <= 12 else ""
        axes.plot(
            epochs, values, color=color, linewidth=2, marker=marker or None, markersize=4.5, label=f"{label}  {last}"
        )

    panels = figure.subplots(1, 2 if rated else 1, squeeze=False)[0]
    loss = panels[0]
    losses = [row.train_loss for row in rows]
    line(loss, losses, "train", _TRAIN, f"{losses[-1]:.3f}")
    test_losses = _numbers([row.test_loss for row in rows])
    if not all(map(math.isnan, test_losses)):
        line(loss, test_losses, "test", _TEST, f"{test_losses[-1]:.3f}")
    loss.set_ylim(bottom=min(0.0, loss.get_ylim()[0]))
    if rated:
        accuracy = panels[1]
        for label, color, values in (
            ("train", _TRAIN, _numbers([row.train_accuracy for row in rows])),
            ("test", _TEST, _numbers([row.test_accuracy for row in rows])),
        ):
            if not all(map(math.isnan, values)):
                line(accuracy, values, label, color, f"{values[-1]:.1%}")
        tested = [row for row in rows if row.test_accuracy is not None]
        if tested:
            best = max(tested, key=lambda row: row.test_accuracy or 0.0)  # the first of several
            label = f"best  {best.test_accuracy:.1%}, epoch {best.epoch}"
            mark = {"markersize": 7, "markeredgecolor": "white", "label": label}
            accuracy.plot(best.epoch, best.test_accuracy, "o", color=_TEST, **mark)
        accuracy.margins(y=0.12)
        accuracy.set_ylim(max(0.0, accuracy.get_ylim()[0]), min(1.0, accuracy.get_ylim()[1]))
        accuracy.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    for axes, name, corner in zip(panels, ("loss", "accuracy"), ("best", "lower right"), strict=False):
        axes.set_title(name, loc="left", fontsize=11, color=_INK)
        axes.set_xlabel("epoch", color=_INK)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_xlim(epochs[0] - 0.5, epochs[-1] + 0.5)
        axes.grid(color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=_INK)
        axes.legend(loc=corner, framealpha=0.9, edgecolor="none")

    png = io.BytesIO()
    figure.savefig(png, format="png")
    write_atomically(Path(path), png.getvalue())
    return Path(path).name


def _numbers(values: Sequence[float | None]) -> list[float]:
    """The values with NaN, which is not drawn, in place of None."""
    return [math.nan if value is None else value for value in values]
