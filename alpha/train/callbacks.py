"""Callbacks of `Trainer.fit`: stopping early, weights that are kept, and logs for other programs."""

from __future__ import annotations

import json
import math
import os
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alpha.config import user_path
from alpha.data.checks import whole_number
from alpha.errors import CheckpointError
from alpha.io.files import make_folder, write_atomically
from alpha.io.serialization import save_weights
from alpha.ops.kernel.options import real
from alpha.runtime.ranks import rank
from alpha.train.files.history import Row
from alpha.train.files.state_file import evaluated_weights
from alpha.train.trainer_state import weights_of

MIN, MAX = "min", "max"


@dataclass
class Fit:
    """A training, as its callbacks see it.

    Attributes:
        trainer: the `Trainer`, with the model, the optimizers and the device.
        rows: one for each epoch that is done.
        epochs: how many there are to be.
        run: the `Run` with the folder, or None.
        stopping: None, or why the training ends after this epoch; a callback sets it.
        writes: whether this process writes files; of several that train together only rank 0 does.
    """

    trainer: Any
    rows: list[Row]
    epochs: int
    run: Any = None
    stopping: str | None = None
    writes: bool = field(default_factory=lambda: rank() == 0)


class Callback:
    """The base of callbacks: a subclass overrides what it needs; what it keeps between epochs is in `state_dict`.

    `on_epoch` is called after an epoch was evaluated and before it is saved, so a run that is resumed has the state of
    the last saved epoch. A logger of another program is a few lines:

        class WandB(Callback):
            def on_epoch(self, fit):
                wandb.log(fit.rows[-1].numbers(), step=len(fit.rows))

    Attributes:
        name: under which the state is saved; the class's name by default.
    """

    name = ""

    def __repr__(self) -> str:
        facts = [f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_")]
        return f"{type(self).__name__}({', '.join(facts)})"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = cls.__dict__.get("name", cls.__name__)

    def on_start(self, fit: Fit) -> None:
        """Called before the first epoch, also of a run that goes on; it may set `fit.stopping`, too."""

    def on_steps(self, fit: Fit, step: int, loss: float) -> None:
        """Called about every ten steps, and at the end of an epoch, with the mean loss of the steps since then.

        `step` is the number of the last of them in the epoch. A GPU's losses are known some steps later.
        """

    def on_epoch(self, fit: Fit) -> None:
        """Called after each epoch, whose row is `fit.rows[-1]`; to end the training, set `fit.stopping` to the why."""

    def on_end(self, fit: Fit) -> None:
        """Called at the end, also if an error or Ctrl-C ends the training."""

    def state_dict(self) -> dict[str, Any]:
        """State on which the next epochs depend: numbers, text, lists and dicts."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict()`."""


class Watched:
    """A number of the rows that is to become smaller or larger.

    Args:
        metric: the name of a number of a `Row`, as "test_loss", or "test_iou" for a metric "iou".
        mode: "min" or "max"; by default min for names with "loss" or "error", max for those with "accuracy".
    """

    def __init__(self, owner: str, metric: str, mode: str | None) -> None:
        if mode is None:
            mode = MIN if "loss" in metric or "error" in metric else MAX if "accuracy" in metric else None
        if mode not in (MIN, MAX):
            raise ValueError(f"{owner}: mode is {mode!r}, expected {MIN!r} or {MAX!r} for the metric {metric!r}")
        self.owner, self.metric, self.mode = owner, metric, mode

    def value(self, row: Row) -> float:
        """The number of a row, smaller is better; KeyError if it is not recorded. A NaN is worse than anything."""
        try:
            value = row.number(self.metric)
        except KeyError as error:
            raise KeyError(f"{self.owner}: {error.args[0]}") from None
        if math.isnan(value):
            return math.inf
        return value if self.mode == MIN else -value


class EarlyStopping(Callback):
    """Ends a training whose number has not become better for `patience` epochs.

    Args:
        metric, mode: see `Watched`: "test_loss", which is to become smaller, by default.
        patience: epochs without a better number.
        min_delta: what a number must differ from the best one to be better.
    """

    def __init__(
        self, patience: int = 5, metric: str = "test_loss", min_delta: float = 0.0, mode: str | None = None
    ) -> None:
        self.patience = whole_number("EarlyStopping", "patience", patience, 1)
        self.min_delta = real("EarlyStopping", "min_delta", min_delta)
        self._watched = Watched("EarlyStopping", metric, mode)
        self._best, self._best_epoch = math.inf, 0
        self._goes_on = False  # whether it has the state of a run

    _trainer: weakref.ref[Any] | None = None  # of the last training

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_trainer": None}  # which no pickle takes

    def on_start(self, fit: Fit) -> None:
        before = None if self._trainer is None else self._trainer()
        if not self._goes_on and before is not fit.trainer:  # another training
            self._best, self._best_epoch = math.inf, 0
        self._trainer = weakref.ref(fit.trainer)
        goes_on, self._goes_on = self._goes_on, False
        if goes_on:  # perhaps the run was stopped after its last epoch had been saved
            self._stop(fit)

    def on_epoch(self, fit: Fit) -> None:
        value, epoch = self._watched.value(fit.rows[-1]), fit.rows[-1].epoch
        if value < self._best - self.min_delta:
            self._best, self._best_epoch = value, epoch
        self._stop(fit)

    def _stop(self, fit: Fit) -> None:
        if fit.rows and fit.rows[-1].epoch - self._best_epoch >= self.patience:
            best = self._best if self._watched.mode == MIN else -self._best
            fit.stopping = (
                f"{self._watched.metric} has not become better than {best:.4g}, of epoch {self._best_epoch}, "
                f"for {self.patience} epochs"
            )

    def state_dict(self) -> dict[str, Any]:
        return {"best": None if math.isinf(self._best) else self._best, "best_epoch": self._best_epoch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        best = state["best"]
        self._best, self._best_epoch = math.inf if best is None else float(best), int(state["best_epoch"])
        self._goes_on = True


class KeepWeights(Callback):
    """Keeps the weights of the best epochs and of the last ones, in `kept/epoch-012.safetensors` of the run's folder.

    Files of epochs that are no longer among them are removed. They are as weights.safetensors, so `alpha.models.load`
    and `alpha-predict` take them.

    Args:
        best: how many of the best epochs.
        last: how many of the last epochs.
        metric, mode: what is best; see `Watched`: "test_accuracy", by default, which is to become larger.
    """

    def __init__(self, best: int = 1, last: int = 0, metric: str = "test_accuracy", mode: str | None = None) -> None:
        self.best = whole_number("KeepWeights", "best", best, 0)
        self.last = whole_number("KeepWeights", "last", last, 0)
        self._watched = Watched("KeepWeights", metric, mode)
        self._kept: dict[int, float] = {}

    def on_start(self, fit: Fit) -> None:
        if fit.run is None:
            raise CheckpointError("KeepWeights: there is no folder to keep weights in; give run= to fit")

    def on_epoch(self, fit: Fit) -> None:
        assert fit.run is not None
        epoch, folder = len(fit.rows), fit.run.folder
        values = {**self._kept, epoch: self._watched.value(fit.rows[-1]) if self.best else 0.0}
        wanted = {*sorted(values, key=lambda number: (values[number], number))[: self.best]}
        wanted |= {number for number in values if number > epoch - self.last}
        if epoch == 1 and fit.writes:  # of a new run, which may have replaced another one
            for old in (folder / weights_name(epoch)).parent.glob("epoch-*.safetensors"):
                if old != folder / weights_name(epoch):
                    old.unlink()
        if epoch in wanted and fit.writes:
            make_folder((folder / weights_name(epoch)).parent)
            metadata = {**fit.run.options, "epoch": epoch}
            save_weights(folder / weights_name(epoch), evaluated_weights(weights_of(fit.trainer)), metadata)
        for number in values.keys() - wanted if fit.writes else ():
            (folder / weights_name(number)).unlink(missing_ok=True)
        self._kept = {number: values[number] for number in sorted(wanted)}

    def state_dict(self) -> dict[str, Any]:
        return {"kept": {str(epoch): None if math.isinf(v) else v for epoch, v in self._kept.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._kept = {int(epoch): math.inf if v is None else float(v) for epoch, v in state["kept"].items()}


def weights_name(epoch: int) -> str:
    """The file with the weights of an epoch, in the folder of its run."""
    return f"kept/epoch-{epoch:03}.safetensors"


class JsonLines(Callback):
    """Writes a line of JSON for each epoch, its numbers by name, to a file that is whole after each epoch."""

    def __init__(self, path: str | Path) -> None:
        self.path = user_path(path)

    def on_epoch(self, fit: Fit) -> None:
        if not fit.writes:
            return
        lines = [json.dumps({k: v if math.isfinite(v) else None for k, v in row.numbers().items()}) for row in fit.rows]
        write_atomically(self.path, "".join(line + "\n" for line in lines).encode())


class TensorBoard(Callback):
    """Writes the numbers of each epoch, and the loss every ten steps, for TensorBoard.

    It needs `pip install tensorboardX`. `tensorboard --logdir FOLDER` shows them.
    Several runs in subfolders of one folder are shown beside each other.

    Args:
        folder: of this run; of another run it must be another one.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = user_path(folder)
        self._writer: Any = None
        self._steps = 0  # of the epochs before

    def on_start(self, fit: Fit) -> None:
        if not fit.writes:
            return
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise ImportError("TensorBoard: pip install tensorboardX") from error
        if not fit.rows and self.folder.exists():  # a new run: what another one has written there would be mixed in
            for file in self.folder.glob("events.out.tfevents.*"):
                raise CheckpointError(f"TensorBoard: {self.folder} has {file.name} of another run; take another folder")
        suffix = f".{self._steps}.{os.getpid()}"  # a run that goes on within a second needs a file of its own
        # what was written after the last saved epoch is left out
        self._writer = SummaryWriter(str(self.folder), purge_step=self._steps, filename_suffix=suffix)

    def on_steps(self, fit: Fit, step: int, loss: float) -> None:
        if self._writer is not None:
            self._writer.add_scalar("train_loss_of_steps", loss, self._steps + step)

    def on_epoch(self, fit: Fit) -> None:
        self._steps += fit.trainer.step
        if self._writer is None:
            return
        for name, value in fit.rows[-1].numbers().items():
            self._writer.add_scalar(name, value, self._steps)
        self._writer.flush()

    def on_end(self, fit: Fit) -> None:
        if self._writer is not None:
            self._writer.close()

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self._steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._steps = int(state["steps"])
