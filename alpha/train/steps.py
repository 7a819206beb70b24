"""Steps of a Trainer, as functions of the arguments that a feed gives.

They reach nothing of the Trainer but what they use, since a captured step depends on all that it can reach.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from alpha.core.tensor import Tensor
from alpha.module.module import Module
from alpha.nn.utils import clip_grad_norm_
from alpha.optim import Optimizer
from alpha.optim.swa_utils import AveragedModel
from alpha.train.batches.feed import Batch
from alpha.train.batches.host import pair, parts_of, samples_of
from alpha.train.metrics import Metric
from alpha.train.objective import Objective, UserStep, augmented, called, numbers_of, one_number

Step = Callable[..., None]
# The first counts (loss, outputs, targets, samples, whether a batch begins), the second (numbers by name, samples).
Counts = tuple[Callable[[Tensor, Any, Any, int, bool], None], Callable[[Mapping[str, Tensor], int], None]]


@dataclass(frozen=True)
class Update:
    """Use of the gradients of a batch: clip, step, and average the weights.

    Attributes:
        clip_norm: the largest norm of all gradients together, if there is one.
        averaged: the mean of the weights, if it is wanted.
    """

    model: Module
    optimizers: tuple[Optimizer, ...]
    clip_norm: float | None
    averaged: AveragedModel | None

    def __call__(self, has_gradient: bool) -> None:
        """Change the weights; a step that has updated them itself leaves no gradient."""
        if has_gradient:
            if self.clip_norm is not None:
                clip_grad_norm_(self.model.parameters(), self.clip_norm)
            for optimizer in self.optimizers:
                optimizer.step()
                optimizer.zero_grad()  # at once: the next forward pass may have the memory
        if self.averaged is not None:
            self.averaged.update_parameters(self.model)


def train_step_of(
    batch: Batch,
    objective: Objective,
    counts: Counts,
    update: Update,
    accumulate: int,
    before_last: Callable[[], AbstractContextManager[None]],
) -> Step:
    """Step that trains on a batch, in `accumulate` parts.

    Args:
        before_last: context of the parts before the last one.
    """
    add, add_named = counts

    def train_step(*arguments: Any) -> None:
        whole = batch(*arguments)
        samples = samples_of(whole)
        has_gradient = False
        parts = parts_of(whole, accumulate) if accumulate > 1 else [whole]
        for number, part in enumerate(parts):
            count = samples_of(part)
            loss, numbers, outputs, targets = objective(part)
            add(loss, outputs, targets, count, number == 0)
            add_named(numbers, count)
            if loss.requires_grad:
                has_gradient = True
                with before_last() if number < len(parts) - 1 else nullcontext():
                    (loss if count == samples else loss * (count / samples)).backward()
        update(has_gradient)

    return train_step


def evaluate_step_of(batch: Batch, objective: Objective, counts: Counts, metrics: Sequence[Metric]) -> Step:
    """Step that counts a batch of an evaluation."""
    add, add_named = counts

    def evaluate_step(*arguments: Any) -> None:
        values = batch(*arguments)
        count = samples_of(values)
        loss, numbers, outputs, targets = objective(values)
        add(loss, outputs, targets, count, True)
        add_named(numbers, count)
        for metric in metrics:
            metric.update(outputs, targets)

    return evaluate_step


def objective_of(
    loss_of: Callable[[Any, Any], Tensor], user_step: UserStep | None, model: Module, augment: Callable[..., Any] | None
) -> Objective:
    """Function of a batch that gives the loss, other numbers, and outputs and targets to rate."""

    def from_step(batch: Any) -> tuple[Tensor, Mapping[str, Tensor], Any, Any]:
        assert user_step is not None
        if augment is not None:
            batch = augmented(augment, *pair(batch))
        return *numbers_of(user_step(model, batch)), None, None

    def from_loss(batch: Any) -> tuple[Tensor, Mapping[str, Tensor], Any, Any]:
        inputs, targets = pair(batch)
        inputs, mixed = augmented(augment, inputs, targets)
        outputs = called(model, inputs)
        return one_number(loss_of(outputs, mixed)), {}, outputs, targets

    return from_loss if user_step is None else from_step
