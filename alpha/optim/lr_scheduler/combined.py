"""Schedules made of others: one after the other, or several at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from alpha.errors import type_name
from alpha.optim.hyper import Rule
from alpha.optim.lr_scheduler.base import LRScheduler, wholes
from alpha.optim.lr_scheduler.plateau import ReduceLROnPlateau
from alpha.optim.optimizer import Optimizer

__all__ = ["ChainedScheduler", "SequentialLR"]


class _Combined(LRScheduler):
    """A schedule with others of the same optimizer."""

    schedulers: list[LRScheduler]

    def _take_schedulers(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler]) -> None:
        self._take_optimizer(optimizer)
        for index, scheduler in enumerate(schedulers):
            if not isinstance(scheduler, LRScheduler) or isinstance(scheduler, ReduceLROnPlateau):
                raise TypeError(f"{self._name}: schedule {index}, a {type(scheduler).__name__}, cannot be one")
            if scheduler.optimizer is not optimizer:
                raise ValueError(f"{self._name}: schedule {index} ({scheduler._name}) has another optimizer")
        self.schedulers = list(schedulers)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "schedulers": [scheduler.state_dict() for scheduler in self.schedulers]}

    def _problems(self, state: Mapping[str, Any]) -> list[str]:
        problems = super()._problems(state)
        if state.get("schedule") != self._name:
            return problems
        parts = state.get("schedulers", [])
        if not isinstance(parts, (list, tuple)):
            return [*problems, f"schedulers is a {type_name(parts)}, not a list"]
        if len(parts) != len(self.schedulers):
            return [*problems, f"it has {len(parts)} schedules, not {len(self.schedulers)}"]
        for index, (scheduler, part) in enumerate(zip(self.schedulers, parts, strict=True)):
            if not isinstance(part, Mapping):
                problems.append(f"schedule {index}: it is a {type_name(part)}, not a dict")
                continue
            problems += [f"schedule {index}: {problem}" for problem in scheduler._problems(part)]
        return problems

    def _load(self, state: Mapping[str, Any]) -> None:
        super()._load(state)
        for scheduler, part in zip(self.schedulers, state["schedulers"], strict=True):
            scheduler._load(part)


class SequentialLR(_Combined):
    """One schedule after the other, each beginning anew at its milestone.

    Args:
        optimizer: that of all schedules.
        schedulers: the schedules.
        milestones: the numbers of steps at which the second one begins, the third one, and so on.
        last_epoch: only -1; a run goes on with `load_state_dict`.
    """

    rules: ClassVar[Mapping[str, Rule]] = {"milestones": wholes}
    milestones: list[int]

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ) -> None:
        if last_epoch != -1:
            raise ValueError(f"{self._name}: last_epoch={last_epoch!r} is not offered; only -1, use load_state_dict")
        self._take_schedulers(optimizer, schedulers)
        self._take(milestones=milestones)
        if len(self.milestones) != len(self.schedulers) - 1:
            raise ValueError(
                f"{self._name}: {len(self.schedulers)} schedules need {max(0, len(self.schedulers) - 1)} milestones, "
                f"not {len(self.milestones)}"
            )
        super().__init__(optimizer)

    def _current(self) -> int:
        return bisect_right(self.milestones, self.last_epoch)

    def _begin(self) -> None:
        self._advance(self.schedulers[self._current()], again=True)

    def _check_groups(self) -> None:
        self.schedulers[bisect_right(self.milestones, self.last_epoch + 1)]._check_groups()

    def step(self) -> None:
        self._check_groups()
        self.last_epoch += 1
        self._advance(self.schedulers[self._current()], again=self.last_epoch in self.milestones)

    def _advance(self, scheduler: LRScheduler, again: bool) -> None:
        if again:
            scheduler.restart()
        else:
            scheduler.step()
        self._note_new_groups()
        self._last_lr = scheduler.get_last_lr()

    def restart(self) -> None:
        self.schedulers[0]._check_groups()
        self.last_epoch = 0
        self._begin()


class ChainedScheduler(_Combined):
    """Several schedules at once: each step is a step of all, in their order.

    Args:
        schedulers: schedules of one optimizer. Those that compute their rate from the first one, such as `LambdaLR`,
            undo what the schedules before them did; give them first.
        optimizer: that of the schedules, which may be left out.
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if not schedulers:
            raise ValueError(f"{self._name}: there are no schedules")
        self._take_schedulers(optimizer or schedulers[0].optimizer, schedulers)
        super().__init__(self.optimizer)

    def _check_groups(self) -> None:
        for scheduler in self.schedulers:
            scheduler._check_groups()

    def step(self) -> None:
        self._check_groups()
        self.last_epoch += 1
        for scheduler in self.schedulers:
            scheduler.step()
        self._note_new_groups()
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def restart(self) -> None:
        """Begin anew: each schedule multiplies what the ones before it begin with."""
        self._check_groups()
        self.last_epoch = 0
        self._note_new_groups()
        self._set(self.base_lrs)
        for scheduler in self.schedulers:
            scheduler.last_epoch = 0
            scheduler._begin()
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]
