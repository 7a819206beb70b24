"""Sequences of several lengths, packed: only the steps that they have, and how many have each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from alpha.core.tensor import Tensor
from alpha.errors import DeviceError, ShapeError, type_name
from alpha.ops.indexing.gather_scatter import index_select
from alpha.ops.indexing.index_functions import index_copy
from alpha.ops.sequence import packing
from alpha.ops.sequence.packing import Counts
from alpha.runtime import get_device


class _Fields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Fields):
    """Sequences by falling length, step by step: what `pack_padded_sequence` makes, and `RNN`, `GRU` and `LSTM` take.

    Attributes:
        data: (sum of all lengths, ...), the first step of each sequence, then the second one of those that have it, ..
        batch_sizes: (longest,) of int64 on cpu, how many sequences have each step.
        sorted_indices: (N,) of int64, the number of the sequence at each place of the order; None: they were sorted.
        unsorted_indices: (N,) of int64, the place of each sequence in the order, or None.

    Raises:
        TypeError: data is no Tensor, or batch_sizes is no tensor of integers.
        DeviceError: batch_sizes is not on cpu.
    """

    _order: Counts | None = None  # sorted_indices on the host, if they are known there

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if not isinstance(data, Tensor):
            raise TypeError(f"PackedSequence: data is a {type_name(data)}, a Tensor is needed")
        if not isinstance(batch_sizes, Tensor) or batch_sizes.dtype.kind != "i" or batch_sizes.ndim != 1:
            raise TypeError("PackedSequence: batch_sizes is no tensor (T,) of int64")
        if batch_sizes.device is not get_device("cpu"):
            raise DeviceError(f"PackedSequence: batch_sizes is on {batch_sizes.device.name}, it must be on cpu")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    @property
    def sizes(self) -> Counts:
        """batch_sizes as numbers; `ShapeError` if data has another number of rows, or a size is larger than before."""
        sizes = tuple(int(size) for size in self.batch_sizes.numpy())
        rows = self.data.shape[0] if self.data.ndim else 0
        if not sizes or not packing.falls(sizes) or sum(sizes) != rows:
            raise ShapeError(
                f"PackedSequence: batch_sizes {list(sizes)} must fall to at least 1 and add up to the rows of data  "
                f"(data {self.data.shape})"
            )
        return sizes

    @property
    def order(self) -> Counts:
        """sorted_indices as numbers, which waits for the device if only that knows them."""
        if self._order is None:
            N = int(self.batch_sizes[0].item())
            known = range(N) if self.sorted_indices is None else self.sorted_indices.tolist()
            self._order = tuple(known)
        return self._order

    def with_data(self, data: Tensor) -> PackedSequence:
        """Other data of the same sequences   data (rows, ...)"""
        made = PackedSequence(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)
        made._order = self._order
        return made

    def sorted_states(self, states: Tensor) -> Tensor:
        """States (.., N, features) of the sequences, in the order of the rows."""
        return states if self.sorted_indices is None else index_select(states, -2, self.sorted_indices)

    def unsorted_states(self, states: Tensor) -> Tensor:
        """States (.., N, features) in the order of the rows, in that of the sequences."""
        return states if self.unsorted_indices is None else index_select(states, -2, self.unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """data on another device or in another dtype, and the indices on its device; the arguments of `Tensor.to`."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        moved = [None if index is None else index.to(data.device) for index in self[2:]]
        made = PackedSequence(data, self.batch_sizes, *moved)
        made._order = self._order
        return made

    def cpu(self) -> PackedSequence:
        """The sequences on the cpu."""
        return self.to("cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> PackedSequence:
        """The sequences on a GPU, by default the first."""
        return self.to("cuda" if device is None else device, non_blocking=non_blocking)

    def float(self) -> PackedSequence:
        """The values as float32."""
        return self.to("float32")

    def double(self) -> PackedSequence:
        """The values as float64."""
        return self.to("float64")

    def bfloat16(self) -> PackedSequence:
        """The values as bfloat16."""
        return self.to("bfloat16")

    def long(self) -> PackedSequence:
        """The values as int64."""
        return self.to("int64")

    def int(self) -> PackedSequence:
        """The values as int32."""
        return self.to("int32")

    @property
    def is_cuda(self) -> bool:
        """True if the values are on a GPU."""
        return self.data.is_cuda


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The place of each number in a permutation   (N,) of 0 to N - 1 -> (N,); None of None"""
    if permutation is None:
        return None
    places = np.arange(permutation.size, dtype=np.int64)
    return index_copy(permutation.new_zeros(permutation.size), 0, permutation, permutation.new_tensor(places))
