"""bench_operators.py, in short, on the cpu."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import alpha

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_lines_of_each_list(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    script = importlib.import_module("bench_operators")
    axes, memory = importlib.import_module("bench.axes"), importlib.import_module("bench.memory_bound")
    monkeypatch.setattr(memory, "ROWS", 16)
    monkeypatch.setattr(memory, "COLUMNS", 8)
    layer = axes.Layer(2, (9,), 4, 8, (3,), (2,), 2)
    monkeypatch.setitem(axes.LAYERS, "sequence", (layer,))
    options = ["--device", "cpu", "--lists", "memory", "sequence", "--precision", "bf16,tf32", "--budget-ms", "0.1"]
    assert script.main(options) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all("float32" in line for line in lines)  # what the cpu computes in, once
    found = [line[9:31].strip() for line in lines if line.startswith("float32")]
    assert found == [case.name for case in memory.CASES]
    assert re.search(r"copy +[0-9.]+ ms 100\.0%", lines[0])
    convolution = lines[len(memory.CASES)]
    assert convolution.startswith("sequence float32  2x9x4 -> 8, 3 / 2, rate 2")
    assert re.search(r"forward +[0-9.]+ ms.*dX +[0-9.]+ ms.*dW +[0-9.]+ ms", convolution)
    assert [array.shape for array in axes.drawn(layer)] == [(2, 9, 4), (8, 3, 4), (2, 5, 8)]


@pytest.mark.torch
def test_both_sides_compute_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The times of both sides say nothing unless both compute the same."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    axes, memory = importlib.import_module("bench.axes"), importlib.import_module("bench.memory_bound")
    monkeypatch.setattr(memory, "ROWS", 16)
    monkeypatch.setattr(memory, "COLUMNS", 8)
    arrays = memory.drawn()
    ours, theirs = [alpha.tensor(a) for a in arrays], [torch.from_numpy(a) for a in arrays]
    for case in memory.CASES:
        mine, other = memory.our_call(case, ours)(), memory.their_call(case, torch, theirs)()
        np.testing.assert_allclose(mine.numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-4, err_msg=case.name)
    for layer in (
        axes.Layer(2, (9,), 4, 6, (3,), (2,), 2),
        axes.Layer(2, (9, 8), 4, 6, (3, 3), (1, 1), 2),
        axes.Layer(2, (4, 6, 5), 4, 6, (3, 3, 3), (2, 2, 2)),
    ):
        drawn = axes.drawn(layer)
        mine = axes.our_calls(layer, tuple(alpha.tensor(a) for a in drawn))
        others = axes.their_calls(layer, torch, tuple(torch.from_numpy(a).movedim(-1, 1).contiguous() for a in drawn))
        for name in axes.OPERATORS:
            found, wanted = mine[name]().numpy(), others[name]().movedim(1, -1).numpy()
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4, err_msg=f"{layer.name} {name}")
