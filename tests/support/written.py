"""Finds what launches write though they do not say so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from alpha.runtime import recording
from alpha.runtime.cuda.array import DeviceArray
from alpha.runtime.recording import About, Listener


class WriteChecker(Listener):
    """Reads the arrays of each launch that it does not say it writes, before and after it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.launches = 0
        self._before: list[tuple[str, DeviceArray, bytes]] = []

    def note(
        self, arrays: Iterable[Any], *node: Any, about: tuple[About, Any] | None = None, read: int | None = None
    ) -> None:
        self.compare()
        if about is None:  # it may write all of its arrays
            return
        launch, named = about
        self.launches += 1
        names = {id(array): name for name, array in named.items()}
        written = {id(array) for array in launch.written(named)}
        for array in arrays:
            if isinstance(array, DeviceArray) and id(array) not in written:
                title = f"{node[0]} writes {names.get(id(array), 'a table')}"
                self._before.append((title, array, _bytes(array)))

    def compare(self) -> None:
        """Note what the last launch has written."""
        self.found += [title for title, array, before in self._before if _bytes(array) != before]
        self._before = []


def _bytes(array: DeviceArray) -> bytes:
    target = np.empty(array.nbytes, np.uint8)
    if array.nbytes:
        array.device.driver.download(target, array.address)
    return target.tobytes()


@contextmanager
def checked_writes() -> Iterator[WriteChecker]:
    """Checks all launches within."""
    checker, before = WriteChecker(), recording.state.listener
    recording.state.listener = checker
    try:
        yield checker
        checker.compare()
    finally:
        recording.state.listener = before
