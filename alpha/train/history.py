"""What each epoch reached, as a table and as history.csv."""

from __future__ import annotations

import csv
import io
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from alpha.config import user_path
from alpha.io.files import write_atomically


@dataclass(frozen=True)
class Result:
    """Means over `images` images, the seconds they took, and the device's live bytes at the end.

    `precision` is that of convolutions and matrix products.
    """

    images: int
    loss: float
    accuracy: float
    seconds: float
    live_bytes: int
    precision: str

    @property
    def images_per_second(self) -> float:
        return self.images / self.seconds


@dataclass(frozen=True)
class Row:
    """One epoch. Accuracies are fractions, memory is in 10^6 bytes at the end of training steps."""

    epoch: int
    seconds: float
    train_loss: float
    train_accuracy: float
    test_accuracy: float
    images_per_second: float
    live_mb: float
    precision: str

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
        )

    def __str__(self) -> str:
        return (
            f"{self.seconds:6.1f} s   loss {self.train_loss:.4f}   "
            f"train {self.train_accuracy:6.2%}   test {self.test_accuracy:6.2%}   "
            f"{self.images_per_second:,.0f} images/s   {self.live_mb:,.0f} MB   {self.precision}"
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
