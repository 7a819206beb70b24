"""Updates in place that wait until each of them has the memory that it needs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

Update: TypeAlias = Callable[[], object]


class _Waiting(threading.local):
    updates: list[Update] | None = None


_waiting = _Waiting()


def deferred(function: Callable[[], object]) -> list[Update]:
    """Call `function`; the updates in place that it asks for, each with all memory that it needs, wait in the list.

    So a step that finds no memory for one of its updates has made none of them.
    """
    before: list[Update] | None = _waiting.updates
    updates: list[Update] = []
    try:
        _waiting.updates = updates
        function()
        _waiting.updates = before
    except BaseException:  # no context manager: an interrupt in its own code would let later updates wait for ever
        _waiting.updates = before
        raise
    return updates


def make(update: Update) -> None:
    """Make an update in place, which asks for no memory any more; inside of `deferred` it waits."""
    if _waiting.updates is None:
        update()
    else:
        _waiting.updates.append(update)
