"""Several processes that train together, as a Trainer sees them; see docs/distributed.md."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.core.rng import get_rng_state, set_rng_state
from alpha.data import DataLoader, Subset
from alpha.data.loader import Part
from alpha.distributed import DataParallel
from alpha.distributed.process_group import Group, current
from alpha.errors import DataError, DistributedError
from alpha.module.module import Module
from alpha.runtime import Device
from alpha.runtime.ranks import rank
from alpha.train.batches.tally import Tally
from alpha.train.interrupt import Interrupted
from alpha.train.metrics import Metric

SETTINGS = "precision", "memory_mode", "accumulate", "clip_norm", "ema"  # of a Trainer


class Ranks:
    """The processes that train with this one; alone, each method does nothing.

    Raises:
        DistributedError: the trainer is on another device than the group.
    """

    def __init__(self, device: Device) -> None:
        group = current()
        self._group: Group | None = group if group is not None and group.engine is not None else None
        self._parallel: DataParallel | None = None
        self._trained: list[str] = []  # the names of the parameters whose gradients are averaged
        self._order = ""  # a digest of the order that a sampler has given for this pass
        if self._group is not None and self._group.device is not device:
            raise DistributedError(
                f"Trainer: it is on {device.name}, and alpha.distributed.init() was called for "
                f"{self._group.device.name}"
            )

    @property
    def world_size(self) -> int:
        return 1 if self._group is None else self._group.place.world_size

    @property
    def memory(self) -> int | None:
        """Bytes that were free on the GPU of each rank when they met; None alone, and on a CPU."""
        return None if self._group is None else self._group.memory

    @property
    def many(self) -> bool:
        """True if there are others."""
        return self._group is not None

    def begin(self, model: Module, several_passes: bool) -> None:
        """Let gradients of the model be averaged from now on; the first time all ranks get the weights of rank 0.

        Args:
            several_passes: a step may go backward several times, and reach some of the parameters each time.

        Raises:
            DistributedError: the models of the ranks differ, or the trainer was made before the group.
        """
        group = current()
        if group is not None and group.engine is not None and self._group is not group:
            raise DistributedError("Trainer: it was made before alpha.distributed.init(); call that first of all")
        if self._group is None:
            return
        trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        if self._parallel is not None and trained == self._trained:
            return
        self._trained = trained
        self._parallel = DataParallel(model)
        if several_passes:
            self._parallel.skip_unused()

    def begin_epoch(self, loader: DataLoader, epoch_seed: int | None) -> int | None:
        """Compare seeds and loaders, take the random numbers of rank 0, and return its seed of the epoch."""
        if self._group is None:
            return epoch_seed
        if self._parallel is None:
            self._group.compare("the seed (alpha.manual_seed)", str(get_rng_state()["seed"]))
        self._group.compare("the loader of the training", _described(loader))
        seed, state = json.loads(self._group.told("the seed of an epoch", json.dumps([epoch_seed, get_rng_state()])))
        set_rng_state(state)
        return None if seed is None else int(seed)

    def compare_settings(self, trainer: Any) -> None:
        """Compare what makes a step, besides the model.

        Raises:
            DistributedError: it differs.
        """
        if self._group is not None:
            self._group.compare_lines("settings of the training", compared(trainer))

    @property
    def before_last(self) -> Callable[[], AbstractContextManager[None]]:
        """Function whose context is for the parts of a batch before the last one: their gradients stay on this rank."""
        return nullcontext if self._parallel is None else self._parallel.no_sync

    def evaluate(self, model: Module) -> None:
        """Give a model that is measured now the buffers of rank 0, as each rank's own follow its own batches."""
        if self._parallel is not None:
            self._parallel.take_buffers(model)

    def agreed(self, reason: str | None) -> str | None:
        """Reason of the first rank that has one, such as to stop behind an epoch."""
        if self._group is None:
            return reason
        return next(filter(None, self._group.texts("a reason to stop", reason or "")), None)

    @contextmanager
    def share(self, loader: DataLoader, training: bool, by_number: bool) -> Iterator[None]:
        """Context in which a loader gives this rank's part; of a training all are of one length.

        With `by_number` that is the share of the items which this rank holds on its device, see `Part`. A loader that
        has shared out its data itself, by a `DistributedSampler`, is left alone.

        Raises:
            DataError: a rank would see no data, or a `DistributedSampler` is that of another rank.
            DistributedError: the ranks evaluate on different loaders.
        """
        if self._group is None:
            yield
            return
        place = self._group.place
        if hasattr(loader.sampler, "num_replicas"):
            _check_sampler(loader.sampler, place.rank, place.world_size)
            yield
            return
        if training and loader.all_samples < place.world_size:
            raise DataError(
                f"Trainer: {loader.all_samples} samples for {place.world_size} processes: one of them would see no data"
            )
        if not training:  # of a training the loaders are compared as a whole
            self._group.compare("the loader of the evaluation", f"{_described(loader)} in shares: {by_number}")
        self._order = ""
        told = None if loader.sampler is None else self._note_order
        before, loader.part = loader.part, Part(place.rank, place.world_size, training, by_number, told)
        try:
            yield
        finally:
            loader.part = before

    def _note_order(self, order: NDArray[np.int64]) -> None:
        self._order = hashlib.blake2b(order.tobytes(), digest_size=8).hexdigest()

    def compare_order(self, loader: DataLoader) -> None:
        """Compare the orders that samplers gave, behind the last step: a thread may have asked them, at any time.

        Raises:
            DistributedError: they differ, so items came several times or never.
        """
        if self._group is None or loader.sampler is None or loader.part is None:
            return
        found = self._group.texts("the order of a sampler", self._order)
        known = {text for text in found if text}  # a rank without a batch may not have asked
        if len(known) > 1:
            raise DistributedError(
                f"the {type(loader.sampler).__name__} of the loader gives each rank another order, so items come "
                "several times or never: make it of the same numbers on all ranks, as with a seed, or use "
                "DistributedSampler"
            )

    def count_step(self) -> None:
        """Count a step that begins."""
        if self._group is not None and self._group.watch is not None:
            self._group.watch.begun += 1

    def check(self, check: Callable[[], None]) -> None:
        """Raise Interrupted on all ranks before the same step, if one of them was interrupted."""
        assert self._group is not None
        assert self._group.watch is not None
        if reason := self._group.watch.stops_here(_interruption(check)):
            raise Interrupted(int(reason))

    def check_at_end(self, check: Callable[[], None] | None) -> None:
        """Raise Interrupted on all ranks if one of them was interrupted behind the last step; alone, do nothing."""
        if self._group is None or check is None:
            return
        assert self._group.watch is not None
        if reason := self.agreed(_interruption(check)):
            self._group.watch.stopped = self._group.watch.begun
            raise Interrupted(int(reason))

    def sum_up(self, tally: Tally, metrics: Iterable[Metric] = ()) -> None:
        """Let a tally and metrics count what all ranks have counted."""
        if self._group is not None:
            texts = self._group.texts("the names of numbers", json.dumps(tally.names))
            tally.sum_up(self._group.total, sorted({name for text in texts for name in json.loads(text)}))
            for metric in metrics:
                metric.sum_up(self._group.total)


