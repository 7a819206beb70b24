"""Parts of a dataset in a random order, which have no item in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.core import rng
from alpha.core.generators import Generator
from alpha.data.checks import seed_of
from alpha.data.dataset import Subset, length_of
from alpha.data.samplers import SPLIT, permutation, raw
from alpha.errors import DataError


def random_split(
    dataset: Any,
    lengths: Sequence[int | float],
    generator: Generator | int | None = None,
    *,
    seed: int | None = None,
    stratify: Any = None,
) -> list[Subset]:
    """Parts of a dataset that have no item in common, in a random order.

    Args:
        lengths: of the parts, which add up to the length of the dataset; or fractions, which add up to 1. A part gets
            its fraction rounded down, and what is left goes to the parts in turn.
        seed: fixes the parts; without it they follow from `alpha.manual_seed` and what was drawn since.
        generator: the seed, under PyTorch's name; of an `alpha.Generator` it is the next draw.
        stratify: labels (N,) of the items, numbers or strings. Each part then has its share of each class, up to one
            item or two.

    Raises:
        DataError: the lengths do not add up, or the labels are not one per item.

    Examples:
        >>> from alpha.data import random_split
        >>> train, test = random_split(list(range(10)), [0.8, 0.2], seed=0)
        >>> len(train), len(test)
        (8, 2)
    """
    count = length_of("random_split", dataset)
    seed = seed_of("random_split", seed, generator)
    sizes = _sizes(lengths, count)
    order = permutation(raw(rng.fresh_seed() if seed is None else seed, 0, count, SPLIT))
    if stratify is not None:
        order = _balanced(order, _labels(stratify, count))
    return [Subset(dataset, order[begin:end]) for begin, end in pairwise([0, *accumulate(sizes)])]


def _sizes(lengths: Sequence[int | float], count: int) -> list[int]:
    given = list(lengths)
    if any(isinstance(n, bool) or not isinstance(n, (int, float, np.integer, np.floating)) or n < 0 for n in given):
        raise DataError(f"random_split: lengths={given} are not lengths or fractions, 0 or more")
    if math.isclose(sum(given), 1):
        sizes = [math.floor(count * fraction) for fraction in given]
        for place in range(count - sum(sizes)):
            sizes[place % len(sizes)] += 1
        return sizes
    if sum(given) != count or any(n != int(n) for n in given):
        raise DataError(
            f"random_split: lengths={given} add up to {sum(given)}; expected {count}, the length of the dataset, "
            "or fractions that add up to 1"
        )
    return [int(n) for n in given]


def _labels(stratify: Any, count: int) -> NDArray[Any]:
    labels = np.asarray(stratify)
    if labels.shape != (count,):
        raise DataError(f"random_split: stratify has shape {labels.shape}, expected a label per item, ({count},)")
    return labels


def _balanced(order: NDArray[np.int64], labels: NDArray[Any]) -> NDArray[np.int64]:
    """The order with each class spread evenly: any range of it has about the same share of each class."""
    _, classes = np.unique(labels[order], return_inverse=True)
    classes = classes.reshape(-1)
    sizes = np.bincount(classes)
    by_class = np.argsort(classes, kind="stable")
    ranks = np.empty(len(order), np.int64)
    ranks[by_class] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    # the item of rank r of n stands at (r + 1/2) / n of the way
    return order[np.argsort((ranks + 0.5) / sizes[classes], kind="stable")]
