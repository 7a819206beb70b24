"""Progress bars: in terminals of any width, in notebooks, and none where nobody looks, as in a file or a log."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Any

LEAST_BAR = 8  # cells
COUNTED = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
AROUND = len(" 100%|| 1:00:00<1:00:00")  # what a bar of COUNTED has around its cells, besides desc and postfix


_silent = False  # in a process whose output nobody should see, since another one says the same


def silence(silent: bool) -> None:
    """Print and draw nothing from now on, or again."""
    global _silent
    _silent = silent


def in_notebook() -> bool:
    """True in a Jupyter notebook, whose output is no terminal though somebody looks."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def say(text: str) -> None:
    """Print a line at once, also where the output is a file or a pipe."""
    if not _silent:
        print(text, flush=True)


def bar(desc: str, total: int, **options: Any) -> Any:
    """A bar of tqdm; `options` are tqdm's. Its width is that of the terminal at each update."""
    if in_notebook() and not _silent:
        from tqdm.auto import tqdm  # widgets, or text without ipywidgets

        return tqdm(desc=desc, total=total, disable=False, **options)
    from tqdm import tqdm

    return tqdm(desc=desc, total=total, disable=_silent or None, dynamic_ncols=True, **options)


def step_bar(name: str, detail: str, total: int, done: int) -> Any:
    """A bar for steps, which is gone at its end: the name, per cent, the cells, time and remaining time, and numbers.

    Args:
        detail: stands behind the name if the terminal is wide enough.
        done: the steps that were done before.
    """
    desc = f"{name} ({detail})" if _columns() >= 60 else name
    return bar(desc, total, initial=done, unit="step", leave=False, bar_format=None if in_notebook() else COUNTED)


def show(shown: Any, numbers: Sequence[str]) -> None:
    """Put as many of the numbers behind a `step_bar` as its line has room for, the first ones first."""
    if shown.disable:
        return
    room = sys.maxsize if in_notebook() else _columns() - 1 - AROUND - len(shown.desc) - LEAST_BAR
    fitting: list[str] = []
    for number in numbers:
        room -= len(number) + len(", ")
        if room < 0:
            break
        fitting.append(number)
    shown.set_postfix_str(", ".join(fitting), refresh=False)


def _columns() -> int:
    return shutil.get_terminal_size().columns
