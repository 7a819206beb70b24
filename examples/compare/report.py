"""The paper's Tables IV and V as CSV, Markdown and a picture, and its Figures 15 to 22 as pictures."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from textwrap import wrap
from typing import Any

from alpha.io.files import write_atomically
from compare.spec import SIDES, Outcome, Spec

Runs = dict[tuple[str, str], dict[str, list[Outcome]]]  # (model, precision) -> side -> one for each seed
COLUMNS = (
    *(
        "network",
        "precision",
        "side",
        "GPUs",
        "processes",
        "s/epoch",
        "images/s",
        "acceleration",
        "train",
        "test",
        "loss",
    ),
    *("live MB", "reserved MB", "process MB", "weights MB", "note"),
)
MANY_POINTS = 400
BUSY = " (busy)"
CUDNN_NOTE = (
    "PyTorch best searches for the fastest kernels (cudnn.benchmark); the workspaces of that search stay reserved, and "
    "count in its memory."
)
RANKS_NOTE = (
    "{ranks} train each network together, with a batch each: Alpha by DataParallel, PyTorch by "
    "DistributedDataParallel. Seconds are those of the slowest, memory is that of the one with the most, accuracies "
    "and the losses of epochs are of all, and curves are of the images of the first one."
)
COLOURS = {"Alpha": "#1f5fa8", "PyTorch": "#d1681c", "PyTorch best": "#3c8d40"}


def rows(runs: Runs) -> list[dict[str, str]]:
    """One row for each network, precision and side. Acceleration is Alpha's, over the row's side, if both were run."""
    found = []
    for (model, precision), sides in runs.items():
        alpha = fmean(run.epoch_seconds for run in sides["Alpha"]) if "Alpha" in sides else 0.0
        compared = alpha and not busy_of(runs)
        for side in SIDES:
            seeds = sides.get(side)
            if not seeds:
                continue
            seconds = fmean(run.epoch_seconds for run in seeds)
            measured = any(run.train_accuracy for run in seeds)
            first = seeds[0]
            ranks = {"GPUs" if first.gpu else "processes": str(first.ranks)} if first.ranks > 1 else {}
            speed = first.images / seconds if measured else 0.0
            found.append(
                {
                    "network": model,
                    "precision": precision,
                    "side": side,
                    **ranks,
                    "s/epoch": f"{seconds:.4g}{BUSY if any(run.busy for run in seeds) else ''}",
                    "images/s": f"{speed:,.0f}" if speed else "",
                    "acceleration": f"{seconds / alpha:.2f}x" if compared and side != "Alpha" else "",
                    "train": f"{fmean(run.train_accuracy for run in seeds):.2%}" if measured else "",
                    "test": f"{fmean(run.test_accuracy for run in seeds):.2%}" if measured else "",
                    "loss": f"{fmean(run.losses[-1] for run in seeds):.4f}",
                    "live MB": _megabytes(max(run.live for run in seeds)),
                    "reserved MB": _megabytes(max(run.reserved for run in seeds)),
                    "process MB": _megabytes(max(run.process for run in seeds)),
                    "weights MB": f"{first.weights / 1e6:.1f}",
                    "note": first.note,
                }
            )
    return found


def busy_of(runs: Runs) -> list[str]:
    """Text that says how something else used the machine, as the runs found it; empty if nothing did."""
    return [run.busy for sides in runs.values() for seeds in sides.values() for run in seeds if run.busy]


def memory_of(runs: Runs) -> tuple[str, Callable[[Outcome], int]]:
    """The memory that the picture shows, a column of the table: of the process, or reserved if nobody tells that."""
    outcomes = [run for sides in runs.values() for seeds in sides.values() for run in seeds]
    if all(run.process for run in outcomes):
        return "process MB", lambda run: run.process
    return "reserved MB", lambda run: run.reserved


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.0f}" if nbytes else ""


def markdown(table: Sequence[Mapping[str, str]], title: str) -> str:
    """The table for people."""
    used = [name for name in COLUMNS if any(row.get(name) for row in table)]
    lines = [
        f"**{title}**",
        "",
        "| " + " | ".join(used) + " |",
        "|" + "|".join("---" if name in ("network", "precision", "side", "note") else "---:" for name in used) + "|",
    ]
    lines += ["| " + " | ".join(row[name] for name in used) + " |" for row in table]
    lines += ["", *wrap(note, 120)] if (note := ranks_note(table)) else []
    return "\n".join(lines) + "\n"


def ranks_note(table: Sequence[Mapping[str, str]]) -> str:
    """Text that says what the numbers of several ranks are; empty if each network was trained by one process."""
    found = [f"{row[name]} {name}" for row in table for name in ("GPUs", "processes") if name in row]
    return RANKS_NOTE.format(ranks=found[0]) if found else ""


def save_tables(folder: Path, runs: Runs, title: str) -> None:
    """Write table.csv and table.md."""
    table = rows(runs)
    text = io.StringIO(newline="")
    columns = [name for name in COLUMNS if any(name in row for row in table)]
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    write_atomically(folder / "table.csv", text.getvalue().encode())
    write_atomically(folder / "table.md", markdown(table, title).encode())


def save_pictures(folder: Path, runs: Runs, title: str, example: Spec) -> list[str]:
    """Draw table.png, speed.png if Alpha is compared, and for several epochs the losses of each network; the names.

    None without matplotlib.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return []
    names = [table_picture(folder, runs, title)]
    if any(row["acceleration"] for row in rows(runs)):
        names.append(speed_picture(folder, runs, title))
    if example.epochs > 1 or any(len(run.points) > 1 for sides in runs.values() for of in sides.values() for run in of):
        names += [curves(folder, key, sides, title) for key, sides in runs.items()]
    return names


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Any, folder: Path, name: str) -> str:
    png = io.BytesIO()
    figure.savefig(png, format="png")
    write_atomically(folder / name, png.getvalue())
    return name


