"""Where the steps of sequences of several lengths lie: side by side and filled up, or packed.

Packed, the sequences are sorted by falling length, and the rows of a step lie one after the other, those of the longest
sequence first: so many rows as sequences have that step. Such sizes are known on the host; the tables of rows that
follow from them are made once, and lie on a device as long as they are kept here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from alpha.runtime import Device
from alpha.tensor import Tensor

Counts = tuple[int, ...]
Integers = npt.NDArray[np.int64]
KEPT = 128  # tables of each kind


@dataclass(frozen=True, eq=False)
class Rows:
    """Numbers of rows, (count,) of int64, or another small table."""

    numbers: npt.NDArray[Any]

    def on(self, device: Device) -> Tensor:
        """The numbers on a device; a captured step finds them there. They are not to be written."""
        return Tensor(device.table(self, lambda: self.numbers))


def kept_on(values: npt.NDArray[Any], device: Device) -> Tensor:
    """A small table on a device, in which equal values are found again; it is not to be written.

    So a captured step, which copies no values of the host to the device, has the same table each time.
    """
    return _kept(values.tobytes(), values.dtype.str, values.shape).on(device)


@lru_cache(4 * KEPT)
def _kept(data: bytes, dtype: str, shape: Counts) -> Rows:
    return Rows(np.frombuffer(data, dtype).reshape(shape))


@lru_cache(KEPT)
def order_of(lengths: Counts) -> tuple[Rows, Rows]:
    """The sequences by falling length, equal ones in their order; and the place of each among them."""
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable").astype(np.int64)
    return Rows(order), Rows(np.argsort(order).astype(np.int64))


def sizes_of(lengths: Counts) -> Counts:
    """How many sequences have each step   lengths (N,) -> (longest,)"""
    return tuple(int(n) for n in (np.asarray(lengths)[:, None] > np.arange(max(lengths))).sum(0))


def lengths_of(sizes: Counts) -> Counts:
    """The steps of each sequence, falling   sizes (T,) -> (N,)"""
    return tuple(int(n) for n in (np.asarray(sizes)[:, None] > np.arange(sizes[0])).sum(0))


def starts_of(sizes: Counts) -> Integers:
    """The number of the first row of each step."""
    ends: Integers = np.cumsum(sizes, dtype=np.int64)
    return ends - np.asarray(sizes, np.int64)


def falls(sizes: Counts) -> bool:
    """True if every step has a sequence, and none has more than the step before."""
    return all(before >= after for before, after in pairwise((*sizes, 1)))


def _steps_and_sequences(sizes: Counts) -> tuple[Integers, Integers]:
    """The step and the sequence of each row."""
    steps = np.repeat(np.arange(len(sizes)), sizes)
    return steps, np.arange(len(steps)) - starts_of(sizes)[steps]


@lru_cache(KEPT)
def padded_rows(sizes: Counts, order: Counts, step: int, sequence: int) -> Rows:
    """Where each row lies among others: at its step times `step` plus its sequence times `sequence`

    Args:
        order: the sequences in the order in which they are packed.
    """
    steps, places = _steps_and_sequences(sizes)
    return Rows(steps * step + np.asarray(order, np.int64)[places] * sequence)


@lru_cache(KEPT)
def rows_of_lengths(lengths: Counts) -> Rows:
    """Where each row lies among sequences one after the other, of these lengths."""
    order = order_of(lengths)[0].numbers
    steps, places = _steps_and_sequences(sizes_of(lengths))
    return Rows(starts_of(lengths)[order[places]] + steps)


@lru_cache(KEPT)
def backwards(sizes: Counts) -> Rows:
    """The rows with each sequence from its end to its beginning; twice, it is the rows as they were."""
    steps, places = _steps_and_sequences(sizes)
    lengths: Any = np.asarray(lengths_of(sizes))
    return Rows(starts_of(sizes)[lengths[places] - 1 - steps] + places)


@lru_cache(KEPT)
def last_rows(sizes: Counts) -> Rows:
    """The row of the last step of each sequence."""
    lengths: Any = np.asarray(lengths_of(sizes))
    return Rows(starts_of(sizes)[lengths - 1] + np.arange(len(lengths)))
