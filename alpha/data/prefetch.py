"""Runs an iterator ahead of its consumer in a background thread."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class _End(Generic[T]):
    """The producer's last word: None where it came to its end, else what it died of."""

    error: BaseException | None = None


def prefetched(items: Iterable[T], depth: int) -> Generator[T, None, None]:
    """Yields `items` in order, holding at most `depth` of them ready; 0 runs without a thread.

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
        for item in items:
            if stopped.is_set():
                return
            queue.put(item)
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
