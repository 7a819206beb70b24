"""The search for the largest batch: memory grows about linearly with it, so a line through two plans is a guess."""

from __future__ import annotations

from collections.abc import Callable

GUESSES = 8  # along the line; afterwards the interval is halved
MOST = 1 << 24


def largest(batch: int, nbytes: int, room: int, planned: Callable[[int], int | None], most: int = MOST) -> int:
    """The largest batch that fits, of which the next one does not; 0 if none does.

    Args:
        batch, nbytes: a batch and the bytes that it takes.
        room: bytes that there are.
        planned: the bytes that a batch takes, None if it does not fit.
        most: no larger batch is tried.
    """
    fits, too_much, guess, back = 0, most + 1, batch, 0
    line = [(0, 0), (batch, nbytes)]
    for tries in range(100):
        if too_much - fits <= 1:
            break
        guess = max(fits + 1, min(too_much - 1, guess))
        held = planned(guess)
        if held is None:
            too_much = guess
        else:
            fits = guess
            line = [*line[-1:], (guess, held)] if guess != line[-1][0] else line
        (a, x), (b, y) = line
        if tries >= GUESSES or x == y:
            guess = (fits + too_much) // 2 if too_much <= most else 2 * fits
        elif held is None and tries:  # the line has missed by a little
            back = 2 * back or max(1, guess // 256)
            guess -= back
        else:
            guess = b + int((room - y) * (b - a) / (y - x))
    return fits
