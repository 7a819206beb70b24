"""Loss and accuracy over the steps of an epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from alpha.errors import TrainingError
from alpha.tensor import Tensor


class Tally:
    """Sums over the steps so far; unless `at_once`, results stay on the device until `read`.

    Args:
        name: what is counted, for messages.
        at_once: read each loss as it comes, which costs nothing on the cpu.
        state: sums to go on from, of `state_dict`.
    """

    def __init__(self, name: str, at_once: bool, state: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.at_once = at_once
        self.steps = 0 if state is None else int(state["steps"])
        self.images = 0 if state is None else int(state["images"])
        self.seconds = 0.0 if state is None else float(state["seconds"])
        self._loss_sum = 0.0 if state is None else float(state["loss_sum"])
        self._hits = 0 if state is None else int(state["hits"])
        self._unread: list[tuple[int, Tensor, Tensor, NDArray[Any]]] = []

    @property
    def loss(self) -> float:
        return self._loss_sum / self.images

    @property
    def accuracy(self) -> float:
        return self._hits / self.images

    def add(self, step: int, loss: Tensor, logits: Tensor, labels: NDArray[Any]) -> None:
        """Count a step; if `at_once`, TrainingError if its loss is not finite."""
        self._unread.append((step, loss.detach(), logits.detach(), labels))
        if self.at_once:
            self.read()
        self.steps += 1

    def read(self) -> None:
        """Fetch what is on the device; TrainingError names the first step whose loss is not finite."""
        for step, loss, logits, labels in self._unread:
            value = loss.item()
            if not math.isfinite(value):
                raise TrainingError(
                    f"{self.name}: the loss is {value} at step {step}; a lower learning rate usually helps"
                )
            self._loss_sum += value * len(labels)
            self._hits += int((logits.numpy().argmax(axis=1) == labels).sum())
            self.images += len(labels)
        self._unread.clear()

    def state_dict(self) -> dict[str, float]:
        """The sums, after reading what is on the device."""
        self.read()
        return {
            "steps": self.steps,
            "images": self.images,
            "seconds": self.seconds,
            "loss_sum": self._loss_sum,
            "hits": self._hits,
        }
