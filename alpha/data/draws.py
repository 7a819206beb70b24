"""Random numbers for orders: the same on every platform, a function of a seed, an epoch and a use only.

numpy promises the raw bits of its Philox, not what its Generator makes of them, to stay the same from version to
version. So everything here is made of raw bits by whole numbers, comparisons, sums and products of float64.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SPLIT = 1  # the use of random_split; an order of a loader or a sampler is use 0


def raw(seed: int, epoch: int, count: int, use: int = 0) -> NDArray[np.uint64]:
    """Random words (count,)"""
    # a 0 behind the other numbers changes nothing, so orders need no number of their own
    numbers = (seed, epoch, use) if use else (seed, epoch)
    return np.random.Philox(np.random.SeedSequence(numbers)).random_raw(count)


def permutation(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """An order of as many things as there are words: a stable sort of them."""
    return np.argsort(words, kind="stable").astype(np.int64, copy=False)


def below(words: NDArray[np.uint64], limit: int) -> NDArray[np.int64]:
    """Whole numbers from 0 to limit - 1, each as likely up to limit / 2^64."""
    return (words % np.uint64(limit)).astype(np.int64)


def weighted(words: NDArray[np.uint64], weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Places of `weights` (N,), one for each word, each as likely as its share of the sum."""
    sums = np.cumsum(weights)
    unit = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53  # in [0, 1)
    places = np.searchsorted(sums, unit * sums[-1], side="right")
    last = np.flatnonzero(weights)[-1]  # a product of tiny weights may round up to the sum
    return np.asarray(np.minimum(places, last), np.int64)


def weighted_distinct(seed: int, epoch: int, weights: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Distinct places, each drawn as by `weighted` from those that are left.

    Draws that repeat a place are passed over, which gives this distribution; a round draws several places and then
    takes their weights away. At least `count` places must have a weight.
    """
    left, found, use = weights.copy(), np.zeros(0, np.int64), 0
    while len(found) < count:
        places = weighted(raw(seed, epoch, count - len(found), use), left)
        _, firsts = np.unique(places, return_index=True)
        fresh = places[np.sort(firsts)]
        found, use = np.concatenate((found, fresh)), use + 1
        left[fresh] = 0.0
    return found
