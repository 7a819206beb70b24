"""Learning-rate schedules: call `step()` after each optimizer step, or after each epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from alpha.errors import CheckpointError
from alpha.optim.hyper import natural
from alpha.optim.optimizer import Optimizer

__all__ = ["CosineAnnealingLR", "LRScheduler"]


class LRScheduler:
    """Base: sets each group's "lr" to `_lr(first lr)` at every step.

    Args:
        optimizer: its groups' "lr" is set. The first schedule notes each group's lr as "initial_lr" in the group.
        last_epoch: the number of the last step; -1 begins anew, and another one needs the optimizer's loaded state.

    Attributes:
        base_lrs: the first learning rate of each group.
        last_epoch: the number of steps done.
    """

    arguments: tuple[str, ...] = ()  # attributes that, with the base rates and the steps done, give the lr

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{self._name}: {type(optimizer).__name__} is not an Alpha optimizer")
        if not isinstance(last_epoch, int) or isinstance(last_epoch, bool) or last_epoch < -1:
            raise ValueError(f"{self._name}: last_epoch={last_epoch!r} is not a whole number of at least -1")
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ValueError(
                    f"{self._name}: last_epoch={last_epoch} goes on with a run, "
                    f"but group {number} of the optimizer has no 'initial_lr'"
                )
        self.optimizer = optimizer
        self.last_epoch = last_epoch + 1
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self._last_lr = [group["lr"] for group in optimizer.param_groups]

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _lr(self, base: float) -> float:
        """The learning rate of a group, of its first one, after `last_epoch` steps."""
        raise TypeError(f"{self._name} defines no learning rate")

    def step(self) -> None:
        """Set the learning rates for the next optimizer step."""
        self.last_epoch += 1
        for group in self.optimizer.param_groups[len(self.base_lrs) :]:  # added since
            self.base_lrs.append(group.setdefault("initial_lr", group["lr"]))
        for group, base in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = self._lr(base)
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def get_last_lr(self) -> list[float]:
        """The learning rate that the last `step()` set, for each group."""
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """What resuming needs beside the optimizer's state; numbers and strings only."""
        state = {name: getattr(self, name) for name in self.arguments}
        return {
            "schedule": self._name,
            "last_epoch": self.last_epoch,
            "base_lrs": list(self.base_lrs),
            "last_lr": list(self._last_lr),
            **state,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a `state_dict()` of the same kind of schedule; load the optimizer's state, too.

        Raises:
            CheckpointError: lists every mismatch at once; nothing has changed then.
        """
        own = self.state_dict()
        problems = [f"{name} is missing" for name in own if name not in state_dict]
        problems += [f"{name} is unknown" for name in state_dict if name not in own]
        if not problems:
            if state_dict["schedule"] != self._name:
                problems.append(f"it is that of {state_dict['schedule']}")
            problems += self._problems(state_dict)
        if problems:
            raise CheckpointError(f"{self._name}: state does not fit:\n  " + "\n  ".join(problems))
        for name in self.arguments:
            setattr(self, name, state_dict[name])
        self.last_epoch = state_dict["last_epoch"]
        self.base_lrs, self._last_lr = list(state_dict["base_lrs"]), list(state_dict["last_lr"])

    def _problems(self, state: Mapping[str, Any]) -> list[str]:
        """What is wrong with the values of a state."""
        problems = []
        done = state["last_epoch"]
        if not isinstance(done, int) or isinstance(done, bool) or done < 0:
            problems.append(f"last_epoch={done!r} is not a whole number of at least 0")
        groups = len(self.optimizer.param_groups)
        for name in ("base_lrs", "last_lr"):
            rates = state[name]
            if not isinstance(rates, (list, tuple)) or len(rates) != groups:
                problems.append(f"{name}={rates!r} is not a list of {groups} numbers")
                continue
            try:
                for rate in rates:
                    natural(rate)
            except (TypeError, ValueError) as error:
                problems.append(f"{name}={rates!r}: one {error}")
        return problems


class CosineAnnealingLR(LRScheduler):
    """lr goes from its first value to `eta_min` and back along a cosine, as in PyTorch, without restarts.

    lr = eta_min + (first - eta_min) (1 + cos(pi steps / T_max)) / 2   (Loshchilov & Hutter, ICLR 2017)

    Args:
        optimizer: its groups' "lr" is set.
        T_max: steps until `eta_min` is reached. After 2 T_max steps lr has its first value again.
        eta_min: the least learning rate.
        last_epoch: the number of the last step; -1 begins anew.
    """

    arguments = ("T_max", "eta_min")

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = int(T_max) if isinstance(T_max, np.integer) else T_max, eta_min
        problems = self._argument_problems(vars(self))
        if problems:
            raise ValueError(f"{self._name}: {'; '.join(problems)}")
        super().__init__(optimizer, last_epoch)

    def _lr(self, base: float) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2

    def _problems(self, state: Mapping[str, Any]) -> list[str]:
        return super()._problems(state) + self._argument_problems(state)

    @staticmethod
    def _argument_problems(values: Mapping[str, Any]) -> list[str]:
        problems, steps, least = [], values["T_max"], values["eta_min"]
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
            problems.append(f"T_max={steps!r} is not a whole number of at least 1")
        try:
            natural(least)
        except (TypeError, ValueError) as error:
            problems.append(f"eta_min={least!r} {error}")
        return problems
