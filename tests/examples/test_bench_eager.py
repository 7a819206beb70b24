"""bench_eager.py times an eager step of both sides."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alpha import models, nn

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("bench_eager")


def test_a_line_per_network_and_precision(script: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    measured = []

    def measure(name: str, precision: str, args: Any) -> tuple[float, float]:
        measured.append((name, precision, args.batch_size, args.steps, args.rounds))
        return 2.0, 5.0

    monkeypatch.setattr(script, "measure", measure)
    options = "--models vgg16,resnet18 --precision bf16 --batch-size 4 --steps 3 --rounds 2 --device cuda"
    assert script.main(options.split()) == 0
    assert measured == [("vgg16", "bf16", 4, 3, 2), ("resnet18", "bf16", 4, 3, 2)]
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["vgg16", "bf16", "2.00", "5.00", "2.50x"]


def test_the_cpu_is_measured_once_and_as_float32(script: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(script, "measure", lambda name, precision, args: (2.0, 5.0))
    assert script.main(["--precision", "tf32,float32,bf16", "--device", "cpu"]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[1:]] == ["float32"]


@pytest.mark.slow
def test_both_sides_train(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step of each side begins with the same loss and lowers it."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(models, "resnet18", lambda **_: nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)))
    monkeypatch.setattr(script, "twin", lambda *_: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10)))
    seen: dict[str, list[float]] = {"ours": [], "theirs": []}
    for side, module in (("ours", script.F), ("theirs", torch.nn.functional)):
        loss = module.cross_entropy

        def noted(*operands: Any, side: str = side, loss: Any = loss) -> Any:
            result = loss(*operands)
            seen[side].append(float(result.detach()))
            return result

        monkeypatch.setattr(module, "cross_entropy", noted)
    args = script.parse(["--batch-size", "4", "--steps", "2", "--rounds", "2", "--device", "cpu"])
    assert min(script.measure("resnet18", "tf32", args)) > 0
    for losses in seen.values():
        assert len(losses) == script.WARM_STEPS + 2 * 2
        assert losses[-1] < losses[0]


def test_both_sides_are_given_the_same_images(script: Any) -> None:
    pixels, labels = script.images(3)
    assert pixels.shape == (3, 32, 32, 3)
    assert pixels.dtype == np.float32
    assert labels.shape == (3,)
    assert np.array_equal(script.images(3)[0], pixels)
