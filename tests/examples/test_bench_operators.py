"""bench_operators.py, in short, on the cpu."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_lines_of_each_list(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    script = importlib.import_module("bench_operators")
    axes, memory = importlib.import_module("bench.axes"), importlib.import_module("bench.memory_bound")
    monkeypatch.setattr(memory, "ROWS", 16)
    monkeypatch.setattr(memory, "COLUMNS", 8)
    layer = axes.Layer(2, (9,), 4, 8, (3,), (2,), 2)
    monkeypatch.setitem(axes.LAYERS, "sequence", (layer,))
    options = ["--device", "cpu", "--lists", "memory", "sequence", "--precision", "float32", "--budget-ms", "0.1"]
    assert script.main(options) == 0
    lines = capsys.readouterr().out.splitlines()
    found = [line[9:31].strip() for line in lines if line.startswith("float32")]
    assert found == [case.name for case in memory.CASES]
    assert re.search(r"copy +[0-9.]+ ms 100\.0%", lines[0])
    convolution = lines[len(memory.CASES)]
    assert convolution.startswith("sequence float32  2x9x4 -> 8, 3 / 2, rate 2")
    assert re.search(r"forward +[0-9.]+ ms.*dX +[0-9.]+ ms.*dW +[0-9.]+ ms", convolution)
    assert [array.shape for array in axes.drawn(layer)] == [(2, 9, 4), (8, 3, 4), (2, 5, 8)]
