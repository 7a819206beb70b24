"""History of a run: the results of each epoch, and history.csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from alpha.config import user_path
from alpha.io.files import write_atomically


@dataclass(frozen=True)
class Result:
    """Means over `images` samples, the seconds they took, and the device's live bytes at the end.

    `accuracy` is None where there are no labels of classes. `precision` is that of convolutions and matrix products,
    `learning_rate` that of the last step (of the optimizer's first group), or None of an evaluation. `metrics` are the
    trainer's, and numbers that its step returns.
    """

    images: int
    loss: float
    accuracy: float | None
    seconds: float
    live_bytes: int
    precision: str
    learning_rate: float | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def images_per_second(self) -> float:
        """Images of the epoch over its seconds."""
        return self.images / self.seconds


@dataclass(frozen=True)
class Row:
    """One epoch. Accuracies are fractions, memory is in 10^6 bytes at the end of training steps.

    What there is not is None: accuracies without labels of classes, numbers of a test set without one, and the test
    loss and the learning rate of runs that were begun before Alpha recorded them. `metrics` are other numbers by name:
    "train_" or "test_" and the name that a metric or a step has given them.
    """

    epoch: int
    seconds: float
    train_loss: float
    train_accuracy: float | None
    test_accuracy: float | None
    images_per_second: float
    live_mb: float
    precision: str
    test_loss: float | None = None
    learning_rate: float | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, epoch: int, trained: Result, tested: Result | None) -> Row:
        """The row of an epoch, from what training and, if there was one, evaluation gave."""
        metrics = {f"train_{name}": value for name, value in trained.metrics.items()}
        if tested is not None:
            metrics |= {f"test_{name}": value for name, value in tested.metrics.items()}
        return cls(
            epoch,
            trained.seconds,
            trained.loss,
            trained.accuracy,
            None if tested is None else tested.accuracy,
            trained.images_per_second,
            trained.live_bytes / 1e6,
            trained.precision,
            None if tested is None else tested.loss,
            trained.learning_rate,
            metrics,
        )

    def number(self, name: str) -> float:
        """A number of the row by its name, such as "test_loss" or that of a metric.

        Raises KeyError, which lists the names that there are.
        """
        numbers = self.numbers()
        if name not in numbers:
            raise KeyError(f"{name!r} is not recorded; there are {', '.join(numbers)}")
        return float(numbers[name])

    def numbers(self) -> dict[str, float]:
        """All numbers of the row by name, without those that there are not."""
        found = {**{f.name: getattr(self, f.name) for f in fields(self) if f.name != "metrics"}, **self.metrics}
        return {name: value for name, value in found.items() if isinstance(value, (int, float))}

    def __str__(self) -> str:
        """The results on a line that, behind "epoch 10/10", ends before the 80th column if there are no metrics."""
        losses = "" if self.test_loss is None else f", test {self.test_loss:.4f}"
        text = f"{self.seconds:6.1f} s  loss {self.train_loss:.4f}{losses}"
        if self.train_accuracy is not None:
            tested = "" if self.test_accuracy is None else f", test {self.test_accuracy:.1%}"
            text += f"  accuracy {self.train_accuracy:.1%}{tested}"
        elif self.test_accuracy is not None:
            text += f"  test accuracy {self.test_accuracy:.1%}"
        shown = [f"{name} {value:.4g}" for name, value in self.metrics.items() if isinstance(value, float)]
        return "  ".join([text, *shown])


class History:
    """The rows of a run. After every `append` the file is whole, so a killed run keeps its rows.

    A file of an earlier run is replaced by the first `append` or `save`, not before.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = user_path(path)
        self.rows: list[Row] = []

    def __repr__(self) -> str:
        return f"History({len(self.rows)} epochs in {str(self.path)!r})"

    def copy(self) -> History:
        """A history of the same rows and file, which later rows do not change."""
        other = History(self.path)
        other.rows = list(self.rows)
        return other

    def append(self, row: Row) -> None:
        """Add the row of an epoch, and write the file."""
        self.rows.append(row)
        self.save()

    def save(self) -> None:
        """Writes all rows. Raises CheckpointError with the reason, the old file is intact then."""
        text = io.StringIO(newline="")
        table = csv.writer(text, lineterminator="\n")
        names = [f.name for f in fields(Row) if f.name != "metrics"]
        metrics = list(dict.fromkeys(name for row in self.rows for name in row.metrics))
        table.writerow([*names, *metrics])
        for row in self.rows:
            values = [getattr(row, name) for name in names] + [row.metrics.get(name) for name in metrics]
            table.writerow([f"{value:.6g}" if isinstance(value, float) else value for value in values])
        write_atomically(self.path, text.getvalue().encode())
