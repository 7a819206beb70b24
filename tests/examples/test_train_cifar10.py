"""The example as its user runs it: a short run, mistakes, Ctrl-C and a kill."""

from __future__ import annotations

import csv
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import child
import numpy as np
import pytest

import alpha
from alpha.train import load_metadata, load_weights

ROOT = Path(__file__).parents[2]
FILES = {"checkpoint.safetensors", "weights.safetensors", "history.csv", "run.json"}
SHORT = ["--device", "cpu", "--data", "sample", "--steps", "2", "--batch-size", "100"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "examples" / "train_cifar10.py"), *arguments]


def environment(**more: str) -> dict[str, str]:
    return child.environment(ROOT / "examples", **more)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return child.run(command(*arguments), cwd=folder, env=environment())


# The example with a small network. The network raises a signal when it is called for the n-th time; an epoch of three
# steps and its evaluation call it five times.
TINY = """
import signal, sys
from alpha import models, nn
import train_cifar10

class Tiny(nn.Module):
    def __init__(self):
        self.norm, self.drop, self.calls = nn.BatchNorm2d(3), nn.Dropout(0.5), 0
        self.conv, self.fc = nn.Conv2d(3, 4, 3, stride=8), nn.Linear(64, 10)

    def forward(self, x):
        self.calls += 1
        if self.calls == int(sys.argv[2]):
            signal.raise_signal(getattr(signal, sys.argv[1]))
        return self.fc(self.drop(nn.functional.relu(self.conv(self.norm(x))).reshape(len(x), -1)))

signal.signal(signal.SIGINT, signal.default_int_handler)
models.resnet18 = lambda num_classes: Tiny()
sys.exit(train_cifar10.main(sys.argv[3:]))
"""