def table_picture(folder: Path, runs: Runs, title: str) -> str:
    """Draw seconds per epoch and the memory, a row per precision."""
    precisions = list(dict.fromkeys(precision for _, precision in runs))
    busy, (memory_name, memory_of_run) = busy_of(runs), memory_of(runs)
    figure = _figure(10, 1.6 + 2.1 * len(precisions))
    figure.suptitle("\n".join(wrap(f"Training, {title}", 110)), fontsize=9, x=0.01, ha="left")
    grid = figure.subplots(len(precisions), 2, squeeze=False)
    for (left, right), precision in zip(grid, precisions, strict=True):
        networks = [model for model, of in runs if of == precision]
        present = [side for side in SIDES if any(side in runs[model, precision] for model in networks)]
        for number, side in enumerate(present):
            seeds = [runs[model, precision].get(side, []) for model in networks]
            seconds = [fmean(run.epoch_seconds for run in of) if of else 0.0 for of in seeds]
            memory = [max((memory_of_run(run) for run in of), default=0) / 1e6 for of in seeds]
            places = [place + (number - (len(present) - 1) / 2) * 0.8 / len(present) for place in range(len(networks))]
            for axes, values, form in ((left, seconds, "{:.3g}"), (right, memory, "{:,.0f}")):
                bars = axes.bar(places, values, 0.8 / len(present), color=COLOURS[side], label=side)
                axes.bar_label(bars, [form.format(value) if value else "" for value in values], fontsize=7)
        speed = "seconds per epoch, of a busy machine" if busy else "seconds per epoch"
        for axes, what in ((left, speed), (right, f"memory, {memory_name} of the table")):
            axes.set_xticks(range(len(networks)), networks)
            axes.set_title(f"{precision}: {what}", loc="left", fontsize=9)
            axes.margins(y=0.15)
            axes.tick_params(labelsize=8)
            axes.spines[["top", "right"]].set_visible(False)
    grid[0][0].legend(frameon=False, fontsize=8)
    notes = wrap(ranks_note(rows(runs)), 150)
    notes += [CUDNN_NOTE] if any("PyTorch best" in sides for sides in runs.values()) else []
    if notes:
        figure.supxlabel("\n".join(notes), fontsize=7.5, x=0.01, ha="left")
    return _save(figure, folder, "table.png")


