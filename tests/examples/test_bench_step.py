"""bench_step.py says how busy the GPU is with a captured step, bench_memory.py how much of its memory that takes."""

from __future__ import annotations

import argparse
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from alpha import models, nn
from alpha.runtime.cuda.graphs import CudaRecording

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
def test_a_line_per_network(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    script, spec = importlib.import_module("bench_step"), importlib.import_module("compare.spec")
    monkeypatch.setitem(spec.RANDOM_IMAGES, 32, 16)
    monkeypatch.setattr(
        models, "resnet18", lambda num_classes, image_size: nn.Sequential(nn.Flatten(), nn.Linear(3072, num_classes))
    )
    loaded, load = [], spec.load
    monkeypatch.setattr(script, "load", lambda data, size: loaded.append((data, size)) or load("random", size))
    args = argparse.Namespace(data="a set", image_size=32, batch_size=4, steps=3, epochs=1, kernels=1)
    args.profile, args.trace = True, str(tmp_path / "step.json")
    for capture in (True, False):
        script.measure("resnet18", "float32", args, capture)
        line, _, head, kernel, others, *tables = capsys.readouterr().out.splitlines()
        assert re.fullmatch(r"resnet18( eager)? +float32( +[0-9.]+){3}%", line)
        assert head.split()[:3] == ["kernel", "calls", "ms"]
        assert kernel.split()[0] in ("adam", "matmul", "gather")
        assert re.match(r"\(\d+ others\) ", others)
        assert {"layer", "operator"} <= {table.split()[0] for table in tables if table}
        assert sum(table.startswith("explained: 100.0% of ") for table in tables) == 3
        assert re.fullmatch(r"[0-9.]+ ms per step under the profile, [0-9.]+ without", tables[-2])
        assert json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    assert loaded == [("a set", 32)] * 2
    assert script.parse([]).data == "random"
    assert script.parse(["--data", "cifar10"]).data == "cifar10"


@pytest.mark.parametrize("options", [[], ["--one-stream"]])
def test_steps_with_one_stream(monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(CudaRecording, "one_stream", False)  # is undone
    script = importlib.import_module("bench_step")
    found: list[bool] = []
    monkeypatch.setattr(script, "measure", lambda *_: found.append(not CudaRecording.one_stream))
    assert script.main(["--models", "resnet18", *options]) == 0
    assert found == [not options]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    made, spec = importlib.import_module("bench_memory"), importlib.import_module("compare.spec")
    monkeypatch.setitem(spec.RANDOM_IMAGES, 32, 16)
    monkeypatch.setattr(
        models, "resnet18", lambda num_classes, image_size: nn.Sequential(nn.Flatten(), nn.Linear(3072, num_classes))
    )
    return made


def test_plans_of_memory_alone(
    memory: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line for each network; each is a process of its own, here a call."""
    options = ["--models", "resnet18", "--image-size", "32", "--modes", "eager", "--batch-size", "4"]

    def here(*key: Any) -> Any:
        assert memory.main([*options, "--gpu", "sm_90a", "--one"]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    monkeypatch.setattr(memory, "in_a_process", here)
    assert memory.main([*options, "--gpu", "sm_90a"]) == 0
    name, size, batch, mode, live, reserved, process, *_ = capsys.readouterr().out.splitlines()[-1].split()
    assert (name, size, batch, mode) == ("resnet18", "32", "4", "eager")
    assert int(live) <= int(reserved) < int(process) - 500


def test_a_line_of_memory_with_errors(memory: Any) -> None:
    found = {"plan": (100e6, 200e6, 310e6), "seen": (100e6, 200e6, 300e6), "batch": 4, "beside": 100e6, "opened": 0}
    cells = memory.row("resnet18", 32, "captured", found).split()
    assert cells[4:] == ["100", "100", "+0.0%", "200", "200", "+0.0%", "310", "300", "+3.3%", "-", "100"]
