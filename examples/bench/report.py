"""What was measured: a line while it runs, a CSV table, and a page of Markdown with the summary."""

from __future__ import annotations

import csv
import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from alpha.ops.conv2d.shape import ConvShape
from bench.cases import FEW_CHANNELS, Case
from bench.operators import OPERATORS, Operator

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
        """Above 1 where Alpha is faster."""
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


FIELDS = tuple(field.name for field in dataclasses.fields(ConvShape))
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
    return f"{result.ms:9.3f} ms {_speed(row, result):>7} TFLOP/s error {_error(result.error):>7}  {result.name}"


def _speed(row: Row, result: Result) -> str:
    tflops = row.tflops(result)
    return f"{tflops:.1f}" if tflops >= 1 else f"{tflops:.3f}"


def _error(error: float | None) -> str:
    return "-" if error is None else f"{error:.1e}"


# -- Markdown ---------------------------------------------------------------------------------------


def page(rows: Sequence[Row], heading: Sequence[str], peer: str | None) -> str:
    """The summary and a table an operator and precision."""
    parts = ["# Convolution operators", *heading]
    if peer:
        parts += [
            f"Ratios are {peer}'s time over Alpha's; above 1, Alpha is faster. {peer} is the faster of "
            "its layouts. TFLOP/s are the nominal operations of the paper's Table III over the time; "
            "`skipped` is the share of them that meet a zero. Errors are against float64.",
            summary(rows, peer),
        ]
    if any(row.others and row.candidates for row in rows):
        parts += ["## The choice among all configurations", predictions(rows)]
    for group in _groups(rows):
        parts += [f"## {group[0].operator.name}, {group[0].precision}", _table(group, peer)]
    return "\n\n".join(parts) + "\n"


def summary(rows: Sequence[Row], peer: str) -> str:
    """A line an operator and precision: geometric means, worst cases, errors."""
    header = (
        "operator",
        "precision",
        "cases",
        "geometric mean",
        "of stride 2",
        "worst",
        f"worst with {FEW_CHANNELS} channels or more",
        "worst 3x3 of the CIFAR networks",
        "largest error",
        f"{peer}'s",
        "less accurate",
    )
    body = []
    for group in _groups(rows):
        by_ratio = sorted((row for row in group if row.ratio is not None), key=_ratio)
        layers = [r for r in by_ratio if r.case.in_cifar_network and r.case.shape.FH == 3]
        body.append(
            (
                group[0].operator.name,
                group[0].precision,
                str(len(group)),
                _mean(by_ratio),
                _mean([row for row in by_ratio if row.case.shape.sh == 2]),
                _worst(by_ratio),
                _worst([row for row in by_ratio if not row.case.has_few_channels]),
                _worst(layers),
                _largest(row.ours for row in group),
                _largest(row.peer for row in group),
                str(sum(row.less_accurate for row in group)),
            )
        )
    return _markdown(header, body)


def predictions(rows: Sequence[Row]) -> str:
    """A line per operator and precision: how the choice and the model compare with what was measured."""
    header = (
        "operator",
        "precision",
        "cases",
        "chosen within 5 % of the fastest",
        "within 15 %",
        "predicted within 5 %",
        "within 15 %",
        "predicted / measured",
    )
    body = []
    for group in _groups([row for row in rows if row.candidates]):
        fastest = [min(result.ms for result in row.candidates) for row in group]
        chosen = [row.ours.ms / least for row, least in zip(group, fastest, strict=True)]
        best = [min(row.candidates, key=_predicted).ms / least for row, least in zip(group, fastest, strict=True)]
        ratios = [_predicted(result) / result.ms for row in group for result in row.candidates]
        shares = (_share(found, limit) for found in (chosen, best) for limit in (1.05, 1.15))
        mean = f"{statistics.geometric_mean(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}"
        body.append((group[0].operator.name, group[0].precision, str(len(group)), *shares, mean))
    return _markdown(header, body)


def _predicted(result: Result) -> float:
    assert result.predicted_ms is not None
    return result.predicted_ms


def _share(ratios: Sequence[float], limit: float) -> str:
    return f"{sum(ratio <= limit for ratio in ratios) / len(ratios):.0%}"


def _groups(rows: Sequence[Row]) -> list[list[Row]]:
    """By operator and precision, in the order in which they were asked for."""
    precisions = dict.fromkeys(row.precision for row in rows)
    groups = [
        [row for row in rows if row.operator.name == operator and row.precision == precision]
        for operator in OPERATORS
        for precision in precisions
    ]
    return [group for group in groups if group]


def _ratio(row: Row) -> float:
    return row.ratio or 0.0


def _mean(rows: Sequence[Row]) -> str:
    return f"{statistics.geometric_mean(map(_ratio, rows)):.2f}x" if rows else "-"


def _worst(by_ratio: Sequence[Row]) -> str:
    return f"{_ratio(by_ratio[0]):.2f}x ({by_ratio[0].case.name})" if by_ratio else "-"


def _largest(results: Iterable[Result | None]) -> str:
    errors = [r.error for r in results if r is not None and r.error is not None]
    if any(error != error for error in errors):
        return "nan"  # max() would pass over it
    return _error(max(errors, default=None))


def _table(rows: Sequence[Row], peer: str | None) -> str:
    header = ["case", "sources", "configuration", "ms", "TFLOP/s", "skipped", "error"]
    if peer:
        header += [f"{peer} layout", "ms", "TFLOP/s", "error", "ratio"]
    body = []
    for row in rows:
        cells = [row.case.name, _sources(row.case), *_cells(row, row.ours)]
        cells.insert(-1, f"{row.skipped:.1%}")
        if row.peer:
            cells += [*_cells(row, row.peer), f"{row.ratio:.2f}x"]
        body.append(cells)
    return _markdown(header, body)


def _sources(case: Case) -> str:
    return "CIFAR network" if case.in_cifar_network else case.sources[0]


def _cells(row: Row, result: Result) -> list[str]:
    return [result.name, f"{result.ms:.3f}", _speed(row, result), _error(result.error)]


def _markdown(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
