"""Layouts of the steps of sequences of several lengths: side by side and filled up, or packed.

Packed, the sequences are sorted by falling length, and the rows of a step lie one after the other, those of the longest
sequence first: so many rows as sequences have that step. Such sizes are known on the host; the tables of rows that
follow from them are made once, and lie on a device as long as they are kept here.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from alpha.core.tensor import Tensor
from alpha.ops.kernel.tables.kept_tables import Rows, kept
from alpha.runtime import Device

Counts = tuple[int, ...]
Integers = npt.NDArray[np.int64]


def kept_on(values: npt.NDArray[Any], device: Device) -> Tensor:
    """A small table on a device, in which equal values are found again; it is not to be written.

    So a captured step, which copies no values of the host to the device, has the same table each time.
    """
    return _kept(values.tobytes(), values.dtype.str, values.shape).on(device)


@kept
def _kept(data: bytes, dtype: str, shape: Counts) -> Rows:
    return Rows(np.frombuffer(data, dtype).reshape(shape))


@kept
def order_of(lengths: Counts) -> tuple[Rows, Rows]:
    """The sequences by falling length, equal ones in their order; and the place of each among them."""
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable").astype(np.int64)
    return Rows(order), Rows(np.argsort(order).astype(np.int64))


def sizes_of(lengths: Counts) -> Counts:
    """Number of sequences that have each step   lengths (N,) -> (longest,)"""
    return _counts_above(lengths, max(lengths))


def lengths_of(sizes: Counts) -> Counts:
    """The steps of each sequence, falling   sizes (T,) -> (N,)"""
    return _counts_above(sizes, sizes[0])


def _counts_above(values: Counts, stop: int) -> Counts:
    """Number of values above each of 0, 1, .. below `stop`, the largest value."""
    up_to = np.cumsum(np.bincount(values))[:stop]
    return tuple((len(values) - up_to).tolist())


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


@kept
def padded_rows(sizes: Counts, order: Counts, step: int, sequence: int) -> Rows:
    """Place of each row among others: its step times `step` plus its sequence times `sequence`

    Args:
        order: the sequences in the order in which they are packed.
    """
    steps, places = _steps_and_sequences(sizes)
    return Rows(steps * step + np.asarray(order, np.int64)[places] * sequence)


@kept
def rows_of_lengths(lengths: Counts) -> Rows:
    """Place of each row among sequences one after the other, of these lengths."""
    order = order_of(lengths)[0].numbers
    steps, places = _steps_and_sequences(sizes_of(lengths))
    return Rows(starts_of(lengths)[order[places]] + steps)


@kept
def backwards(sizes: Counts) -> Rows:
    """The rows with each sequence from its end to its beginning; twice, it is the rows as they were."""
    steps, places = _steps_and_sequences(sizes)
    lengths: Any = np.asarray(lengths_of(sizes))
    return Rows(starts_of(sizes)[lengths[places] - 1 - steps] + places)


@kept
def last_rows(sizes: Counts) -> Rows:
    """The row of the last step of each sequence."""
    lengths: Any = np.asarray(lengths_of(sizes))
    return Rows(starts_of(sizes)[lengths - 1] + np.arange(len(lengths)))
