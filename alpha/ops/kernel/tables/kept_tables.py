"""Tables of numbers that follow from sizes: made once, and kept while there is room for them."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import numpy.typing as npt

from alpha.core.tensor import Tensor
from alpha.runtime import Device

MOST_BYTES = 64 << 20  # of all tables that are kept, on the host; a device that reads them has as many


P = ParamSpec("P")


R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class Rows:
    """Numbers of rows, (count,) of int64, or another small table."""

    numbers: npt.NDArray[Any]

    @property
    def nbytes(self) -> int:
        return int(self.numbers.nbytes)

    def on(self, device: Device) -> Tensor:
        """The numbers on a device; a captured step finds them there. They are not to be written."""
        return Tensor(device.table(self, lambda: self.numbers))


class KeptTables:
    """The tables that were used last, at most so many bytes of them, by what they were made from."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self.nbytes = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], R]) -> R:
        """Object that is kept for the key, or the result of `make`: an object with `nbytes`, or a tuple of such."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found[0]  # type: ignore[no-any-return]
        made = make()
        parts: Any = made if isinstance(made, tuple) else (made,)
        nbytes = sum(part.nbytes for part in parts) + _bytes_of(key)
        with self._lock:
            if key not in self._kept and nbytes <= self.most_bytes:
                self._kept[key] = made, nbytes
                self.nbytes += nbytes
                while self.nbytes > self.most_bytes:
                    self.nbytes -= self._kept.popitem(last=False)[1][1]
        return made

    def clear(self) -> None:
        """Forget all tables."""
        with self._lock:
            self._kept.clear()
            self.nbytes = 0


def _bytes_of(key: Any) -> int:
    """Approximate number of bytes of a key."""
    if isinstance(key, tuple):
        return 64 + sum(map(_bytes_of, key)) if len(key) < 8 else 64 + 40 * len(key)
    return len(key) if isinstance(key, bytes) else 64


TABLES = KeptTables()


def kept(function: Callable[P, R]) -> Callable[P, R]:
    """The function with a memory of its tables; its arguments are hashable and come by position."""

    @functools.wraps(function)
    def remembering(*args: P.args, **kwargs: P.kwargs) -> R:
        return TABLES.get((function, *args), lambda: function(*args, **kwargs))

    return remembering
