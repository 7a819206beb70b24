"""The memory of a Trainer's steps before they run, with its data set, its batches and its settings."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any

import numpy as np

from alpha.autograd.memory_mode import memory_mode
from alpha.core import numerics
from alpha.data import DataLoader
from alpha.data.collate import leaves, mapped
from alpha.errors import DryRunError
from alpha.runtime import Device, get_device
from alpha.step.memory.planned import StepMemory, Target, target_of
from alpha.step.memory.shortage import Remedy, explained
from alpha.step.memory.subjects import Scene, Subject
from alpha.train.batches.feed import Arguments, StreamingFeed
from alpha.train.batches.host import HostBatches, check_loader

MOST_INPUTS = 8  # tensors of batches under way: two batches take turns
SETTINGS = ("accumulate", "clip_norm", "ema")


def memory_plan(
    trainer: Any, loader: DataLoader, gpu: str | Device | None = None, memory: float | None = None
) -> StepMemory:
    """See `Trainer.memory_plan`."""
    with numerics.precision(trainer.precision), memory_mode(trainer.memory_mode):
        return StepMemory(subject_of(trainer, loader), target_of(gpu, memory), trainer.precision)


def subject_of(trainer: Any, loader: DataLoader, batch: int | None = None, **changes: Any) -> Subject:
    """The steps of a trainer on a loader, as something that can be planned.

    Args:
        batch: another batch size.
        changes: other arguments of the Trainer.
    """
    check_loader(loader)
    if trainer.machine.ranks.many:
        raise DryRunError(
            "the memory of a Trainer that is one of several processes cannot be planned: plan that of one process "
            "alone, with the batch of one of them"
        )
    settings = {
        "precision": trainer.precision,
        "capture": trainer.capture,
        "resident": trainer.resident,
        **{name: getattr(trainer, name) for name in SETTINGS},
        **changes,
    }
    things = {
        "model": trainer.model,
        "optimizers": trainer.optimizers,
        "loss": trainer.loss,
        "step": trainer.user_step,
        "augment": trainer.augment,
        "averaged": trainer.averaged,
        "resident": trainer.machine.residents.find(loader.dataset),
        "counted": [(tally.sums, tally.named.sums) for tally in (trainer.machine.trained, trainer.machine.tested)],
    }
    size = min(batch or loader.batch_size or 1, loader.samples)
    make, captured = type(trainer), settings["capture"] is not False
    return Subject(
        "a step of training",
        things,
        lambda copy: Scene([copy["model"]], list(copy["optimizers"])),
        lambda copy, scene: _steps(make, copy, scene, settings, loader, size),
        captured,
        size,
        lambda wanted: subject_of(trainer, loader, wanted, **changes),
        loader.samples,
        other_precision=lambda name: subject_of(trainer, loader, batch, **{**changes, "precision": name}),
    )


def shortage(trainer: Any, loader: DataLoader, held: set[int]) -> str:
    """The text of an error for want of memory: what a step of a trainer holds, and what helps at which price.

    Args:
        held: the ids of the blocks that were there before the epoch.
    """
    subject = subject_of(trainer, loader)

    def others(target: Target) -> list[Remedy]:
        def changed(**changes: Any) -> StepMemory:
            return StepMemory(subject_of(trainer, loader, **changes), target, trainer.precision)

        parts, found = 2 * trainer.accumulate, []
        if subject.batch >= parts:
            text = "gradients of the same batch, in parts"
            found.append(Remedy(f"Trainer(.., accumulate={parts})", lambda: changed(accumulate=parts), text))
        if trainer.machine.residents.find(loader.dataset) is not None or trainer.resident:
            sample = HostBatches(loader).batch(np.arange(1))
            copied = sum(values.nbytes for values in leaves(sample)) * subject.batch
            text = f"each step copies {copied / 1e6:,.1f} MB from the host"
            found.append(Remedy("Trainer(.., resident=False)", lambda: changed(resident=False), text))
        return found

    with memory_mode(trainer.memory_mode):
        return explained(subject, held, others, trainer.precision)


def _steps(
    make: Callable[..., Any],
    copy: dict[str, Any],
    scene: Scene,
    settings: dict[str, Any],
    loader: DataLoader,
    size: int,
) -> Generator[None, None, None]:
    """Steps of a trainer of copies on the planned device."""
    del copy["counted"]  # the trainer of the copies counts by itself
    if copy["step"] is not None:
        settings = {**settings, "step": copy["step"]}
    else:
        settings = {**settings, "loss": copy["loss"]}
    device: Any = get_device("cuda")  # that of the plan
    device.driver.readable = True  # what is made before the first step may read values, of which no size depends
    trainer = make(copy["model"], copy["optimizers"], device, **settings)
    trainer.augment, trainer.averaged = copy["augment"], copy["averaged"]
    if copy["resident"] is not None and trainer.resident is not False:
        trainer.machine.residents.take(loader.dataset, copy["resident"])
    copy.clear()
    trainer.machine.trained.begin("a plan")
    feed, train = trainer.begin_training(loader)
    device.driver.readable = False
    scene.modules += [] if trainer.averaged is None else [trainer.averaged]
    if (resident := trainer.machine.residents.find(loader.dataset)) is not None:
        scene.inputs += [resident.inputs, resident.targets, resident.order]
    del resident
    examples = _Examples(loader, size) if isinstance(feed, StreamingFeed) else None
    streamed: Any = examples
    batches = _sizes(size) if examples is None else StreamingFeed(streamed, device).arguments()
    with closing(batches):
        for arguments in batches:
            if examples is not None and len(scene.inputs) < MOST_INPUTS:
                scene.inputs.extend(leaves(arguments[0]))
            train(*arguments)
            yield


def _sizes(size: int) -> Generator[Arguments, None, None]:
    """The arguments of steps that take their batches from the device."""
    while True:
        yield (size,)


class _Examples:
    """Batches like those of a loader, without their values and without end."""

    def __init__(self, loader: DataLoader, size: int) -> None:
        self.batch_size, self.dataset = size, range(max(size, loader.samples))
        sample = HostBatches(loader).batch(np.arange(1))

        def example(values: Any) -> Any:
            shape = (size, *values.shape[1:]) if values.ndim else ()
            return np.broadcast_to(np.zeros((), values.dtype), shape)

        self._batch = mapped(sample, example)

    def __iter__(self) -> Generator[Any, None, None]:
        while True:
            yield self._batch
