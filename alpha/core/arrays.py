"""What the engine asks of arrays, on either device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from alpha.core.primitive import Array

Form = tuple[bool, tuple[int, ...], np.dtype[Any]]  # whether it is on the cpu, shape and dtype of an array


def contiguous(Y: Any) -> Any:
    """A numpy result of a `forward` as a contiguous array, which a scalar and a strided view are not."""
    if type(Y) is np.ndarray:
        return Y if Y.flags.c_contiguous else np.ascontiguousarray(Y)
    return np.array(Y, order="C")


def form_of(array: Array) -> Form:
    """What a gradient must be that fits the array."""
    return isinstance(array, np.ndarray), array.shape, array.dtype


def shares_memory(array: Array, others: Iterable[Array]) -> bool:
    """Whether the array has memory in common with one of the others."""
    if isinstance(array, np.ndarray):
        return any(isinstance(other, np.ndarray) and np.may_share_memory(array, other) for other in others)
    block, start = array.block, array.offset  # several arrays may lie in one block
    for other in others:
        if getattr(other, "block", None) is block and -other.nbytes < other.offset - start < array.nbytes:
            return True
    return False
