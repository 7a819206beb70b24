"""Copies that are under way beside the host, and the memory that they read and write."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class Flight:
    """A copy: what holds its memory, and the event behind it; None if it was cut off before that was recorded."""

    held: tuple[Any, ...]
    event: Any = None


class Flights:
    """Holds the memory of copies until they have ended, though the program may drop it before.

    Args:
        wait: waits for all copies.
    """

    def __init__(self, wait: Callable[[], None]) -> None:
        self._wait = wait
        self._flights: deque[Flight] = deque()

    def begin(self, *held: Any) -> Flight:
        """Hold these until the event is done that the caller gives to the result; let go of what has ended."""
        while self._flights:
            event = self._flights[0].event
            if event is None:  # nobody knows whether the copy had begun
                self._wait()
            elif not event.query():
                break
            self._flights.popleft()
        flight = Flight(held)
        self._flights.append(flight)
        return flight

    def clear(self) -> None:
        """Let go of everything, after a wait."""
        self._flights.clear()