def speed_picture(folder: Path, runs: Runs, title: str) -> str:
    """Draw seconds per epoch alone, a panel per precision in one row, and how many times Alpha's they are."""
    precisions = list(dict.fromkeys(precision for _, precision in runs))
    accelerations = {(row["network"], row["precision"], row["side"]): row["acceleration"] for row in rows(runs)}
    figure = _figure(2.9 * len(precisions), 2.2)
    figure.suptitle(
        "\n".join(
            wrap(f"Seconds per epoch, less is better, and how many times Alpha's: {title}", 48 * len(precisions))
        ),
        fontsize=8,
        x=0.01,
        ha="left",
    )
    panels = figure.subplots(1, len(precisions), squeeze=False)[0]
    for axes, precision in zip(panels, precisions, strict=True):
        networks = [model for model, of in runs if of == precision]
        present = [side for side in SIDES if any(side in runs[model, precision] for model in networks)]
        for number, side in enumerate(present):
            seeds = [runs[model, precision].get(side, []) for model in networks]
            seconds = [fmean(run.epoch_seconds for run in of) if of else 0.0 for of in seeds]
            places = [place + (number - (len(present) - 1) / 2) * 0.8 / len(present) for place in range(len(networks))]
            bars = axes.bar(places, seconds, 0.8 / len(present), color=COLOURS[side], label=side)
            axes.bar_label(bars, [accelerations.get((model, precision, side), "") for model in networks], fontsize=7.5)
        axes.set_xticks(range(len(networks)), networks)
        axes.set_title(precision, loc="left", fontsize=8.5, fontweight="bold")
        axes.margins(y=0.15)
        axes.tick_params(labelsize=7.5)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=3, frameon=False, fontsize=8)
    return _save(figure, folder, "speed.png")


def curves(folder: Path, key: tuple[str, str], sides: Mapping[str, Sequence[Outcome]], title: str) -> str:
    """Draw the training loss of about every ten steps, the mean over the seeds with their range."""
    figure = _figure(6.4, 4.2)
    axes = figure.subplots()
    for side, seeds in sides.items():
        number = min(len(run.points) for run in seeds)
        found = [smoothed(run.points[:number]) for run in seeds]
        steps = [step for step, _ in found[0]]
        losses = list(zip(*([loss for _, loss in points] for points in found), strict=True))
        mean = [fmean(values) for values in losses]
        last = fmean(run.losses[-1] for run in seeds)
        axes.plot(steps, mean, label=f"{side}  {last:.4f} in the last epoch", color=COLOURS[side], linewidth=1.4)
        if len(seeds) > 1:
            low, high = zip(*((min(v), max(v)) for v in losses), strict=True)
            axes.fill_between(steps, low, high, color=COLOURS[side], alpha=0.2)
    axes.set_title("\n".join([f"{key[0]} in {key[1]}", *wrap(title, 90)]), loc="left", fontsize=8)
    axes.set_xlabel("steps")
    axes.set_ylabel("training loss")
    axes.set_ylim(0, shown_top([run.points for seeds in sides.values() for run in seeds]))
    axes.grid(color="#e4e4e4")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    return _save(figure, folder, f"{key[0]}-{key[1]}.png")


def shown_top(curves: Sequence[Sequence[Sequence[float]]]) -> float:
    """The largest loss that is drawn: a run that diverges leaves the picture, so that the others can be seen."""
    first, most = max(points[0][1] for points in curves), max(loss for points in curves for _, loss in points)
    return 1.05 * most if most < 3 * first else 1.3 * first


def smoothed(points: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Means of ten points each, without overlap, as the paper draws ILSVRC2012; of a short run the points."""
    if len(points) < MANY_POINTS:
        return [(step, loss) for step, loss in points]
    groups = [points[begin : begin + 10] for begin in range(0, len(points) - 9, 10)]
    return [(group[-1][0], fmean(loss for _, loss in group)) for group in groups]
