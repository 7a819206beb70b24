"""The state of the host before a run of a step, to see what the step changes there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from alpha.autograd.shares import reduced_now, restore_reduced
from alpha.optim.optimizer import Optimizer
from alpha.step.sources.kinds import is_a
from alpha.step.sources.watch import Watch


class HostState:
    """The state of the host before a run of a step, to see what the step changes there.

    A replay changes nothing on the host but what operators and optimizers say (`recording.again`), so a step that
    counts, collects or draws random numbers in Python is not captured.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._python, self._numpy = random.getstate(), _numpy_state()
        self._reduced = reduced_now()
        states = [(value, _state(value)) for value in watch.reached]
        self._generators = [(value, state) for value, state in states if state is not None]
        self._optimizers = [
            (value.state, {parameter: (slots, slots.copy()) for parameter, slots in value.state.items()})
            for value in watch.reached
            if is_a(value, Optimizer)
        ]
        self._versions = [
            (tensor._version, tensor._version.value, tensor._version.recorded, tensor._version.writer)
            for tensor in watch.tensors
        ]

    def changes(self) -> list[str]:
        """Changes that the step has made, in words."""
        found = []
        if change := self._watch.change(by_step=True):
            found.append(f"it changes {change}")
        if _numpy_state() != self._numpy:
            found.append("it draws random numbers of numpy.random on the host")
        if random.getstate() != self._python:
            found.append("it draws random numbers of Python's random on the host")
        if any(_state(generator) != state for generator, state in self._generators):
            found.append("it draws random numbers of a generator on the host")
        return found

    def states(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """The states of parameters in optimizers, each with what it was."""
        for _, before in self._optimizers:
            yield from before.values()

    def restore(self) -> None:
        """Take back what a step that was only recorded has done to optimizers and to the versions of tensors."""
        restore_reduced(self._reduced)
        for state, before in self._optimizers:
            for parameter in [parameter for parameter in state if parameter not in before]:
                del state[parameter]
            for slots, values in before.values():
                slots.clear()
                slots.update(values)
        for version, value, recorded, writer in self._versions:
            version.value, version.recorded, version.writer = value, recorded, writer


def _numpy_state() -> tuple[Any, ...]:
    name, words, *rest = np.random.get_state(legacy=True)
    return name, np.asarray(words).tobytes(), *rest


def _state(value: Any) -> Any:
    """The state of a random generator; None of anything else."""
    if is_a(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if is_a(value, np.random.RandomState):
        return repr(value.get_state(legacy=False))
    if is_a(value, np.random.BitGenerator):
        return repr(value.state)
    if is_a(value, np.random.SeedSequence):
        return repr(value)
    return value.getstate() if is_a(value, random.Random) and not is_a(value, random.SystemRandom) else None
