"""Machine of a Trainer: its device and ranks, the data sets that lie there, and the steps that were made for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from alpha import config
from alpha.autograd.memory_mode import get_memory_mode
from alpha.core.numerics import get_precision
from alpha.core.tensor import Tensor
from alpha.data import DataLoader
from alpha.errors import DryRunError
from alpha.runtime import Device
from alpha.step import DryRun, capture, dry_run
from alpha.train.batches.device import count
from alpha.train.batches.feed import Batch, Feed
from alpha.train.batches.host import check_loader
from alpha.train.batches.residents import Residents
from alpha.train.batches.tally import Tally
from alpha.train.steps import Step
from alpha.train.trainer_ranks import Ranks


class Machine:
    """The device and the processes on which a Trainer runs its steps.

    Attributes:
        device: where the steps run.
        ranks: the processes that train together.
        residents: the data sets that lie on the device.
        trained, tested: what the steps of training, and those of evaluation, have counted.
        steps: those that were made, by name and where batches come from, each behind what else it depends on.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.ranks = Ranks(device)
        self.residents = Residents(device, self.ranks.memory)
        self.trained, self.tested = Tally(device), Tally(device)
        self.steps: dict[tuple[Any, ...], tuple[tuple[Any, ...], Step]] = {}
        self._compiled: WeakKeyDictionary[Callable[..., None], set[Hashable]] = WeakKeyDictionary()  # by the step

    def share(self, loader: DataLoader, training: bool, resident: bool | None) -> AbstractContextManager[None]:
        """Context in which a loader gives this rank's part: a share of the items that the device has, or of all."""
        check_loader(loader)
        self._drop_residents()
        return self.ranks.share(loader, training, self.residents.in_shares(loader, resident, self.ranks.world_size))

    def feed(self, loader: DataLoader, resident: bool | None) -> Feed:
        """Feed that brings the batches of a loader to the device."""
        self._drop_residents()
        return self.residents.feed(loader, resident)

    def _drop_residents(self) -> None:
        """Forget data sets on the device that the program has dropped, and the steps that take batches of them."""
        for gone in self.residents.drop():
            self.steps = {key: made for key, made in self.steps.items() if key[1] != gone.batch}

    def step(
        self, name: str, batch: Batch, needs: tuple[Any, ...], make: Callable[[Batch], Step], captured: bool | None
    ) -> Step:
        """The step of this name that takes its batches from `batch`, one for all loaders of a data set.

        Args:
            needs: the objects and numbers on which it depends besides. A step of others is forgotten.
            captured: see `Trainer`.
        """
        key, needs = (name, batch, self.ranks.before_last), (*needs, captured)
        before, step = self.steps.get(key, ((), None))
        if step is None or len(before) != len(needs) or not all(map(_is_same, before, needs)):
            step = make(batch)
            step = step if captured is False else capture(strict=captured is True)(step)
            self.steps[key] = needs, step
        return step

    def adder(self, tally: Tally) -> Callable[[Tensor, Any, Any, int, bool], None]:
        """Function that counts a batch: on the cpu it also reads the result, which costs nothing there."""
        return tally.add if self.device.name == "cpu" else partial(count, tally.sums)

    def dry_runs(self, step: Step, feed: Feed, calls: int) -> list[DryRun]:
        """Dry runs of the first calls of a step, one for each size of a batch whose kernels are not compiled yet."""
        runs = []
        for size, arguments in feed.examples(calls).items():
            key, done = (size, get_precision(), get_memory_mode()), self._compiled.setdefault(step, set())
            if key not in done:
                done.add(key)
                try:
                    runs.append(dry_run(step, *arguments, gpu=self.device))
                except DryRunError as error:  # the kernels are compiled when they are first used
                    if config.DEBUG.flag():
                        print(f"alpha: {error}", file=sys.stderr)
        return runs


def _is_same(a: Any, b: Any) -> bool:
    """True for one object, or equal numbers."""
    return a is b or (isinstance(a, (int, float)) and isinstance(b, (int, float)) and a == b)
