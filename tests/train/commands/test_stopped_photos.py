"""Command alpha-train that Ctrl-C stops within an epoch: what it says, its exit status, and that it goes on."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import child
import numpy as np
import pytest
from PIL import Image

from alpha.train import load_metadata, load_weights
from alpha.train.files.state_file import load_state

# The command with a small network, which raises a signal when it is called for the n-th time in this process: once
# before the training, and in each of the 4 steps of an epoch. The mean of the weights, which is evaluated, is a copy.
TINY = """
import signal, sys
from alpha import nn
from alpha.models import saved
from alpha.train.commands import train_photos

class Tiny(nn.Module):
    def __init__(self, num_classes):
        self.conv, self.norm, self.drop = nn.Conv2d(3, 4, 3, stride=8), nn.BatchNorm2d(4), nn.Dropout(0.5)
        self.fc, self.calls = nn.Linear(4, num_classes), 0

    def forward(self, x):
        self.calls += 1
        if self.calls == int(sys.argv[2]):
            signal.raise_signal(getattr(signal, sys.argv[1]))
        return self.fc(self.drop(nn.functional.relu(self.norm(self.conv(x)))).mean((1, 2)))

signal.signal(signal.SIGINT, signal.default_int_handler)
saved.NETWORKS = {**saved.NETWORKS, "tiny": Tiny}
sys.exit(train_photos.main(sys.argv[3:]))
"""
OPTIONS = ["--model", "tiny", "--image-size", "16", "--batch-size", "4", "--epochs", "3", "--device", "cpu"]
MORE = ["--augment", "strong", "--ema", "0.9", "--early-stopping", "9"]


def train(folder: Path, call: int, *arguments: str, name: str = "SIGINT") -> subprocess.CompletedProcess[str]:
    """The command, which gets a signal in that call of the network; 0 is none."""
    return child.run([sys.executable, "-c", TINY, name, str(call), *arguments], cwd=folder)


def contents(folder: Path) -> dict[str, Any]:
    """The contents of the files of a run, without what depends on time."""
    found: dict[str, Any] = {}
    with (folder / "history.csv").open(newline="") as file:
        found["history.csv"] = list(csv.DictReader(file))
    found["history.jsonl"] = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    state = load_state(folder / "checkpoint.safetensors")
    found["checkpoint"] = state["history"]
    for row in (row for rows in list(found.values()) for row in rows):
        for name in ("seconds", "images_per_second", "live_mb"):
            del row[name]
    found |= {"state": flat(state["trainer"]), "callbacks": state["callbacks"], "trained": state["trained"]}
    for path in (folder / "weights.safetensors", *sorted((folder / "kept").iterdir())):
        found[path.name] = flat(dict(load_weights(path))), load_metadata(path)
    return found | {"predictions": (folder / "report" / "predictions.csv").read_text()}


def flat(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: flat(part) for name, part in value.items()}
    return (str(value.dtype), value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos and a run that was never stopped."""
    folder, draw = tmp_path_factory.mktemp("room"), np.random.default_rng(0)
    for number in range(20):
        path = folder / "photos" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (18, 20, 3), np.uint8)).save(path)
    done = train(folder, 0, "photos", *OPTIONS, *MORE, "--output", "whole")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize(
    ("name", "call", "where"), [("SIGINT", 7, "step 2 of epoch 2"), ("SIGTERM", 3, "step 2 of epoch 1")]
)
def test_a_run_that_is_stopped_within_an_epoch_goes_on_to_the_same_bits(
    room: Path, name: str, call: int, where: str
) -> None:
    stopped = train(room, call, "photos", *OPTIONS, *MORE, "--output", name, name=name)
    assert stopped.returncode == 128 + getattr(signal, name), stopped.stderr
    assert stopped.stderr == ""
    assert stopped.stdout.splitlines()[-1] == f"interrupted after {where}; go on with --resume {name}"
    assert not (room / name / "report").exists()
    done = train(room, 0, "--resume", name)
    assert done.returncode == 0, done.stderr
    assert f"{name}: goes on after {where}\n" in done.stdout
    assert contents(room / name) == contents(room / "whole")
