"""bench_step.py trains a captured step and says how busy the GPU is; the profiler of its GPU is made up."""

from __future__ import annotations

import argparse
import collections
import importlib
import re
from pathlib import Path

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
