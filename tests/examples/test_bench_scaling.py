"""bench_scaling.py measures a step in one process and in several, here on CPUs."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import child
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("bench_scaling")


def test_the_table_has_a_line_per_network_and_precision(script: Any) -> None:
    rows = [
        script.Row("resnet18/32", "bf16", side, gpus, ms, 0.5)
        for side, gpus, ms in (("Alpha", 1, 2.0), ("Alpha", 4, 2.5), ("DDP", 1, 10.0), ("DDP", 4, 16.0))
    ]
    rows.append(script.Row("vgg16/32", "bf16", "Alpha", 1, 3.0, 0.5))  # the others failed
    assert script.table(rows, 4).splitlines()[2:] == [
        "| resnet18/32 | bf16 | 2.00 / 2.50 | 0.800 | 10.00 / 16.00 | 0.625 |",
        "| vgg16/32 | bf16 |  |  |  |  |",
    ]


def test_two_processes_on_cpus(tmp_path: Path) -> None:
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("no MPI: pip install mpi4py mpich")
    command = [sys.executable, EXAMPLES / "bench_scaling.py", "--device", "cpu", "--models", "resnet18/32"]
    options = ["--batch-size", "2", "--steps", "1", "--precision", "float32", "--sides", "Alpha"]
    done = child.run([*command, *options, "--output", tmp_path / "rows.json"])
    assert done.returncode == 0, done.stderr
    assert re.search(r"\| resnet18/32 \| float32 \| [\d.]+ / [\d.]+ \| [\d.]+ \|", done.stdout)
    assert [row["gpus"] for row in json.loads((tmp_path / "rows.json").read_text())] == [1, 2]


def test_ddp_needs_gpus() -> None:
    done = child.run([sys.executable, EXAMPLES / "bench_scaling.py", "--device", "cpu", "--here", "DDP"])
    assert done.returncode == 2
    assert done.stderr.startswith("bench_scaling: --sides DDP: its processes talk through NCCL, which needs GPUs")
