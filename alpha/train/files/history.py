"""History of a run: the results of each epoch as a table, as history.csv and as a picture of curves."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from alpha.config import user_path
from alpha.io.files import write_atomically


@dataclass(frozen=True)
class Result:
    """Means over `images` images, the seconds they took, and the device's live bytes at the end.

    `precision` is that of convolutions and matrix products, `learning_rate` that of the last step (of the optimizer's
    first group), or None of an evaluation.
    """

    images: int
    loss: float
    accuracy: float
    seconds: float
    live_bytes: int
    precision: str
    learning_rate: float | None = None

    @property
    def images_per_second(self) -> float:
        return self.images / self.seconds


@dataclass(frozen=True)
class Row:
    """One epoch. Accuracies are fractions, memory is in 10^6 bytes at the end of training steps.

    Runs that were begun before Alpha recorded the test loss and the learning rate have None there.
    """

    epoch: int
    seconds: float
    train_loss: float
    train_accuracy: float
    test_accuracy: float
    images_per_second: float
    live_mb: float
    precision: str
    test_loss: float | None = None
    learning_rate: float | None = None

    @classmethod
    def of(cls, epoch: int, trained: Result, tested: Result) -> Row:
        return cls(
            epoch,
            trained.seconds,
            trained.loss,
            trained.accuracy,
            tested.accuracy,
            trained.images_per_second,
            trained.live_bytes / 1e6,
            trained.precision,
            tested.loss,
            trained.learning_rate,
        )

    def __str__(self) -> str:
        """The results on a line that, behind "epoch 10/10", ends before the 80th column."""
        tested = "" if self.test_loss is None else f", test {self.test_loss:.4f}"
        return (
            f"{self.seconds:6.1f} s  loss {self.train_loss:.4f}{tested}  "
            f"accuracy {self.train_accuracy:.1%}, test {self.test_accuracy:.1%}"
        )


class History:
    """The rows of a run. After every `append` the file is whole, so a killed run keeps its rows.

    A file of an earlier run is replaced by the first `append` or `save`, not before.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = user_path(path)
        self.rows: list[Row] = []

    def copy(self) -> History:
        """A history of the same rows and file, which later rows do not change."""
        other = History(self.path)
        other.rows = list(self.rows)
        return other

    def append(self, row: Row) -> None:
        self.rows.append(row)
        self.save()

    def save(self) -> None:
        """Writes all rows. Raises CheckpointError with the reason, the old file is intact then."""
        text = io.StringIO(newline="")
        table = csv.writer(text, lineterminator="\n")
        table.writerow(field.name for field in fields(Row))
        table.writerows(
            [f"{value:.6g}" if isinstance(value, float) else value for value in astuple(row)] for row in self.rows
        )
        write_atomically(self.path, text.getvalue().encode())


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
    test_losses = [math.nan if row.test_loss is None else row.test_loss for row in rows]
    if not all(map(math.isnan, test_losses)):
        line(loss, test_losses, "test", _TEST, f"{test_losses[-1]:.3f}")
    for label, color, values in (
        ("train", _TRAIN, [row.train_accuracy for row in rows]),
        ("test", _TEST, [row.test_accuracy for row in rows]),
    ):
        line(accuracy, values, label, color, f"{values[-1]:.1%}")

    best = max(rows, key=lambda row: row.test_accuracy)  # the first of several
    label = f"best  {best.test_accuracy:.1%}, epoch {best.epoch}"
    accuracy.plot(best.epoch, best.test_accuracy, "o", color=_TEST, markersize=7, markeredgecolor="white", label=label)
    loss.set_ylim(bottom=0)
    accuracy.margins(y=0.12)
    accuracy.set_ylim(max(0.0, accuracy.get_ylim()[0]), min(1.0, accuracy.get_ylim()[1]))
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
        axes.legend(loc=corner, framealpha=0.9, edgecolor="none")

    png = io.BytesIO()
    figure.savefig(png, format="png")
    write_atomically(Path(path), png.getvalue())
    return Path(path).name