def compared(trainer: Any) -> list[str]:
    """Lines about a Trainer's settings and optimizers, which must be the same on all ranks."""
    names = {id(parameter): name for name, parameter in trainer.model.named_parameters()}
    lines = [f"{name} {getattr(trainer, name)}" for name in SETTINGS]
    lines += [f"{type(schedule).__name__} per {trainer.schedule_per}" for schedule in trainer.schedules]
    for optimizer in trainer.optimizers:
        for number, group in enumerate(optimizer.param_groups):
            title = f"{type(optimizer).__name__}, group {number}"
            plain = {name: value for name, value in sorted(group.items()) if name != "params" and _is_plain(value)}
            lines += [f"{title}: {name} {value}" for name, value in plain.items()]
            lines += [f"{title}: {names.get(id(parameter), '?')}" for parameter in group["params"]]
    return lines


def _is_plain(value: Any) -> bool:
    """True for a number, a text or None, and for a tuple or list of them: what two processes can compare."""
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _described(loader: DataLoader) -> str:
    """Text on what the batches of a loader depend, apart from the items; of subsets with a digest of their numbers."""
    about, dataset = loader.describe(), loader.dataset
    while isinstance(dataset, Subset):
        digest = hashlib.blake2b(np.asarray(dataset.indices, np.int64).tobytes(), digest_size=8).hexdigest()
        about["subset"], dataset = f"{about.get('subset', '')}{digest}", dataset.dataset
    return json.dumps(about, sort_keys=True)


def _check_sampler(sampler: Any, rank: int, world_size: int) -> None:
    """Raises DataError if a sampler gives the part of another rank."""
    found = sampler.num_replicas, getattr(sampler, "rank", rank)
    if found != (world_size, rank):
        raise DataError(
            f"Trainer: the {type(sampler).__name__} of the loader gives the part of rank {found[1]} of {found[0]}, and "
            f"this is rank {rank} of {world_size}; make it after alpha.distributed.init(), without num_replicas= and "
            "rank="
        )


def _interruption(check: Callable[[], None]) -> str:
    """The number of the signal that has interrupted this rank; empty if none has."""
    try:
        check()
    except Interrupted as stop:
        return str(stop.status - 128)
    return ""


def own_share(state: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The part of the saved sums of all ranks with which this rank goes on: rank 0 has all of them."""
    if state is None or rank() == 0:
        return state
    kept = ("steps", "seconds", "learning_rate")
    return {name: value for name, value in state.items() if name in kept}
