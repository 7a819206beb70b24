"""The results of a run as a page in Markdown: summaries, and a table per operator and precision."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from bench.cases import FEW_CHANNELS, Case
from bench.operators import OPERATORS
from bench.report import Result, Row, error_text, speed_text


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
    """Rows grouped by operator and precision, in the order in which they were asked for."""
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
    return error_text(max(errors, default=None))


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
    return [result.name, f"{result.ms:.3f}", speed_text(row, result), error_text(result.error)]


def _markdown(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
