"""bench_memory.py plans a training and puts what it takes beside the plan; here without a GPU."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from alpha import models, nn

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    made, spec = importlib.import_module("bench_memory"), importlib.import_module("compare.spec")
    monkeypatch.setitem(spec.RANDOM_IMAGES, 32, 16)
    monkeypatch.setattr(
        models, "resnet18", lambda num_classes, image_size: nn.Sequential(nn.Flatten(), nn.Linear(3072, num_classes))
    )
    return made


def test_plans_alone(script: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each network; each is a process of its own, here a call."""
    options = ["--models", "resnet18", "--image-size", "32", "--modes", "eager", "--batch-size", "4"]

    def here(*key: Any) -> Any:
        assert script.main([*options, "--gpu", "sm_90a", "--one"]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    monkeypatch.setattr(script, "in_a_process", here)
    assert script.main([*options, "--gpu", "sm_90a"]) == 0
    name, size, batch, mode, live, reserved, process, *_ = capsys.readouterr().out.splitlines()[-1].split()
    assert (name, size, batch, mode) == ("resnet18", "32", "4", "eager")
    assert int(live) <= int(reserved) < int(process) - 500


def test_a_line_with_errors(script: Any) -> None:
    found = {"plan": (100e6, 200e6, 310e6), "seen": (100e6, 200e6, 300e6), "batch": 4, "beside": 100e6, "opened": 0}
    cells = script.row("resnet18", 32, "captured", found).split()
    assert cells[4:] == ["100", "100", "+0.0%", "200", "200", "+0.0%", "310", "300", "+3.3%", "-", "100"]
