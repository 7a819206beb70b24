"""`alpha.Generator`: random numbers that follow from a seed of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alpha.core import rng
from alpha.core.host_values import is_integer
from alpha.core.rng import Stream, Substream
from alpha.errors import type_name
from alpha.runtime import get_device
from alpha.runtime.recording import StepValue, refuse

__all__ = ["Generator"]

FIRST = 67280421310721  # PyTorch's seed of a new generator


class Generator:
    """Random numbers beside those of the program: `alpha.randn(3, generator=alpha.Generator().manual_seed(1))`.

    They follow from the seed and the number of draws so far, on any device. Data sets, samplers and loaders take one
    for a seed, which is its next draw. A captured step draws from the program's own random numbers only.

    Args:
        device: is checked and kept; the numbers are the same on each.
    """

    def __init__(self, device: Any = "cpu") -> None:
        self.device = get_device(device)
        self._place, self._seed = Substream(), FIRST
        self.manual_seed(FIRST)

    def __repr__(self) -> str:
        return f"Generator(seed {self._seed}, {self._place.stream} draws done, device={self.device.name!r})"

    def manual_seed(self, seed: int) -> Generator:
        """Begin anew from a seed and return the generator."""
        if not is_integer(seed):
            raise TypeError(f"manual_seed: seed is a {type_name(seed)}, a whole number is needed")
        self._seed = int(seed)
        self._place.move(self._seed & 0xFFFFFFFFFFFFFFFF, 0)
        return self

    def initial_seed(self) -> int:
        """The seed."""
        return self._seed

    def get_state(self) -> dict[str, int]:
        """The seed and the number of draws so far, as `alpha.get_rng_state` gives those of the program."""
        return {"seed": self._place.key, "stream": self._place.stream}

    def set_state(self, state: Mapping[str, int]) -> None:
        """Go on from a `get_state()`."""
        with rng.within(self._place):
            rng.set_rng_state(state)

    def next_stream(self) -> Stream:
        """A fresh draw."""
        refuse("random numbers of a Generator are drawn")
        with rng.within(self._place):
            return rng.default.next_stream()

    def next_seed(self) -> int:
        """A fresh draw as a seed from 0 up to, and without, 2^63."""
        return rng.seed_of(self.next_stream())


def next_stream(operator: str, generator: Generator | None) -> StepValue[Stream]:
    """A fresh draw of the generator, or of the program if there is none."""
    if generator is None:
        return rng.default.step_stream()
    if not isinstance(generator, Generator):
        raise TypeError(f"{operator}: generator is a {type_name(generator)}, an alpha.Generator or None is needed")
    stream = generator.next_stream()
    return StepValue(lambda: stream)
