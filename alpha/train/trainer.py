"""The training loop of the examples."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

import alpha
from alpha.data import DataLoader
from alpha.errors import DataError, TrainingError
from alpha.nn import Module
from alpha.nn import functional as F
from alpha.optim import CosineAnnealingLR, Optimizer
from alpha.runtime import Device
from alpha.tensor import Tensor
from alpha.train.history import Result
from alpha.train.interrupt import interrupt_between_steps

READ_EVERY = 10  # steps; reading a loss waits for the device


class Trainer:
    """Trains and evaluates a classifier of uint8 images (N, H, W, C) on `device`.

    Pixels are mapped to [-1, 1] on the device. Progress bars show on a terminal only.
    `epoch` and `step` count what was begun and done: `step` of epoch `epoch`, both from 1.
    `precision` is "float32", "tf32" or "bf16" (see `alpha.set_precision`), by default the one in
    force; `ValueError` for another.
    """

    def __init__(
        self,
        model: Module,
        optimizer: Optimizer,
        device: Device,
        loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
        schedule: CosineAnnealingLR | None = None,
        precision: str | None = None,
    ) -> None:
        self.precision = alpha.precision(precision or alpha.get_precision()).name  # checked first
        self.model = model
        self.optimizer = optimizer
        self.device = device
        self.loss = loss
        self.schedule = schedule
        self.epoch = 0
        self.step = 0

    def train_epoch(self, loader: DataLoader, steps: int | None = None) -> Result:
        """One pass over `loader`, of at most `steps` steps.

        Raises TrainingError, naming the step, where the loss is not finite, and KeyboardInterrupt
        after a whole step.
        """
        self.epoch, self.step = self.epoch + 1, 0
        loader.set_epoch(self.epoch - 1)
        self.model.train()

        def train(images: NDArray[np.uint8], labels: NDArray[np.int32]) -> tuple[Tensor, Tensor]:
            self.optimizer.zero_grad()
            loss, logits = self._forward(images, labels)
            loss.backward()
            self.optimizer.step()
            if self.schedule is not None:
                self.schedule.step()
            self.step += 1
            return loss, logits

        with alpha.precision(self.precision):
            return self._run(train, loader, f"epoch {self.epoch}", steps)

    def evaluate(self, loader: DataLoader) -> Result:
        """Loss and accuracy over every image of `loader`, each counted once."""
        self.model.eval()
        with alpha.no_grad(), alpha.precision(self.precision):
            return self._run(self._forward, loader, "evaluation", None)

    def _forward(self, images: NDArray[np.uint8], labels: NDArray[np.int32]) -> tuple[Tensor, Tensor]:
        pixels = F.normalize_pixels(alpha.tensor(images, device=self.device))
        logits = self.model(pixels)
        return self.loss(logits, alpha.tensor(labels, device=self.device)), logits

    def _run(
        self,
        step: Callable[[NDArray[np.uint8], NDArray[np.int32]], tuple[Tensor, Tensor]],
        loader: DataLoader,
        name: str,
        steps: int | None,
    ) -> Result:
        total = len(loader) if steps is None else min(steps, len(loader))
        if total < 1:
            raise DataError(f"{name}: no batches of {loader.batch_size} in {len(loader.dataset)} images")
        tally = _Tally(name)
        start = time.perf_counter()
        with (
            np.errstate(over="ignore", invalid="ignore"),  # `_Tally` reports what diverges, once
            interrupt_between_steps() as check,
            closing(iter(loader)) as batches,
            tqdm(desc=f"{name} ({self.precision})", total=total, unit="step", leave=False, disable=None) as bar,
        ):
            for images, labels in islice(batches, total):
                tally.add(*step(images, labels), labels)
                if tally.steps % READ_EVERY == 0 or tally.steps == total:
                    tally.read()
                    seconds = time.perf_counter() - start
                    live = self.device.memory_stats().live
                    bar.set_postfix_str(
                        f"loss {tally.loss:.4f}, accuracy {tally.accuracy:.1%}, "
                        f"{tally.images / seconds:,.0f} images/s, {live / 1e6:,.0f} MB",
                        refresh=False,
                    )
                bar.update()
                check()
        return Result(tally.images, tally.loss, tally.accuracy, seconds, live, self.precision)


class _Tally:
    """Loss and accuracy over the steps so far; results stay on the device until `read`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps = 0
        self.images = 0
        self._loss_sum = 0.0
        self._hits = 0
        self._unread: list[tuple[int, Tensor, Tensor, NDArray[Any]]] = []

    @property
    def loss(self) -> float:
        return self._loss_sum / self.images

    @property
    def accuracy(self) -> float:
        return self._hits / self.images

    def add(self, loss: Tensor, logits: Tensor, labels: NDArray[Any]) -> None:
        self.steps += 1
        self._unread.append((self.steps, loss.detach(), logits.detach(), labels))

    def read(self) -> None:
        for step, loss, logits, labels in self._unread:
            value = loss.item()
            if not math.isfinite(value):
                raise TrainingError(f"{self.name}: the loss is {value} at step {step}; a lower --lr usually helps")
            self._loss_sum += value * len(labels)
            self._hits += int((logits.numpy().argmax(axis=1) == labels).sum())
            self.images += len(labels)
        self._unread.clear()
