"""Settings of a Trainer, and what its step computes of a batch: outputs, the loss, numbers that are recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar

from alpha.core.tensor import Tensor
from alpha.data.checks import whole_number
from alpha.errors import type_name
from alpha.module.module import Module
from alpha.ops.kernel.options import real
from alpha.train.schedules import EPOCH, STEP
from alpha.transforms import takes_targets
from alpha.transforms.compose import check_targets_stay

T = TypeVar("T")
UserStep = Callable[[Module, Any], Tensor | Mapping[str, Tensor]]
# of a batch: the loss, other numbers by name, and outputs and targets to rate
Objective = Callable[[Any], tuple[Tensor, Mapping[str, Tensor], Any, Any]]

LOSS = "loss"


class Settings(TypedDict, total=False):
    """Arguments of a `Trainer` that are given by name; its docstring says what they mean."""

    step: UserStep | None
    evaluate_step: UserStep | None
    metrics: Mapping[str, Any] | None
    accumulate: int
    clip_norm: float | None
    ema: float | None
    schedule_per: str
    memory_mode: str | None


DEFAULTS: Settings = {
    "step": None,
    "evaluate_step": None,
    "metrics": None,
    "accumulate": 1,
    "clip_norm": None,
    "ema": None,
    "schedule_per": STEP,
    "memory_mode": None,
}


def settings_of(given: Settings) -> Settings:
    """All settings, checked.

    Raises:
        TypeError: there is no such setting.
        ValueError: a setting means nothing.
    """
    unknown = [name for name in given if name not in DEFAULTS]
    if unknown:
        raise TypeError(f"Trainer: there is no argument {unknown[0]!r}; by name there are {', '.join(DEFAULTS)}")
    chosen: Settings = {**DEFAULTS, **given}
    if chosen["step"] is not None and chosen["metrics"]:
        raise ValueError(METRICS_OF_STEP)
    return {name: checked(name, value) for name, value in chosen.items()}  # type: ignore[return-value]


METRICS_OF_STEP = "Trainer: metrics need the outputs of loss=; a step returns its own numbers by name"


def checked(name: str, value: Any) -> Any:
    """The value of a setting, if it means something; raises as `settings_of`."""
    if name == "accumulate":
        return whole_number("Trainer", name, value, 1)
    if name == "clip_norm" and value is not None and real("Trainer", name, value) <= 0:
        raise ValueError(f"Trainer: clip_norm={value} is not above 0")
    if name == "ema" and value is not None and not 0 <= real("Trainer", name, value) < 1:
        raise ValueError(f"Trainer: ema={value} is not in [0, 1)")
    if name == "schedule_per" and value not in (STEP, EPOCH):
        raise ValueError(f"Trainer: schedule_per is {value!r}, expected {STEP!r} or {EPOCH!r}")
    return value


def several(name: str, values: T | Sequence[T], kind: type) -> tuple[T, ...]:
    """One value, or a sequence of them, as a tuple. Raises TypeError if one of them is of another kind."""
    found = (values,) if isinstance(values, kind) else values
    if not isinstance(found, Sequence) or not found or not all(isinstance(value, kind) for value in found):
        raise TypeError(f"Trainer: {name} is a {type_name(values)}, expected {kind.__name__} or a sequence of them")
    return tuple(found)


def called(model: Module, inputs: Any) -> Any:
    """Outputs of a model: of a tuple as its arguments, of a dict as its arguments by name, of anything else as one."""
    if isinstance(inputs, tuple):
        return model(*inputs)
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(inputs)


def augmented(augment: Callable[..., Any] | None, inputs: Any, targets: Any) -> tuple[Any, Any]:
    """Inputs and targets after an augmentation, which changes the inputs alone or both."""
    if augment is None:
        return inputs, targets
    if not takes_targets(augment):
        check_targets_stay(augment, inputs, targets)
        return augment(inputs), targets
    both = augment(inputs, targets)
    if targets is None and isinstance(both, Tensor):  # of inputs alone, as for a prediction
        return both, None
    if not isinstance(both, tuple) or len(both) != 2:
        raise TypeError(f"Trainer: augment takes inputs and targets, so it must return both, not a {type_name(both)}")
    return both


def numbers_of(returned: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
    """The loss that a step returned, and its other numbers by name."""
    if not isinstance(returned, Mapping):
        return one_number(returned, "step"), {}
    if LOSS not in returned:
        raise ValueError(f'Trainer: step returned {", ".join(map(str, returned)) or "nothing"}, but no "{LOSS}"')
    numbers = {str(name): one_number(value, f"step's {name!r}") for name, value in returned.items()}
    return numbers.pop(LOSS), numbers


def one_number(value: Any, whose: str = "loss") -> Tensor:
    """The tensor () that a function returned. Raises TypeError or ValueError for anything else."""
    if not isinstance(value, Tensor):
        raise TypeError(f"Trainer: {whose} is a {type_name(value)}, expected a Tensor (), the mean of the batch")
    if value.size != 1:
        raise ValueError(
            f"Trainer: {whose} has shape {value.shape}, expected one number, such as the mean of the batch"
        )
    return value


def writes(model: Module) -> int:
    """Number that grows when a parameter of a model is written."""
    return sum(parameter._version.value for parameter in model.parameters())
