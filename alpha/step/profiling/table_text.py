"""Text of tables that are 80 characters wide: names that are shortened and still differ, and lines that are broken."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

WIDTH = 80
GAP = ".."  # stands for the characters that are left out


def wrapped(text: str) -> list[str]:
    """Lines of at most 80 characters; all but the first are indented."""
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False) or [""]


def shortened(names: Sequence[str], width: int, head: int = 0) -> list[str]:
    """Texts of at most `width` characters for names of which no two are equal; no two texts are, either.

    A longer name keeps its first `head` characters and its end. Names of which these are the same keep the characters
    in which they differ in their place, and as many beside these as there is room for. If there is no room for all of
    these, they are numbered.
    """
    texts = {
        name: name if len(name) <= width else name[:head] + GAP + name[head + len(GAP) - width :] for name in names
    }
    for bunch in _alike(texts, width):
        _spread(texts, bunch, width)
    _spread(texts, [name for bunch in _alike(texts, width) for name in bunch], width)
    taken = {name for name in names if len(name) <= width}
    for name in names:
        if len(name) > width:
            texts[name] = _numbered(texts[name], width, taken)
            taken.add(texts[name])
    return [texts[name] for name in names]


def _alike(texts: Mapping[str, str], width: int) -> list[list[str]]:
    """The long names of each text that several have."""
    groups: dict[str, list[str]] = {}
    for name, text in texts.items():
        if len(name) > width:
            groups.setdefault(text, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _spread(texts: dict[str, str], names: list[str], width: int) -> None:
    """Give these names texts that show where they differ."""
    for name, places in _differences(names) if len(names) > 1 else ():
        texts[name] = _around(name, places, width)


def _differences(names: list[str], before: tuple[int, ...] = ()) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Each name with the places of the characters in which it differs from others of the same beginning."""
    if len(names) == 1:
        yield names[0], before
        return
    first, last = min(names), max(names)
    places = (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    place = next(places, len(first))
    parts: dict[str, list[str]] = {}
    for name in names:
        parts.setdefault(name[place : place + 1], []).append(name)
    for part in parts.values():
        yield from _differences(part, (*before, place))


def _around(name: str, places: Sequence[int], width: int) -> str:
    """The characters at these places, with as many beside each as there is room for."""
    texts = [_pieces(name, places, beside) for beside in range(width)]
    return next((text for text in reversed(texts) if len(text) <= width), name[: width - len(GAP)] + GAP)


def _pieces(name: str, places: Sequence[int], beside: int) -> str:
    text, end = "", 0
    for place in places:
        start, stop = max(end, place - beside), place + 1 + beside
        if start - end <= len(GAP):  # a gap would be no shorter
            start = end
        text += (GAP if start > end else "") + name[start:stop]
        end = max(end, stop)
    return text + (name[end:] if len(name) - end <= len(GAP) else GAP)


def _numbered(text: str, width: int, taken: set[str]) -> str:
    """The text, with a number behind it if it is taken."""
    number, free = 1, text
    while free in taken:
        number += 1
        mark = f"~{number}"
        free = text[: width - len(mark)] + mark
    return free
