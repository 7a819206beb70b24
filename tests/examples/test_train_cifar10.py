"""The example as its user runs it: a short run, mistakes, Ctrl-C and a kill."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import alpha
from alpha.train import load_metadata, load_weights

ROOT = Path(__file__).parents[2]
SHORT = ["--device", "cpu", "--data", "sample", "--steps", "2", "--batch-size", "100"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "examples" / "train_cifar10.py"), *arguments]


def environment() -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), cwd=folder, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )


def begin(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The example in the background, after its first epoch."""
    process = subprocess.Popen(
        command(*arguments),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a test runner in the background may ignore Ctrl-C, and its children with it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("epoch  1/"):
            return process
    raise AssertionError(process.communicate()[1])


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "history.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_short_run(tmp_path: Path) -> None:
    done = run(tmp_path, *SHORT, "--epochs", "1", "--precision", "tf32")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("resnet18 on cpu in tf32, CIFAR-10 sample, 5,000 + 1,000 images (as asked)")
    assert lines[1].startswith("epoch  1/1 ")
    assert lines[1].endswith(" MB   tf32")
    output = tmp_path / "runs" / "resnet18-sample"
    names = {path.name for path in output.iterdir()}
    assert names - {"curves.png"} == {"history.csv", "weights.safetensors"}
    (row,) = rows(output)
    assert row["epoch"] == "1"
    assert 0 <= float(row["test_accuracy"]) <= 1
    assert row["precision"] == "tf32"
    facts = load_metadata(output / "weights.safetensors")
    assert (facts["step"], facts["precision"]) == ("2", "tf32")
    model = alpha.models.resnet18(num_classes=10)
    model.load_state_dict(load_weights(output / "weights.safetensors"))


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("number", ["SIGINT", "SIGKILL"])
def test_a_run_that_is_stopped_keeps_what_it_had(tmp_path: Path, number: str) -> None:
    process = begin(tmp_path, *SHORT, "--epochs", "1000", "--output", "out")
    process.send_signal(getattr(signal, number))
    text, errors = process.communicate(timeout=60)
    names = {path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")}
    assert {"history.csv", "weights.safetensors"} <= names
    assert len(rows(tmp_path / "out")) >= 1
    assert load_weights(tmp_path / "out" / "weights.safetensors")
    assert errors == ""
    if number == "SIGINT":
        assert process.returncode == 130
        assert "interrupted after step" in text
        assert "saved in out" in text
    else:
        assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere"], "--data nowhere: no such folder"),
        (["--epochs", "0"], "argument --epochs: 0 is not 1 or more"),
        (["--lr", "-1"], "argument --lr: -1 is not a finite number above 0"),
        (["--model", "resnet19"], "argument --model: invalid choice: 'resnet19'"),
        (["--precision", "fp8"], "argument --precision: invalid choice: 'fp8' (choose from"),
        (["--output", "file"], "file: cannot be used as output folder"),
        (["--lr", "1e30", "--batch-size", "8"], "epoch 1: the loss is"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "file").touch()
    done = run(tmp_path, "--device", "cpu", *arguments, "--steps", "9")
    assert done.returncode == 2
    assert done.stderr.startswith(f"train_cifar10: {message}"), done.stderr
    assert done.stderr.count("\n") == 1
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written == [tmp_path / "file"]


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there may be a GPU")
def test_a_missing_gpu_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHA_CUDA_DRIVER", "pycuda")
    done = run(tmp_path, "--device", "cuda")
    assert done.returncode == 2
    assert done.stderr.startswith("train_cifar10: ")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
