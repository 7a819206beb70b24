"""Queue of requests from any thread, and the one thread that computes them in batches."""

from __future__ import annotations

import asyncio
import atexit
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from alpha.core.nested import map_tensors
from alpha.errors import ServingError, ShapeError
from alpha.ops.kernel.options import integer, real

B = TypeVar("B", bound="Batcher")

WARM_UPS = 5  # calls of a size, after which a captured step has its graph
LATENCIES = 10_000  # of how many of the last requests the percentiles are


@dataclass(frozen=True)
class Statistics:
    """Numbers of what a `Batcher` has done.

    Attributes:
        requests: that were answered.
        images: of these requests.
        batches: that were computed.
        failed: requests that were answered by an error.
        cancelled: requests that their callers have cancelled before they were computed.
        refused: requests for which the queue was full.
        waiting: requests in the queue now.
        p50_ms, p90_ms, p99_ms: milliseconds from the request to the answer within which 50, 90 and 99 % of the last
            10,000 requests were answered; None if there was none.
    """

    requests: int = 0
    images: int = 0
    batches: int = 0
    failed: int = 0
    cancelled: int = 0
    refused: int = 0
    waiting: int = 0
    p50_ms: float | None = None
    p90_ms: float | None = None
    p99_ms: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The numbers by name, as JSON takes them."""
        return asdict(self)

    def __str__(self) -> str:
        """The numbers on one line."""
        others = [f"{getattr(self, name)} {name}" for name in ("failed", "cancelled", "refused") if getattr(self, name)]
        text = ", ".join([f"{self.requests} requests, {self.images} images in {self.batches} batches", *others])
        if self.p50_ms is None:
            return text
        return f"{text}; latency p50 {self.p50_ms:.1f} ms, p90 {self.p90_ms:.1f} ms, p99 {self.p99_ms:.1f} ms"


@dataclass(eq=False)
class _Request:
    images: NDArray[Any]
    answer: Future[Any] = field(default_factory=Future)
    arrived: float = field(default_factory=perf_counter)

    @property
    def kind(self) -> tuple[Any, ...]:
        """Equal for requests that one batch can hold."""
        return self.images.shape[1:], self.images.dtype


class Batcher:
    """A function of batches that any thread may call: one thread computes, for all callers, what has arrived together.

    A request waits for others only while there are several callers: if the batch before it, or the queue, has more than
    one request. Batches are filled with zeros up to one of a few sizes, 1, 2, 4, .. and `max_batch`, so that the
    function meets few shapes. Images of different shapes or dtypes are in different batches. If a batch of several
    requests fails, each of them is computed alone, so that an error reaches only the caller whose images it is of.

    Args:
        compute: takes an array (n, ...), n one of `sizes`, and returns an array of n rows, or a tuple, list or dict of
            such arrays. It is called in the thread of this object.
        max_batch: the most rows of a batch. A request may have more: it is computed in parts.
        max_wait_ms: how long the first request of a batch waits for others at most, in milliseconds.
        max_queue: requests that may wait; one more is refused.

    Attributes:
        sizes: the numbers of rows with which `compute` is called.
    """

    def __init__(
        self,
        compute: Callable[[NDArray[Any]], Any],
        *,
        max_batch: int = 32,
        max_wait_ms: float = 2.0,
        max_queue: int = 1024,
    ) -> None:
        owner = type(self).__name__
        self.max_batch = integer(owner, "max_batch", max_batch, 1)
        self.max_wait_ms = real(owner, "max_wait_ms", max_wait_ms)
        self.max_queue = integer(owner, "max_queue", max_queue, 1)
        if not 0 <= self.max_wait_ms < math.inf:
            raise ValueError(f"{owner}: max_wait_ms={max_wait_ms} is no time of 0 ms or more")
        powers = [1 << power for power in range(self.max_batch.bit_length())]
        self.sizes: tuple[int, ...] = tuple(dict.fromkeys([*powers, self.max_batch]))
        self._compute = compute
        self._process = os.getpid()
        self._changed = threading.Condition()  # of what follows
        self._waiting: deque[_Request] = deque()
        self._closed = False
        self._together = False  # whether the last batch had several requests
        self._latencies: deque[float] = deque(maxlen=LATENCIES)
        self._counts = dict.fromkeys(("requests", "images", "batches", "failed", "cancelled", "refused"), 0)
        self._thread = threading.Thread(target=self._work, name=f"alpha-{owner.lower()}", daemon=True)
        self._thread.start()
        atexit.register(self.close, finish=False)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._waiting)} requests waiting"
        return f"{type(self).__name__}(max_batch={self.max_batch}, max_wait_ms={self.max_wait_ms:g}; {state})"

    def __enter__(self: B) -> B:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- requests, from any thread ------------------------------------------------------------

    def submit(self, images: Any) -> Future[Any]:
        """Queue a request and return at once.

        Args:
            images: an array (n, ...) of any number of images; it is copied.

        Returns:
            A future of the result for these images, in their order. `cancel()` of it takes the request out of the
            queue, if its batch has not begun.

        Raises:
            ServingError: the queue is full, or this object is closed, or belongs to the process that has forked.
            ShapeError: there are no images.
        """
        return self._queue(np.array(images)).answer

    def predict(self, images: Any, timeout: float | None = None) -> Any:
        """Compute a request and wait for the result; arguments and errors as of `submit`.

        Args:
            timeout: seconds after which a `TimeoutError` is raised and the request is cancelled; None waits for ever.

        Raises an error of the computation, too.
        """
        if threading.current_thread() is self._thread:
            raise ServingError("predict: called by the thread that would compute it, in a callback; use submit there")
        answer = self._queue(np.asarray(images)).answer
        try:
            return answer.result(timeout)
        except BaseException:
            answer.cancel()
            raise

    async def predict_async(self, images: Any) -> Any:
        """Compute a request without blocking the event loop; a task that is cancelled cancels its request."""
        return await asyncio.wrap_future(self.submit(images))

    def _queue(self, images: NDArray[Any]) -> _Request:
        owner = type(self).__name__
        if images.ndim == 0 or not len(images):
            raise ShapeError(f"{owner}: images (n, ...) are needed, with n of 1 or more  (images {images.shape})")
        if os.getpid() != self._process:
            raise ServingError(
                f"{owner}: it was made before a fork, and its thread is not in this process: make it here"
            )
        request = _Request(images)
        with self._changed:
            if self._closed:
                raise ServingError(f"{owner}: it is closed")
            if len(self._waiting) >= self.max_queue:
                self._drop_cancelled()
            if len(self._waiting) >= self.max_queue:
                self._counts["refused"] += 1
                raise ServingError(f"{owner}: {len(self._waiting)} requests are waiting, max_queue={self.max_queue}")
            self._waiting.append(request)
            self._changed.notify_all()
        return request

    def warm_up(self, shape: tuple[int, ...], dtype: Any = np.uint8) -> None:
        """Compute batches of each size, so that no request waits for compilers and captures; forgets the statistics.

        Args:
            shape: of one image, (H, W, C).
            dtype: of the images; uint8 for the model of a run, and float32 for most other ones.
        """
        for size in self.sizes:
            images = np.zeros((size, *shape), dtype)
            for _ in range(WARM_UPS):
                self.predict(images)
        with self._changed:
            self._latencies.clear()
            self._counts.update(dict.fromkeys(self._counts, 0))

    def statistics(self) -> Statistics:
        """Numbers of what was done so far."""
        with self._changed:
            counts, waiting, latencies = dict(self._counts), len(self._waiting), list(self._latencies)
        if not latencies:
            return Statistics(**counts, waiting=waiting)
        p50, p90, p99 = (float(ms) for ms in np.percentile(latencies, (50, 90, 99)))
        return Statistics(**counts, waiting=waiting, p50_ms=p50, p90_ms=p90, p99_ms=p99)

    def close(self, finish: bool = True) -> None:
        """End the thread. Safe to call twice, and from any thread.

        Args:
            finish: whether requests in the queue are still computed; else they are cancelled.
        """
        if os.getpid() != self._process:
            return
        with self._changed:
            self._closed = True
            if not finish:
                for request in self._waiting:
                    request.answer.cancel()
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()
            atexit.unregister(self.close)

    # -- the thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            if batch:
                self._answer(batch)
            batch.clear()  # of this frame, which may wait for long
        self._end()

    def _end(self) -> None:
        """Do what is to be done in the thread at its end."""

    def _next(self) -> list[_Request] | None:
        """The requests of the next batch, for which it waits; None at the end, and [] if all were cancelled."""
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return None
                self._changed.wait()
            until = self._waiting[0].arrived + self.max_wait_ms / 1e3
            while not self._closed and (self._together or len(self._waiting) > 1) and not self._is_full():
                left = until - perf_counter()
                if left <= 0:
                    break
                self._changed.wait(left)
            return self._take()

    def _is_full(self) -> bool:
        kind = self._waiting[0].kind
        return sum(len(request.images) for request in self._waiting if request.kind == kind) >= self.max_batch

    def _take(self) -> list[_Request]:
        """The first request of the queue and those behind it that fit into its batch, in their order."""
        self._drop_cancelled()
        batch: list[_Request] = []
        left: deque[_Request] = deque()
        rows = 0
        for request in self._waiting:
            more = rows + len(request.images)
            if batch and (request.kind != batch[0].kind or more > self.max_batch):
                left.append(request)
            elif request.answer.set_running_or_notify_cancel():
                batch.append(request)
                rows = more
            else:
                self._counts["cancelled"] += 1
        self._waiting = left
        self._together = len(batch) > 1 or bool(left)
        return batch

    def _drop_cancelled(self) -> None:
        alive = deque(request for request in self._waiting if not request.answer.cancelled())
        self._counts["cancelled"] += len(self._waiting) - len(alive)
        self._waiting = alive

    def _answer(self, batch: Sequence[_Request]) -> None:
        try:
            result = self._computed([request.images for request in batch])
        except BaseException as error:  # also SystemExit of a model's code, which would end the thread in silence
            if len(batch) > 1:
                for request in batch:
                    self._answer([request])
                return
            with self._changed:
                self._counts["failed"] += 1
            batch[0].answer.set_exception(error)
            return
        now, begin, parts = perf_counter(), 0, []
        for request in batch:
            rows = slice(begin, begin + len(request.images))
            parts.append(_rows(result, rows))
            begin = rows.stop
        with self._changed:  # before the answers, so that a caller that has its answer is counted
            self._latencies.extend((now - request.arrived) * 1e3 for request in batch)
            self._counts["requests"] += len(batch)
            self._counts["images"] += begin
        for request, part in zip(batch, parts, strict=True):
            request.answer.set_result(part)

    def _computed(self, images: list[NDArray[Any]]) -> Any:
        """The results of all rows, of which there are more than `max_batch` only in a single request."""
        rows = images[0] if len(images) == 1 else np.concatenate(images)
        parts = []
        for begin in range(0, len(rows), self.max_batch):
            part = rows[begin : begin + self.max_batch]
            size = next(size for size in self.sizes if size >= len(part))
            if size > len(part):
                part, given = np.zeros((size, *rows.shape[1:]), rows.dtype), part
                part[: len(given)] = given
            result = self._compute(part)
            map_tensors(result, partial(self._check, size), np.ndarray)
            with self._changed:
                self._counts["batches"] += 1
            parts.append(_rows(result, slice(0, len(rows) - begin)))
        return _joined(parts)

    def _check(self, size: int, array: NDArray[Any]) -> None:
        if array.ndim == 0 or len(array) != size:
            raise ShapeError(
                f"{type(self).__name__}: the result for {size} images has the shape {array.shape}; it must have a row "
                "for each"
            )


def _rows(result: Any, rows: slice) -> Any:
    return map_tensors(result, lambda array: array[rows], np.ndarray)


def _joined(parts: list[Any]) -> Any:
    """The results of parts of a request as one."""
    if len(parts) == 1:
        return parts[0]
    found: list[list[Any]] = []
    for part in parts:
        arrays: list[Any] = []
        map_tensors(part, arrays.append, np.ndarray)
        found.append(arrays)
    joined = iter([np.concatenate(arrays) for arrays in zip(*found, strict=True)])
    return map_tensors(parts[0], lambda _: next(joined), np.ndarray)
