"""Leases: memory of a GPU that another library uses beside Alpha, in either direction, until its work is done, too.

The arena hands a block out again as soon as it is dropped, because all work of Alpha is in one order. The work of
another library is not: it drops an array while its kernels are still queued on a stream of its own. And Alpha may drop
an array of that library while its own kernels are still queued. So whatever was shared is held by a `Lease` beyond its
end, until `settle` has put the two orders behind each other:

- memory of Alpha that the other library has dropped goes back once Alpha's stream waits for what was queued there,
- memory of the other library that Alpha has dropped goes back once Alpha's work of that moment is done.

`settle` is called wherever memory is shared anew, at the end of each backward pass, and when memory is asked for that
is not there. As for blocks (places.py), weak references say what has died, and no finalizer: that may happen in any
thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import ref

from alpha.runtime import recording
from alpha.runtime.cuda.driver import Driver

LEGACY, PER_THREAD, UNORDERED = 1, 2, -1  # streams of CUDA that have no handle of their own; -1: no order is wanted


class Lease(ref[Any]):
    """A weak reference to what uses the memory, with what must live as long.

    Attributes:
        held: the block that is lent, or the array of the other library that is borrowed.
        stream: the consumer's, on which it works with a lent block; None: it is not known; 0: `held` is borrowed.
        key: the ids of the user and of `held`.
    """

    __slots__ = ("held", "key", "stream")
    held: Any
    key: tuple[int, int]
    stream: int | None
    __eq__ = object.__eq__  # not that of the referents, which for tensors is elementwise
    __hash__ = object.__hash__


class Leases:
    """The leases of a device, used from its thread."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._open: dict[tuple[int, int], Lease] = {}  # by the ids of the user and of what is held
        self._ended: deque[Lease] = deque()  # whose user has died, in any thread
        self._waiting: deque[tuple[Any, Any]] = deque()  # what was borrowed, behind the event that lets it go

    @property
    def count(self) -> int:
        """Number of leases whose memory is still held."""
        return len({*self._open.values(), *self._ended}) + len(self._waiting)

    def lend(self, user: Any, block: Any, stream: int | None) -> None:
        """Hold a block of Alpha until `user` has died and the work of its stream is done."""
        self._begin(user, block, None if stream == UNORDERED else stream)

    def lent(self, address: int, nbytes: int) -> Any:
        """The block that is lent and holds these bytes; None if they belong to another library."""
        for lease in self._open.values():
            block = lease.held
            if lease.stream != 0 and block.address <= address and address + nbytes <= block.address + block.nbytes:
                return block
        return None

    def borrow(self, user: Any, owner: Any) -> None:
        """Hold what belongs to another library until `user` has died and Alpha's work is done."""
        self._begin(user, owner, 0)

    def _begin(self, user: Any, held: Any, stream: int | None) -> None:
        key = id(user), id(held)
        before = self._open.get(key)
        if before is not None and before() is user:
            return
        lease = Lease(user, self._ended.append)
        lease.held, lease.stream, lease.key = held, stream, key
        self._open[key] = lease

    def settle(self, wait: bool = False) -> None:
        """Give back what is not used any more; with `wait` the host waits for the work that still uses it.

        Nothing happens while a step is recorded, whose stream must not wait.
        """
        if not (self._ended or self._waiting) or recording.active() is not None:
            return
        driver, event = self._driver, None
        while self._ended:
            lease = self._ended[0]
            if lease.stream == 0:
                event = driver.record_event() if event is None else event
                self._waiting.append((event, lease.held))
            elif lease.stream in (LEGACY, PER_THREAD):
                driver.wait_for_stream(lease.stream)
            else:  # a stream that may have been destroyed since may not be asked
                driver.wait_for_all()
            self._close(lease)
        if wait and self._waiting:
            driver.synchronize()
        while self._waiting and driver.is_done(self._waiting[0][0]):
            self._waiting.popleft()

    def _close(self, lease: Lease) -> None:
        if self._open.get(lease.key) is lease:  # no new user has the id of the one that has died
            del self._open[lease.key]
        self._ended.popleft()

    def clear(self) -> None:
        """Give everything back, whoever still uses it; the device is closed, and all its work is done."""
        for held in (self._open, self._ended, self._waiting):
            clear: Callable[[], None] = held.clear
            clear()
