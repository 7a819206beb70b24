"""Batches of a loader: the calls that make each, the threads that do so, and those made ahead of their consumer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from numbers import Number
from queue import Empty, Queue
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from alpha.core import rng
from alpha.data.checks import index_of, indices_of, say_where
from alpha.data.collate import collate, owned
from alpha.data.dataset import batch_from, item_of, items_from, way_of
from alpha.errors import DataError, first_few

T = TypeVar("T")


class Recipe(NamedTuple):
    """Recipe by which a batch is made of its indices.

    Attributes:
        parts: gives the calls that a batch takes, each with the index or the indices that it is for; several threads
            may make them at once.
        join: makes the batch of the results and the indices.
        ahead: the batches whose calls may begin before they are needed, for each thread.
    """

    parts: Callable[[Any], list[tuple[Any, Callable[[], Any]]]]
    join: Callable[[list[Any], Any], Any]
    ahead: bool


def recipe_of(dataset: Any, collate_fn: Callable[[Any], Any] | None, single: bool) -> Recipe:
    """The recipe for a dataset; `single`: the indices of a batch are one index, and its item is handed out as it is."""

    def item(index: Any) -> tuple[Any, Callable[[], Any]]:
        place = _index(index)
        return place, partial(item_of, dataset, place)

    if single:
        return Recipe(
            lambda index: [item(index)],
            lambda results, _: results[0] if collate_fn is None else collate_fn(results[0]),
            True,
        )
    if collate_fn is None and way_of(dataset) == "batch":
        return Recipe(
            lambda indices: [(indices, partial(batch_from, dataset, indices_of("DataLoader", _given(indices))))],
            lambda results, _: results[0],
            True,
        )

    def stack(items: list[Any], indices: Any) -> Any:
        return collate(items, _places(indices)) if collate_fn is None else collate_fn(items)

    if way_of(dataset, ("__getitems__", "__getitem__")) == "__getitems__":
        return Recipe(
            lambda indices: [(indices, partial(items_from, dataset, _places(indices)))],
            lambda results, indices: stack(results[0], indices),
            True,
        )
    return Recipe(lambda indices: list(map(item, _places(indices))), stack, False)


def _index(index: Any) -> Any:
    """An index as Python's int; a key, such as a text, stays as it is, and another number is a DataError."""
    if type(index) is int:
        return index
    is_key = isinstance(index, (str, bytes)) or not (isinstance(index, Number) or hasattr(index, "dtype"))
    return index if is_key else index_of("DataLoader", index)


def _places(indices: Any) -> list[Any]:
    """The indices of a batch as by `_index`."""
    if isinstance(indices, np.ndarray) and indices.dtype.kind in "iu" and indices.ndim == 1:
        found: list[int] = indices.tolist()
        return found
    return list(map(_index, _given(indices)))


def _given(indices: Any) -> Any:
    """The indices of a batch; DataError if they are none, as one index is."""
    if isinstance(indices, (str, bytes)) or not hasattr(indices, "__iter__"):
        raise DataError(f"DataLoader: batch_sampler gives {indices!r}, expected the indices of a batch, as a list")
    return indices


class _Lost(rng.Substream):
    """Random numbers of an epoch whose seed nobody knows: to draw is an error, unless a seed is set before."""

    __slots__ = ()

    @property
    def key(self) -> int:
        if self._key < 0:
            raise DataError(
                "DataLoader: random numbers are drawn in an epoch that goes on within it, and they would be others "
                "than those of the same epoch without a stop, since the loader has no seed; give seed= to the loader, "
                "or set its epoch_seed"
            )
        return self._key


class Draws(NamedTuple):
    """Source of the random numbers of an epoch: each call has its own, whichever thread makes it.

    Attributes:
        numbers: what tells the epoch from others; None in place of a seed that is not known.
        first: the number of its first batch; another one if a run goes on within an epoch.
    """

    numbers: tuple[int | None, ...]
    first: int = 0

    def place(self, *numbers: int) -> rng.Substream:
        """The random numbers of a part of the epoch; a batch has its number, and a call of it one more."""
        kind = _Lost if None in self.numbers else rng.Substream
        return kind(*self.numbers, *numbers)

    def steadily(self, make: Callable[[], Iterable[T]]) -> Iterator[T]:
        """Items of an iterable; all random numbers that are drawn for them come from one place."""
        place = self.place()
        with rng.within(place):
            source = iter(make())
        return _drawn(source, place)


