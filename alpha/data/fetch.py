"""How a loader makes batches: what it calls for each, and the threads that do so."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from alpha.data.collate import collate
from alpha.data.dataset import item_of, way_of


class Recipe(NamedTuple):
    """How a batch is made of its indices.

    Attributes:
        parts: gives the calls that a batch takes; several threads may make them at once.
        join: makes the batch of the results and the indices.
        ahead: the batches whose calls may begin before they are needed, for each thread.
    """

    parts: Callable[[Any], list[Callable[[], Any]]]
    join: Callable[[list[Any], Any], Any]
    ahead: bool


def recipe_of(dataset: Any, collate_fn: Callable[[Any], Any] | None, single: bool) -> Recipe:
    """The recipe for a dataset; `single`: the indices of a batch are one index, and its item is handed out as it is."""
    if single:
        return Recipe(
            lambda index: [partial(item_of, dataset, _index(index))],
            lambda results, _: results[0] if collate_fn is None else collate_fn(results[0]),
            True,
        )
    if collate_fn is None and way_of(dataset) == "batch":
        return Recipe(
            lambda indices: [partial(dataset.batch, np.asarray(indices, np.int64))], lambda results, _: results[0], True
        )

    def stack(items: list[Any], indices: Any) -> Any:
        return collate(items, list(map(_index, indices))) if collate_fn is None else collate_fn(items)

    if way_of(dataset, ("__getitems__", "__getitem__")) == "__getitems__":
        return Recipe(
            lambda indices: [partial(dataset.__getitems__, list(map(_index, indices)))],
            lambda results, indices: stack(results[0], indices),
            True,
        )
    return Recipe(lambda indices: [partial(item_of, dataset, _index(index)) for index in indices], stack, False)


def _index(index: Any) -> Any:
    """An index as Python's int; what is no whole number, such as a key, stays as it is."""
    try:
        return operator.index(index)
    except TypeError:
        return index


def made(recipe: Recipe, batches: Iterable[Any], workers: int) -> Iterator[Any]:
    """The batch of each of `batches`, which are indices, in order; `workers` threads make the calls, 0 this one.

    An exception of a call is raised in place of its batch.
    """
    if not workers:
        for indices in batches:
            yield recipe.join([call() for call in recipe.parts(indices)], indices)
        return
    waiting: deque[tuple[Any, list[Future[Any]]]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="alpha-worker")
    try:
        for indices in batches:
            waiting.append((indices, [pool.submit(call) for call in recipe.parts(indices)]))
            if len(waiting) > (workers if recipe.ahead else 1):
                yield _result(recipe, *waiting.popleft())
        while waiting:
            yield _result(recipe, *waiting.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _result(recipe: Recipe, indices: Any, calls: list[Future[Any]]) -> Any:
    return recipe.join([call.result() for call in calls], indices)
