"""custom_model.py and compare_pytorch.py as their users run them, in short."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT / "examples",
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_custom_model_learns() -> None:
    result = run("custom_model.py", "--device", "cpu", "--epochs", "2", "--steps", "20")
    assert result.returncode == 0, result.stderr
    losses = [float(loss) for loss in re.findall(r"epoch \d  loss (\d\.\d+)", result.stdout)]
    assert len(losses) == 2
    assert losses[1] < losses[0] < 2.4
    assert "GatedNet on (50, 32, 32, 3)" in result.stdout


CHECK = """
import sys
import numpy as np
import alpha
from custom_model import GatedNet, swish

x = np.linspace(-100, 100, 401).astype(sys.argv[2])
s = 0.5 + 0.5 * np.tanh(0.5 * x.astype(float))
t = alpha.tensor(x, requires_grad=True, device=sys.argv[1])
y = swish(t)
y.sum().backward()
np.testing.assert_allclose(y.numpy(), x * s, rtol=1e-5, atol=1e-6)
np.testing.assert_allclose(t.grad.numpy(), s * (1 + x * (1 - s)), rtol=1e-5, atol=1e-6)
"""


def test_the_activation_of_custom_model(device: str) -> None:
    result = run("-W", "error", "-c", CHECK, device, "float32", PYTHONPATH=f"{ROOT}:.")
    assert result.returncode == 0, result.stderr


def test_custom_model_answers_mistakes_in_one_line() -> None:
    for arguments in (["--epochs", "0"], ["--device", "tpu"]):
        result = run("custom_model.py", *arguments)
        assert result.returncode == 2
        assert len(result.stderr.splitlines()) == 1
    result = run("custom_model.py", "--device", "cuda", ALPHA_CUDA_DRIVER="nothing")
    assert result.returncode == 2
    assert result.stderr.startswith("custom_model: ALPHA_CUDA_DRIVER='nothing' is unknown")


def test_compare_pytorch() -> None:
    result = run("compare_pytorch.py", "--batch-size", "4", "--rounds", "1", "--steps", "1")
    assert result.returncode == 0, result.stderr
    if importlib.util.find_spec("torch") is None:
        assert result.stdout == ("compare_pytorch: skipped, PyTorch is not installed (pip install torch)\n")
        pytest.skip("needs PyTorch")
    assert re.search(r"Alpha is at \d+\.\d\dx of PyTorch (NCHW|channels_last)", result.stdout)
    assert re.search(r"Alpha +fifth loss \d\.\d+  peak \d+ MB", result.stdout)


STEPS = """
import torch
import compare_pytorch as c
from alpha import get_device, models

steps = {}
for kind in (c.AlphaSide, c.TorchSide):
    def step(self, batch, kind=kind):
        steps[kind] = steps.get(kind, 0) + 1
        return torch.zeros(())
    kind.step = step
batch = c.np.zeros((2, 32, 32, 3), c.np.float32), c.np.zeros(2, c.np.int32)
model = models.resnet18()
c.measure(
    {
        "PyTorch": lambda: c.TorchSide(torch, model, "cpu", False),
        "Alpha": lambda: c.AlphaSide(model, get_device("cpu")),
    },
    batch,
    1,
    1,
)
assert len(set(steps.values())) == 1, steps
"""


@pytest.mark.torch
def test_compare_pytorch_prints_losses_of_the_same_step() -> None:
    result = run("-c", STEPS, PYTHONPATH=f"{ROOT}:.")
    assert result.returncode == 0, result.stderr


@pytest.mark.torch
def test_compare_pytorch_in_bf16() -> None:
    result = run(
        "compare_pytorch.py",
        "--device",
        "cpu",
        "--batch-size",
        "4",
        "--rounds",
        "1",
        "--steps",
        "1",
        "--precision",
        "bf16",
    )
    assert result.returncode == 0, result.stderr
    losses = re.findall(r"(\S+ bf16( \(float32\))?) +fifth loss (\d\.\d+)", result.stdout)
    assert [name for name, _, _ in losses] == ["NCHW bf16", "channels_last bf16", "Alpha bf16 (float32)"]
    assert "Alpha bf16 (float32) is at " in result.stdout
    bad = run("compare_pytorch.py", "--precision", "fp8")
    assert bad.returncode == 2
    assert bad.stderr.startswith("compare_pytorch: argument --precision: invalid choice: 'fp8'")
