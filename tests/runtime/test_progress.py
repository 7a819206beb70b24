"""Progress in terminals of several widths, in notebooks, and in files."""

from __future__ import annotations

import io
import re
import sys
from types import SimpleNamespace

import pytest

from alpha.runtime import progress

NUMBERS = "loss 1.2345", "accuracy 12.3%", "12,345 images/s", "1,234 MB"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, file: io.StringIO, name: str = "epoch 1") -> list[str]:
    """Lines that a bar of three steps draws, one after the other."""
    monkeypatch.setattr(sys, "stderr", file)
    with progress.step_bar(name, "float32", 3, 0) as bar:
        bar.mininterval = 0
        for _ in range(3):
            progress.show(bar, NUMBERS)
            bar.update()
            bar.refresh()
    return [line for line in re.split(r"[\r\n]", file.getvalue()) if line.strip()]


@pytest.mark.parametrize(("columns", "detail", "count"), [(40, False, 0), (60, True, 0), (80, True, 2), (120, True, 4)])
def test_a_line_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, detail: bool, count: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "24")
    lines = shown(monkeypatch, Terminal())
    assert max(map(len, lines)) < columns
    assert ("(float32)" in lines[-1]) == detail
    assert re.search(r"66%|67%|100%", lines[-1])
    assert re.search(r"\d\d:\d\d<", lines[-1])  # the time, and what remains
    assert [number in lines[-1] for number in NUMBERS] == [True] * count + [False] * (len(NUMBERS) - count)
    cells = lines[-1].split("|")[1]
    assert len(cells) >= progress.LEAST_BAR


def test_a_file_has_no_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, io.StringIO()) == []


def test_a_notebook_has_bars_though_it_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not progress.in_notebook()
    shell = type("ZMQInteractiveShell", (), {"config": {}})()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    assert progress.in_notebook()
    lines = shown(monkeypatch, io.StringIO())
    assert "epoch 1 (float32)" in lines[-1] or "epoch 1" in lines[-1]
    assert all(number in lines[-1] for number in NUMBERS)
