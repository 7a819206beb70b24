"""The base of learning-rate schedules: which rate comes next, and what a checkpoint holds."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from alpha.core.host_values import is_integer
from alpha.errors import CheckpointError, type_name
from alpha.optim.hyper import Rule, natural, number, whole
from alpha.optim.optimizer import Optimizer

__all__ = ["LRScheduler"]


class LRScheduler:
    """Base: sets each group's "lr" at every step, from the rate of the step before and the first one.

    Args:
        optimizer: its groups' "lr" is set. The first schedule notes each group's lr as "initial_lr" in the group.
        last_epoch: the number of the last step; -1 begins anew, and another one needs the optimizer's loaded state.

    Attributes:
        base_lrs: the first learning rate of each group.
        last_epoch: the number of steps done.

    A subclass defines `get_lr`, which gives the rates of the first step, too, with last_epoch 0. Its state holds those
    of its attributes that are numbers, texts, or lists, tuples and dicts of these.

    Alpha's schedules name the rules of their arguments and of their other numbers in `rules`, and define `_lr` or
    `get_lr`. In `per_group` they name their lists of one value per group, and the arguments that they come from; in
    `functions` attributes that hold a function or None, which no state has.
    """

    _begins = False  # while the rates of the first step are set
    rules: ClassVar[Mapping[str, Rule]] = {}
    per_group: ClassVar[Mapping[str, str]] = {}
    functions: ClassVar[tuple[str, ...]] = ()

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self._take_optimizer(optimizer)
        if not is_integer(last_epoch) or last_epoch < -1:
            raise ValueError(f"{self._name}: last_epoch={last_epoch!r} is not a whole number of at least -1")
        for number_, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ValueError(
                    f"{self._name}: last_epoch={last_epoch} goes on with a run, "
                    f"but group {number_} of the optimizer has no 'initial_lr'"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = int(last_epoch) + 1
        self._begin()

    @property
    def _name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        rates = ", ".join(f"{float(group['lr']):.4g}" for group in self.optimizer.param_groups)
        return f"{self._name}(after {self.last_epoch} steps, lr {rates})"

    def _take_optimizer(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{self._name}: {type(optimizer).__name__} is not an Alpha optimizer")
        self.optimizer = optimizer

    def _take(self, **arguments: Any) -> None:
        """Keep the arguments as attributes after a check by their rules."""
        problems = []
        for name, value in arguments.items():
            try:
                setattr(self, name, self.rules[name](value))
            except (TypeError, ValueError) as error:
                problems.append(f"{name}={value!r} {error}")
        if problems:
            raise ValueError(f"{self._name}: {'; '.join(problems)}")

    def _per_group(self, name: str, value: Any) -> list[Any]:
        """One value per group: those of a list, or the same one for all."""
        groups = len(self.optimizer.param_groups)
        values = list(value) if isinstance(value, (list, tuple)) else [value] * groups
        if len(values) != groups:
            raise ValueError(f"{self._name}: {name} has {len(values)} values, the optimizer {groups} groups")
        return values

    # -- rates --------------------------------------------------------------------------------

    def _lr(self, lr: float, base: float) -> float:
        """The rate of a group after `last_epoch` steps, from its rate before and its first one."""
        raise TypeError(f"{self._name} defines no learning rate")

    def _first_lr(self, lr: float, base: float) -> float:
        """The rate with which a group begins. Here `last_epoch` is 0, or the steps that an earlier run has done."""
        return lr

    def get_lr(self) -> list[float]:
        """The rates of the groups after `last_epoch` steps, in the constructor those with which they begin."""
        if self._begins:
            return self.get_first_lr()
        groups = self.optimizer.param_groups
        return [self._lr(group["lr"], base) for group, base in zip(groups, self.base_lrs, strict=True)]

    def get_first_lr(self) -> list[float]:
        """The rates with which the groups begin."""
        groups = self.optimizer.param_groups
        return [self._first_lr(group["lr"], base) for group, base in zip(groups, self.base_lrs, strict=True)]

    def _begin(self) -> None:
        """Set the rates of the first optimizer step."""
        self._begins = True
        try:
            self._set(self.get_lr() if _is_own(type(self), "get_lr") else self.get_first_lr())
        finally:
            del self._begins

    def restart(self) -> None:
        """Begin anew from the first rates, as `SequentialLR` does at a milestone."""
        self._check_groups()
        self.last_epoch = 0
        self._note_new_groups()
        self._set(self.base_lrs)
        self._begin()

    def step(self) -> None:
        """Set the learning rates for the next optimizer step.

        Raises:
            ValueError: the optimizer has got a group for which the schedule has no value; nothing has changed then.
        """
        self._check_groups()
        self.last_epoch += 1
        self._note_new_groups()
        self._set(self.get_lr())

    def _check_groups(self) -> None:
        """Refuse groups that were added after the schedule was made if it needs values for them."""
        groups = len(self.optimizer.param_groups)
        wrong = {name: argument for name, argument in self.per_group.items() if len(getattr(self, name)) != groups}
        if wrong:
            argument, count = next(iter(wrong.values())), len(getattr(self, next(iter(wrong))))
            raise ValueError(
                f"{self._name}: {argument} has {count} values, the optimizer {groups} groups; call add_param_group "
                f"before the schedule is made, or append a value for each new group to {', '.join(wrong)} of the "
                "schedule"
            )

    def _note_new_groups(self) -> None:
        for group in self.optimizer.param_groups[len(self.base_lrs) :]:
            self.base_lrs.append(group.setdefault("initial_lr", group["lr"]))

    def _set(self, rates: Sequence[float]) -> None:
        self._last_lr = [float(rate) for rate in rates]
        for group, rate in zip(self.optimizer.param_groups, self._last_lr, strict=True):
            group["lr"] = rate

    def get_last_lr(self) -> list[float]:
        """The learning rate that the last `step()` set, for each group."""
        return list(self._last_lr)

    # -- checkpoints --------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The numbers, texts and lists that resuming needs beside the optimizer's state; functions are not in it.

        A warning names other attributes of a program's own subclass, which it cannot hold.
        """
        lost = [name for name, value in self._kept_by_subclass().items() if not _is_plain(value)]
        if lost:
            text = f"its state does not hold {', '.join(lost)}; a run that goes on has it from a new schedule"
            warnings.warn(f"{self._name}: {text}", UserWarning, stacklevel=2)
        return {
            "schedule": self._name,
            "last_epoch": self.last_epoch,
            "base_lrs": list(self.base_lrs),
            "last_lr": list(self._last_lr),
            **{name: _copied(getattr(self, name)) for name in self.rules},
            **self._own_attributes(),
        }

    def _own_attributes(self) -> dict[str, Any]:
        """Copies of the plain attributes that a program's own subclass holds, by name."""
        return {name: copy.deepcopy(value) for name, value in self._kept_by_subclass().items() if _is_plain(value)}

    def _kept_by_subclass(self) -> dict[str, Any]:
        """Attributes of a program's own subclass by name, without functions."""
        if _is_alphas(type(self)):
            return {}
        known = {"optimizer", "base_lrs", "last_epoch", "_last_lr", *self.rules, *self.per_group, *self.functions}
        return {name: value for name, value in vars(self).items() if name not in known and not _is_code(value)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a `state_dict()` of the same kind of schedule; load the optimizer's state, too.

        Raises:
            CheckpointError: lists every mismatch at once; nothing has changed then.
        """
        if not isinstance(state_dict, Mapping):
            kind = type_name(state_dict)
            raise TypeError(f"{self._name}: the state is a {kind}, not a dict; give what state_dict() returned")
        problems = self._problems(state_dict)
        if problems:
            text = "\n  ".join(["", *problems]) if len(problems) > 1 else f" {problems[0]}"
            raise CheckpointError(f"{self._name}: state does not fit:{text}")
        self._load(state_dict)

    def _load(self, state: Mapping[str, Any]) -> None:
        """Take over a state that fits."""
        for name, rule in self.rules.items():
            setattr(self, name, rule(state[name]))
        for name in self._own_attributes():
            setattr(self, name, copy.deepcopy(state[name]))
        self.last_epoch = state["last_epoch"]
        self.base_lrs, self._last_lr = list(state["base_lrs"]), list(state["last_lr"])

    def _problems(self, state: Mapping[str, Any]) -> list[str]:
        """A text for each fault of a state; none if it fits."""
        if state.get("schedule") != self._name:
            kind = f"that of {state['schedule']}" if "schedule" in state else "not that of an Alpha schedule"
            return [f"it is {kind}; a run goes on with the kind of schedule that it began with"]
        own = self.state_dict()
        problems = [f"{name} is missing" for name in own if name not in state]
        problems += [f"{name} is unknown" for name in state if name not in own]
        if problems:
            return problems
        for name, rule in {"last_epoch": whole, **self.rules}.items():
            try:
                rule(state[name])
            except (TypeError, ValueError) as error:
                problems.append(f"{name}={state[name]!r} {error}")
        groups = len(self.optimizer.param_groups)
        for name in self.per_group:
            if name in state and isinstance(state[name], (list, tuple)) and len(state[name]) != groups:
                problems.append(f"{name}={state[name]!r} is not a list of {groups} numbers")
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


def _is_alphas(kind: type) -> bool:
    return kind.__module__.startswith("alpha.")


def _is_own(kind: type, name: str) -> bool:
    """True if a class has a method from a program's own class."""
    return not _is_alphas(next(cls for cls in kind.__mro__ if name in vars(cls)))


def _is_code(value: Any) -> bool:
    """True for functions and schedules, and for sequences of them."""
    parts = value if isinstance(value, (list, tuple)) and value else [value]
    return all(callable(part) or isinstance(part, LRScheduler) for part in parts)


def _is_plain(value: Any) -> bool:
    """True for what a file of Alpha's can hold beside tensors."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(part) for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return all(_is_plain(part) for part in value)
    return value is None or isinstance(value, (bool, int, float, str))


def _copied(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value


# -- rules of arguments ---------------------------------------------------------------------------


def numbers(value: Any) -> list[float]:
    """A list of finite numbers."""
    if not isinstance(value, (list, tuple)):
        raise TypeError("is not a list of numbers")
    return [number(part) for part in value]


def wholes(value: Any) -> list[int]:
    """Whole numbers of at least 0, sorted."""
    return sorted(whole(part) for part in value)


def one_of(*names: str) -> Rule:
    """One of these texts."""

    def rule(value: Any) -> str:
        if value not in names:
            raise ValueError(f"is not one of {', '.join(names)}")
        return str(value)

    return rule


def between(least: float, most: float) -> Rule:
    """A number from least to most."""

    def rule(value: Any) -> float:
        checked = number(value)
        if not least <= checked <= most:
            raise ValueError(f"is not between {least} and {most}")
        return checked

    return rule
