"""Report of what a trained network gets right and wrong: tables for machines and pictures for people."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.data.images.image_files import shown
from alpha.io.files import make_folder, write_atomically
from alpha.train.commands.photos import Photos

SHOWN = 24  # of the worst mistakes
LARGEST_MATRIX = 40  # classes of which each cell has its number
CLASSES, PREDICTIONS, CONFUSION, MISTAKES = "classes.csv", "predictions.csv", "confusion.png", "mistakes.png"


@dataclass(frozen=True)
class Report:
    """The probabilities (N, C) of the images to test on, and their labels (N,)."""

    probabilities: NDArray[np.float64]
    labels: NDArray[np.int32]
    classes: Sequence[str]

    @property
    def guesses(self) -> NDArray[np.intp]:
        found: NDArray[np.intp] = self.probabilities.argmax(axis=1)
        return found

    @property
    def matrix(self) -> NDArray[np.int64]:
        """Counts (C, C): row t and column p has the images of class t that were taken for class p."""
        found = np.zeros((len(self.classes), len(self.classes)), np.int64)
        np.add.at(found, (self.labels, self.guesses), 1)
        return found

    @property
    def mistakes(self) -> NDArray[np.intp]:
        """The images that were taken for another class, the surest ones first."""
        wrong = np.flatnonzero(self.guesses != self.labels)
        return wrong[np.argsort(-self.probabilities[wrong, self.guesses[wrong]], kind="stable")]

    def lines(self) -> list[str]:
        """Accuracies and the most frequent confusions, in lines of less than 80 columns for short names."""
        matrix = self.matrix
        counts, hits = matrix.sum(axis=1), np.diag(matrix)
        accuracy = np.divide(hits, counts, out=np.full(len(counts), np.nan), where=counts > 0)
        order = np.argsort(accuracy, kind="stable")  # NaN, of classes without a photo, last
        text = [f"test accuracy {hits.sum() / max(1, counts.sum()):.1%} of {counts.sum()} photos"]
        names = [*map(shown, self.classes)]
        lowest = [f"{names[place]} {accuracy[place]:.0%}" for place in order[:3]]
        text.append(f"classes with the lowest accuracy: {', '.join(lowest)}")
        off = matrix - np.diag(hits)
        most = np.argsort(-off, axis=None, kind="stable")[:3]
        pairs = [
            f"{names[row]} taken for {names[column]} ({off[row, column]})"
            for row, column in zip(*np.unravel_index(most, off.shape), strict=True)
            if off[row, column]
        ]
        if pairs:
            text += ["most frequent mistakes:", *(f"  {pair}" for pair in pairs)]
        return text


def write_report(folder: Path, report: Report, photos: Photos, title: str) -> list[str]:
    """Write the tables and pictures of a report to a folder and return the names of the files that were written.

    Without matplotlib there are only the tables.
    """
    make_folder(folder)
    _table(folder / CLASSES, ("class", "photos", "right", "accuracy", "precision", "f1"), _class_rows(report))
    names = ("file", "class", "prediction", "probability")
    _table(folder / PREDICTIONS, names, _prediction_rows(report, photos.test_files))
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return [CLASSES, PREDICTIONS, "no pictures: pip install matplotlib"]
    _draw_matrix(folder / CONFUSION, report, title)
    _draw_mistakes(folder / MISTAKES, report, photos, title)
    return [CLASSES, PREDICTIONS, CONFUSION, MISTAKES]


def _class_rows(report: Report) -> Iterable[Sequence[Any]]:
    matrix = report.matrix
    for place, name in enumerate(report.classes):
        hits, count, guessed = matrix[place, place], matrix[place].sum(), matrix[:, place].sum()
        shares = (hits / count if count else 0.0, hits / guessed if guessed else 0.0)
        f1 = 2 * hits / (count + guessed) if count + guessed else 0.0
        yield name, count, hits, *(f"{share:.4f}" for share in (*shares, f1))


def _prediction_rows(report: Report, files: Sequence[Path]) -> Iterable[Sequence[Any]]:
    for place, (file, label, guess) in enumerate(zip(files, report.labels, report.guesses, strict=True)):
        probability = f"{report.probabilities[place, guess]:.4f}"
        yield file, report.classes[label], report.classes[guess], probability


def _table(path: Path, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode(errors="surrogateescape"))


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Any, path: Path) -> None:
    png = io.BytesIO()
    figure.savefig(png, format="png")
    write_atomically(path, png.getvalue())


def _draw_matrix(path: Path, report: Report, title: str) -> None:
    matrix = report.matrix
    shares = matrix / np.maximum(1, matrix.sum(axis=1, keepdims=True))
    count = len(report.classes)
    size = min(16.0, max(5.0, 2.2 + 0.42 * count))
    figure = _figure(size, size)
    axes = figure.subplots()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_title(f"{title}\nrow: class, column: what it was taken for", fontsize=10)
    axes.set_xlabel("prediction")
    axes.set_ylabel("class")
    step = max(1, count // LARGEST_MATRIX)
    names = [_short(name) for name in report.classes]
    axes.set_xticks(range(0, count, step), names[::step], rotation=90, fontsize=8)
    axes.set_yticks(range(0, count, step), names[::step], fontsize=8)
    if count <= LARGEST_MATRIX:
        for row in range(count):
            for column in range(count):
                if matrix[row, column]:
                    color = "white" if shares[row, column] > 0.5 else "#222222"
                    text = str(matrix[row, column])
                    axes.text(column, row, text, ha="center", va="center", fontsize=7, color=color)
    _save(figure, path)


def _draw_mistakes(path: Path, report: Report, photos: Photos, title: str) -> None:
    worst = report.mistakes[:SHOWN]
    columns = 6
    rows = max(1, -(-len(worst) // columns))
    figure = _figure(1.75 * columns, 0.7 + 2.15 * rows)
    what = f"the {len(worst)} surest of {len(report.mistakes)} mistakes" if len(worst) else "no mistakes"
    figure.suptitle(f"{title}: {what}\nprediction and its probability, then the class", fontsize=11)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels:
        axes.axis("off")
    for axes, place in zip(panels, worst, strict=False):
        guess, label = report.guesses[place], report.labels[place]
        axes.imshow(photos.test_image(int(place)))
        sure = f"{report.probabilities[place, guess]:.0%}"
        text = f"{_short(report.classes[guess])} {sure}\nclass: {_short(report.classes[label])}"
        axes.set_title(text, fontsize=8, loc="left")
    _save(figure, path)


def _short(name: str, length: int = 18) -> str:
    """A name without its middle if it is long: names of one kind often begin alike, and differ at the end."""
    name, left = shown(name), (length - 1) // 2
    return name if len(name) <= length else f"{name[:left]}…{name[left + 1 - length :]}"
