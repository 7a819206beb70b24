"""Trainer: one step of the optimizer for each batch of a loader, and evaluations."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.autograd.grad_mode import no_grad
from alpha.autograd.memory_mode import memory_mode
from alpha.autograd.memory_mode import setting as memory
from alpha.core import numerics
from alpha.core.numerics import computed_precision
from alpha.core.tensor import Tensor
from alpha.data import DataLoader
from alpha.data.checks import whole_number
from alpha.data.collate import mapped, merged
from alpha.errors import DataError, DeviceError, OutOfMemoryError, TrainingError, type_name
from alpha.module.module import device_of
from alpha.nn import Module
from alpha.nn import functional as F
from alpha.optim import LRScheduler, Optimizer
from alpha.optim.swa_utils import AveragedModel
from alpha.runtime import Device, get_device, progress
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.step.compile_steps import compile_runs
from alpha.step.memory import StepMemory
from alpha.train.batches.feed import Batch, Feed, with_targets
from alpha.train.batches.host import at_epoch, check_loader, fault_of, samples_of
from alpha.train.batches.tally import Tally
from alpha.train.beginning import Modes, average_of, check_bounds, check_classes, warn_of_untrained
from alpha.train.callbacks import Callback
from alpha.train.files.history import Result, Row
from alpha.train.fit import fit
from alpha.train.interrupt import Interrupted, interrupt_between_steps
from alpha.train.machine import Machine
from alpha.train.metrics import as_metrics, values_of
from alpha.train.objective import METRICS_OF_STEP, Settings, augmented, called, checked, settings_of, several, writes
from alpha.train.schedules import after_epoch, after_step, check_accepted
from alpha.train.steps import Step, Update, evaluate_step_of, objective_of, train_step_of
from alpha.train.trainer_memory import memory_plan, shortage
from alpha.train.trainer_ranks import own_share
from alpha.train.trainer_state import Place, load_state_dict, state_dict

if TYPE_CHECKING:
    from typing_extensions import Unpack  # of typing from Python 3.11 on

Report = Callable[[int, float], None]
FIXED = "model", "device", "user_step", "user_evaluate_step"  # for a Trainer's life
READ_EVERY = 10  # steps; metrics come from the device without a wait, but some steps later


class Trainer:
    """Trains and evaluates a model on `device`: one step of its optimizer for each batch of a loader.

    A batch is a pair, inputs and targets, of any dtypes: the loss is `loss(model(inputs), targets)`. Inputs that are a
    tuple become several arguments of the model, those that are a dict arguments by name; targets reach the loss as
    they are. Images (N, H, W, C) of uint8 among the inputs become pixels in [-1, 1] on the device. For anything else
    `step` computes the loss of a batch. Progress bars show on a terminal and in a notebook only.

    On cuda a step is one CUDA graph (see `alpha.capture`), and an `ArrayDataset` that is small beside the device's
    memory is copied there once, and stays there until the program drops it. Another data set is copied batch by batch,
    each while the step before runs. All kernels are compiled before the first step, as many at a time as there are
    cores (see `alpha.compile_kernels`).

    A trainer that is made after `alpha.distributed.init()` is one of several processes: each trains on its part of the
    data, gradients are averaged, and results are those of all parts; see docs/distributed.md. The kernel that puts
    small gradients side by side is then compiled in the first step.

    Args:
        model: trained with all layers in training mode, except those that were in evaluation mode while the model
            itself was in training mode: a frozen batch normalisation, of which `eval()` was called, stays so.
        optimizer: one, or a sequence of them, each of which steps.
        device: a device or its name; the model must be there.
        loss: (outputs, targets) -> the mean loss of a batch, ().
        schedule: steps after each optimizer step, or after each epoch (see `schedule_per`); a `ReduceLROnPlateau` after
            each training epoch, with its loss, or with its accuracy if mode="max". Or a sequence of them.
        precision: "float32", "tf32" or "bf16" (see `alpha.set_precision`), by default the one in force. Results
            name the precision of the computation, which is float32 on the cpu; `ValueError` for another name.
        capture: False runs each step as usual. True makes it an error if a step cannot be captured; by default that
            is a warning, and the step runs as usual.
        resident: whether data sets are copied to the device as a whole; by default each `ArrayDataset`, or `Subset` of
            one, whose class overrides neither `__getitem__` nor `batch`, while they take at most a quarter of the
            memory together; if only the share of one of several processes has room there, each takes its share, and
            every epoch shuffles within the shares. True says that the items of all data sets are the same in each
            epoch.
        settings: the arguments below, by name.
        step: (model, batch) -> the loss of a batch, (), or a dict of such numbers, of which "loss" is made smaller and
            all are averaged and recorded. It takes the place of `loss`; batches may have any structure. If what it
            returns has no gradient, it must have updated the weights itself, as the step of a GAN does.
        evaluate_step: the same for `evaluate`, by default `step`.
        metrics: by name, what `evaluate` computes besides: a `Metric`, or a function (outputs, targets) -> mean of a
            batch, ().
        accumulate: parts into which each batch is cut, one after another; their gradients are added, so they are
            those of the whole batch, with less memory. A BatchNorm sees each part by itself, and so do class weights
            and ignored labels of a loss: each part then has a mean of its own.
        clip_norm: the largest norm of all gradients together (see `nn.utils.clip_grad_norm_`).
        schedule_per: "step" or "epoch".
        memory_mode: "fast", "balanced" or "least" (see `alpha.set_memory_mode`), by default the one in force.
        ema: the decay of an exponential mean of weights and buffers, such as 0.999. `evaluate` and the weights file of
            a run have the mean; `averaged.module` is the model that has it.

    Between epochs the attributes `optimizer`, `loss`, `schedule`, `precision`, `capture`, `resident`, `metrics`,
    `accumulate`, `clip_norm`, `ema`, `schedule_per` and `memory_mode` may be set to what the arguments may be; the next
    epoch or evaluation has them. Model, device and steps of one's own stay: another Trainer takes others.

    Attributes:
        epoch, step: what was begun and done: `step` steps of epoch `epoch`, both from 1.
        averaged: the mean of the weights by `ema`, an `alpha.optim.swa_utils.AveragedModel`; None before the training.
        augment: None, or what changes the inputs of a training batch on the device: a module of `alpha.transforms`, or
            any function of a Tensor (N, H, W, C) in [-1, 1]; or of inputs and targets, which returns both (see
            `alpha.transforms.takes_targets`). It may be another one in each epoch. A module is in evaluation mode in
            `evaluate`, where it leaves out what is random and keeps the size; a function is left out there.
        user_step, user_evaluate_step: `step` and `evaluate_step`, or None.
        machine: the device and the processes on which the steps run.
        place: the rest of an epoch that was interrupted, and the loader of the last one.
        modes: the layers that stay in evaluation mode.

    Examples:
        >>> import alpha, numpy as np
        >>> from alpha.data import DataLoader, TensorDataset
        >>> from alpha.train import Trainer
        >>> model = alpha.nn.Linear(4, 2)
        >>> trainer = Trainer(model, alpha.optim.Adam(model.parameters()), "cpu")
        >>> data = TensorDataset(np.ones((8, 4), np.float32), np.zeros(8, np.int64))
        >>> rows = trainer.fit(DataLoader(data, batch_size=4), epochs=2, show=None)
        >>> len(rows), rows[1].train_loss < rows[0].train_loss
        (2, True)
    """

    def __init__(
        self,
        model: Module,
        optimizer: Optimizer | Sequence[Optimizer],
        device: str | Device,
        loss: Callable[[Any, Any], Tensor] = F.cross_entropy,
        schedule: LRScheduler | Sequence[LRScheduler] | None = None,
        precision: str | None = None,
        capture: bool | None = None,
        resident: bool | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        chosen = settings_of(settings)
        self.precision = numerics.get_precision() if precision is None else precision  # checked first
        self.optimizers = several("optimizer", optimizer, Optimizer)
        self.schedule = schedule
        check_accepted(self.optimizers, self.schedules, chosen["step"])
        self.model = model
        model._check_own_state("Trainer")  # and not behind the first epoch, when it is saved
        self.device = get_device(device)
        self.machine = Machine(self.device)
        self.capture, self.resident = capture, resident
        self.user_step, self.user_evaluate_step = chosen["step"], chosen["evaluate_step"] or chosen["step"]
        self.loss = loss
        self.metrics = as_metrics(chosen["metrics"] or {}, self.device)
        self.accumulate, self.clip_norm = chosen["accumulate"], chosen["clip_norm"]
        self.ema, self.schedule_per = chosen["ema"], chosen["schedule_per"]
        self.memory_mode = memory.name if chosen["memory_mode"] is None else chosen["memory_mode"]
        self.averaged: AveragedModel | None = None
        self.augment: Callable[..., Any] | None = None
        self.epoch = 0
        self.step = 0
        self.place = Place()
        self.modes = Modes()
        self._updates = False  # whether a step was seen to change the weights

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute to what it may be.

        Raises:
            TypeError, ValueError: it is not what the argument of this name may be, or it cannot change any more.
        """
        value = self._checked(name, value)
        if name in ("optimizers", "loss"):
            object.__setattr__(self, "_updates", False)
        object.__setattr__(self, name, value)

    def _checked(self, name: str, value: Any) -> Any:
        now = vars(self)
        if name in FIXED and name in now and value is not now[name]:
            raise ValueError(f"Trainer: {name} stays as it is; make another Trainer for another one")
        if name in ("evaluate_step", "settings") or (name == "step" and callable(value)):
            raise ValueError(f"Trainer: {name} is an argument alone; make another Trainer for another one")
        if name == "optimizers":
            return several("optimizer", value, Optimizer)
        if name == "schedule" and value is not None:
            several(name, value, LRScheduler)
        if name == "precision":
            return numerics.precision(numerics.get_precision() if value is None else value).name
        if name == "memory_mode":
            return memory.checked(memory.name if value is None else value)
        if name in ("capture", "resident") and value not in (None, False, True):
            raise TypeError(f"Trainer: {name} is {value!r}, expected True, False or None")
        if name == "metrics":
            if value and now.get("user_step") is not None:
                raise ValueError(METRICS_OF_STEP)
            return as_metrics(value or {}, self.device)
        if name == "loss":
            if now.get("user_step") is not None and value is not F.cross_entropy:
                raise ValueError("Trainer: loss and step are both given; a step computes the loss itself")
            if not callable(value):
                raise TypeError(f"Trainer: loss is a {type_name(value)}, expected a function of outputs and targets")
        if name == "ema" and now.get("averaged") is not None and value != now["ema"]:
            raise ValueError(f"Trainer: ema={value}: the mean of the weights has begun with ema={now['ema']}")
        return checked(name, value)

    @property
    def optimizer(self) -> Optimizer:
        """The first optimizer; setting it sets all of them."""
        return self.optimizers[0]

    @optimizer.setter
    def optimizer(self, value: Optimizer | Sequence[Optimizer]) -> None:
        self.optimizers = several("optimizer", value, Optimizer)

    def train_epoch(self, loader: DataLoader, steps: int | None = None, report: Report | None = None) -> Result:
        """One pass over `loader`, of at most `steps` steps; the rest of the last pass if it was interrupted.

        Args:
            report: gets the number of steps so far and the mean loss of the last ten or so, again and again.

        Raises:
            TrainingError: the loss is not finite; the message names the step. On the cpu the weights are then those
                before that step, unless `step` updates them itself. A GPU's losses are read some steps later, so the
                weights may be lost; files are not. Or the first step changed no weight.
            Interrupted: Ctrl-C, after a whole step. The next call goes on with the epoch.
            CheckpointError: a loaded or interrupted epoch goes on with another loader.
            DataError: the loader cannot be resumed, has no batches or batches of another form; or `steps` is not a
                whole number of at least 1.
        """
        with self.machine.share(loader, True, self.resident):
            held = self.device.memory.block_ids() if isinstance(self.device, CudaDevice) else set()
            try:
                return self._train_part(loader, steps, report)
            except OutOfMemoryError as error:
                error.explain_by(partial(shortage, self, loader, held))
                raise

    def _train_part(self, loader: DataLoader, steps: int | None, report: Report | None) -> Result:
        """Train on this process's part of an epoch."""
        if steps is not None:
            steps = whole_number("Trainer", "steps", steps, 1)
        epoch_seed = self.machine.ranks.begin_epoch(loader, self.place.begin(loader, self.user_step is None))
        if self.place.unfinished is None:
            self.epoch, self.step = self.epoch + 1, 0
        tally = self.machine.trained
        tally.begin(f"epoch {self.epoch}", own_share(self.place.unfinished))
        loader.set_epoch(self.epoch - 1, self.step)
        loader.epoch_seed = epoch_seed
        feed, train = self.begin_training(loader)

        def step(*batch: Any) -> None:
            tally.learning_rate = float(self.optimizer.param_groups[0]["lr"])
            self.machine.ranks.count_step()
            before = None if self._updates else writes(self.model)
            train(*batch)
            if before is not None:
                self._check_update(before)
            after_step(self.schedules, self.schedule_per)
            self.step += 1

        self.place.unfinished = None
        try:
            with numerics.precision(self.precision), memory_mode(self.memory_mode):
                total = self._steps_of(loader, steps, tally)
                self._compile(feed, total, train)
                result = self._run(feed, step, tally, loader, total, self.step, report)
        except Interrupted:
            self.machine.ranks.sum_up(tally)
            self.place.unfinished, self.place.same_loader = tally.state_dict(), True
            raise
        except TrainingError:
            self._explain(tally, loader, self.epoch - 1, epoch_seed)
            raise
        self.place.same_loader = False
        after_epoch(self.schedules, self.schedule_per, result)
        return result

    def begin_training(self, loader: DataLoader) -> tuple[Feed, Step]:
        """The batches of the next epoch, and the step that trains on one of them."""
        check_accepted(self.optimizers, self.schedules, self.user_step)  # perhaps others than at first
        check_bounds(self.augment, loader)
        if not self._updates and self.user_step is None:
            warn_of_untrained(self.model, self.optimizers)
        self.modes.train(self.model)
        self.machine.ranks.begin(self.model, self.user_step is not None)
        self.machine.ranks.compare_settings(self)
        self.averaged = average_of(self.model, self.ema, self.averaged)
        self._set_augmentation(training=True)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        feed = self.machine.feed(loader, self.resident)
        return feed, self._train_step(feed.batch)

    def evaluate(self, loader: DataLoader) -> Result:
        """Loss, accuracy and metrics over every sample of `loader`, each counted once.

        With `ema` they are those of the mean of the weights. Leaves the model in eval mode. Class weights of the loss,
        or labels that it ignores, count within each batch alone, so the loss then depends on the batch size a little.

        Raises:
            TrainingError: the loss of a batch is not finite.
            DataError: the data set names other classes than the one that the model was trained on.
        """
        check_loader(loader)
        if self.user_step is None:
            check_classes(loader.dataset, self.place.loader)
        with self.machine.share(loader, False, self.resident):
            return self._evaluate_part(loader)

    def _evaluate_part(self, loader: DataLoader) -> Result:
        """Evaluate this process's part of the data; the result is that of all parts."""
        tally = self.machine.tested
        tally.begin("evaluation")
        for metric in self.metrics.values():
            metric.reset()
        self.machine.ranks.begin(self.model, self.user_step is not None)
        self.machine.ranks.evaluate(self._evaluated())
        self.model.eval()
        self._evaluated().eval()
        self._set_augmentation(training=False)
        feed = self.machine.feed(loader, self.resident)
        step = self._evaluate_step(feed.batch)
        with no_grad(), numerics.precision(self.precision), at_epoch(loader, max(0, self.epoch - 1)):
            total = self._steps_of(loader, None, tally)
            self._compile(feed, total, step)
            try:
                result = self._run(feed, step, tally, loader, total, 0)
            except TrainingError:
                self._explain(tally, loader, max(0, self.epoch - 1), 0)
                raise
        return replace(result, metrics={**result.metrics, **values_of(self.metrics)})

    def predict(self, loader: DataLoader) -> Any:
        """Outputs of the model for every sample of `loader`, in its order: numpy arrays (N, ..), as `evaluate` sees it.

        Loaders that shuffle give another order than the data set has. With a structure of outputs, a structure of
        arrays. A batch is a pair of inputs and targets, of which the targets are not used, or inputs alone.

        Raises:
            DataError: the loader has no samples, or a batch is neither a pair nor an array.
        """
        check_loader(loader)
        if not len(loader):
            raise DataError(f"predict: no batches of {loader.batch_size} in {loader.samples} samples")
        model = self._evaluated()
        self.machine.ranks.begin(self.model, self.user_step is not None)
        self.machine.ranks.evaluate(model)
        self.model.eval()
        model.eval()
        self._set_augmentation(training=False)
        feed, augment = self.machine.feed(loader, self.resident), self._evaluation_transform()
        outputs: list[Any] = []
        with (
            no_grad(),
            numerics.precision(self.precision),
            at_epoch(loader, max(0, self.epoch - 1)),
            interrupt_between_steps() as check,
            closing(feed.arguments()) as batches,
        ):
            for arguments in batches:
                inputs, _ = augmented(augment, *with_targets(feed.batch(*arguments)))
                outputs.append(mapped(called(model, inputs), lambda values: values.numpy()))
                check()
        return merged(outputs, np.arange(sum(map(samples_of, outputs))))

    def fit(
        self,
        train_loader: DataLoader,
        test_loader: DataLoader | None = None,
        epochs: int = 1,
        *,
        steps: int | None = None,
        run: Any = None,
        callbacks: Sequence[Callback] = (),
        show: Callable[[str], None] | None = progress.say,
    ) -> list[Row]:
        """Train until `epochs` epochs are done, and evaluate, record and save each; see `alpha.train.fit`."""
        return fit(self, train_loader, test_loader, epochs, steps=steps, run=run, callbacks=callbacks, show=show)

    def steps_of(self, loader: DataLoader) -> int:
        """Number of steps in an epoch of training on this loader, by each of the processes that train together."""
        with self.machine.share(loader, True, self.resident):
            return len(loader)

    def memory_plan(
        self, loader: DataLoader, gpu: str | Device | None = None, memory: float | None = None
    ) -> StepMemory:
        """Plan the memory of the training on this loader before its first step; see `alpha.memory_plan`.

        It counts the data set, if that would lie on the device, or the batches under way, and follows all settings of
        the trainer. `largest_batch()` of the plan is the largest `batch_size`, at most as large as the data set.

        Args:
            gpu, memory: as for `alpha.memory_plan`; a trainer on the cpu may be planned for any GPU.

        Raises:
            DryRunError: the step reads values, or something that it reaches cannot be copied; or the trainer is one of
                several processes.
            DataError: as for `train_epoch`.
        """
        return memory_plan(self, loader, gpu, memory)

    @property
    def schedules(self) -> tuple[LRScheduler, ...]:
        """The schedule, or all of them."""
        return () if self.schedule is None else several("schedule", self.schedule, LRScheduler)

    @property
    def finished_epochs(self) -> int:
        """Epochs that were trained to their end."""
        return self.epoch if self.place.unfinished is None else self.epoch - 1

    def __repr__(self) -> str:
        optimizers = ", ".join(type(optimizer).__name__ for optimizer in self.optimizers)
        objective = "step" if self.user_step is not None else getattr(self.loss, "__name__", repr(self.loss))
        return (
            f"Trainer({type(self.model).__name__} on {self.device.name} in {self.precision}, {objective}, "
            f"{optimizers}, after step {self.step} of epoch {self.epoch})"
        )

    # -- steps ----------------------------------------------------------------------------------

    def _make_train_step(self, batch: Batch) -> Step:
        objective = objective_of(self.loss, self.user_step, self.model, self.augment)
        update = Update(self.model, self.optimizers, self.clip_norm, self.averaged)
        counts = self.machine.adder(self.machine.trained), self.machine.trained.named.add
        return train_step_of(batch, objective, counts, update, self.accumulate, self.machine.ranks.before_last)

    def _make_evaluate_step(self, batch: Batch) -> Step:
        augment = self._evaluation_transform()
        objective = objective_of(self.loss, self.user_evaluate_step, self._evaluated(), augment)
        counts = self.machine.adder(self.machine.tested), self.machine.tested.named.add
        return evaluate_step_of(batch, objective, counts, list(self.metrics.values()))

    def _evaluated(self) -> Module:
        """The model that `evaluate` measures."""
        return self.model if self.averaged is None else self.averaged.module

    def _set_augmentation(self, training: bool) -> None:
        if isinstance(self.augment, Module):
            self.augment.train(training)

    def _evaluation_transform(self) -> Any:
        return self.augment if isinstance(self.augment, Module) else None

    def _check_update(self, before: int) -> None:
        """Raises TrainingError if the first step changed no parameter, as if nothing of the loss depended on them."""
        if writes(self.model) == before:
            name = self.machine.trained.name
            raise TrainingError(
                f"{name}: the first step changed no parameter of the model: its loss has no gradient, or no parameter "
                "requires one; a step= must return a loss with a graph, or update the weights itself"
            )
        self._updates = True

    def _train_step(self, batch: Batch) -> Step:
        """The step that trains on a batch."""
        needs = self.augment, self.averaged, self.loss, *self.optimizers, self.clip_norm, self.accumulate
        return self.machine.step("train", batch, needs, self._make_train_step, self.capture)

    def _evaluate_step(self, batch: Batch) -> Step:
        """The step that evaluates a batch."""
        needs = self.augment, self._evaluated(), self.loss, *self.metrics.values()
        return self.machine.step("evaluate", batch, needs, self._make_evaluate_step, self.capture)

    def _steps_of(self, loader: DataLoader, steps: int | None, tally: Tally) -> int:
        """Number of steps of an epoch; raises an error if it cannot begin."""
        total = len(loader) if steps is None else min(steps, len(loader))
        if total < 1 and not (loader.part is not None and loader.all_samples and not self.model.training):
            raise DataError(f"{tally.name}: no batches of {loader.batch_size} in {loader.samples} samples")
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
        with interrupt_between_steps() as held:
            check = (lambda: None) if self.machine.ranks.many else held  # a rank alone must not stop
            runs = self.machine.dry_runs(step, feed, total)
            if runs and self.model.training:
                self.model.eval()
                with no_grad():
                    runs += self.machine.dry_runs(self._make_evaluate_step(feed.batch), feed, 1)
                self.modes.train(self.model)
            compile_runs(self.device, runs, check)

    def _run(
        self,
        feed: Feed,
        step: Step,
        tally: Tally,
        loader: DataLoader,
        total: int,
        done: int,
        report: Report | None = None,
    ) -> Result:
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
                if self.machine.ranks.many and self.model.training:
                    self.machine.ranks.check(check)  # before a step, which all ranks come to
                step(*arguments)
                tally.steps += 1
                tally.seconds = time.perf_counter() - start
                if tally.steps % READ_EVERY == 0:
                    tally.poll()
                    live = self.device.memory_stats().live
                    rated = [] if tally.accuracy is None else [f"accuracy {tally.accuracy:.1%}"]
                    speed, memory = f"{tally.images / tally.seconds:,.0f} samples/s", f"{live / 1e6:,.0f} MB"
                    progress.show(bar, (f"loss {tally.loss:.4f}", *rated, speed, memory))
                    self._report(report, tally)
                bar.update()
                if not self.machine.ranks.many:  # ranks have different numbers of batches to evaluate
                    check()
            loader.prepare_epoch()  # while the device works on what is queued
            tally.read()
            self._report(report, tally)
            self.machine.ranks.compare_order(loader)
            self.machine.ranks.sum_up(tally, () if self.model.training else self.metrics.values())
            tally.seconds = time.perf_counter() - start
            live = self.device.memory_stats().live
        numbers = tally.images, tally.loss, tally.accuracy, tally.seconds, live, precision, tally.learning_rate
        return Result(*numbers, metrics=tally.means())

    def _explain(self, tally: Tally, loader: DataLoader, epoch: int, seed: int | None) -> None:
        """Raise the error of a loss that is not finite with its reason, if that lies in the batch."""
        why = ""
        if tally.bad_step:
            with suppress(Exception):  # the error that is being raised counts, not one of the second reading
                classes = self.loss is F.cross_entropy and self.user_step is None
                why = fault_of(loader, epoch, seed, tally.bad_step, classes)
        if why:
            raise tally.explained(why) from None

    def _report(self, report: Report | None, tally: Tally) -> None:
        if report is not None and (since := tally.since_last()) is not None:
            report(*since)

    # -- resuming -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State for resuming, on the host: model, optimizer, schedule, random numbers, and the place in the epoch.

        A trainer that loads it gives the same bits as one that was never interrupted, on the same device. With a
        `ZeroRedundancyOptimizer` all ranks call its `consolidate_state_dict()` before; `Run.save` does so by itself.
        Raises TrainingError if a loss of the unfinished epoch is not finite.
        """
        return state_dict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict()` of a trainer of the same model, optimizer, schedule, precision and memory mode.

        Raises:
            CheckpointError: says what does not fit; nothing has changed then.
        """
        load_state_dict(self, state)
