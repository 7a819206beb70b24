"""The training loop of the examples."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

import alpha
from alpha.data import DataLoader
from alpha.errors import CheckpointError, DataError, DeviceError
from alpha.nn import Module
from alpha.nn import functional as F
from alpha.numerics import computed_precision
from alpha.optim import LRScheduler, Optimizer
from alpha.runtime import Device
from alpha.tensor import Tensor
from alpha.train.history import Result
from alpha.train.interrupt import Interrupted, interrupt_between_steps
from alpha.train.tally import Tally

READ_EVERY = 10  # steps; reading a loss waits for a GPU

Step = Callable[[NDArray[np.uint8], NDArray[np.int32]], None]


class Trainer:
    """Trains and evaluates a classifier of uint8 images (N, H, W, C) on `device`.

    Pixels are mapped to [-1, 1] on the device. Progress bars show on a terminal only.

    Args:
        device: a device or its name; the model must be there.
        loss: gives the mean loss of a batch from logits and labels.
        schedule: steps after each optimizer step.
        precision: "float32", "tf32" or "bf16" (see `alpha.set_precision`), by default the one in force. Results
            name the precision of the computation, which is float32 on the cpu; `ValueError` for another name.

    Attributes:
        epoch, step: what was begun and done: `step` steps of epoch `epoch`, both from 1.
    """

    def __init__(
        self,
        model: Module,
        optimizer: Optimizer,
        device: str | Device,
        loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
        schedule: LRScheduler | None = None,
        precision: str | None = None,
    ) -> None:
        self.precision = alpha.precision(precision or alpha.get_precision()).name  # checked first
        self.model = model
        self.optimizer = optimizer
        self.device = alpha.get_device(device)
        self.loss = loss
        self.schedule = schedule
        self.epoch = 0
        self.step = 0
        self._unfinished: Tally | None = None  # of an epoch that was interrupted
        self._loader: dict[str, int] | None = None  # what the last epoch was trained on
        self._same_loader = False  # whether the next epoch must be trained on the same

    def train_epoch(self, loader: DataLoader, steps: int | None = None) -> Result:
        """One pass over `loader`, of at most `steps` steps; the rest of the last pass if it was interrupted.

        Raises:
            TrainingError: the loss is not finite; the message names the step. On the cpu the weights are then those
                before that step. A GPU's losses are read every 10 steps, so the weights may be lost; files are not.
            Interrupted: Ctrl-C, after a whole step. The next call goes on with the epoch.
            CheckpointError: a loaded or interrupted epoch goes on with another loader.
        """
        self._check_loader(loader)
        if self._unfinished is None:
            self.epoch, self.step = self.epoch + 1, 0
        tally = self._unfinished or Tally(f"epoch {self.epoch}", self.device.name == "cpu")
        loader.set_epoch(self.epoch - 1, self.step)
        self.model.train()

        def train(images: NDArray[np.uint8], labels: NDArray[np.int32]) -> None:
            self.optimizer.zero_grad()
            loss, logits = self._forward(images, labels)
            tally.add(self.step + 1, loss, logits, labels)
            loss.backward()
            self.optimizer.step()
            if self.schedule is not None:
                self.schedule.step()
            self.step += 1

        self._unfinished = None
        try:
            with alpha.precision(self.precision):
                result = self._run(train, tally, loader, steps, self.step)
        except Interrupted:
            self._unfinished, self._same_loader = tally, True
            raise
        self._same_loader = False
        return result

    def evaluate(self, loader: DataLoader) -> Result:
        """Loss and accuracy over every image of `loader`, each counted once; leaves the model in eval mode."""
        tally = Tally("evaluation", self.device.name == "cpu")
        self.model.eval()

        def evaluate(images: NDArray[np.uint8], labels: NDArray[np.int32]) -> None:
            loss, logits = self._forward(images, labels)
            tally.add(tally.steps + 1, loss, logits, labels)

        with alpha.no_grad(), alpha.precision(self.precision):
            return self._run(evaluate, tally, loader, None, 0)

    def _forward(self, images: NDArray[np.uint8], labels: NDArray[np.int32]) -> tuple[Tensor, Tensor]:
        pixels = F.normalize_pixels(alpha.tensor(images, device=self.device))
        logits = self.model(pixels)
        return self.loss(logits, alpha.tensor(labels, device=self.device)), logits

    def _run(self, step: Step, tally: Tally, loader: DataLoader, steps: int | None, done: int) -> Result:
        """Steps from number `done` on, counted in `tally`."""
        total = len(loader) if steps is None else min(steps, len(loader))
        if total < 1:
            raise DataError(f"{tally.name}: no batches of {loader.batch_size} in {len(loader.dataset)} images")
        if self.model.device is not self.device:
            raise DeviceError(
                f"Trainer: the model is on {self.model.device.name}, the trainer on {self.device.name}; "
                f"move it by model.to({self.device.name!r})"
            )
        precision = computed_precision(self.device.name, self.precision)
        start = time.perf_counter() - tally.seconds
        with (
            np.errstate(over="ignore", invalid="ignore"),  # `Tally` reports what diverges, once
            interrupt_between_steps() as check,
            closing(iter(loader)) as batches,
            tqdm(
                desc=f"{tally.name} ({precision})", initial=done, total=total, unit="step", leave=False, disable=None
            ) as bar,
        ):
            for images, labels in islice(batches, max(0, total - done)):
                step(images, labels)
                tally.seconds = time.perf_counter() - start
                if tally.steps % READ_EVERY == 0:
                    tally.read()
                    live = self.device.memory_stats().live
                    bar.set_postfix_str(
                        f"loss {tally.loss:.4f}, accuracy {tally.accuracy:.1%}, "
                        f"{tally.images / tally.seconds:,.0f} images/s, {live / 1e6:,.0f} MB",
                        refresh=False,
                    )
                bar.update()
                check()
            tally.read()
            tally.seconds = time.perf_counter() - start
            live = self.device.memory_stats().live
        return Result(tally.images, tally.loss, tally.accuracy, tally.seconds, live, precision)

    # -- resuming -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What resuming needs, on the host: model, optimizer, schedule, random numbers, and the place in the epoch.

        A trainer that loads it gives the same bits as one that was never interrupted, on the same device.
        Raises TrainingError if a loss of the unfinished epoch is not finite.
        """
        return {
            "epoch": self.epoch,
            "step": self.step,
            "precision": self.precision,
            "loader": self._loader,
            "tally": None if self._unfinished is None else self._unfinished.state_dict(),
            "rng": alpha.get_rng_state(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "model": self.model.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict()` of a trainer of the same model, optimizer, schedule and precision.

        Raises:
            CheckpointError: says what does not fit; nothing has changed then.
        """
        own = self.state_dict()
        missing = [name for name in own if name not in state]
        if missing:
            raise CheckpointError(f"Trainer: the state has no {', '.join(missing)}")
        if state["precision"] != self.precision:
            raise CheckpointError(f"Trainer: the state is of precision {state['precision']}, here {self.precision}")
        if (state["schedule"] is None) != (self.schedule is None):
            has = ("a", "no") if self.schedule is None else ("no", "a")
            raise CheckpointError(f"Trainer: the state has {has[0]} schedule, the trainer has {has[1]} schedule")
        same_loader = self._same_loader
        try:
            self._load(state)
        except BaseException:
            self._load(own)
            self._same_loader = same_loader
            raise

    def _load(self, state: Mapping[str, Any]) -> None:
        try:
            epoch, step = (int(state[name]) for name in ("epoch", "step"))
            name = f"epoch {epoch}"
            tally = None if state["tally"] is None else Tally(name, self.device.name == "cpu", state["tally"])
            loader = None if state["loader"] is None else dict(state["loader"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"Trainer: the state's place in the epoch cannot be read: {error!r}") from error
        weights = self.model.state_dict()  # of the model's own kind, which knows the layout of its arrays
        weights.clear()
        weights.update(state["model"])
        self.model.load_state_dict(weights)
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        try:
            alpha.set_rng_state(state["rng"])
        except ValueError as error:
            raise CheckpointError(f"Trainer: {error}") from error
        self.epoch, self.step = epoch, step
        self._unfinished, self._loader, self._same_loader = tally, loader, loader is not None

    def _check_loader(self, loader: DataLoader) -> None:
        """Note what the loader gives; refuse another one if the state before must be continued."""
        found = loader.describe()
        if self._same_loader and self._loader is not None and found != self._loader:
            pairs = [(name, found.get(name), value) for name, value in self._loader.items()]
            wrong = ", ".join(f"{name} is {new}, was {old}" for name, new, old in pairs if new != old)
            raise CheckpointError(f"Trainer: the run must go on with the loader that it began with: {wrong}")
        self._loader = found
