"""Counter-based random numbers: the same on every device, a function of (seed, stream, index) only.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). A stream is
one draw: each call of an operator that needs random numbers takes the next stream, so that a mask
can be drawn again from its number in place of being stored.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from alpha.autograd.recompute import repeating
from alpha.autograd.recompute import state as runs
from alpha.runtime import fork
from alpha.runtime.ranks import rank
from alpha.runtime.recording import StepValue, again, refuse

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)


class Stream(NamedTuple):
    """One draw: the key, which is the seed, and the number of the stream."""

    key: int
    number: int


class Substream:
    """The seed and the number of the next stream of a part of a program, which follow from `numbers` alone.

    A loader has one for each item: many threads make items, in any order.
    """

    __slots__ = ("_key", "_numbers", "stream")

    def __init__(self, *numbers: int | None) -> None:
        self._numbers, self._key = numbers, -1
        self.stream = 0

    @property
    def key(self) -> int:
        if self._key < 0:  # many a part draws nothing
            digest = hashlib.blake2b(repr(self._numbers).encode(), digest_size=8).digest()
            self._key = int.from_bytes(digest, "little")
        return self._key

    def move(self, key: int, stream: int) -> None:
        self._key, self.stream = key, stream


class _Thread(threading.local):
    place: Substream | None = None


_thread = _Thread()
_RANK_STEP = 0x9E3779B97F4A7C15  # between the keys of two ranks


@contextmanager
def within(place: Substream) -> Iterator[None]:
    """Context in which this thread draws from `place`, and its seeds and states are those of `place`."""
    before, _thread.place = _thread.place, place
    try:
        yield
    finally:
        _thread.place = before


class Generator:
    """The seed and the number of the next stream, of the program or of the `Substream` within which a thread is.

    The second run of a function under `alpha.checkpoint` gets the streams of the first, and changes nothing here.
    """

    def __init__(self, seed: int = 0) -> None:
        self._lock = fork.held_across(threading.Lock())
        self._own = Substream()
        self.seed(seed)

    @property
    def _place(self) -> Substream:
        return _thread.place or self._own

    @property
    def key(self) -> int:
        """The seed."""
        return self._place.key

    def seed(self, seed: int) -> None:
        refuse("random numbers are seeded")
        if repeating():
            return
        with self._lock:
            self._place.move(int(seed) & 0xFFFFFFFFFFFFFFFF, 0)

    def state(self) -> dict[str, int]:
        with self._lock:
            return {"seed": self._place.key, "stream": self._place.stream}

    def set_state(self, state: Mapping[str, int]) -> None:
        wrong = not isinstance(state, Mapping) or set(state) != {"seed", "stream"}
        if wrong or not all(type(value) is int and 0 <= value < 2**64 for value in state.values()):
            raise ValueError(f"set_rng_state: {state!r} is not what get_rng_state returns")
        if repeating():
            return
        with self._lock:
            self._place.move(state["seed"], state["stream"])

    def next_stream(self) -> Stream:
        """A fresh draw."""
        return self._take() if runs.run is None else runs.run.draw(self._take)

    def step_stream(self) -> StepValue[Stream]:
        """A fresh draw, and another one at each replay of a captured step, as if the step had run again."""
        return self._take_each_step() if runs.run is None else runs.run.draw(self._take_each_step)

    def _take(self) -> Stream:
        with self._lock:
            place = self._place
            place.stream += 1
            return Stream(place.key, place.stream - 1)

    def _take_here(self) -> Stream:
        """A fresh draw that differs from what the other ranks draw from the same seed.

        Initial weights, seeds of loaders and the state of the random numbers are the same on all ranks.
        """
        key, number = self._take()
        return Stream(key if _thread.place else (key + rank() * _RANK_STEP) & 0xFFFFFFFFFFFFFFFF, number)

    def _take_each_step(self) -> StepValue[Stream]:
        drawn = [self._take_here()]

        def draw() -> None:
            drawn[0] = self._take_here()

        again(draw)
        return StepValue(lambda: drawn[0])


default = Generator()


def fresh_seed() -> int:
    """A seed from 0 up to, and without, 2^63, which is a fresh draw: another one each time."""
    refuse("a seed is drawn, as for the order of a data set")
    return seed_of(default.next_stream())


def coming_seed() -> int:
    """The seed that `fresh_seed` will give if nothing else is drawn before; nothing is drawn here."""
    state = default.state()
    return seed_of(Stream(state["seed"], state["stream"]))


def seed_of(stream: Stream) -> int:
    """A draw as a seed from 0 up to, and without, 2^63."""
    return Substream(*stream).key >> 1


def split(count: int) -> list[Substream]:
    """A place for each of `count` parts that several threads make at once; they follow from one fresh draw."""
    key, stream = default.next_stream()
    return [Substream(key, stream, part) for part in range(count)]


def manual_seed(seed: int) -> None:
    """Start every later draw (initialisation, dropout) from `seed`.

    In the code that makes the items of a loader it acts on the later draws of that item alone.

    Examples:
        >>> import alpha
        >>> alpha.manual_seed(0)
        >>> first = alpha.rand(3)
        >>> alpha.manual_seed(0)
        >>> alpha.equal(first, alpha.rand(3))
        True
    """
    default.seed(seed)


def get_rng_state() -> dict[str, int]:
    """The seed and the number of draws so far, as JSON can hold them; see `set_rng_state`."""
    refuse("the state of the random numbers is read")
    return default.state()


def set_rng_state(state: Mapping[str, int]) -> None:
    """Go on from a `get_rng_state()`: later draws are those that followed it.

    Raises:
        ValueError: the state is not {"seed": .., "stream": ..}, two whole numbers of at least 0 below 2**64.
    """
    refuse("random numbers are seeded")
    default.set_state(state)


def philox(key: int, stream: int, blocks: int, start: int = 0) -> npt.NDArray[np.uint32]:
    """(blocks, 4) words: block i is Philox4x32-10 of the counter (start + i, stream)."""
    index = np.arange(start, start + blocks, dtype=np.uint64)
    c0, c1 = index & _LOW, index >> np.uint64(32)
    c2 = np.full(blocks, stream & 0xFFFFFFFF, np.uint64)
    c3 = np.full(blocks, stream >> 32, np.uint64)
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (
            (p1 >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            p1 & _LOW,
            (p0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            p0 & _LOW,
        )
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def uniform(shape: tuple[int, ...], low: float = 0.0, high: float = 1.0) -> npt.NDArray[np.float32]:
    """float32 values from low to high, of the next stream; drawn on the host."""
    key, stream = default.next_stream()
    size = int(np.prod(shape, dtype=np.int64))
    words = philox(key, stream, -(-size // 4)).reshape(-1)[:size]
    unit = (words >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)
    return (unit * np.float32(high - low) + np.float32(low)).reshape(shape)


def normal(shape: tuple[int, ...], mean: float = 0.0, std: float = 1.0) -> npt.NDArray[np.float32]:
    """float32 values of a normal distribution (Box-Muller), of the next stream."""
    key, stream = default.next_stream()
    size = int(np.prod(shape, dtype=np.int64))
    words = philox(key, stream, -(-size // 2))[:, :2].astype(np.float64)
    radius = np.sqrt(-2.0 * np.log((words[:, 0] + 1.0) * 2.0**-32))
    angle = words[:, 1] * (2.0 * np.pi * 2.0**-32)
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)[:size]
    return (pairs * std + mean).astype(np.float32).reshape(shape)


STREAM = np.dtype([("key", np.uint64), ("number", np.uint64)], align=True)


def stream_numbers(stream: Stream) -> Any:
    """`Stream` of cuda/common/philox.cuh."""
    return np.array(tuple(stream), STREAM)[()]
