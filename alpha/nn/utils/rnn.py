"""Sequences of several lengths side by side, filled up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alpha.errors import ShapeError
from alpha.ops.joining import cat, stack
from alpha.tensor import Tensor


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
    if isinstance(sequences, Tensor):
        sequences = sequences.unbind(0)
    given = list(sequences)
    if not given or not all(isinstance(x, Tensor) for x in given):
        raise TypeError("pad_sequence: sequences is no list of tensors")
    for x in given:
        if not x.ndim or x.shape[1:] != given[0].shape[1:]:
            raise ShapeError(f"pad_sequence: only the first axis may differ in length  ({given[0].shape}, {x.shape})")
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
