"""Calls of the functions with small whole numbers, made of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np

import alpha
import alpha.nn.functional as F
from rows.every import FUNCTIONS
from rows.kinds import each, joined


def array(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape), dtype=np.int64) % 5).reshape(shape).astype(np.float32)


def small(values: np.ndarray) -> np.ndarray:
    """Small whole numbers of the same shape and dtype, so that integers mean the same; labels as they are.

    In place of probabilities there are zeros and ones.
    """
    if values.dtype != np.float32:
        return values
    probable = values.size and values.min() > 0 and values.max() < 1
    return np.minimum(array(*values.shape), 1) if probable else array(*values.shape)


IMAGE, MATRIX = array(1, 4, 4, 2), array(4, 4)
# arrays, or lists of arrays, of the tensor arguments, by name, and the other arguments
CALLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    row.name: (
        {name: each(small, values) for name, values in (row.tensors | row.lists).items()},
        {name: value for name, value in row.usual.items() if name not in row.tensors | row.lists},
    )
    for row in FUNCTIONS
}
TENSOR_ARGUMENTS = {row.name: list(row.tensors) for row in FUNCTIONS if row.tensors}


def given(name: str) -> dict[str, Any]:
    """The arrays under the names that the function has for them: all its tensor arguments, in order."""
    return CALLS[name][0]


def call(name: str, tensors: dict[str, Any]) -> Any:
    """Several results are one after the other."""
    return joined(getattr(F, name)(**tensors, **CALLS[name][1]))


def put(arrays: dict[str, Any], device: str) -> dict[str, Any]:
    return {name: each(lambda values: alpha.tensor(values, device=device), found) for name, found in arrays.items()}
