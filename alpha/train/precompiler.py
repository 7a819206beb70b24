"""Dry runs of a trainer's first steps, by which their kernels are compiled before they run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from weakref import WeakKeyDictionary

from alpha import config
from alpha.autograd.memory_mode import get_memory_mode
from alpha.core.numerics import get_precision
from alpha.errors import DryRunError
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.step import DryRun, dry_run
from alpha.train.batches.feed import Feed


class Precompiler:
    """Knows for which steps, sizes of a batch and precisions the kernels are compiled."""

    def __init__(self) -> None:
        self._done: WeakKeyDictionary[Callable[..., None], set[Hashable]] = WeakKeyDictionary()  # by the step

    def dry_runs(self, device: CudaDevice, step: Callable[..., None], feed: Feed, count: int) -> list[DryRun]:
        """Dry runs of the first `count` calls of a step, one for each size of a batch that is new."""
        runs = []
        for size, arguments in feed.examples(count).items():
            key, done = (size, get_precision(), get_memory_mode()), self._done.setdefault(step, set())
            if key not in done:
                done.add(key)
                try:
                    runs.append(dry_run(step, *arguments, gpu=device))
                except DryRunError as error:  # the kernels are compiled when they are first used
                    if config.DEBUG.flag():
                        print(f"alpha: {error}", file=sys.stderr)
        return runs
