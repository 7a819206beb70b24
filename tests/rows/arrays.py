"""The arrays that the rows of functions and layers are tried on."""

from __future__ import annotations

import numpy as np

_generator = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return _generator.standard_normal(shape).astype(np.float32)


_later = np.random.default_rng(1)


def drawn(*shape: int) -> np.ndarray:
    """Numbers like those of `normal`, without a change of the numbers that later calls of `normal` give."""
    return _later.standard_normal(shape).astype(np.float32)


IMAGE = normal(2, 7, 5, 3) + 0.5
MATRIX = normal(6, 5)
LABELS = np.array([0, 1, 2, 3, 4, 0])
SEQUENCE = normal(2, 9, 3) + 0.5
VOLUME = normal(2, 5, 4, 3, 3) + 0.5
