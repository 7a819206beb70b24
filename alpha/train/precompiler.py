"""The kernels of a trainer's steps, compiled before the first of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable

from alpha import config
from alpha.errors import DryRunError
from alpha.runtime.cuda.device import CudaDevice
from alpha.step import DryRun, dry_run
from alpha.step.precompile import compile_runs
from alpha.train.feed import Feed
from alpha.train.interrupt import interrupt_between_steps


class Precompiler:
    """Knows for which steps and sizes of a batch the kernels are compiled."""

    def __init__(self) -> None:
        self._done: set[Hashable] = set()

    def dry_runs(self, device: CudaDevice, step: Callable[..., None], feed: Feed, count: int) -> list[DryRun]:
        """What the first `count` calls of a step launch, one run for each size of a batch that is new."""
        runs = []
        for size, arguments in feed.examples(count).items():
            if (step, size) not in self._done:
                self._done.add((step, size))
                try:
                    runs.append(dry_run(step, *arguments, gpu=device))
                except DryRunError as error:  # the kernels are compiled when they are first used
                    if config.DEBUG.flag():
                        print(f"alpha: {error}", file=sys.stderr)
        return runs

    def compile(self, device: CudaDevice, runs: Iterable[DryRun]) -> None:
        """Compile what the runs need; an interrupt that is held back stops it."""
        with interrupt_between_steps() as check:
            compile_runs(device, runs, check)
