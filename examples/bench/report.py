"""Report of what was measured: a line while it runs, and CSV tables; markdown.py makes a page of them."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from alpha.ops.conv2d.shape import ConvShape
from bench.cases import Case
from bench.operators import Operator

ACCURATE = 1e-6  # a float32 error below this is not held against anyone


@dataclass(frozen=True)
class Result:
    """Time and error of one contestant.

    Attributes:
        error: None if there is no float64 result.
        predicted_ms: by Alpha's model; None for what it does not predict.
    """

    name: str
    ms: float
    error: float | None
    predicted_ms: float | None = None


@dataclass(frozen=True)
class Row:
    """One operator of one case in one precision.

    Attributes:
        peer: PyTorch's faster layout.
        others: Alpha's other contestants, if they were wanted.
    """

    case: Case
    operator: Operator
    precision: str
    ours: Result
    peer: Result | None
    others: tuple[Result, ...] = ()

    @property
    def candidates(self) -> list[Result]:
        """The configurations that can compute it, the chosen one first."""
        return [result for result in (self.ours, *self.others) if result.predicted_ms is not None]

    @property
    def ratio(self) -> float | None:
        """Ratio that is above 1 where Alpha is faster."""
        return None if self.peer is None else self.peer.ms / self.ours.ms

    @property
    def skipped(self) -> float:
        return self.operator.skipped(self.case.shape)

    @property
    def less_accurate(self) -> bool:
        """Both errors are known and Alpha's is the larger one, and more than rounding."""
        if self.peer is None or self.ours.error is None or self.peer.error is None:
            return False
        return not self.ours.error <= max(self.peer.error, ACCURATE)

    def tflops(self, result: Result) -> float:
        """Effective speed: the nominal operations of Table III over the time."""
        return self.operator.nominal(self.case.shape) / result.ms / 1e9


DEPTH = ("ID", "FD", "sd", "pd", "dd", "OD")  # the cases of bench_conv.py have none
FIELDS = tuple(field.name for field in dataclasses.fields(ConvShape) if field.name not in DEPTH)
COLUMNS = (
    "operator",
    "precision",
    "case",
    "H",
    "W",
    "IC",
    "OC",
    "N",
    "K",
    "stride",
    "padding",
    "sources",
    "gflop",
    "skipped",
    "configuration",
    "ms",
    "tflops",
    "useful_tflops",
    "error",
    "peer",
    "peer_ms",
    "peer_tflops",
    "peer_error",
    "ratio",
)


CANDIDATE_COLUMNS = ("operator", "precision", *FIELDS, "configuration", "ms", "predicted_ms", "chosen")


class CsvFile:
    """Takes lines as they come, so that a run that is stopped leaves what it had."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._file = path.open("w", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file)
        self._write(columns)

    def close(self) -> None:
        self._file.close()

    def _write(self, cells: Iterable[object]) -> None:
        self._writer.writerow([f"{c:.6g}" if isinstance(c, float) else c for c in cells])
        self._file.flush()


class Candidates(CsvFile):
    """Every configuration of every row, for `examples/fit_conv_model.py`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, CANDIDATE_COLUMNS)

    def add(self, row: Row) -> None:
        shape = [getattr(row.case.shape, name) for name in FIELDS]
        for result in row.candidates:
            measured = result.name, result.ms, result.predicted_ms, int(result is row.ours)
            self._write((row.operator.name, row.precision, *shape, *measured))


class Results(CsvFile):
    """A line per row."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, COLUMNS)

    def add(self, row: Row) -> None:
        s, tflops, peer = row.case.shape, row.tflops(row.ours), row.peer
        theirs = [peer.name, peer.ms, row.tflops(peer), peer.error, row.ratio] if peer else []
        self._write(
            (
                row.operator.name,
                row.precision,
                row.case.name,
                s.IH,
                s.IW,
                s.IC,
                s.OC,
                s.N,
                s.FH,
                s.sh,
                s.ph,
                " ".join(row.case.sources),
                row.operator.nominal(s) / 1e9,
                row.skipped,
                row.ours.name,
                row.ours.ms,
                tflops,
                tflops * (1 - row.skipped),
                row.ours.error,
                *theirs,
            )
        )


def line(row: Row) -> str:
    """A row for the screen."""
    text = (
        f"{row.case.name:35} {row.operator.name:8} {row.precision:7}"
        f"{_result(row, row.ours):74} skipped {row.skipped:4.0%}"
    )
    if row.peer is not None:
        text += f" | {_result(row, row.peer):58} | {row.ratio:5.2f}x"
    return text


def other_line(row: Row, other: Result) -> str:
    """Another configuration, or with the statistics of Y, below the line of the chosen one."""
    text = f"{'':52}{_result(row, other):74} {other.ms / row.ours.ms:.2f}x the chosen one's time"
    return text if other.predicted_ms is None else f"{text}, {other.predicted_ms:.3f} ms predicted"


def _result(row: Row, result: Result) -> str:
    return (
        f"{result.ms:9.3f} ms {speed_text(row, result):>7} TFLOP/s error {error_text(result.error):>7}  {result.name}"
    )


def speed_text(row: Row, result: Result) -> str:
    tflops = row.tflops(result)
    return f"{tflops:.1f}" if tflops >= 1 else f"{tflops:.3f}"


def error_text(error: float | None) -> str:
    return "-" if error is None else f"{error:.1e}"
