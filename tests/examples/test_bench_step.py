"""bench_step.py says how busy the GPU is with a captured step, bench_memory.py how much of its memory that takes.

The profiler of the GPU is made up, and memory is planned alone.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from alpha import models, nn

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_line_per_network(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    script, spec = importlib.import_module("bench_step"), importlib.import_module("compare.spec")
    monkeypatch.setitem(spec.RANDOM_IMAGES, 32, 16)
    monkeypatch.setattr(
        models, "resnet18", lambda num_classes, image_size: nn.Sequential(nn.Flatten(), nn.Linear(3072, num_classes))
    )
    asked = []

    def kernel_times(trainer: object, loader: object, steps: int) -> collections.Counter[str]:
        asked.append(steps)
        return collections.Counter({"short": 1000 * steps, "long<1>": 3000 * steps})

    monkeypatch.setattr(script, "kernel_times", kernel_times)
    loaded, load = [], spec.load
    monkeypatch.setattr(script, "load", lambda data, size: loaded.append((data, size)) or load("random", size))
    args = argparse.Namespace(data="a set", image_size=32, batch_size=4, steps=3, epochs=1, kernels=1)
    script.measure("resnet18", "float32", args)
    line, kernel = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"resnet18 +float32 +[0-9.]+ +0\.004 +[0-9.]+%", line)
    assert kernel.split() == ["0.003", "ms", "long"]
    assert asked == [3]
    assert loaded == [("a set", 32)]
    assert script.parse([]).data == "random"
    assert script.parse(["--data", "cifar10"]).data == "cifar10"


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
