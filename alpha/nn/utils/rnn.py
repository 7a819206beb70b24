"""Sequences of several lengths: side by side and filled up, or packed, under PyTorch's names.

    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)    # x (T, N, features)
    y, h = lstm(packed)
    y, lengths = pad_packed_sequence(y)

The lengths decide how much is computed, so they are read on the host. In a captured step they are numbers, a tensor on
cpu, or those of a `PackedSequence` that is given to it, and each other content gets a graph of its own. A tensor of
lengths on cuda is waited for, so a step that is given one is not captured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.core.tensor import Tensor, full
from alpha.errors import ShapeError, type_name
from alpha.nn.utils.packed_sequence import PackedSequence as PackedSequence
from alpha.nn.utils.packed_sequence import invert_permutation as invert_permutation
from alpha.ops.array.joining import cat, stack
from alpha.ops.indexing.gather_scatter import index_select
from alpha.ops.indexing.index_functions import index_copy
from alpha.ops.kernel.options import integer
from alpha.ops.kernel.tables.kept_tables import Rows
from alpha.ops.sequence import packing
from alpha.ops.sequence.packing import Counts

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


def _lengths(operator: str, lengths: Any) -> Counts:
    """Lengths as numbers: a list or a tensor of integers, of which one on a device is waited for."""
    values = np.asarray(lengths.numpy() if isinstance(lengths, Tensor) else lengths)
    if values.ndim != 1 or (values.size and values.dtype.kind not in "iu"):
        raise TypeError(f"{operator}: lengths are no list and no tensor (N,) of whole numbers")
    return tuple(int(length) for length in values)


def _packed(operator: str, flat: Tensor, rows: Rows, lengths: Counts, enforce_sorted: bool) -> PackedSequence:
    """The rows of a tensor as a packed sequence; `ValueError` if the lengths do not fall and must."""
    indices: tuple[Tensor | None, Tensor | None] = None, None
    order = packing.order_of(lengths)
    if not enforce_sorted:
        first, second = (part.on(flat.device).clone() for part in order)
        indices = first, second
    elif list(lengths) != sorted(lengths, reverse=True):
        raise ValueError(f"{operator}: lengths {list(lengths)} do not fall; enforce_sorted=False sorts the sequences")
    sizes = Tensor(np.asarray(packing.sizes_of(lengths), np.int64))
    made = PackedSequence(index_select(flat, 0, rows.on(flat.device)), sizes, *indices)
    made._order = tuple(order[0].numbers.tolist())
    return made


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Sequences side by side without what was filled in behind their ends

    input (T, N, ...), or (N, T, ...) with batch_first -> data (sum of lengths, ...)

    Args:
        lengths: N whole numbers, 1 to T; a tensor on cuda is waited for.
        enforce_sorted: the lengths must fall. False: the sequences are sorted, and what is made of them is brought back
            into their order.

    Raises:
        ShapeError: a length is below 1 or above T, or there are not N of them.
        ValueError: enforce_sorted, and the lengths do not fall.
    """
    if not isinstance(input, Tensor):
        raise TypeError(f"pack_padded_sequence: input is a {type_name(input)}, a Tensor is needed")
    counts = _lengths("pack_padded_sequence", lengths)
    if input.ndim < 2:
        raise ShapeError(f"pack_padded_sequence: input (T, N, ...) is needed  (input {input.shape})")
    N, T = input.shape[:2] if batch_first else input.shape[1::-1]
    if len(counts) != N or not N:
        raise ShapeError(f"pack_padded_sequence: {len(counts)} lengths for {N} sequences  (input {input.shape})")
    if min(counts) < 1 or max(counts) > T:
        raise ShapeError(
            f"pack_padded_sequence: lengths from {min(counts)} to {max(counts)} must be from 1 to {T}  "
            f"(input {input.shape})"
        )
    order = tuple(packing.order_of(counts)[0].numbers.tolist())
    rows = packing.padded_rows(packing.sizes_of(counts), order, *((1, T) if batch_first else (N, 1)))
    return _packed("pack_padded_sequence", input.reshape(T * N, *input.shape[2:]), rows, counts, enforce_sorted)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Packed sequences side by side and filled up, in the order in which they were packed, and their lengths

    data (sum of lengths, ...) -> (T, N, ...), or (N, T, ...) with batch_first, and (N,) of int64 on cpu

    Args:
        padding_value: what is filled in.
        total_length: T, at least the longest length, which it is by default.

    Raises:
        ValueError: total_length is less than the longest length.
    """
    if not isinstance(sequence, PackedSequence):
        raise TypeError(f"pad_packed_sequence: a {type_name(sequence)} is no PackedSequence")
    data, sizes, order = sequence.data, sequence.sizes, sequence.order
    N, longest = sizes[0], len(sizes)
    T = longest if total_length is None else integer("pad_packed_sequence", "total_length", total_length)
    if longest > T:
        raise ValueError(f"pad_packed_sequence: total_length={T} is less than the longest length, {longest}")
    rows = packing.padded_rows(sizes, order, *((1, T) if batch_first else (N, 1)))
    filled = full((T * N, *data.shape[1:]), padding_value, data.dtype, data.device)
    padded = index_copy(filled, 0, rows.on(data.device), data)
    lengths = np.empty(N, np.int64)
    lengths[list(order)] = packing.lengths_of(sizes)
    return padded.reshape(*((N, T) if batch_first else (T, N)), *data.shape[1:]), Tensor(lengths)


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Sequences, packed   (L0, ...), (L1, ...), .. -> data (L0 + L1 + .., ...)

    Args:
        enforce_sorted: as of `pack_padded_sequence`.

    Raises:
        ShapeError: a sequence has no step, or another shape than the first one on another axis than 0.
        ValueError: enforce_sorted, and the lengths do not fall.
    """
    given = _sequences("pack_sequence", sequences)
    counts = tuple(x.shape[0] for x in given)
    if min(counts) < 1:
        raise ShapeError(f"pack_sequence: sequence {counts.index(0)} has no step  (lengths {list(counts)})")
    return _packed("pack_sequence", cat(given, 0), packing.rows_of_lengths(counts), counts, enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that were packed, in their order   data (L0 + L1 + .., ...) -> (L0, ...), (L1, ...), .."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def _sequences(operator: str, sequences: Sequence[Tensor]) -> list[Tensor]:
    """A list of tensors that differ in the length of the first axis alone."""
    given = list(sequences.unbind(0) if isinstance(sequences, Tensor) else sequences)
    if not given or not all(isinstance(x, Tensor) for x in given):
        raise TypeError(f"{operator}: sequences is no list of tensors")
    for x in given:
        if not x.ndim or x.shape[1:] != given[0].shape[1:]:
            raise ShapeError(f"{operator}: only the first axis may differ in length  ({given[0].shape}, {x.shape})")
    return given


def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Sequences side by side, those that are shorter than the longest one filled up

    (L0, ...), (L1, ...), .. -> (longest, number of sequences, ...), or (number of sequences, longest, ...)

    Args:
        batch_first: the axis of the sequences comes before that of the steps.
        padding_value: what is filled in.
        padding_side: "right" fills at the end of a sequence, "left" at its beginning.
    """
    if padding_side not in ("right", "left"):
        raise ValueError(f"pad_sequence: padding_side={padding_side!r} is neither 'right' nor 'left'")
    given = _sequences("pad_sequence", sequences)
    longest = max(x.shape[0] for x in given)
    filled = []
    for x in given:
        missing = longest - x.shape[0]
        if missing:
            filler = x.new_full((missing, *x.shape[1:]), padding_value)
            x = cat([x, filler] if padding_side == "right" else [filler, x])
        filled.append(x)
    return stack(filled, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """The sequences that `pad_sequence` has put side by side, without what was filled in at their ends

    padded_sequences (T, N, ...), or (N, T, ...) with batch_first -> (L0, ...), (L1, ...), ..

    Args:
        lengths: that of each sequence, integers or a tensor of them, which waits for the device.
    """
    counts = lengths.tolist() if isinstance(lengths, Tensor) else list(lengths)
    if not isinstance(padded_sequences, Tensor) or padded_sequences.ndim < 2:
        raise TypeError("unpad_sequence: padded_sequences is no tensor (T, N, ...)")
    rows = padded_sequences.unbind(0 if batch_first else 1)
    if len(rows) != len(counts):
        raise ShapeError(f"unpad_sequence: {len(counts)} lengths for {len(rows)} sequences")
    return [row[:length] for row, length in zip(rows, counts, strict=True)]


_tell_instead(__name__)