def begin(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The example in the background, after its first epoch."""
    process = child.start(
        [sys.executable, "-c", TINY, "SIGINT", "0", *arguments],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
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


@pytest.mark.gate  # a thousand images through ResNet18 take a while
def test_a_short_run(tmp_path: Path) -> None:
    done = run(tmp_path, *SHORT, "--epochs", "1", "--precision", "tf32")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("resnet18 on cpu in float32 (the cpu computes tf32 in float32), CIFAR-10 sample, ")
    assert "5,000 + 1,000 images (as asked)" in lines[0]
    assert lines[1].startswith("epoch  1/1 ")
    assert len(lines[1]) < 80
    assert lines[-2].endswith(" MB, float32")
    output = tmp_path / "runs" / "resnet18"
    names = {path.name for path in output.iterdir()}
    assert names - {"curves.png"} == FILES
    (row,) = rows(output)
    assert row["epoch"] == "1"
    assert 0 <= float(row["test_accuracy"]) <= 1
    assert float(row["test_loss"]) > 0
    assert float(row["learning_rate"]) > 0
    assert row["precision"] == "float32"
    facts = load_metadata(output / "weights.safetensors")
    assert (facts["step"], facts["precision"]) == ("2", "float32")
    model = alpha.models.resnet18(num_classes=10)
    model.load_state_dict(load_weights(output / "weights.safetensors"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_a_run_that_is_stopped_keeps_what_it_had(tmp_path: Path, number: str) -> None:
    process = begin(tmp_path, *SHORT, "--epochs", "1000", "--output", "out")
    process.send_signal(getattr(signal, number))
    text, errors = child.finish(process)
    names = {path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")}
    assert names >= FILES
    assert len(rows(tmp_path / "out")) >= 1
    assert load_weights(tmp_path / "out" / "weights.safetensors")
    assert errors == ""
    if number != "SIGKILL":
        assert process.returncode == {"SIGINT": 130, "SIGTERM": 143}[number]
        assert "interrupted after step" in text
        assert "go on with --resume out" in text
        assert "saved in out" in text
    else:
        assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere"], "--data nowhere: no such folder"),
        (["--epochs", "0"], "argument --epochs: 0 is not 1 or more"),
        (["--output", "file"], "file: cannot be used as output folder"),
        (["--resume", "nowhere"], "nowhere: has no checkpoint.safetensors: there is no run; nothing to resume"),
        *(
            pytest.param(arguments, message, marks=pytest.mark.gate)
            for arguments, message in (
                (["--lr", "-1"], "argument --lr: -1 is not a finite number above 0"),
                (["--model", "resnet19"], "argument --model: invalid choice: 'resnet19'"),
                (["--precision", "fp8"], "argument --precision: invalid choice: 'fp8' (choose from"),
                (["--resume", "x", "--output", "y"], "--resume goes on in its own folder: leave --output and --over"),
                (["--overwrite"], "--overwrite needs --output"),
            )
        ),
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


@pytest.mark.slow
def test_a_loss_that_is_not_finite_is_one_line_and_saves_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "--device", "cpu", "--lr", "1e30", "--batch-size", "8", "--steps", "9")
    assert done.returncode == 2
    assert done.stderr.startswith("train_cifar10: epoch 1: the loss is")
    assert done.stderr.endswith("try --lr with a smaller number\n")
    assert done.stderr.count("\n") == 1
    assert [path.name for path in (tmp_path / "runs" / "resnet18").iterdir()] == ["run.json"]


def run_tiny(folder: Path, number: str, call: int, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return child.run(
        [sys.executable, "-W", "error", "-c", TINY, number, str(call), *arguments],
        cwd=folder,
        env=environment(**more),
        encoding="utf-8",
    )


SMALL = ["--data", "sample", "--batch-size", "500", "--steps", "3", "--epochs", "3"]


def without_times(folder: Path) -> list[dict[str, str]]:
    return [
        {k: v for k, v in row.items() if k not in ("seconds", "images_per_second", "live_mb")} for row in rows(folder)
    ]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize(("number", "call"), [("SIGTERM", 7), pytest.param("SIGINT", 10, marks=pytest.mark.gate)])
def test_stopped_and_resumed_gives_the_bits_of_a_whole_run(tmp_path: Path, number: str, call: int) -> None:
    whole = run_tiny(tmp_path, number, 0, "--device", "cpu", *SMALL, "--output", "whole")
    assert whole.returncode == 0, whole.stderr
    half = run_tiny(tmp_path, number, call, "--device", "cpu", *SMALL, "--output", "half")
    assert half.returncode == {"SIGINT": 130, "SIGTERM": 143}[number], half.stderr
    resumed = run_tiny(tmp_path, number, 0, "--resume", "half")
    assert resumed.returncode == 0, resumed.stderr
    assert "half: goes on after step" in resumed.stdout
    assert without_times(tmp_path / "half") == without_times(tmp_path / "whole")
    assert len(rows(tmp_path / "half")) == 3
    half_weights, weights = (load_weights(tmp_path / name / "weights.safetensors") for name in ("half", "whole"))
    assert half_weights.keys() == weights.keys()
    for name, values in weights.items():
        np.testing.assert_array_equal(half_weights[name], values)


@pytest.mark.slow
def test_augmentation_is_an_option_of_a_run(tmp_path: Path) -> None:
    short = "--device", "cpu", *SMALL, "--epochs", "1"
    for name, options in (("plain", ()), ("augmented", ("--augment",))):
        done = run_tiny(tmp_path, "SIGINT", 0, *short, "--output", name, *options)
        assert done.returncode == 0, done.stderr
    first, second = (load_weights(tmp_path / name / "weights.safetensors") for name in ("plain", "augmented"))
    assert first.keys() == second.keys()
    assert any((first[name] != second[name]).any() for name in first)
    done = run_tiny(tmp_path, "SIGINT", 0, "--resume", "plain", "--augment")
    assert "--augment True (the run has False); leave them out" in done.stderr


@pytest.mark.slow
def test_the_memory_mode_reaches_the_training_and_is_an_option_of_the_run(tmp_path: Path) -> None:
    told = TINY.replace("self.calls += 1", "self.calls += 1; print(nn.Module.training, alpha.get_memory_mode())")
    told = told.replace("nn.Module.training", "self.training").replace("from alpha", "import alpha\nfrom alpha", 1)
    short = "SIGINT", "0", "--device", "cpu", *SMALL, "--epochs", "1", "--output", "run", "--memory-mode", "least"
    done = child.run([sys.executable, "-c", told, *short], cwd=tmp_path, env=environment())
    assert done.returncode == 0, done.stderr
    assert "True least" in done.stdout
    assert "True fast" not in done.stdout
    done = run_tiny(tmp_path, "SIGINT", 0, "--resume", "run", "--memory-mode", "fast")
    assert "--memory-mode fast (the run has least)" in done.stderr


@pytest.mark.gate  # tests/train tests the same rules without the program
def test_a_second_run_leaves_the_first_alone_and_options_of_a_run_hold(tmp_path: Path) -> None:
    assert run_tiny(tmp_path, "SIGINT", 0, "--device", "cpu", *SMALL).returncode == 0
    first = {path.name: path.read_bytes() for path in (tmp_path / "runs" / "resnet18").iterdir()}
    second = run_tiny(tmp_path, "SIGINT", 0, "--device", "cpu", *SMALL, "--schedule", "constant", "--epochs", "1")
    assert "saved in runs/resnet18-2: " in second.stdout
    assert run_tiny(tmp_path, "SIGINT", 0, *SMALL, "--output", "runs/resnet18").returncode == 2
    for options, message in (
        (["--model", "vgg16"], r"--model vgg16 (the run has resnet18); leave them out"),
        (["--schedule", "constant"], r"--schedule constant (the run has cosine)"),
        (["--device", "cuda", "--data", "full"], r"--device cuda (the run has cpu)"),
        (["--batch-size", "8", "--seed", "1"], r"--batch-size 8 (the run has 500), --seed 1 (the run has 0)"),
    ):
        done = run_tiny(tmp_path, "SIGINT", 0, "--resume", "runs/resnet18", *options)
        assert done.returncode == 2
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
    assert {path.name: path.read_bytes() for path in (tmp_path / "runs" / "resnet18").iterdir()} == first
    longer = run_tiny(tmp_path, "SIGINT", 0, "--resume", "runs/resnet18-2", "--epochs", "2", "--precision", "bf16")
    assert longer.returncode == 0, longer.stderr
    assert len(rows(tmp_path / "runs" / "resnet18-2")) == 2


@pytest.mark.slow
def test_a_path_that_the_terminal_cannot_show(tmp_path: Path) -> None:
    arguments = ["--device", "cpu", *SMALL, "--epochs", "1", "--output", "L\u00e4ufe"]
    done = run_tiny(tmp_path, "SIGINT", 0, *arguments, PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C.UTF-8")
    assert done.returncode == 0, done.stderr
    assert "saved in L\\xe4ufe" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there may be a GPU")
def test_a_missing_gpu_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHA_CUDA_DRIVER", "pycuda")
    done = run(tmp_path, "--device", "cuda")
    assert done.returncode == 2
    assert done.stderr.startswith("train_cifar10: ")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
