"""A search for a learning rate: short training at rates that grow, and the picture of the loss."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from alpha.core import numerics
from alpha.data import DataLoader
from alpha.data.checks import whole_number
from alpha.errors import DataError, DistributedError, TrainingError
from alpha.io.files import write_atomically
from alpha.runtime.ranks import world_size
from alpha.train.interrupt import interrupt_between_steps
from alpha.train.trainer import Trainer

SMOOTHING = 0.9
DIVERGED = 4.0  # times the least loss
CLEAR = 1.5  # standard deviations of a batch's loss; noise alone falls by as much in one search of a hundred


@dataclass(frozen=True)
class LearningRates:
    """Learning rates that were tried, and the smoothed loss after each.

    `suggestion` is the rate at which the loss has fallen half of the way from its first values to the least one; None
    if it fell hardly more than from batch to batch.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]

    def __repr__(self) -> str:
        least, last = self.rates[0], self.rates[-1]
        found = "none, the loss hardly fell: try more steps" if self.suggestion is None else f"{self.suggestion:.2g}"
        return f"LearningRates({len(self.rates)} from {least:.2g} to {last:.2g}, suggestion {found})"

    @property
    def suggestion(self) -> float | None:
        """The rate at which the loss has fallen half of the way to its least value; None if it hardly fell."""
        losses = np.array(self.losses)
        least, first = int(losses.argmin()), max(5, len(losses) // 10)
        if least < first:
            return None
        fall = min(np.median(losses[:first]), losses[first - 1]) - losses[least]
        if fall <= CLEAR * _deviation(losses[: least + 1]):
            return None
        return self.rates[int(np.flatnonzero(losses[: least + 1] > losses[least] + fall / 2)[-1])]

    def save(self, path: str | Path) -> None:
        """Draws the losses to a PNG at `path`; needs matplotlib."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 4), dpi=120, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        axes.plot(self.rates, self.losses, color="#1f5fa8", linewidth=2)
        if self.suggestion is not None:
            loss = self.losses[self.rates.index(self.suggestion)]
            label = f"half of the fall  {self.suggestion:.2g}"
            axes.plot(self.suggestion, loss, "o", color="#d1681c", markersize=7, label=label)
            axes.legend(edgecolor="none")
        axes.set(xscale="log", xlabel="learning rate", ylabel="training loss, smoothed")
        axes.grid(color="#e4e4e4", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        png = io.BytesIO()
        figure.savefig(png, format="png")
        write_atomically(Path(path), png.getvalue())


def _deviation(smoothed: NDArray[np.float64]) -> float:
    """The standard deviation of the losses of batches around their trend, from the smoothed ones (N,), N at least 3."""
    means = smoothed * (1 - SMOOTHING ** np.arange(1, len(smoothed) + 1))
    batches = np.diff(means, prepend=0.0) / (1 - SMOOTHING) + np.concatenate(([0.0], means[:-1]))
    # of independent normal numbers, second differences have the variance 6 s^2 and the mean size sqrt(2/pi) sqrt(6) s
    return float(np.abs(np.diff(batches, 2)).mean()) / math.sqrt(12 / math.pi)


def find_learning_rate(
    trainer: Trainer, loader: DataLoader, lowest: float = 1e-7, highest: float = 1.0, steps: int = 100
) -> LearningRates:
    """Train `steps` steps at rates that grow from `lowest` to `highest`, and undo them.

    The search ends early when the loss is four times its least value. The trainer has the state of before at the end,
    also after an error; the order of the loader's next epochs is not changed. A schedule does not step.

    Raises:
        ValueError: the rates are not above 0 and growing.
        DataError: the loader has no batches, or `steps` is not a whole number of at least 2.
        DistributedError: several processes train together.
    """
    if world_size() > 1:
        raise DistributedError(
            "find_learning_rate: run it in one process; with N of them the rate suits N times the batch"
        )
    steps = whole_number("find_learning_rate", "steps", steps, 2)
    if not 0 < lowest < highest < math.inf:
        raise ValueError(f"find_learning_rate: 0 < lowest < highest is needed  (lowest {lowest}, highest {highest})")
    if len(loader) < 1:
        raise DataError(f"find_learning_rate: no batches of {loader.batch_size} in {loader.samples} samples")
    before, epoch, averaged = trainer.state_dict(), loader.next_epoch, trainer.averaged
    place, seed = trainer.place, loader.epoch_seed
    rates = [float(rate) for rate in np.geomspace(lowest, highest, steps)]
    losses: list[float] = []
    mean, total, samples = 0.0, 0.0, 0
    tally = trainer.machine.trained
    try:
        with (
            interrupt_between_steps() as check,
            numerics.precision(trainer.precision),
            closing(rounds(trainer, loader)) as steps_of,
        ):
            for number, (rate, step) in enumerate(zip(rates, steps_of, strict=False), 1):
                for optimizer in trainer.optimizers:
                    for group in optimizer.param_groups:
                        group["lr"] = rate
                try:
                    step()
                    tally.read()
                except TrainingError:
                    break
                loss = (tally.loss * tally.images - total) / (tally.images - samples)
                total, samples = tally.loss * tally.images, tally.images
                mean = SMOOTHING * mean + (1 - SMOOTHING) * loss
                losses.append(mean / (1 - SMOOTHING**number))
                check()
                if losses[-1] > DIVERGED * min(losses):
                    break
    finally:
        trainer.averaged = averaged
        trainer.load_state_dict(before)
        trainer.place = place
        loader.set_epoch(*epoch)
        loader.epoch_seed = seed
    if len(losses) < 2:
        raise TrainingError(f"find_learning_rate: the loss is not finite at the rate {rates[len(losses)]:.1e}")
    return LearningRates(tuple(rates[: len(losses)]), tuple(losses))


def rounds(trainer: Trainer, loader: DataLoader) -> Generator[Callable[[], None], None, None]:
    """Steps of training on one batch after another, epoch after epoch, without end."""
    trainer.machine.trained.begin("find_learning_rate")
    while True:
        feed, train = trainer.begin_training(loader)
        with closing(feed.arguments()) as batches:
            for arguments in batches:
                yield partial(train, *arguments)
