"""Loss, accuracy and numbers of the user's own over the steps of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.autograd.grad_mode import no_grad
from alpha.core.tensor import Tensor
from alpha.errors import TrainingError
from alpha.runtime import Device
from alpha.train.batches.device import COUNTED, Counted, count, counted

TALLIED = ("steps", "images", "seconds", "loss_sum", "hits")  # numbers of a tally's state
TALLIED_SINCE = ("learning_rate", "rated", "named")  # which older states have not


class NamedSums:
    """Sums of numbers that a step returns by name, each () of float64 on the device.

    They are apart from the rest of a `Tally`, since a captured step depends on all that it can reach.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self.sums: dict[str, Tensor] = {}

    def add(self, numbers: Mapping[str, Tensor], samples: int) -> None:
        """Add means over `samples` of a batch, on the device."""
        with no_grad():
            for name, value in numbers.items():
                self.of(name).add_(value.detach().double().reshape(()), alpha=samples)

    def of(self, name: str) -> Tensor:
        """The sum of this name, which begins at 0."""
        if name not in self.sums:
            self.sums[name] = Tensor(self._device.zeros((), np.float64))
        return self.sums[name]

    def numbers(self) -> dict[str, float]:
        """The sums by name; waits for the device."""
        return {name: float(total.item()) for name, total in self.sums.items()}


class Tally:
    """Sums over the steps so far, which stay on the device until they are read.

    Attributes:
        sums: what `alpha.train.batches.device.count` adds to.
        named: sums of the other numbers that a step returns.
        steps: the steps that were queued; the sums may not count all of them yet.
        seconds: what they took.
        learning_rate: that of the last step of training.
        bad_step: the number, from 1, of the step whose loss was not finite, if its labels do not explain it; else 0.
    """

    def __init__(self, device: Device) -> None:
        self.sums = Tensor(device.zeros((COUNTED,), np.float64))
        self.named = NamedSums(device)
        self._readback = device.readback(self.sums.array)
        self.begin("")

    def begin(self, name: str, state: Mapping[str, Any] | None = None) -> None:
        """Start anew, or from the sums of `state_dict`; `name` is what is counted, for messages."""
        self.name = name
        self.bad_step, self._bad = 0, Counted(0.0, 0, 0, 0, 0, 0.0)
        self._named_totals: dict[str, float] | None = None
        self._readback.forget()
        held: Mapping[str, Any] = {} if state is None else state
        self.steps = int(held.get("steps", 0))
        self.seconds = float(held.get("seconds", 0.0))
        self.learning_rate: float | None = held.get("learning_rate")
        images, hits = int(held.get("images", 0)), int(held.get("hits", 0))
        rated = int(held.get("rated", images))  # states of before counted only labelled images
        self._known = Counted(float(held.get("loss_sum", 0.0)), hits, images, self.steps, 0, 0.0, rated=rated)
        self._reported = self._known
        self._set(self.sums, self._known)
        named = dict(held.get("named", {}))
        for name in dict.fromkeys([*self.named.sums, *named]):
            self._set(self.named.of(name), float(named.get(name, 0.0)))

    def _set(self, target: Tensor, values: Any) -> None:
        values = np.array(values, np.float64)
        if isinstance(target.array, np.ndarray):
            target.array[...] = values
        else:
            device: Any = target.device
            device.copy_into(target.array, device.upload(values))

    def means(self) -> dict[str, float]:
        """Means of the named numbers over the samples so far; waits for the device."""
        return {name: total / max(1, self.images) for name, total in self._named().items()}

    def _named(self) -> dict[str, float]:
        """The sums of named numbers, of all processes after `sum_up`."""
        return self.named.numbers() if self._named_totals is None else self._named_totals

    def since_last(self) -> tuple[int, float] | None:
        """(number of steps that are counted, mean loss of those since the last call), or None if there are no more."""
        before, self._reported = self._reported, self._known
        if self._known.images <= before.images:
            self._reported = before
            return None
        loss = (self._known.loss - before.loss) / (self._known.images - before.images)
        return self._known.steps, loss

    @property
    def loss(self) -> float:
        return self._known.loss / max(1, self.images)

    @property
    def accuracy(self) -> float | None:
        """Share of the labelled rows that were right, or None if there were no labels of classes."""
        return self._known.hits / self._known.rated if self._known.rated else None

    @property
    def images(self) -> int:
        return self._known.images

    def explained(self, why: str) -> TrainingError:
        """The error of a loss that was read and is not finite, with its reason."""
        return TrainingError(f"{self.name}: the loss is {self._bad.bad_loss} at step {self._bad.bad_step}; {why}")

    def add(self, loss: Tensor, outputs: Any, targets: Any, samples: int, first: bool) -> None:
        """Count a batch and read the sums; `TrainingError` if its loss is not finite."""
        count(self.sums, loss, outputs, targets, samples, first)
        self.read()

    def read(self) -> None:
        """Wait for the sums; `TrainingError` names the first step whose loss is not finite."""
        self._learn(self.sums.numpy())

    def poll(self) -> None:
        """Read the sums that were asked for last, if they have come, and ask for newer ones; never waits."""
        values = self._readback.latest()
        self._readback.request()
        if values is not None and counted(values).steps >= self._known.steps:  # on the cpu more is known already
            self._learn(values)

    def _learn(self, values: Any) -> None:
        known = counted(values)
        if known.bad_step:
            self._bad, self.bad_step = known, known.bad_step
            why = "a lower learning rate usually helps"
            if known.classes:
                self.bad_step = 0
                why = (
                    f"its label {known.bad_label} is out of range for {known.classes} classes, 0 to {known.classes - 1}"
                )
            raise self.explained(why)
        self._known = known

    @property
    def names(self) -> list[str]:
        """The names of the other numbers that were counted here."""
        return list(self.named.sums)

    def sum_up(self, total: Callable[[NDArray[np.float64]], NDArray[np.float64]], names: Sequence[str]) -> None:
        """Count from now on what all processes have counted; the sums on the device stay those of this process.

        Args:
            total: gives the sums over the processes of an array.
            names: of the numbers that any of them has.
        """
        self.read()
        known, named = self._known, self.named.numbers()
        own = [known.loss, known.hits, known.images, known.rated, *(named.get(name, 0.0) for name in names)]
        loss, hits, images, rated, *others = total(np.array(own, np.float64)).tolist()
        self._known = known._replace(loss=loss, hits=int(hits), images=int(images), rated=int(rated))
        self._named_totals = dict(zip(names, others, strict=True))

    def state_dict(self) -> dict[str, Any]:
        """The sums, after reading what is on the device, or of all processes after `sum_up`."""
        if self._named_totals is None:
            self.read()
        return {
            "steps": self.steps,
            "images": self.images,
            "seconds": self.seconds,
            "loss_sum": self._known.loss,
            "hits": self._known.hits,
            "rated": self._known.rated,
            "named": self._named(),
            "learning_rate": self.learning_rate,
        }
