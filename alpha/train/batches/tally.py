"""Loss and accuracy over the steps of an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from alpha.core.tensor import Tensor
from alpha.errors import TrainingError
from alpha.runtime import Device
from alpha.train.batches.device import COUNTED, Counted, count, counted

TALLIED = ("steps", "images", "seconds", "loss_sum", "hits")  # numbers of a tally's state


class Tally:
    """Sums over the steps so far, which stay on the device until they are read.

    Attributes:
        sums: what `alpha.train.batches.device.count` adds to.
        steps: the steps that were queued; the sums may not count all of them yet.
        seconds: what they took.
        learning_rate: that of the last step of training.
    """

    def __init__(self, device: Device) -> None:
        self.sums = Tensor(device.zeros((COUNTED,), np.float64))
        self._readback = device.readback(self.sums.array)
        self.begin("")

    def begin(self, name: str, state: Mapping[str, Any] | None = None) -> None:
        """Start anew, or from the sums of `state_dict`; `name` is what is counted, for messages."""
        self.name = name
        self._readback.forget()
        held: Mapping[str, Any] = {} if state is None else state
        self.steps = int(held.get("steps", 0))
        self.seconds = float(held.get("seconds", 0.0))
        self.learning_rate: float | None = held.get("learning_rate")
        images, hits = int(held.get("images", 0)), int(held.get("hits", 0))
        self._known = Counted(float(held.get("loss_sum", 0.0)), hits, images, self.steps, 0, 0.0)
        values = self.sums.device.upload(np.array(self._known, np.float64))
        self._set(values)

    def _set(self, values: Any) -> None:
        if isinstance(self.sums.array, np.ndarray):
            self.sums.array[...] = values
        else:
            self.sums.device.copy_into(self.sums.array, values)  # type: ignore[attr-defined]

    @property
    def loss(self) -> float:
        return self._known.loss / max(1, self.images)

    @property
    def accuracy(self) -> float:
        return self._known.hits / max(1, self.images)

    @property
    def images(self) -> int:
        return self._known.images

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Count a batch and read the sums; `TrainingError` if its loss is not finite."""
        count(self.sums, loss, logits, labels)
        self.read()

    def read(self) -> None:
        """Wait for the sums; `TrainingError` names the first step whose loss is not finite."""
        self._learn(self.sums.numpy())

    def poll(self) -> None:
        """Read the sums that were asked for last, if they have come, and ask for newer ones; never waits."""
        values = self._readback.latest()
        self._readback.request()
        if values is not None:
            self._learn(values)

    def _learn(self, values: Any) -> None:
        known = counted(values)
        if known.bad_step:
            why = "a lower learning rate usually helps"
            if known.classes:
                why = (
                    f"its label {known.bad_label} is out of range for {known.classes} classes, 0 to {known.classes - 1}"
                )
            raise TrainingError(f"{self.name}: the loss is {known.bad_loss} at step {known.bad_step}; {why}")
        self._known = known

    def state_dict(self) -> dict[str, Any]:
        """The sums, after reading what is on the device."""
        self.read()
        return {
            "steps": self.steps,
            "images": self.images,
            "seconds": self.seconds,
            "loss_sum": self._known.loss,
            "hits": self._known.hits,
            "learning_rate": self.learning_rate,
        }
