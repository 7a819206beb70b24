"""Trainer: the training loop of the examples, and its state as a dict; a state that does not fit changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from alpha.autograd.grad_mode import no_grad
from alpha.core import numerics
from alpha.core.numerics import computed_precision
from alpha.core.rng import get_rng_state, set_rng_state
from alpha.core.tensor import Tensor
from alpha.data import DataLoader
from alpha.data.checks import whole_number
from alpha.errors import CheckpointError, DataError, DeviceError
from alpha.module.module import device_of
from alpha.module.parameter import Uninitialized
from alpha.module.state_dict import StateDict
from alpha.nn import Module
from alpha.nn import functional as F
from alpha.optim import LRScheduler, Optimizer
from alpha.runtime import Device, get_device, progress
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.step import capture
from alpha.step.dry import compile_runs
from alpha.train.background import Precompiler
from alpha.train.batches.device import count
from alpha.train.batches.feed import Batch, Feed, HostFeed, ResidentFeed, Residents, StreamingFeed
from alpha.train.batches.pairs import (
    EPOCH_SEED,
    Pairs,
    at_epoch,
    can_be_resident,
    check_loader,
    difference,
    seed_of_epoch,
)
from alpha.train.batches.tally import TALLIED, Tally
from alpha.train.command_line import after_epoch, after_step, check_accepted
from alpha.train.files.history import Result
from alpha.train.interrupt import Interrupted, interrupt_between_steps

READ_EVERY = 10  # steps; metrics come from the device without a wait, but some steps later

Step = Callable[..., None]


class Trainer:
    """Trains and evaluates a classifier of uint8 images (N, H, W, C) on `device`.

    Pixels are mapped to [-1, 1] on the device. Progress bars show on a terminal only.

    On cuda a step is one CUDA graph (see `alpha.capture`), and an `ArrayDataset` that is small beside the device's
    memory is copied there once, and stays there until the program drops it. Another data set is copied batch by batch,
    each while the step before runs. All kernels are compiled before the first step, as many at a time as there are
    cores (see `alpha.compile_kernels`).

    Args:
        device: a device or its name; the model must be there.
        loss: gives the mean loss of a batch from logits and labels.
        schedule: steps after each optimizer step; a `ReduceLROnPlateau` after each training epoch, with its loss, or
            with its accuracy if mode="max".
        precision: "float32", "tf32" or "bf16" (see `alpha.set_precision`), by default the one in force. Results
            name the precision of the computation, which is float32 on the cpu; `ValueError` for another name.
        capture: False runs each step as usual. True makes it an error if a step cannot be captured; by default that
            is a warning, and the step runs as usual.
        resident: whether data sets are copied to the device as a whole; by default each `ArrayDataset`, or `Subset` of
            one, whose class overrides neither `__getitem__` nor `batch`, while they take at most a quarter of the
            memory together. True says that the items of all data sets are the same in each epoch.

    Attributes:
        epoch, step: what was begun and done: `step` steps of epoch `epoch`, both from 1.
        augment: None, or what changes the pixels of a training batch on the device: a module of `alpha.transforms`, or
            any function of a Tensor (N, H, W, C) in [-1, 1]; it may be another one in each epoch.
    """

    def __init__(
        self,
        model: Module,
        optimizer: Optimizer,
        device: str | Device,
        loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
        schedule: LRScheduler | None = None,
        precision: str | None = None,
        capture: bool | None = None,
        resident: bool | None = None,
    ) -> None:
        self.precision = numerics.precision(precision or numerics.get_precision()).name  # checked first
        check_accepted(optimizer, schedule)
        self.model = model
        self.optimizer = optimizer
        self.device = get_device(device)
        self.loss = loss
        self.schedule = schedule
        self.capture, self.resident = capture, resident
        self.augment: Callable[[Tensor], Tensor] | None = None
        self.epoch = 0
        self.step = 0
        self._unfinished: Mapping[str, Any] | None = None  # the tally of an epoch that was interrupted
        self._loader: dict[str, Any] | None = None  # what the last epoch was trained on
        self._same_loader = False  # whether the next epoch must be trained on the same
        self._trained, self._tested = Tally(self.device), Tally(self.device)
        self._residents = Residents(self.device)
        self._steps: dict[tuple[str, Batch, Any], Step] = {}  # by name, where batches come from, and augmentation
        self._kernels = Precompiler()

    def train_epoch(self, loader: DataLoader, steps: int | None = None) -> Result:
        """One pass over `loader`, of at most `steps` steps; the rest of the last pass if it was interrupted.

        Raises:
            TrainingError: the loss is not finite; the message names the step. On the cpu the weights are then those
                before that step. A GPU's losses are read some steps later, so the weights may be lost; files are not.
            Interrupted: Ctrl-C, after a whole step. The next call goes on with the epoch.
            CheckpointError: a loaded or interrupted epoch goes on with another loader.
            DataError: the loader cannot be resumed or has no batches; or `steps` is not a whole number of at least 1.
        """
        if steps is not None:
            steps = whole_number("Trainer", "steps", steps, 1)
        epoch_seed = self._check_loader(loader)
        if self._unfinished is None:
            self.epoch, self.step = self.epoch + 1, 0
        tally = self._trained
        tally.begin(f"epoch {self.epoch}", self._unfinished)
        loader.set_epoch(self.epoch - 1, self.step)
        loader.epoch_seed = epoch_seed
        self.model.train()
        self.optimizer.zero_grad()
        feed = self._feed(loader)
        train = self._step("train", feed.batch, self._train_step)

        def step(*batch: Any) -> None:
            tally.learning_rate = float(self.optimizer.param_groups[0]["lr"])
            train(*batch)
            after_step(self.schedule)
            self.step += 1

        self._unfinished = None
        try:
            with numerics.precision(self.precision):
                total = self._steps_of(loader, steps, tally)
                self._compile(feed, total, train)
                result = self._run(feed, step, tally, loader, total, self.step)
        except Interrupted:
            self._unfinished, self._same_loader = tally.state_dict(), True
            raise
        self._same_loader = False
        after_epoch(self.schedule, result)
        return result

    def evaluate(self, loader: DataLoader) -> Result:
        """Loss and accuracy over every image of `loader`, each counted once; leaves the model in eval mode."""
        check_loader(loader)
        tally = self._tested
        tally.begin("evaluation")
        self.model.eval()
        feed = self._feed(loader)
        step = self._step("evaluate", feed.batch, self._evaluate_step)
        with no_grad(), numerics.precision(self.precision), at_epoch(loader, max(0, self.epoch - 1)):
            total = self._steps_of(loader, None, tally)
            self._compile(feed, total, step)
            return self._run(feed, step, tally, loader, total, 0)

    # -- steps ----------------------------------------------------------------------------------
    # They name nothing of the Trainer but what they use, since a captured step depends on all that it can reach.

    def _train_step(self, batch: Batch) -> Step:
        model, loss_of, optimizer, add = self.model, self.loss, self.optimizer, self._adder(self._trained)
        augment = self.augment

        def train_step(*arguments: Any) -> None:
            pixels, labels = batch(*arguments)
            logits = model(pixels if augment is None else augment(pixels))
            loss = loss_of(logits, labels)
            add(loss, logits, labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()  # at once: the next forward pass may have the memory

        return train_step

    def _evaluate_step(self, batch: Batch) -> Step:
        model, loss_of, add = self.model, self.loss, self._adder(self._tested)

        def evaluate_step(*arguments: Any) -> None:
            pixels, labels = batch(*arguments)
            logits = model(pixels)
            add(loss_of(logits, labels), logits, labels)

        return evaluate_step

    def _adder(self, tally: Tally) -> Callable[[Tensor, Tensor, Tensor], None]:
        """Function that counts a batch: on the cpu it also reads the result, which costs nothing there."""
        return tally.add if self.device.name == "cpu" else partial(count, tally.sums)

    def _step(self, name: str, batch: Batch, make: Callable[[Batch], Step]) -> Step:
        """The step of this name that takes its batches from `batch`, one for all loaders of a data set."""
        key = name, batch, self.augment if name == "train" else None
        if key not in self._steps:
            step = make(batch)
            capturing = self.capture is not False
            self._steps[key] = capture(strict=self.capture is True)(step) if capturing else step
        return self._steps[key]

    def _feed(self, loader: DataLoader) -> Feed:
        """Feed that brings the batches of a loader to the device."""
        data = loader.dataset
        pairs: Any = Pairs(loader)  # which has all that a feed reads
        if not isinstance(self.device, CudaDevice):
            return HostFeed(pairs, self.device)
        for gone in self._residents.drop():
            self._steps = {key: step for key, step in self._steps.items() if key[1] != gone.batch}
        resident = self._residents.find(data)
        wanted = resident is not None or self._residents.fits(data) if self.resident is None else self.resident
        if not wanted or not can_be_resident(loader):
            return StreamingFeed(pairs, self.device)
        if resident is None:
            resident = self._residents.put(data, *pairs.batch(np.arange(len(data))))
        return ResidentFeed(pairs, resident)

    def _steps_of(self, loader: DataLoader, steps: int | None, tally: Tally) -> int:
        """Number of steps of an epoch; raises an error if it cannot begin."""
        total = len(loader) if steps is None else min(steps, len(loader))
        if total < 1:
            raise DataError(f"{tally.name}: no batches of {loader.batch_size} in {loader.samples} images")
        if device_of(self.model) is not self.device:
            raise DeviceError(
                f"Trainer: the model is on {device_of(self.model).name}, the trainer on {self.device.name}; "
                f"move it by model.to({self.device.name!r})"
            )
        return total

    def _compile(self, feed: Feed, total: int, step: Step) -> None:
        """Compile at once the kernels of `total` steps, and with those of training those of an evaluation."""
        if not isinstance(self.device, CudaDevice):
            return
        with interrupt_between_steps() as check:
            runs = self._kernels.dry_runs(self.device, step, feed, total)
            if runs and self.model.training:
                self.model.eval()
                with no_grad():
                    runs += self._kernels.dry_runs(self.device, self._evaluate_step(feed.batch), feed, 1)
                self.model.train()
            compile_runs(self.device, runs, check)

    def _run(self, feed: Feed, step: Step, tally: Tally, loader: DataLoader, total: int, done: int) -> Result:
        """Steps from number `done` on, counted in `tally`."""
        precision = computed_precision(self.device.name, self.precision)
        start = time.perf_counter() - tally.seconds
        with (
            np.errstate(over="ignore", invalid="ignore"),  # `Tally` reports what diverges, once
            interrupt_between_steps() as check,
            closing(feed.arguments()) as batches,
            progress.step_bar(tally.name, precision, total, done) as bar,
        ):
            for arguments in islice(batches, max(0, total - done)):
                step(*arguments)
                tally.steps += 1
                tally.seconds = time.perf_counter() - start
                if tally.steps % READ_EVERY == 0:
                    tally.poll()
                    live = self.device.memory_stats().live
                    speed, memory = f"{tally.images / tally.seconds:,.0f} images/s", f"{live / 1e6:,.0f} MB"
                    progress.show(bar, (f"loss {tally.loss:.4f}", f"accuracy {tally.accuracy:.1%}", speed, memory))
                bar.update()
                check()
            loader.prepare_epoch()  # while the device works on what is queued
            tally.read()
            tally.seconds = time.perf_counter() - start
            live = self.device.memory_stats().live
        return Result(tally.images, tally.loss, tally.accuracy, tally.seconds, live, precision, tally.learning_rate)

    # -- resuming -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State for resuming, on the host: model, optimizer, schedule, random numbers, and the place in the epoch.

        A trainer that loads it gives the same bits as one that was never interrupted, on the same device.
        Raises TrainingError if a loss of the unfinished epoch is not finite.
        """
        return state_dict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict()` of a trainer of the same model, optimizer, schedule and precision.

        Raises:
            CheckpointError: says what does not fit; nothing has changed then.
        """
        load_state_dict(self, state)

    def _check_loader(self, loader: DataLoader) -> int | None:
        """Note what the loader gives, and return the seed of the epoch; refuse another loader if one must go on."""
        check_loader(loader)
        found, before = loader.describe(), self._loader or {}
        if self._same_loader and before and (wrong := difference(found, before)):
            raise CheckpointError(f"Trainer: the run must go on with the loader that it began with: {wrong}")
        epoch_seed = seed_of_epoch(loader, None if self._unfinished is None else before)
        self._loader = {**found, EPOCH_SEED: epoch_seed}
        return epoch_seed


def state_dict(trainer: Trainer) -> dict[str, Any]:
    """See `Trainer.state_dict`."""
    return {
        "epoch": trainer.epoch,
        "step": trainer.step,
        "precision": trainer.precision,
        "loader": trainer._loader,
        "tally": None if trainer._unfinished is None else dict(trainer._unfinished),
        "rng": get_rng_state(),
        "schedule": None if trainer.schedule is None else trainer.schedule.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "model": trainer.model.state_dict().numpy(),
    }


def load_state_dict(trainer: Trainer, state: Mapping[str, Any]) -> None:
    """See `Trainer.load_state_dict`."""
    own = state_dict(trainer)
    missing = [name for name in own if name not in state]
    if missing:
        raise CheckpointError(f"Trainer: the state has no {', '.join(missing)}")
    if state["precision"] != trainer.precision:
        raise CheckpointError(f"Trainer: the state is of precision {state['precision']}, here {trainer.precision}")
    if (state["schedule"] is None) != (trainer.schedule is None):
        has = ("a", "no") if trainer.schedule is None else ("no", "a")
        raise CheckpointError(f"Trainer: the state has {has[0]} schedule, the trainer has {has[1]} schedule")
    same_loader = trainer._same_loader
    try:
        _load(trainer, state)
    except BaseException:
        now = trainer.model.state_dict()  # what a lazy layer had no values for before keeps those that were loaded
        own["model"].update(
            {name: now[name] for name, value in own["model"].items() if isinstance(value, Uninitialized)}
        )
        _load(trainer, own)
        trainer._same_loader = same_loader
        raise


def _load(trainer: Trainer, state: Mapping[str, Any]) -> None:
    try:
        epoch, step = (int(state[name]) for name in ("epoch", "step"))
        tally = None if state["tally"] is None else {name: float(state["tally"][name]) for name in TALLIED}
        if tally is not None and state["tally"].get("learning_rate") is not None:  # older states have none
            tally["learning_rate"] = float(state["tally"]["learning_rate"])
        loader = None if state["loader"] is None else dict(state["loader"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"Trainer: the state's place in the epoch cannot be read: {error!r}") from error
    own = trainer.model.state_dict()  # its arrays have the layout of those that were saved
    weights = dict(state["model"])
    trainer.model.load_state_dict(StateDict(weights, own.layout) if isinstance(own, StateDict) else weights)
    trainer.optimizer.load_state_dict(state["optimizer"])
    if trainer.schedule is not None:
        trainer.schedule.load_state_dict(state["schedule"])
    try:
        set_rng_state(state["rng"])
    except ValueError as error:
        raise CheckpointError(f"Trainer: {error}") from error
    trainer.epoch, trainer.step = epoch, step
    trainer._unfinished, trainer._loader, trainer._same_loader = tally, loader, loader is not None