def _drawn(source: Iterator[T], place: rng.Substream) -> Iterator[T]:
    while True:
        with rng.within(place):
            try:
                item = [next(source)]
            except StopIteration:
                return
        yield item.pop()  # this frame keeps no reference


def made(recipe: Recipe, batches: Iterable[Any], workers: int, draws: Draws) -> Iterator[Any]:
    """The batch of each of `batches`, which are indices, in order; `workers` threads make the calls, 0 this one.

    An exception of a call is raised in place of its batch.
    """

    numbered = enumerate(batches, draws.first)
    if not workers:
        for number, indices in numbered:
            yield batch_of_calls(recipe, number, indices, draws)
        return
    waiting: deque[tuple[int, Any, list[Future[Any]]]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="alpha-worker")

    def result() -> Any:
        number, indices, futures = waiting.popleft()
        return _join(recipe, [future.result() for future in futures], indices, draws.place(number))

    try:
        for number, indices in numbered:
            calls = _calls(recipe, number, indices, draws)
            calls = [partial(_own, call) for call in calls] if recipe.ahead else calls
            waiting.append((number, indices, list(map(pool.submit, calls))))
            if len(waiting) > (workers if recipe.ahead else 1):
                yield result()
        while waiting:
            yield result()
    finally:
        pool.shutdown(cancel_futures=True)


def batch_of_calls(recipe: Recipe, number: int, indices: Any, draws: Draws) -> Any:
    """The batch of this number in its epoch, whose calls this thread makes."""
    results = [call() for call in _calls(recipe, number, indices, draws)]
    return _join(recipe, results, indices, draws.place(number))


def _calls(recipe: Recipe, number: int, indices: Any, draws: Draws) -> list[Callable[[], Any]]:
    return [partial(_call, *part, draws.place(number, place)) for place, part in enumerate(recipe.parts(indices))]


def _call(asked: Any, part: Callable[[], Any], place: rng.Substream) -> Any:
    try:
        with rng.within(place):
            return part()
    except Exception as error:
        say_where(error, f"DataLoader: {named(asked)} was asked for")
        raise


def _own(call: Callable[[], Any]) -> Any:
    """The result of a call, which stays what it is when its thread makes the next one."""
    return owned([call()], 0)


def named(asked: Any) -> str:
    """The index, or the indices, of a call."""
    if not isinstance(asked, (list, tuple, np.ndarray)):
        return f"item {asked!r}"
    return f"the batch of items {first_few(asked, 8)}"


def _join(recipe: Recipe, results: list[Any], indices: Any, place: rng.Substream) -> Any:
    with rng.within(place):
        return recipe.join(results, indices)


@dataclass(frozen=True)
class _End(Generic[T]):
    """The producer's last word: None where it came to its end, else what it died of."""

    error: BaseException | None = None


def prefetched(items: Iterable[T], depth: int) -> Generator[T, None, None]:
    """Yields `items` in order, holding at most `depth` of them ready, copied if need be; 0 runs without a thread.

    An exception of `items` is raised here, after the items before it. Closing or dropping the
    iterator stops the thread and waits for it, so none outlives its consumer.
    """
    if depth == 0:
        yield from items
        return
    queue: Queue[T | _End[T]] = Queue(maxsize=depth)
    stopped = threading.Event()
    thread = threading.Thread(target=_produce, args=(items, queue, stopped), name="alpha-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item = queue.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        stopped.set()
        # The producer may wait for room in the queue. It looks at `stopped` before every put, so
        # at most one more item arrives, and one emptied queue has room for it.
        _empty(queue)
        thread.join()


def _produce(items: Iterable[T], queue: Queue[T | _End[T]], stopped: threading.Event) -> None:
    end: _End[T] = _End()
    try:
        source = iter(items)
        while not stopped.is_set():
            queue.put(owned([next(source)], 0))  # before the next one is made, perhaps in the same memory
    except StopIteration:
        pass
    except BaseException as error:  # carried to the consumer, whatever it is
        end = _End(error)
    if not stopped.is_set():
        queue.put(end)


def _empty(queue: Queue[T | _End[T]]) -> None:
    try:
        while True:
            queue.get_nowait()
    except Empty:
        return
